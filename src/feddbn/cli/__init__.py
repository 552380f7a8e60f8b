"""The feddbn command."""
