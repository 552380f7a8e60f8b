"""Ancestral graphs over lags: marks, rules that put them, the search, and the true one of a system with hidden parts."""
