"""Measurements of feddbn; `python -m benchmarks` has the two that guard its claims."""
