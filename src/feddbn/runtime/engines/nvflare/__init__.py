"""Studies on NVFlare."""
