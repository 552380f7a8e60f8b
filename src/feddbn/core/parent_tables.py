"""All parent sets of one node out of a few columns, weighed by their posterior; see `core.order_average`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from feddbn.core.constraints import EdgeConstraints
from feddbn.core.lagged import FloatArray
from feddbn.core.parents import ParentRegressions

__all__ = ["Hyper", "NodeTable", "subset_rss", "subset_sums"]

_LINEAR_RANGE = 650.0
_FACTORS_PER_LOG = 5
_EVEN_MOMENTS: dict[int, Callable[[FloatArray], FloatArray]] = {
    1: lambda x: 1 + x,
    2: lambda x: 1 + x * (2 + x / 3),
    3: lambda x: 1 + x * (3 + x * (1 + x / 15)),
}
"""E[beta^2r] of a normal with mean^2 / variance = x, in units of the same with mean 0."""


@dataclass(frozen=True)
class Hyper:
    """Prior edge probabilities (lag 0, lags >= 1), prior-to-noise ratio g, noise variance, order of the
    moment prior (0: normal).
    """

    pi_present: float
    pi_lagged: float
    g: float
    noise_variance: float
    moment_order: int = 0


class NodeTable:
    """All subsets of one node's nominated columns; bit b of a subset stands for columns[b]."""

    def __init__(
        self, regressions: ParentRegressions, node: int, columns: list[int], constraints: EdgeConstraints
    ) -> None:
        self.node, self.columns = node, columns
        self.explained = 1.0 - subset_rss(regressions.correlation, columns, node)
        masks = np.arange(2 ** len(columns))
        self.is_present = [m < regressions.d for m in columns]
        self.n_present = np.zeros(len(masks))
        self.n_all = np.zeros(len(masks))
        self.possible = np.ones(len(masks), dtype=bool)
        for b, m in enumerate(columns):
            has = (masks >> b) & 1
            self.n_all += has
            self.n_present += has * self.is_present[b]
            if constraints.required[m, node]:
                self.possible &= has == 1
        self.bit_of = {m: b for b, m in enumerate(columns)}
        self.lag_mask = sum(1 << b for b, present in enumerate(self.is_present) if not present)
        self.log_sum: FloatArray = np.zeros(len(masks))
        self.log_fit: FloatArray = np.zeros(len(masks))

    def weigh(self, hyper: Hyper, regressions: ParentRegressions, free: bool) -> None:
        """Recompute the summed weights for a prior."""
        shrink = hyper.g / (1 + hyper.g)
        if free:
            fit = -(regressions.n - 1) / 2 * np.log1p(-shrink * np.minimum(self.explained, 1 - 1e-12))
        else:
            fit = 0.5 * shrink * self.explained * regressions.total[self.node] / hyper.noise_variance
        weight = fit - 0.5 * self.n_all * np.log1p(hyper.g)
        weight = weight + self.n_present * _logit(hyper.pi_present)
        weight += (self.n_all - self.n_present) * _logit(hyper.pi_lagged)
        if hyper.moment_order:
            weight += self._moment_ratios(hyper, regressions, free, shrink)
        weight[~self.possible] = -np.inf
        self.log_fit = subset_sums(weight + np.log(np.maximum(self.explained, 1e-12)))
        self.log_sum = subset_sums(weight)

    def _moment_ratios(
        self, hyper: Hyper, regressions: ParentRegressions, free: bool, shrink: float
    ) -> FloatArray:
        """(2^k,) log of the product over a subset of E[beta^2r | data] / E[beta^2r], the other weights at
        their estimates.
        """
        moment = _EVEN_MOMENTS[hyper.moment_order]
        if free:
            scale = shrink * regressions.n / np.maximum(1 - self.explained, 1e-9)
        else:
            scale = np.full(len(self.explained), shrink * regressions.total[self.node] / hyper.noise_variance)
        logs = self.n_all * (hyper.moment_order * np.log(shrink / hyper.g))
        product = np.ones(len(logs))
        for b in range(len(self.columns)):
            explained = self.explained.reshape(-1, 2, 1 << b)
            rise = explained[:, 1] - explained[:, 0]
            product.reshape(-1, 2, 1 << b)[:, 1] *= moment(rise * scale.reshape(-1, 2, 1 << b)[:, 1])
            if b % _FACTORS_PER_LOG == _FACTORS_PER_LOG - 1:
                logs += np.log(product)
                product[:] = 1.0
        return np.asarray(logs + np.log(product))


def subset_rss(correlation: FloatArray, columns: list[int], node: int) -> FloatArray:
    """(2^k,) residual sum of squares of `node` on every subset of `columns`, by sweeps.

    After step b the array holds, for every subset of the first b columns, the residual cross-products of
    what is left.
    """
    index = [*columns, node]
    rest = correlation[np.ix_(index, index)][None]
    for _ in columns:
        pivot = rest[:, 0, 0]
        tail = rest[:, 1:, 1:]
        row = rest[:, 0, 1:]
        safe = np.where(pivot > 1e-9, pivot, np.inf)
        swept = tail - row[:, :, None] * row[:, None, :] / safe[:, None, None]
        rest = np.concatenate([tail, swept])
    return np.clip(rest[:, 0, 0], 1e-12, 1.0)


def subset_sums(log_weight: FloatArray) -> FloatArray:
    """(2^k,) log of the sum of exp(log_weight) over the subsets of every subset."""
    top = float(log_weight.max())
    finite = log_weight[np.isfinite(log_weight)]
    if top - float(finite.min(initial=top)) < _LINEAR_RANGE:
        # Within the range of a double the sums can be taken as they are, ten times faster.
        with np.errstate(divide="ignore"):
            return np.asarray(top + np.log(_accumulated(np.exp(log_weight - top), np.add)))
    return _accumulated(log_weight, np.logaddexp)


def _accumulated(values: FloatArray, add: np.ufunc) -> FloatArray:
    """(2^k,) the values added up over the subsets of every subset.

    The low bits are added on the transpose of a square array: steps of one number would cost several times
    as much as steps of a row.
    """
    k = len(values).bit_length() - 1
    low = k // 2
    total = values.reshape(1 << (k - low), 1 << low)
    for n_bits in (k - low, low):
        total = np.array(total, order="C")
        for b in range(n_bits):
            view = total.reshape(-1, 2, 1 << b, total.shape[1])
            add(view[:, 0], view[:, 1], out=view[:, 1])
        total = total.T
    return np.ascontiguousarray(total).reshape(-1)


def _logit(probability: float) -> float:
    return float(np.log(probability) - np.log1p(-probability))
