"""Partial correlations of lagged rows from one matrix, many sets of conditions at a time."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Protocol

import numpy as np
from scipy.special import stdtr

from feddbn.core.arrays import FloatArray, IntArray

__all__ = ["Answers", "Independence", "PartialCorrelations"]

Answers = tuple[FloatArray, FloatArray, IntArray]
"""Partial correlations, their p-values, and the sets (rows of nodes) they are given, beyond those that are always given."""
_SMALLEST = 1e-12


class Independence(Protocol):
    """Whether two nodes are independent given others: from sums, or known from a graph."""

    def subsets(
        self, x: int, y: int, always: Sequence[int], others: Sequence[int], size: int, most: int
    ) -> Answers:
        """Test x against y given `always` and each subset of `others` of a size; at most `most` subsets, first ones first."""
        ...

    def one(self, x: int, y: int, given: Sequence[int]) -> tuple[float, float]:
        """Partial correlation of x and y given others, and its p-value."""
        ...


class PartialCorrelations:
    """Partial correlations with Student's t test.

    Parameters
    ----------
    correlation
        (N, N) correlations of the nodes.
    n
        Number of rows, or what they are worth.
    """

    def __init__(self, correlation: FloatArray, n: float) -> None:
        self.correlation, self.n = correlation, float(n)

    def subsets(
        self, x: int, y: int, always: Sequence[int], others: Sequence[int], size: int, most: int
    ) -> Answers:
        """As `Independence.subsets`; `others` are taken by how strongly they go with x and y."""
        others = others if size else ()
        left = self._given([x, y, *others], always)
        if size == 0:
            chosen = np.zeros((1, 0), dtype=np.int64)
            both = left[None, :2, :2]
        else:
            order = 2 + np.argsort(-_strengths(left), kind="stable")
            while len(order) > size and comb(len(order), size) > most:
                order = order[:-1]
            chosen = order[_places(len(order), size)]
            index = np.concatenate([np.broadcast_to([0, 1], (len(chosen), 2)), chosen], axis=1)
            both = _remaining(left[index[:, :, None], index[:, None, :]])
        values = _coefficients(both)
        nodes = np.asarray([x, y, *others], dtype=np.int64)
        return values, self._p_values(values, len(always) + size), nodes[chosen]

    def one(self, x: int, y: int, given: Sequence[int]) -> tuple[float, float]:
        """As `Independence.one`."""
        values = _coefficients(self._given([x, y], given)[None, :2, :2])
        return float(values[0]), float(self._p_values(values, len(given))[0])

    def _given(self, nodes: Sequence[int], always: Sequence[int]) -> FloatArray:
        """Covariances of nodes after others are taken off."""
        R = self.correlation
        own: FloatArray = R[np.ix_(nodes, nodes)]
        if not len(always):
            return own
        across = R[np.ix_(always, nodes)]
        inner = R[np.ix_(always, always)]
        try:
            taken = np.linalg.solve(inner, across)
        except np.linalg.LinAlgError:
            taken = np.linalg.lstsq(inner, across, rcond=None)[0]
        return np.asarray(own - across.T @ taken)

    def _p_values(self, values: FloatArray, n_given: int) -> FloatArray:
        """Two-sided p-values; 1 without degrees of freedom, which shows nothing."""
        freedom = self.n - n_given - 2.0
        if freedom < 1.0:
            return np.ones_like(values)
        size = np.minimum(np.abs(values), 1.0)
        with np.errstate(divide="ignore"):
            t = size * np.sqrt(freedom / np.maximum(1.0 - size * size, 0.0))
        return np.asarray(2.0 * stdtr(freedom, -t))


def _strengths(left: FloatArray) -> FloatArray:
    """How much of x or of y each other node takes away."""
    own = np.maximum(np.diag(left), _SMALLEST)
    shares = left[:2, 2:] ** 2 / np.outer(own[:2], own[2:])
    return np.asarray(shares.max(axis=0))


@functools.lru_cache(maxsize=256)
def _places(n: int, size: int) -> IntArray:
    """All subsets of a size of n places."""
    return np.array(list(combinations(range(n), size)), dtype=np.int64).reshape(-1, size)


def _remaining(blocks: FloatArray) -> FloatArray:
    """(m, 2, 2) covariances of the first two of each block given its others."""
    across, inner = blocks[:, 2:, :2], blocks[:, 2:, 2:]
    size = inner.shape[1]
    # A condition that follows from others adds nothing: a grain of noise keeps the matrix invertible.
    inner = inner + _SMALLEST * np.eye(size)
    return np.asarray(blocks[:, :2, :2] - np.swapaxes(across, 1, 2) @ np.linalg.solve(inner, across))


def _coefficients(both: FloatArray) -> FloatArray:
    """Correlations of (m, 2, 2) covariances of standardised nodes; 0 where one of the two follows from the conditions."""
    own = np.minimum(both[:, 0, 0], both[:, 1, 1])
    size = np.sqrt(np.maximum(both[:, 0, 0] * both[:, 1, 1], 0.0))
    found = np.divide(both[:, 0, 1], size, out=np.zeros(len(both)), where=own > 1e-10)
    return np.asarray(np.clip(found, -1.0, 1.0))
