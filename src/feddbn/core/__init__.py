"""Numerics on plain arrays: statistics, acyclicity, penalties, solvers. numpy and scipy only."""
