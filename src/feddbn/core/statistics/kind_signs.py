"""Signs of other kinds than a number on a line, in what adds up over sites: yes/no and small counts.

A site objects to a kind of a variable by 1 if one of its cells cannot be of it; no objection of anybody is the sign. That
tells what a column is, and of no row more than that it is like the others.
"""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray

__all__ = ["SMALL_MEAN", "SPREAD", "looks_binary", "objections"]

SMALL_MEAN = 10.0
"""Counts of a larger mean are close to a line with Gaussian noise: Poisson(10) has a skewness of 0.3."""
SPREAD = 0.75
"""Whole numbers whose variance is a smaller share of their mean are rather codes or rounded measurements than counts."""
_FIRST_ROWS = 16
_SAME = 1e-9


def objections(values: FloatArray) -> BoolArray:
    """(2, d) whether some cell of rows (n, d) is no whole number from 0 on, and whether some is neither 0 nor 1."""
    found = _objects(values[:_FIRST_ROWS])
    # Most columns are numbers on a line, which shows at once.
    open_ = np.flatnonzero(~found[0])
    if len(open_) and len(values) > _FIRST_ROWS:
        found[:, open_] |= _objects(values[_FIRST_ROWS:, open_])
    return found


def _objects(values: FloatArray) -> BoolArray:
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        other = (values < 0) | (values != np.floor(values))
        many = other | (values > 1)
    return np.asarray([(other & known).any(axis=0), (many & known).any(axis=0)])


def looks_binary(mean: FloatArray, variance: FloatArray) -> BoolArray:
    """(d,) whether values of these means and variances are 0 and 1: x = x^2 in every row, so variance = mean (1 - mean)."""
    expected = mean * (1.0 - mean)
    return np.asarray((expected > 0) & (np.abs(variance - expected) <= _SAME * expected))
