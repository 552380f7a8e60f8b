"""Secure aggregation, noise and accounting. No I/O."""
