"""From one time step of a network to the next, for many rows at once: what simulated paths and particles need of it.

Networks with curves add noise to what causes say; variables of other kinds draw from distributions
(`feddbn.model.steps`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.errors import ParameterError
from feddbn.model.conditionals import Law
from feddbn.model.curves import PRODUCT_REACH, Curve, Product, basis_features
from feddbn.model.network import Network

__all__ = [
    "Additive",
    "ConditionalSteps",
    "Noise",
    "Steps",
    "additive",
    "draw_noise",
    "draw_shocks",
    "steps_of",
]

Noise = Literal["gaussian", "laplace", "uniform"] | FloatArray


def draw_noise(
    noise: Noise, variances: FloatArray, shape: tuple[int, ...], rng: np.random.Generator
) -> FloatArray:
    """(*shape, d) shocks: a named distribution with mean 0 and `variances`, or rows drawn from an (m, d)
    array.

    An array holds residuals; whole rows are drawn with replacement, so that dependence between them is kept.
    """
    d = len(variances)
    if not isinstance(noise, str):
        rows = np.asarray(noise, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != d or not len(rows) or not np.all(np.isfinite(rows)):
            raise ParameterError(
                f"noise must be a name or a finite array of residuals (m, {d}), got shape {rows.shape}."
            )
        return np.asarray(rows[rng.integers(len(rows), size=shape)])
    full = (*shape, d)
    if noise == "gaussian":
        standard = rng.standard_normal(full)
    elif noise == "laplace":
        standard = rng.laplace(scale=np.sqrt(0.5), size=full)
    elif noise == "uniform":
        standard = rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), size=full)
    else:
        raise ParameterError(
            f"noise must be 'gaussian', 'laplace', 'uniform' or an array of residuals, got {noise!r}."
        )
    return np.asarray(standard * np.sqrt(variances))


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
    """Curves and products in groups, and the layers of a time step."""

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
        """(n, d) what the time step x (n, d) adds to its own variables."""
        total = x @ W
        for group in self.groups:
            if group.lag == 0:
                group.add(x, total)
        return np.asarray(total)

    def moment(self, known: FloatArray, W: FloatArray, free: NDArray[np.bool_]) -> FloatArray:
        """(n, d) a time step: `known` (n, d) and, for free variables, what arrives within the time step."""
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
    """Masks (d,) of variables whose contemporaneous causes lie in earlier layers; the first has none."""
    edges, done, layers = dbn.is_edge[0], np.zeros(dbn.d, dtype=bool), []
    while not done.all():
        now = ~done & ~edges[~done].any(axis=0)
        layers.append(now)
        done = done | now
    return tuple(layers[1:])


def _add_columns(total: FloatArray, target: NDArray[np.intp], values: FloatArray) -> None:
    """Add columns (n, k) to the columns `target` of `total`, of which one may be named more than once."""
    total += values @ (target[:, None] == np.arange(total.shape[1]))


# Above it a count is no longer an exact number.
_MOST = 1e15


class ConditionalSteps:
    """How a network of variables of any kind goes on."""

    def __init__(self, dbn: Network) -> None:
        self._nodes, self._d, self._n_lags = dbn.conditionals, dbn.d, dbn.n_lags
        self.order = _causes_first(dbn.is_edge[0])

    def laws(self, rows: FloatArray) -> list[Law]:
        """The distribution of every variable in lagged rows (n, (p+1) d) ``[x_t, x_{t-1}, ..., x_{t-p}]``."""
        codes = self._codes(len(rows), lambda i, lag: rows[:, lag * self._d + i])
        return [node.law(codes(j)) for j, node in enumerate(self._nodes)]

    def codes(self, rows: FloatArray, target: int) -> FloatArray:
        """(n, w) the columns of the causes of one variable in lagged rows."""
        return self._codes(len(rows), lambda i, lag: rows[:, lag * self._d + i])(target)

    def moment(self, past: FloatArray, shocks: FloatArray, held: FloatArray) -> FloatArray:
        """(n, d) the time step after `past` (n, p, d), oldest first; `held` (d,) is NaN where a variable is free."""
        x = np.tile(held, (len(past), 1))
        codes = self._codes(len(x), lambda i, lag: past[:, self._n_lags - lag, i] if lag else x[:, i])
        with np.errstate(over="ignore"):
            for j in self.order:
                if np.isnan(held[j]):
                    x[:, j] = self._drawn(j, codes(j), shocks[:, j])
        return x

    def log_weights(self, past: FloatArray, x: FloatArray, seen: BoolArray) -> FloatArray:
        """(n,) log density of the cells `seen` (d,) of the time step x (n, d) after `past`."""
        codes = self._codes(len(x), lambda i, lag: past[:, self._n_lags - lag, i] if lag else x[:, i])
        total = np.zeros(len(x))
        for j in np.flatnonzero(seen):
            node = self._nodes[j]
            # Without noise there is no density; the value is what it is.
            if node.dispersion or node.kind.name not in ("continuous", "positive"):
                total += node.law(codes(int(j))).log_density(x[:, j])
        return total

    def _drawn(self, j: int, codes: FloatArray, z: FloatArray) -> FloatArray:
        node = self._nodes[j]
        law = node.law(codes)
        if node.kind.name != "count":
            return law.driven(z)
        is_far = ~(law.mean < _MOST)
        return law.driven(z) if not is_far.any() else np.where(is_far, np.inf, 0.0)

    def _codes(self, n: int, cell: Callable[[int, int], FloatArray]) -> Callable[[int], FloatArray]:
        """A function that gives the columns (n, w) of the causes of a variable; each cause is encoded once."""
        known: dict[tuple[int, int], FloatArray] = {}

        def code(parent: tuple[int, int]) -> FloatArray:
            if parent not in known:
                known[parent] = self._nodes[parent[0]].kind.encode(cell(*parent))
            return known[parent]

        def of(target: int) -> FloatArray:
            columns = [code(parent) for parent in self._nodes[target].parents]
            return np.concatenate([np.zeros((n, 0)), *columns], axis=1)

        return of


def _causes_first(edges: BoolArray) -> list[int]:
    """The variables in an order in which every contemporaneous cause comes before its effects."""
    order: list[int] = []
    left = np.arange(len(edges))
    while len(left):
        first = ~edges[np.ix_(left, left)].any(axis=0)
        order += left[first].tolist()
        left = left[~first]
    return order


class Steps(Protocol):
    """How a network goes on."""

    def moment(self, past: FloatArray, shocks: FloatArray, held: FloatArray) -> FloatArray:
        """(n, d) the time step after `past` (n, p, d), oldest first, with shocks (n, d); `held` (d,) is NaN where free."""

    def log_weights(self, past: FloatArray, x: FloatArray, seen: BoolArray) -> FloatArray:
        """(n,) log density, up to a constant, of the cells `seen` (d,) of the time step x (n, d) after `past`."""


class _CurvedSteps:
    def __init__(self, dbn: Network) -> None:
        self._dbn, self._effects = dbn, additive(dbn)
        self._oldest_first = np.ascontiguousarray(dbn.A[::-1]).reshape(-1, dbn.d)

    def _expected(self, past: FloatArray) -> FloatArray:
        known = self._dbn.intercept + self._effects.of_past(past)
        return np.asarray(known + past.reshape(len(past), -1) @ self._oldest_first)

    def moment(self, past: FloatArray, shocks: FloatArray, held: FloatArray) -> FloatArray:
        free = np.isnan(held)
        return self._effects.moment(np.where(free, self._expected(past) + shocks, held), self._dbn.W, free)

    def log_weights(self, past: FloatArray, x: FloatArray, seen: BoolArray) -> FloatArray:
        # What the noise of present cells must have been, given their causes.
        noise = x - self._expected(past) - self._effects.within(x, self._dbn.W)
        v = self._dbn.noise_variances
        seen = seen & (v > 0)
        return np.asarray(-(noise[:, seen] ** 2 / (2 * v[seen])).sum(axis=1))


def steps_of(dbn: Network) -> Steps:
    """How this network goes on."""
    return ConditionalSteps(dbn) if dbn.conditionals else _CurvedSteps(dbn)


def draw_shocks(dbn: Network, noise: Noise, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    """(*shape, d) what drives the network: noise, or standard normal numbers that stand for draws from distributions."""
    if not dbn.conditionals:
        return draw_noise(noise, dbn.noise_variances, shape, rng)
    if not isinstance(noise, str) or noise != "gaussian":
        raise ParameterError(
            "noise has no meaning for variables of other kinds, which have distributions of their own; leave it out."
        )
    return rng.standard_normal((*shape, dbn.d))
