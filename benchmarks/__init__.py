"""Measurements of feddbn; `python -m benchmarks replicate` and `python -m benchmarks truth` are the two that guard claims."""
