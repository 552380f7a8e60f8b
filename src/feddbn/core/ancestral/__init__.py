"""Ancestral graphs over lags: `MarkLearner`, the rules that put marks, and the true graph of a system with hidden parts.

For networks in which causes may be hidden.
May import: core.arrays, core.constraints, core.statistics, errors.
"""
