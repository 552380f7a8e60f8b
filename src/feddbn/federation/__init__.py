"""Tasks, site programs and server programs around one verb: sum."""
