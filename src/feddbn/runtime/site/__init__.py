"""A site of a study: its endpoint, guards, owner, logs, registers and masks."""
