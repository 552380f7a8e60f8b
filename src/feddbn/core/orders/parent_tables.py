"""All parent sets of one node out of a few columns, weighed by their posterior; see `core.orders.average`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.parents import ParentRegressions

__all__ = ["Hyper", "NodeTable", "subset_fits", "subset_sums"]

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
    """Parameters of the prior.

    Attributes
    ----------
    pi_present, pi_lagged
        Probability of an edge at lag 0, at lags >= 1.
    g
        Equal variances: variance of a weight. Free variances: variance of the weights over that of their estimates.
        Of the normal factor, if there is a moment.
    noise_variance
        The common one; not used with free variances.
    moment_order
        Order of the moment prior (0: normal).
    """

    pi_present: float
    pi_lagged: float
    g: float
    noise_variance: float
    moment_order: int = 0


class NodeTable:
    """All subsets of one node's nominated columns; bit b of a subset stands for columns[b].

    `node_bits` are the bits of each variable within the moment, `edge_bits` those of each possible edge.
    """

    def __init__(
        self, regressions: ParentRegressions, node: int, columns: list[int], constraints: EdgeConstraints
    ) -> None:
        self.node, self.columns = node, columns
        self.regressions = regressions
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
        self.node_bits = {m: 1 << b for b, m in enumerate(columns) if m < regressions.d}
        self.edge_bits = [(m, 1 << b) for b, m in enumerate(columns)]
        self.lag_mask = sum(1 << b for b, present in enumerate(self.is_present) if not present)
        self.log_sum: FloatArray = np.zeros(len(masks))
        self.log_fit: FloatArray = np.zeros(len(masks))
        self._plain: FloatArray | None = None

    def weigh(self, hyper: Hyper, free: bool) -> None:
        """Recompute the summed weights for a prior."""
        explained, weight = self._free(hyper) if free else self._equal(hyper)
        weight += self.n_present * _logit(hyper.pi_present)
        weight += (self.n_all - self.n_present) * _logit(hyper.pi_lagged)
        weight[~self.possible] = -np.inf
        self.log_fit = subset_sums(weight + np.log(np.maximum(explained, 1e-12)))
        self.log_sum = subset_sums(weight)

    def _equal(self, hyper: Hyper) -> tuple[FloatArray, FloatArray]:
        """Explained shares, shrunk, and log marginal likelihoods of all subsets; independent weights."""
        known, s2 = self.regressions, hyper.noise_variance
        ridge = s2 / (hyper.g * np.maximum(known.column_total[self.columns], 1e-300))
        rss, log_det = subset_fits(known.correlation, self.columns, self.node, ridge)
        explained = 1.0 - rss
        signal = explained * (known.total[self.node] / s2)
        weight = 0.5 * (signal - log_det)
        order = hyper.moment_order
        for b, log_ridge in enumerate(np.log(ridge).tolist()):
            halves = (-1, 2, 1 << b)
            with_it, det = weight.reshape(halves)[:, 1], log_det.reshape(halves)
            # A weight's posterior variance is its prior one times exp(log_ridge) det(without) / det(with).
            with_it += 0.5 * log_ridge + order * (log_ridge + det[:, 0] - det[:, 1])
        return explained, weight + self._log_moments(order, signal, 1.0)

    def _free(self, hyper: Hyper) -> tuple[FloatArray, FloatArray]:
        """The same with a g-prior, which does not know the units; explained shares are those of least squares."""
        n, shrink = self.regressions.n, hyper.g / (1 + hyper.g)
        if self._plain is None:
            self._plain = 1.0 - subset_fits(self.regressions.correlation, self.columns, self.node)[0]
        explained = self._plain
        weight = -(n - 1) / 2 * np.log1p(-shrink * np.minimum(explained, 1 - 1e-12))
        weight -= 0.5 * self.n_all * np.log1p(hyper.g)
        weight += self.n_all * (hyper.moment_order * np.log(shrink / hyper.g))
        scale = shrink * n / np.maximum(1 - explained, 1e-9)
        return explained, weight + self._log_moments(hyper.moment_order, explained, scale)

    def _log_moments(self, order: int, fit: FloatArray, scale: FloatArray | float) -> FloatArray | float:
        """(2^k,) log of the product of E[beta^2r] / E[beta^2r with mean 0] over a subset's weights.

        A weight's squared mean over its variance is what it adds to `fit`, times the subset's `scale`.
        """
        if not order:
            return 0.0
        moment, scales = _EVEN_MOMENTS[order], np.broadcast_to(scale, fit.shape)
        logs, product = np.zeros(len(fit)), np.ones(len(fit))
        for b in range(len(self.columns)):
            halves = (-1, 2, 1 << b)
            rise = np.maximum(fit.reshape(halves)[:, 1] - fit.reshape(halves)[:, 0], 0.0)
            product.reshape(halves)[:, 1] *= moment(rise * scales.reshape(halves)[:, 1])
            if b % _FACTORS_PER_LOG == _FACTORS_PER_LOG - 1:
                logs += np.log(product)
                product[:] = 1.0
        return np.asarray(logs + np.log(product))


def subset_fits(
    correlation: FloatArray, columns: list[int], node: int, ridge: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """(2^k,) residual sum of squares of `node` on every subset of `columns`, and log determinants of the subsets.

    With `ridge` (k,) added to the diagonal of the columns: the sum includes what the ridge costs. By sweeps: after
    step b the array holds, for every subset of the first b columns, the residual cross-products of what is left.
    """
    index = [*columns, node]
    rest = correlation[np.ix_(index, index)]
    if ridge is not None:
        rest.flat[: -1 : len(index) + 1] += ridge
    rest = rest[None]
    log_det = np.zeros(1)
    for _ in columns:
        pivot = rest[:, 0, 0]
        tail = rest[:, 1:, 1:]
        row = rest[:, 0, 1:]
        safe = np.where(pivot > 1e-9, pivot, np.inf)
        swept = tail - row[:, :, None] * row[:, None, :] / safe[:, None, None]
        log_det = np.concatenate([log_det, log_det + np.log(np.maximum(pivot, 1e-9))])
        rest = np.concatenate([tail, swept])
    return np.clip(rest[:, 0, 0], 1e-12, 1.0), log_det


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
