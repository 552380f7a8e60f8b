"""How a network goes on from one time step to the next: the one thing that paths, forecasts, interventions, residuals and
simulations read.

`Steps` does it node by node, for nodes of any kind; `LinearSteps` for linear networks, by their reduced form and with
exact variances. Rows with their past are ``[x_t, x_{t-1}, ..., x_{t-p}]``, (n, (p+1) d).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.kinds import CONTINUOUS, Kind
from feddbn.errors import ParameterError
from feddbn.model.nodes import Law, Node, Term, features, known, law_of

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


def causes_first(edges: BoolArray) -> list[list[int]]:
    """The variables in groups, each after all contemporaneous causes of its members; those in or behind a cycle are left
    out.
    """
    groups: list[list[int]] = []
    left = np.arange(len(edges))
    while len(left):
        first = ~edges[np.ix_(left, left)].any(axis=0)
        if not first.any():
            break
        groups.append(left[first].tolist())
        left = left[~first]
    return groups


def impact(W: FloatArray) -> FloatArray:
    """(d, d) ``B = (I - W)^{-1}``: what a unit shock does within its own time step."""
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


Step = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""`Steps.step`, or another way to go on."""


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


_AS_IT_IS = ("continuous", "binary", "ordinal")


class _Predictors:
    """What terms add to the predictors of some nodes, all terms of one basis at once."""

    def __init__(self, nodes: Sequence[Node], which: Sequence[int]) -> None:
        d, m = len(nodes), 0
        self.places: dict[int, slice] = {}
        groups: dict[tuple[str, Kind, int], list[tuple[Term, FloatArray, slice]]] = {}
        for j in which:
            here = self.places[j] = slice(m, m + nodes[j].n_predictors)
            m = here.stop
            for term, b in nodes[j].parts:
                kind = nodes[term.sources[0][0]].kind
                kind = CONTINUOUS if kind.name in _AS_IT_IS else kind
                groups.setdefault((term.basis, kind, len(term.table)), []).append((term, b, here))
        self.n_columns = m
        self._groups = [(*key[:2], *self._together(some, d)) for key, some in groups.items()]

    def _together(
        self, some: Sequence[tuple[Term, FloatArray, slice]], d: int
    ) -> tuple[IntArray, FloatArray, FloatArray, FloatArray, FloatArray]:
        """Cells (1 or 2, k), origins, scales, tables and coefficients (k, width, m) of k different terms of one basis."""
        place = {term: k for k, term in enumerate(dict.fromkeys(term for term, _, _ in some))}
        C = np.zeros((len(place), max(len(b) for _, b, _ in some), self.n_columns))
        for term, b, here in some:
            C[place[term], : len(b), here] += b
        cells = np.array([[lag * d + i for i, lag in term.sources] for term in place]).T
        origins, scales = (
            np.array([getattr(term, name) for term in place]).T for name in ("origins", "scales")
        )
        return cells, origins, scales, np.array([term.table for term in place]), C

    def __call__(self, rows: FloatArray) -> FloatArray:
        """(n, m) for rows with their past."""
        found = np.zeros((len(rows), self.n_columns))
        for first in range(0, len(rows), _CHUNK):
            part, here = rows[first : first + _CHUNK], found[first : first + _CHUNK]
            for basis, kind, cells, origins, scales, tables, C in self._groups:
                x = [part[:, each] for each in cells]
                columns = features(basis, kind, x, origins, scales, tables, C.shape[1])
                here += columns.reshape(len(part), -1) @ C.reshape(-1, self.n_columns)
        return found


class Steps:
    """How nodes of any kind go on.

    Shocks are what drives a network: the noise of numbers, standard normal numbers that stand for draws of other kinds.
    """

    def __init__(self, nodes: Sequence[Node], n_lags: int, within: BoolArray) -> None:
        self.d, self.n_lags, self._nodes = len(nodes), n_lags, nodes
        self._all = _Predictors(nodes, range(self.d))
        self._groups = [_Predictors(nodes, group) for group in causes_first(within)]
        self._numbers = [j for j, node in enumerate(nodes) if node.kind.name == "continuous"]

    @property
    def is_additive(self) -> bool:
        """Whether noise is added to what is expected of every variable."""
        return len(self._numbers) == self.d

    @property
    def sd(self) -> FloatArray:
        """(d,) standard deviations of shocks."""
        found = np.ones(self.d)
        for j in self._numbers:
            found[j] = math.sqrt(known(self._nodes[j].dispersion, "noise_variances"))
        return found

    def shocks(self, noise: Noise, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """(*shape, d) noise of a named distribution, or drawn rows of residuals (`draw_noise`)."""
        if not self.is_additive and (not isinstance(noise, str) or noise != "gaussian"):
            raise ParameterError(
                "noise has no meaning for variables of other kinds, which have distributions of their own; leave it out."
            )
        return draw_noise(noise, self.sd, shape, rng)

    def step(self, past: FloatArray, shocks: FloatArray, held: FloatArray) -> FloatArray:
        """(n, d) the time step after `past` (n, p, d), oldest first, with shocks (n, d); `held` (d,) is NaN where free."""
        rows = np.empty((len(past), self.n_lags + 1, self.d))
        rows[:, 0], rows[:, 1:] = held, past[:, ::-1]
        flat = rows.reshape(len(past), -1)
        with np.errstate(over="ignore"):
            for group in self._groups:
                added = group(flat)
                for j, here in group.places.items():
                    if np.isnan(held[j]):
                        flat[:, j] = self._drawn(j, added[:, here], shocks[:, j])
        return rows[:, 0]

    def _drawn(self, j: int, added: FloatArray, shock: FloatArray) -> FloatArray:
        node = self._nodes[j]
        if node.kind.name == "continuous":
            return np.asarray(known(node.intercept, "intercept") + added[:, 0] + shock)
        return node.law_at(added).from_normal(shock)

    def laws(self, rows: FloatArray, which: Iterable[int] | None = None) -> list[Law]:
        """The distributions of all variables, or of some, in rows with their past."""
        chosen = list(range(self.d) if which is None else which)
        of = self._all if which is None else _Predictors(self._nodes, chosen)
        added = of(rows)
        return [self._nodes[j].law_at(added[:, of.places[j]]) for j in chosen]

    def residuals(self, rows: FloatArray) -> FloatArray:
        """(n, d) what is left of rows with their past without what is expected of them."""
        if not self.is_additive:
            raise ParameterError(
                "variables of other kinds have no additive residuals; use dbn.quantile_residuals(data), standard normal if "
                "the network holds."
            )
        intercept = np.concatenate([known(node.intercept, "intercept") for node in self._nodes])
        return np.asarray(rows[:, : self.d] - intercept - self._all(rows))

    def normal_residuals(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """(n, d) residuals of rows with their past that are standard normal if the network holds."""
        return np.stack([law.to_normal(rows[:, j], rng) for j, law in enumerate(self.laws(rows))], axis=1)

    def ahead(self, covariance: FloatArray, held: FloatArray) -> FloatArray | None:
        """(steps, d) exact variances of what follows a state with this (pd, pd) covariance, newest row first, `held` as in
        `run`; None: paths tell.
        """
        return None

    def log_densities(self, rows: FloatArray, which: Sequence[int] | None = None) -> FloatArray:
        """(n, k) log density of all variables, or of some, in rows with their past."""
        chosen = range(self.d) if which is None else which
        laws = zip(chosen, self.laws(rows, which), strict=True)
        found = [law.log_density(rows[:, j]) for j, law in laws if which is None or not law.is_certain]
        return np.stack(found, axis=1) if found else np.zeros((len(rows), 0))

    @property
    def log_jacobian(self) -> float:
        """What a row's log density has beside those of its variables."""
        return 0.0


class Surgery(NamedTuple):
    """One time step with some variables held: ``x_t = c B + sum_l x_{t-l} P_l + (u_t o free) B``, with P_l the coefficients,
    and c the intercepts and what is held.
    """

    B: FloatArray
    coefficients: FloatArray
    free: FloatArray


class LinearSteps(Steps):
    """``x_t = c + x_t W + sum_l x_{t-l} A_l + u_t``, by the reduced form; W may have cycles."""

    def __init__(
        self, W: FloatArray, A: FloatArray, intercept: FloatArray | None, variances: FloatArray | None
    ) -> None:
        self.W, self.A, self.n_lags, self.d = W, A, len(A), len(W)
        self._intercept, self._variances = intercept, variances
        self._done: dict[bytes, Surgery] = {}

    @property
    def is_additive(self) -> bool:
        """True."""
        return True

    @property
    def intercept(self) -> FloatArray:
        """(d,) constants; refused where they are not known."""
        return known(self._intercept, "intercept")

    @property
    def variances(self) -> FloatArray:
        """(d,) variances of noise; refused where they are not known."""
        return known(self._variances, "noise_variances")

    @property
    def sd(self) -> FloatArray:
        """(d,) standard deviations of noise."""
        return np.sqrt(self.variances)

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
        """(n, d) the time step after `past`, which may have fewer than p rows: nothing acts from before it."""
        now = self.surgery(held)
        constants = np.where(np.isnan(held), self.intercept, held)
        x = constants @ now.B + (shocks * now.free) @ now.B
        for lag in range(1, past.shape[1] + 1):
            x += past[:, -lag] @ now.coefficients[lag - 1]
        return np.asarray(x)

    def residuals(self, rows: FloatArray) -> FloatArray:
        """(n, d) ``x_t - c - x_t W - sum_l x_{t-l} A_l``."""
        C = np.concatenate([self.W[None], self.A]).reshape(-1, self.d)
        return np.asarray(rows[:, : self.d] - self.intercept - rows @ C)

    def laws(self, rows: FloatArray, which: Iterable[int] | None = None) -> list[Law]:
        """Normal distributions about what is expected."""
        expected = rows[:, : self.d] - self.residuals(rows)
        chosen = range(self.d) if which is None else which
        return [law_of("continuous", np.zeros(1), expected[:, [j]], self.variances[j]) for j in chosen]

    def ahead(self, covariance: FloatArray, held: FloatArray) -> FloatArray:
        """(steps, d) diagonals of the covariances of what follows."""
        P, found = covariance, np.empty(held.shape)
        for t, row in enumerate(held):
            P = self.spread(P, row)
            found[t] = np.maximum(np.diag(P)[: self.d], 0.0)
        return found

    def spread(self, P: FloatArray, held: FloatArray) -> FloatArray:
        """(pd, pd) ``F' P F + Q``: the covariance of the last p rows, newest first, a time step after P."""
        now, d = self.surgery(held), self.d
        F = companion(now.coefficients)
        P = F.T @ P @ F
        P[:d, :d] += (now.B.T * (now.free * self.variances)) @ now.B
        return P

    @property
    def log_jacobian(self) -> float:
        """``log |det(I - W)|``: 0 for an acyclic W."""
        return float(np.linalg.slogdet(np.eye(self.d) - self.W)[1])
