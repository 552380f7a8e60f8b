"""What tests, and benchmarks of the engines, share."""
