"""What curves and products add to each variable, for many rows at once.

Curves that share a lag and a basis are evaluated together. A moment in which the noise is known is built up layer by layer:
a layer holds variables whose causes within the moment are in earlier layers.
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.model.curves import PRODUCT_REACH, Curve, Product, basis_features
from feddbn.model.network import Network

__all__ = ["Additive", "additive"]

_CHUNK = 16384


class _Curves(NamedTuple):
    """k curves of one lag and basis."""

    lag: int
    basis: str
    source: NDArray[np.intp]
    target: NDArray[np.intp]
    origin: FloatArray
    scale: FloatArray
    coefficients: FloatArray

    def add(self, x: FloatArray, total: FloatArray, targets: NDArray[np.bool_] | None = None) -> None:
        """Add their values at x (n, d) to `total` (n, d), only for some targets if given."""
        chosen = slice(None) if targets is None else np.flatnonzero(targets[self.target])
        source, target = self.source[chosen], self.target[chosen]
        if len(source):
            z = (x[:, source] - self.origin[chosen]) / self.scale[chosen]
            h = basis_features(self.basis, z, self.coefficients.shape[1])
            _add_columns(total, target, np.einsum("nkm,km->nk", h, self.coefficients[chosen]))


class _Products(NamedTuple):
    """k products of one lag."""

    lag: int
    pair: NDArray[np.intp]
    target: NDArray[np.intp]
    weight: FloatArray
    origin: FloatArray
    scale: FloatArray

    def add(self, x: FloatArray, total: FloatArray, targets: NDArray[np.bool_] | None = None) -> None:
        """Add their values at x (n, d) to `total` (n, d), only for some targets if given."""
        chosen = slice(None) if targets is None else np.flatnonzero(targets[self.target])
        pair, target = self.pair[chosen], self.target[chosen]
        if len(pair):
            z = np.clip(
                (x[:, pair] - self.origin[chosen]) / self.scale[chosen], -PRODUCT_REACH, PRODUCT_REACH
            )
            _add_columns(total, target, self.weight[chosen] * z[..., 0] * z[..., 1])


class Additive(NamedTuple):
    """Curves and products in groups, and the layers of a moment."""

    d: int
    n_lags: int
    groups: tuple[_Curves | _Products, ...]
    layers: tuple[NDArray[np.bool_], ...]

    def of_rows(self, rows: FloatArray) -> FloatArray:
        """(n, d) what is added to each variable in lagged rows (n, (p+1) d) ``[x_t, x_{t-1}, ..., x_{t-p}]``."""
        total = np.zeros((len(rows), self.d))
        for first in range(0, len(rows), _CHUNK):
            part = slice(first, first + _CHUNK)
            for group in self.groups:
                group.add(rows[part, group.lag * self.d : (group.lag + 1) * self.d], total[part])
        return total

    def of_past(self, past: FloatArray) -> FloatArray:
        """(n, d) what the past (n, p, d), oldest first, adds to the coming moment."""
        total = np.zeros((len(past), self.d))
        for group in self.groups:
            if group.lag:
                group.add(past[:, self.n_lags - group.lag], total)
        return total

    def within(self, x: FloatArray, W: FloatArray) -> FloatArray:
        """(n, d) what the moment x (n, d) adds to its own variables."""
        total = x @ W
        for group in self.groups:
            if group.lag == 0:
                group.add(x, total)
        return np.asarray(total)

    def moment(self, known: FloatArray, W: FloatArray, free: NDArray[np.bool_]) -> FloatArray:
        """(n, d) a moment: `known` (n, d) and, for free variables, what arrives within the moment."""
        x = known.copy()
        for layer in self.layers:
            now = layer & free
            arriving = np.zeros_like(x)
            arriving[:, now] = x @ W[:, now]
            for group in self.groups:
                if group.lag == 0:
                    group.add(x, arriving, now)
            x[:, now] += arriving[:, now]
        return x


def additive(dbn: Network) -> Additive:
    """The curved part of a network, ready to be evaluated."""

    def key(curve: Curve) -> tuple[int, str, int]:
        return curve.lag, curve.basis, len(curve.coefficients)

    groups: list[_Curves | _Products] = []
    for (lag, basis, _), some in groupby(sorted(dbn.curves, key=key), key):
        curves = list(some)
        groups.append(
            _Curves(
                lag,
                basis,
                np.array([c.source for c in curves], dtype=np.intp),
                np.array([c.target for c in curves], dtype=np.intp),
                np.array([c.origin for c in curves]),
                np.array([c.scale for c in curves]),
                np.array([c.coefficients for c in curves]),
            )
        )
    for lag, those in groupby(dbn.products, lambda product: product.lag):
        groups.append(_grouped(lag, list(those)))
    return Additive(dbn.d, dbn.n_lags, tuple(groups), _layers(dbn))


def _grouped(lag: int, products: list[Product]) -> _Products:
    return _Products(
        lag,
        np.array([(p.first, p.second) for p in products], dtype=np.intp),
        np.array([p.target for p in products], dtype=np.intp),
        np.array([p.weight for p in products]),
        np.array([p.origins for p in products]),
        np.array([p.scales for p in products]),
    )


def _layers(dbn: Network) -> tuple[NDArray[np.bool_], ...]:
    """Masks (d,) of variables whose causes within a moment lie in earlier layers; the first has none."""
    edges, done, layers = dbn.is_edge[0], np.zeros(dbn.d, dtype=bool), []
    while not done.all():
        now = ~done & ~edges[~done].any(axis=0)
        layers.append(now)
        done = done | now
    return tuple(layers[1:])


def _add_columns(total: FloatArray, target: NDArray[np.intp], values: FloatArray) -> None:
    """Add columns (n, k) to the columns `target` of `total`, of which one may be named more than once."""
    total += values @ (target[:, None] == np.arange(total.shape[1]))
