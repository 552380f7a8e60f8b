"""What the variables of a network do given their causes: the one thing that paths, forecasts, effects and residuals read.

A variable has a distribution given its causes (`feddbn.model.conditionals.Law`: mean, draw, log density). Three families
give it: `Linear` (all effects are straight lines), `Additive` (functions of causes add up, with normal noise) and
`Generalised` (variables of any kind). Each takes all variables of a network at once, for many rows; `Mechanism` is one
variable's view. Whatever differs between families is a method here: no other module asks which family a network is of.

Rows with their past are ``[x_t, x_{t-1}, ..., x_{t-p}]``, (n, (p+1) d).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.errors import ParameterError
from feddbn.model.conditionals import (
    Conditional,
    Law,
    NaturalEffect,
    Normal,
    codes_of,
    has_one_sign,
    link_scale,
)
from feddbn.model.curves import PRODUCT_REACH, Curve, EdgeEffect, Product, basis_features

__all__ = [
    "NOISE_FAMILIES",
    "Additive",
    "Generalised",
    "Implied",
    "Linear",
    "Mechanism",
    "Mechanisms",
    "Noise",
    "Terms",
    "WithNoise",
    "causes_first",
    "companion",
    "depths",
    "draw_noise",
    "impact",
    "run",
]

Noise = Literal["gaussian", "laplace", "uniform", "exponential", "gumbel"] | FloatArray
_STANDARD: dict[str, Callable[[np.random.Generator, tuple[int, ...]], FloatArray]] = {
    "gaussian": lambda rng, shape: rng.standard_normal(shape),
    "laplace": lambda rng, shape: rng.laplace(scale=math.sqrt(0.5), size=shape),
    "uniform": lambda rng, shape: rng.uniform(-math.sqrt(3.0), math.sqrt(3.0), size=shape),
    "exponential": lambda rng, shape: rng.standard_exponential(shape) - 1.0,
    # A standard Gumbel variable has mean gamma (Euler's constant) and variance pi^2 / 6.
    "gumbel": lambda rng, shape: (rng.gumbel(size=shape) - np.euler_gamma) * (math.sqrt(6.0) / math.pi),
}
NOISE_FAMILIES = tuple(_STANDARD)
"""Distributions with mean 0 and variance 1 that noise can have."""
_CHUNK = 16384


def draw_noise(
    noise: str | FloatArray, sd: FloatArray, shape: tuple[int, ...], rng: np.random.Generator
) -> FloatArray:
    """(*shape, d) shocks: a named distribution with mean 0 and (d,) standard deviations, or rows drawn from an (m, d)
    array.

    An array holds residuals; whole rows are drawn with replacement, so that dependence between them is kept.
    """
    d = len(sd)
    if not isinstance(noise, str):
        rows = np.asarray(noise, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != d or not len(rows) or not np.all(np.isfinite(rows)):
            raise ParameterError(
                f"noise must be a name or a finite array of residuals (m, {d}), got shape {rows.shape}."
            )
        return np.asarray(rows[rng.integers(len(rows), size=shape)])
    if noise not in _STANDARD:
        raise ParameterError(
            f"noise must be one of {', '.join(NOISE_FAMILIES)} or an array of residuals, got {noise!r}."
        )
    return np.asarray(_STANDARD[noise](rng, (*shape, d)) * sd)


def causes_first(edges: BoolArray) -> list[int]:
    """The variables in an order in which every contemporaneous cause comes before its effects; those in or behind a cycle
    are left out.
    """
    order: list[int] = []
    left = np.arange(len(edges))
    while len(left):
        first = ~edges[np.ix_(left, left)].any(axis=0)
        if not first.any():
            break
        order += left[first].tolist()
        left = left[~first]
    return order


def depths(edges: BoolArray) -> IntArray:
    """(d,) the number of edges on the longest way within a time step that ends at a variable."""
    depth = np.zeros(len(edges), dtype=np.int64)
    for j in causes_first(edges):
        depth[j] = (depth[edges[:, j]] + 1).max(initial=0)
    return depth


class Implied(Protocol):
    """What a network implies about where it usually is; asked only where something depends on that."""

    def deviations(self) -> FloatArray:
        """(d,) standard deviations."""

    def origin_and_scale(self, variable: int) -> tuple[float, float]:
        """Where a variable usually is, and how far it usually is from there."""

    def rows(self) -> FloatArray:
        """(n, (p+1) d) rows with their past that it visits."""


class Mechanisms(ABC):
    """How a network of d variables and p lags goes on; no one else asks which family it is.

    `weights` (p+1, d, d) has one for every effect, W first.
    """

    d: int
    n_lags: int
    weights: FloatArray
    bends: ClassVar[str] = ""
    """What is no straight line, in words. Empty: the formulas of linear networks hold; else paths are simulated."""
    has_kinds: ClassVar[bool] = False
    """Whether variables may be of any kind, each with a distribution of its own."""

    @abstractmethod
    def shocks(self, noise: Noise, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """(*shape, d) what drives the network: noise, or standard normal numbers that stand for draws."""

    @abstractmethod
    def step(self, past: FloatArray, shocks: FloatArray, held: FloatArray) -> FloatArray:
        """(n, d) the time step after `past` (n, p, d), oldest first, with shocks (n, d); `held` (d,) is NaN where free."""

    @abstractmethod
    def laws(self, rows: FloatArray, which: Iterable[int] | None = None) -> list[Law]:
        """The distributions of all variables, or of some, in rows with their past."""

    def residuals(self, rows: FloatArray) -> FloatArray:
        """(n, d) what is left of rows with their past without what is expected of them."""
        raise ParameterError(
            "variables of other kinds have no additive residuals; use dbn.quantile_residuals(data), standard normal if the"
            " network holds."
        )

    def checked_residuals(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """(n, d) residuals of rows with their past that tell what a network misses, with the variances below."""
        return self.normal_residuals(rows, rng)

    @property
    def residual_variances(self) -> FloatArray:
        """(d,) variances that `checked_residuals` have if the network holds."""
        return np.ones(self.d)

    @property
    def log_jacobian(self) -> float:
        """What a row's log density has beside those of its variables."""
        return 0.0

    @property
    def has_density(self) -> bool:
        """Whether every variable has noise."""
        return True

    def expected(self, rows: FloatArray, which: Sequence[int]) -> list[FloatArray] | None:
        """(n, k) for some variables: what is expected of their outcomes in rows with their past; None: paths tell."""
        return None

    def ahead(
        self, covariance: FloatArray, held: FloatArray, weights: FloatArray | None = None
    ) -> FloatArray | None:
        """(steps, d) exact variances of what follows a state with this (pd, pd) covariance, newest row first, `held` as in
        `run`; None: paths tell. With `weights` (d, m) of m weighted sums of a row instead.
        """
        return None

    def slopes(self) -> FloatArray:
        """(p+1, d, d) average slope of every effect in its own units."""
        return self.weights

    def variances(self, sd: FloatArray) -> FloatArray:
        """(p+1, d, d) variances of the effects of sources with standard deviations `sd` (d,)."""
        return np.asarray((self.weights * sd[:, None]) ** 2)

    def sizes_by_source(self) -> FloatArray:
        """(p+1, d, d) size of every effect over the scale of its source: |weight| of a straight one."""
        return np.sqrt(self.variances(np.ones(self.d)))

    def signs(self) -> BoolArray:
        """(p+1, d, d) whether an effect goes one way."""
        return np.ones(self.weights.shape, dtype=bool)

    def shapes(self) -> NDArray[np.object_]:
        """(p+1, d, d) linear, curved or product; with variables of other kinds the scale on which an effect adds up."""
        return np.full((self.n_lags + 1, self.d, self.d), "linear", dtype=object)

    def standardised(self, sd: FloatArray | None, implied: Implied) -> FloatArray:
        """(p+1, d, d) every effect in standard deviations (d,) of source and target, those implied if `sd` is None."""
        scale = implied.deviations() if sd is None else sd
        falls = self.signs() & (self.slopes() < 0)
        sizes = np.where(falls, -1.0, 1.0) * np.sqrt(self.variances(scale))
        return np.asarray(sizes / scale)

    def effect(
        self, names: tuple[str, ...], edge: tuple[int, int, int], implied: Implied
    ) -> EdgeEffect | NaturalEffect:
        """What an edge (source, target, lag) does by value."""
        i, j, lag = edge
        weight = float(self.weights[lag, i, j])
        return EdgeEffect(names[i], names[j], lag, weight, None, (), *implied.origin_and_scale(i))

    def log_weights(self, past: FloatArray, x: FloatArray, seen: BoolArray) -> FloatArray:
        """(n,) log density of the cells `seen` (d,) of the time step x (n, d) after `past`; what has no noise has none."""
        rows = np.concatenate([x[:, None], past[:, ::-1]], axis=1).reshape(len(x), -1)
        chosen = np.flatnonzero(seen).tolist()
        found = zip(chosen, self.laws(rows, chosen), strict=True)
        return np.asarray(
            sum((law.log_density(x[:, j]) for j, law in found if not law.is_certain), np.zeros(len(x)))
        )

    def normal_residuals(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """(n, d) residuals of rows with their past that are standard normal if the network holds."""
        return np.stack([law.z(rows[:, j], rng) for j, law in enumerate(self.laws(rows))], axis=1)

    def log_densities(self, rows: FloatArray) -> FloatArray:
        """(n, d) log density of every variable in rows with their past; without cycles their sum is that of the row."""
        return np.stack([law.log_density(rows[:, j]) for j, law in enumerate(self.laws(rows))], axis=1)


Step = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""`Mechanisms.step`, or another way to go on."""


def run(
    step: Step,
    n_lags: int,
    start: FloatArray,
    shocks: FloatArray,
    held: FloatArray | None = None,
    check: Callable[[int, FloatArray], None] | None = None,
) -> FloatArray:
    """(n, steps, d) paths driven by `shocks` (n, steps, d) from `start` (1 or n, any number, d).

    `held` (steps, d) has values that variables are held at, NaN where they are free; `check` sees every time step.
    """
    (n, steps, d), known = shocks.shape, start.shape[1]
    free = np.full(d, np.nan)
    # One time step after the other in memory, as they are made.
    paths = np.empty((known + steps, n, d))
    paths[:known] = start.swapaxes(0, 1)
    for t in range(steps):
        past = paths[max(known + t - n_lags, 0) : known + t].swapaxes(0, 1)
        x = step(past, shocks[:, t], free if held is None else held[t])
        if check is not None:
            check(t, x)
        paths[known + t] = x
    return np.ascontiguousarray(paths[known:].swapaxes(0, 1))


def known(value: FloatArray | None, name: str) -> FloatArray:
    """Return the `intercept` or the `noise_variances` of a network; refuse where they are not known."""
    if value is None:
        raise ParameterError(
            f"this needs {name}, and this network has none: a list of edges or a vote tells weights only. Use the network of "
            f"a fit, or give one number for each variable: dataclasses.replace(dbn, {name}=...).",
            code="numbers-not-known",
        )
    return value


class WithNoise(Mechanisms):
    """Noise is added to what is expected."""

    def __init__(
        self, n_lags: int, d: int, intercept: FloatArray | None, variances: FloatArray | None
    ) -> None:
        self.n_lags, self.d = n_lags, d
        self._intercept, self._variances = intercept, variances

    @property
    def intercept(self) -> FloatArray:
        """(d,) constants; refused where they are not known."""
        return known(self._intercept, "intercept")

    @property
    def variances_of_noise(self) -> FloatArray:
        """(d,) variances; refused where they are not known."""
        return known(self._variances, "noise_variances")

    def checked_residuals(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """(n, d) the residuals themselves."""
        return self.residuals(rows)

    @property
    def residual_variances(self) -> FloatArray:
        """(d,) those of the noise."""
        return self.variances_of_noise

    @property
    def has_density(self) -> bool:
        """Whether every variable has noise."""
        return bool((self.variances_of_noise > 0).all())

    def shocks(self, noise: Noise, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """(*shape, d) noise of a named distribution, or drawn rows of residuals (`draw_noise`)."""
        return draw_noise(noise, np.sqrt(self.variances_of_noise), shape, rng)

    def laws(self, rows: FloatArray, which: Iterable[int] | None = None) -> list[Law]:
        """Normal distributions about what is expected."""
        expected = rows[:, : self.d] - self.residuals(rows)
        return [
            Normal(expected[:, j], self.variances_of_noise[j])
            for j in (range(self.d) if which is None else which)
        ]

    def normal_residuals(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """(n, d) residuals over the standard deviations of the noise; infinite or NaN without noise."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.residuals(rows) / np.sqrt(self.variances_of_noise))


class Surgery(NamedTuple):
    """One time step with some variables held: ``x_t = c B + sum_l x_{t-l} P_l + (u_t o free) B``, with P_l the coefficients,
    and c the intercepts and what is held.
    """

    B: FloatArray
    coefficients: FloatArray
    free: FloatArray


def impact(W: FloatArray) -> FloatArray:
    """(..., d, d) ``B = (I - W)^{-1}``: what a unit shock does within its own time step."""
    identity = np.eye(W.shape[-1])
    try:
        return np.asarray(np.linalg.solve(identity - W, identity), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise ParameterError(
            "W has a cycle of weight 1, so I - W has no inverse; a network needs an acyclic W."
        ) from None


def companion(coefficients: FloatArray) -> FloatArray:
    """(pd, pd) F with ``[x_t, ..., x_{t-p+1}] = [x_{t-1}, ..., x_{t-p}] F + ...``; (d, d) zeros if p = 0."""
    p, d = coefficients.shape[:2]
    if p == 0:
        return np.zeros((d, d))
    F = np.eye(p * d, k=d)
    F[:, :d] = coefficients.reshape(p * d, d)
    return F


class Linear(WithNoise):
    """``x_t = c + x_t W + sum_l x_{t-l} A_l + u_t``, by the reduced form.

    Parameters
    ----------
    W, A
        (d, d) and (p, d, d); or (n, d, d) and (p, n, d, d), a network for every row.
    intercept, variances
        (d,) and (d,).
    """

    def __init__(
        self, W: FloatArray, A: FloatArray, intercept: FloatArray | None, variances: FloatArray | None
    ) -> None:
        super().__init__(len(A), W.shape[-1], intercept, variances)
        self.W, self.A, self.weights = W, A, np.concatenate([W[None], A])
        self._done: dict[bytes, Surgery] = {}

    def surgery(self, held: FloatArray) -> Surgery:
        """The reduced form with the entries of `held` (d,) that are not NaN held."""
        # Usually every step has the same surgery; it is worth doing once.
        is_held = ~np.isnan(held)
        key = is_held.tobytes()
        if key not in self._done:
            B = impact(np.where(is_held, 0.0, self.W))
            coefficients = np.where(is_held, 0.0, self.A) @ B
            self._done[key] = Surgery(B, coefficients, np.where(is_held, 0.0, 1.0))
        return self._done[key]

    def step(self, past: FloatArray, shocks: FloatArray, held: FloatArray) -> FloatArray:
        """(n, d) the time step after `past`, which may have fewer than p rows."""
        now = self.surgery(held)
        constants = np.where(np.isnan(held), self.intercept, held)
        x = constants @ now.B + _times(shocks * now.free, now.B)
        for lag in range(1, past.shape[1] + 1):
            x += _times(past[:, -lag], now.coefficients[lag - 1])
        return x

    def residuals(self, rows: FloatArray) -> FloatArray:
        """(n, d) ``x_t - c - x_t W - sum_l x_{t-l} A_l``; of one network."""
        C = self.weights.reshape(-1, self.d)
        return np.asarray(rows[:, : self.d] - self.intercept - rows @ C)

    @property
    def log_jacobian(self) -> float:
        """``log |det(I - W)|``: 0 for an acyclic W."""
        return float(np.linalg.slogdet(np.eye(self.d) - self.W)[1])

    def ahead(
        self, covariance: FloatArray, held: FloatArray, weights: FloatArray | None = None
    ) -> FloatArray:
        """(steps, d) diagonals of ``P_t = F_t' P_{t-1} F_t + Q_t``, or of ``M' P_t M``."""
        d, P = self.d, covariance
        found = np.empty((len(held), d if weights is None else weights.shape[1]))
        for t, row in enumerate(held):
            now = self.surgery(row)
            F = companion(now.coefficients)
            P = F.T @ P @ F
            P[:d, :d] += (now.B.T * (now.free * self.variances_of_noise)) @ now.B
            here = np.diag(P)[:d] if weights is None else ((P[:d, :d] @ weights) * weights).sum(axis=0)
            found[t] = np.maximum(here, 0.0)
        return found

    def standardised(self, sd: FloatArray | None, implied: Implied) -> FloatArray:
        """(p+1, d, d) ``weight * sd_from / sd_to``."""
        scale = implied.deviations() if sd is None else sd
        # No weight stays none, also where the ratio of two scales overflows.
        weights = self.weights
        return np.multiply(weights, scale[:, None] / scale, out=np.zeros_like(weights), where=weights != 0)


def _times(x: FloatArray, M: FloatArray) -> FloatArray:
    """(n, d) rows times one matrix, or each times its own."""
    return np.asarray(x @ M if M.ndim == 2 else (x[:, None] @ M)[:, 0])


Evaluated = Callable[..., FloatArray]
"""(..., k) values of k functions at (..., k) values of their causes, one array for each cause."""


class Terms(NamedTuple):
    """k functions of causes that add to targets.

    Cells are counted over the d variables of a row; or over all variables of all rows, where rows have networks of their
    own.

    Attributes
    ----------
    n_cells
        How many cells are counted.
    causes
        (lag, cells (k,)) of the first causes of all functions, of their second causes, ...
    target
        (k,) cells.
    values
        The functions.
    """

    n_cells: int
    causes: tuple[tuple[int, IntArray], ...]
    target: IntArray
    values: Evaluated

    @property
    def reach(self) -> int:
        """The largest lag."""
        return max(lag for lag, _ in self.causes)

    def add_to(self, total: FloatArray, now: FloatArray, past: FloatArray) -> None:
        """Add to `total` (n, d) what the time step `now` (n, d) and its `past` (n, any number, d), oldest first, say."""
        given = [past[:, -lag] if lag else now for lag, _ in self.causes]
        x = [
            each.reshape(-1, self.n_cells)[:, cells]
            for each, (_, cells) in zip(given, self.causes, strict=True)
        ]
        acts = self.values(*x)
        cells = np.add.outer(np.arange(0, total.size, self.n_cells), self.target)
        total += np.bincount(cells.ravel(), weights=acts.ravel(), minlength=total.size).reshape(total.shape)


_Z = np.linspace(-8.0, 8.0, 1601)
_DENSITY = np.exp(-(_Z**2) / 2)
_DENSITY /= _DENSITY.sum()
# Variance of the square of a standard normal.
_SQUARE = 2.0


class Additive(WithNoise):
    """``x_t = c + sums of functions of causes + u_t``.

    Parameters
    ----------
    lagged
        Terms whose causes are all in the past.
    within
        Terms with a cause in the same time step, in an order in which causes are complete before they act.
    n_lags, d, intercept, variances
        p, d, (d,) and (d,); None where they are not known.
    weights, parts
        Of effects, where there is one network; and the curves and products that terms are, as far as they are known as such.
    """

    bends = "curves or products"

    def __init__(
        self,
        lagged: Sequence[Terms],
        within: Sequence[Terms],
        n_lags: int,
        d: int,
        intercept: FloatArray | None,
        variances: FloatArray | None,
        weights: FloatArray | None = None,
        parts: Sequence[Curve | Product] = (),
    ) -> None:
        super().__init__(n_lags, d, intercept, variances)
        if weights is not None:
            self.weights = weights
        self._lagged, self._within = lagged, within
        self._parts = tuple(parts)
        self._curves = [part for part in parts if isinstance(part, Curve)]
        self._products = [part for part in parts if isinstance(part, Product)]

    @classmethod
    def of(
        cls,
        W: FloatArray,
        A: FloatArray,
        intercept: FloatArray | None,
        variances: FloatArray | None,
        is_edge: BoolArray,
        parts: Sequence[Curve | Product],
    ) -> Additive:
        """Weights, and curves and products (`feddbn.model.curves`) beside them; `is_edge` is that within a time step."""
        depth = depths(is_edge)
        lagged = [
            _terms(A[lag - 1], [one for one in parts if one.lag == lag], lag) for lag in range(1, len(A) + 1)
        ]
        within = [
            _terms(
                np.where(depth == k, W, 0.0),
                [one for one in parts if not one.lag and depth[one.target] == k],
                0,
            )
            for k in range(1, depth.max(initial=0) + 1)
        ]
        weights = np.concatenate([W[None], A])
        return cls([*chain(*lagged)], [*chain(*within)], len(A), len(W), intercept, variances, weights, parts)

    def step(self, past: FloatArray, shocks: FloatArray, held: FloatArray) -> FloatArray:
        """(n, d) the time step after `past`, which may have fewer than p rows: nothing acts from before it."""
        now, is_held = self.intercept + shocks, np.flatnonzero(~np.isnan(held))
        for terms in self._lagged:
            if terms.reach <= past.shape[1]:
                terms.add_to(now, now, past)
        now[:, is_held] = held[is_held]
        for terms in self._within:
            terms.add_to(now, now, past)
            if len(is_held):
                now[:, is_held] = held[is_held]
        return now

    def residuals(self, rows: FloatArray) -> FloatArray:
        """(n, d) ``x_t - c`` less all terms."""
        found = np.empty((len(rows), self.d))
        for first in range(0, len(rows), _CHUNK):
            part = rows[first : first + _CHUNK].reshape(-1, self.n_lags + 1, self.d)
            x, past = np.ascontiguousarray(part[:, 0]), part[:, :0:-1]
            expected = np.tile(self.intercept, (len(x), 1))
            for terms in (*self._lagged, *self._within):
                terms.add_to(expected, x, past)
            found[first : first + _CHUNK] = x - expected
        return found

    def slopes(self) -> FloatArray:
        """(p+1, d, d) the weights, except for functions of a registered feature map that are not uncorrelated with the value.

        A product has no slope on average.
        """
        slopes = self.weights.copy()
        for curve in self._curves:
            if curve.basis not in ("spline", "quadratic"):
                # Stein: under a standard normal z, E h'(z) = E z h(z).
                values = curve.at(curve.origin + curve.scale * _Z)
                slopes[curve.lag, curve.source, curve.target] += (_DENSITY * _Z) @ values / curve.scale
        return slopes

    def variances(self, sd: FloatArray) -> FloatArray:
        """(p+1, d, d) variances of effects; functions are taken over a normal with their own origin and scale, and the two
        variables of a product as independent.
        """
        variances = super().variances(sd)
        for curve in self._curves:
            place = (curve.lag, curve.source, curve.target)
            values = self.weights[place] * curve.scale * _Z + curve.at(curve.origin + curve.scale * _Z)
            variances[place] = _DENSITY @ (values - _DENSITY @ values) ** 2
        for product in self._products:
            is_square = product.first == product.second
            for source in {product.first, product.second}:
                variances[product.lag, source, product.target] += (
                    _SQUARE if is_square else 1.0
                ) * product.weight**2
        return variances

    def signs(self) -> BoolArray:
        """(p+1, d, d) whether the average slope makes up half of the variance of an effect or more.

        What rises and falls, and what depends on another variable, is neither positive nor negative.
        """
        return np.asarray(np.abs(self.slopes()) >= np.sqrt(0.5) * self.sizes_by_source())

    def sizes_by_source(self) -> FloatArray:
        """(p+1, d, d) size of every effect over the scale of its source."""
        scale = np.ones(self.d)
        for part in reversed(self._parts):
            for source, (_, unit) in part.units.items():
                scale[source] = unit
        return np.asarray(np.sqrt(self.variances(scale)) / scale[:, None])

    def shapes(self) -> NDArray[np.object_]:
        """(p+1, d, d) linear, curved or product."""
        shapes = super().shapes()
        for part in self._parts:
            shapes[part.lag, list(part.sources), part.target] = (
                "curved" if len(set(part.sources)) == 1 else "product"
            )
        return shapes

    def effect(self, names: tuple[str, ...], edge: tuple[int, int, int], implied: Implied) -> EdgeEffect:
        """The line, the curve and the squares of an edge."""
        i, j, lag = edge
        curve = next((c for c in self._curves if (c.source, c.target, c.lag) == edge), None)
        squares = tuple(p for p in self._products if (p.first, p.second, p.target, p.lag) == (i, i, j, lag))
        units = (curve.origin, curve.scale) if curve else implied.origin_and_scale(i)
        weight = float(self.weights[lag, i, j])
        return EdgeEffect(names[i], names[j], lag, weight, curve, squares, *units)


def _terms(weights: FloatArray, parts: Sequence[Curve | Product], lag: int) -> list[Terms]:
    """What acts at one lag: weights (d, d), then curves of each basis and size, then products."""
    d = len(weights)
    source, target = np.nonzero(weights)
    straight = weights[source, target]
    found = [Terms(d, ((lag, source),), target, lambda x: straight * x)]

    def key(curve: Curve) -> tuple[str, int]:
        return curve.basis, len(curve.coefficients)

    for _, some in groupby(sorted((one for one in parts if isinstance(one, Curve)), key=key), key):
        curves = list(some)
        source, target = (
            np.array(ends) for ends in zip(*((c.source, c.target) for c in curves), strict=True)
        )
        found.append(Terms(d, ((lag, source),), target, _evaluated(curves)))
    products = [one for one in parts if isinstance(one, Product)]
    if products:
        ends = zip(*((one.first, one.second, one.target) for one in products), strict=True)
        first, second, target = (np.array(each) for each in ends)
        found.append(Terms(d, ((lag, first), (lag, second)), target, _multiplied(products)))
    return [terms for terms in found if len(terms.target)]


def _evaluated(curves: Sequence[Curve]) -> Evaluated:
    """Curves of one basis and size."""
    origin, scale, coefficients = (
        np.array(numbers)
        for numbers in zip(*((one.origin, one.scale, one.coefficients) for one in curves), strict=True)
    )
    basis, n = curves[0].basis, len(curves[0].coefficients)

    def values(x: FloatArray) -> FloatArray:
        return np.asarray(
            np.einsum("...km,km->...k", basis_features(basis, (x - origin) / scale, n), coefficients)
        )

    return values


def _multiplied(products: Sequence[Product]) -> Evaluated:
    weight, origins, scales = (
        np.array(numbers)
        for numbers in zip(*((one.weight, one.origins, one.scales) for one in products), strict=True)
    )

    def values(*pair: FloatArray) -> FloatArray:
        z = [
            np.clip((x - origins[:, k]) / scales[:, k], -PRODUCT_REACH, PRODUCT_REACH)
            for k, x in enumerate(pair)
        ]
        return np.asarray(weight * z[0] * z[1])

    return values


class Generalised(Mechanisms):
    """Variables of any kind, each with its own distribution given its causes."""

    bends = "variables of other kinds"
    has_kinds = True

    def __init__(self, nodes: Sequence[Conditional], weights: FloatArray, order: Sequence[int]) -> None:
        self.d, self.n_lags, self.weights = len(nodes), len(weights) - 1, weights
        self._nodes, self._order = nodes, order

    def shocks(self, noise: Noise, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """(*shape, d) standard normal numbers, each of which stands for a draw."""
        if not isinstance(noise, str) or noise != "gaussian":
            raise ParameterError(
                "noise has no meaning for variables of other kinds, which have distributions of their own; leave it out."
            )
        return rng.standard_normal((*shape, self.d))

    def step(self, past: FloatArray, shocks: FloatArray, held: FloatArray) -> FloatArray:
        """(n, d) the time step after `past` (n, p, d), variable after variable."""
        rows = np.empty((len(past), self.n_lags + 1, self.d))
        rows[:, 0], rows[:, 1:] = held, past[:, ::-1]
        flat = rows.reshape(len(past), -1)
        with np.errstate(over="ignore"):
            for j in self._order:
                if np.isnan(held[j]):
                    flat[:, j] = self._nodes[j].law(codes_of(self._nodes, flat, j)).driven(shocks[:, j])
        return rows[:, 0]

    def laws(self, rows: FloatArray, which: Iterable[int] | None = None) -> list[Law]:
        """One distribution for each variable, or for some."""
        chosen = range(self.d) if which is None else which
        return [self._nodes[j].law(codes_of(self._nodes, rows, j)) for j in chosen]

    def expected(self, rows: FloatArray, which: Sequence[int]) -> list[FloatArray]:
        """(n, k) means, the probability of 1, or those of all levels: exact where the causes are known."""
        return [
            law.mean[:, None]
            if law.probabilities is None or not self._nodes[j].kind.is_by_level
            else law.probabilities
            for j, law in zip(which, self.laws(rows, which), strict=True)
        ]

    def signs(self) -> BoolArray:
        """(p+1, d, d) whether an effect is one coefficient."""
        return has_one_sign(self._nodes, self.n_lags)

    def shapes(self) -> NDArray[np.object_]:
        """(p+1, d, d) the scale of every target on which causes add up."""
        shapes = super().shapes()
        shapes[:] = [link_scale(node.kind) for node in self._nodes]
        return shapes

    def standardised(self, sd: FloatArray | None, implied: Implied) -> FloatArray:
        """(p+1, d, d) standard deviation of what a cause adds on the scale of the link over that of all that moves the
        variable there; negative where a single coefficient is.

        What moves it is the spread of its predictor and, by its kind: the variance of noise (continuous, positive),
        ``pi^2/3`` (levels: the variance of a logistic number), ``log(1 + 1/mean + dispersion)`` (counts: the variance of the
        log of a number with their mean and variance). Spreads are those of rows that the network visits by itself; where
        it has no usual level, those of the noise.
        """
        if sd is not None:
            raise ParameterError("sd has no meaning for variables of other kinds; leave it out.")
        try:
            with np.errstate(all="ignore"):
                rows = implied.rows()
        except ParameterError:
            scale = implied.deviations()
            return np.asarray(self.weights * scale[:, None] / scale)
        found = self.weights.copy()
        for j, node in enumerate(self._nodes):
            codes = codes_of(self._nodes, rows, j)
            total = (codes @ node.slopes).var(axis=0) + _own_variance(node, codes)
            begin = 0
            for (i, lag), effect in zip(node.parents, node.effects, strict=True):
                added = (codes[:, begin : begin + len(effect)] @ effect).var(axis=0)
                begin += len(effect)
                size = np.sqrt(added.sum() / total.sum()) if total.sum() > 0 else 0.0
                found[lag, i, j] = -size if effect.size == 1 and effect[0, 0] < 0 else size
        return found

    def effect(self, names: tuple[str, ...], edge: tuple[int, int, int], implied: Implied) -> NaturalEffect:
        """What an edge does to the mean or the probabilities of its target, averaged over rows."""
        (i, j, lag), rows = edge, implied.rows()
        node = self._nodes[j]
        widths = [len(effect) for effect in node.effects]
        place = node.parents.index((i, lag))
        begin = sum(widths[:place])
        return NaturalEffect(
            names[i],
            names[j],
            lag,
            self._nodes[i].kind,
            node.kind,
            node,
            rows[:, lag * self.d + i],
            codes_of(self._nodes, rows, j),
            slice(begin, begin + widths[place]),
        )


_LOGISTIC = np.pi**2 / 3


def _own_variance(node: Conditional, codes: FloatArray) -> float:
    if node.kind.levels:
        return float(_LOGISTIC)
    if node.kind.name == "count":
        mean = max(float(node.mean(codes).mean()), 1e-12)
        return float(np.log1p(1 / mean + node.dispersion))
    return node.dispersion


@dataclass(frozen=True)
class Mechanism:
    """What one variable does given its causes: a view of the mechanisms of its network.

    Rows are with their past, (n, (p+1) d).
    """

    network: Mechanisms
    variable: int
    names: tuple[str, ...]
    implied: Implied

    def law(self, rows: FloatArray) -> Law:
        """Its distribution in each row."""
        return self.network.laws(rows, [self.variable])[0]

    def mean(self, rows: FloatArray) -> FloatArray:
        """(n,) what is expected of it."""
        return self.law(rows).mean

    def sample(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """(n,) one value drawn for each row."""
        return self.law(rows).driven(rng.standard_normal(len(rows)))

    def log_density(self, rows: FloatArray) -> FloatArray:
        """(n,) log density, or log probability, of its values."""
        return self.law(rows).log_density(rows[:, self.variable])

    def effect(self, source: int, lag: int) -> EdgeEffect | NaturalEffect:
        """What one of its causes does by value."""
        return self.network.effect(self.names, (source, self.variable, lag), self.implied)
