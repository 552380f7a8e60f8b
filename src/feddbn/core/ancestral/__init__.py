"""Ancestral graphs over lags: marks, orientation rules, the search for them, and the true one of a system with hidden parts."""
