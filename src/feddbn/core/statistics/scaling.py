"""The one way to standardise a matrix of sums of squares and products."""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import FloatArray

__all__ = ["correlations", "safe_roots"]


def safe_roots(squares: FloatArray) -> FloatArray:
    """(q,) roots of sums or means of squares; 1 where there is nothing to divide by."""
    return np.sqrt(np.where(squares > 0, squares, 1.0))


def correlations(G: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(q, q) ``G_ij / sqrt(G_ii G_jj)`` and the (q,) roots; a constant column correlates with nothing, not even itself."""
    root = safe_roots(np.diag(G))
    return G / np.outer(root, root), root
