"""What is not linear in a system: curves of its edges, products of causes, and the units in which they are given.

A curve is a table of values at `GRID`, straight between its points and constant beyond +-`REACH`, so it is bounded.
Drawn curves have mean 0 and variance 1 if the cause is standard normal: an edge of weight w then moves its target as
much as a straight edge of weight w does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from feddbn.core.arrays import FloatArray

REACH = 3.0
GRID = np.linspace(-REACH, REACH, 601)
GRID.setflags(write=False)

_N_TERMS = 45
_N_KNOTS = 6


@dataclass(frozen=True, eq=False)
class TrueCurve:
    """A function of a cause in standard deviations.

    Attributes
    ----------
    kind
        One of `CURVES`, or "product": nothing of its own, the cause acts through products only.
    table
        Values at `GRID`.
    """

    kind: str
    table: FloatArray

    def __call__(self, z: ArrayLike) -> FloatArray:
        """The values at `z`."""
        return np.asarray(np.interp(np.asarray(z, dtype=np.float64), GRID, self.table))


def gaussian_process(rng: np.random.Generator) -> FloatArray:
    """A draw at `GRID` of a Gaussian process with the covariance ``exp(-(a - b)^2 / 2)``."""
    features = gaussian_features()
    return np.asarray(features @ rng.standard_normal(features.shape[1]))


@cache
def gaussian_features() -> FloatArray:
    """(len(`GRID`), m) features whose products are the kernel: ``exp(-(a - b)^2 / 2) = sum_k phi_k(a) phi_k(b)``.

    The series of ``exp(a b)`` gives ``phi_k(z) = exp(-z^2 / 2) z^k / sqrt(k!)``; within +-`REACH` the terms that are
    left out add up to less than 1e-12.
    """
    columns = [np.exp(-(GRID**2) / 2.0)]
    for k in range(1, _N_TERMS):
        columns.append(columns[-1] * GRID / np.sqrt(k))
    return np.column_stack(columns)


def _spline(rng: np.random.Generator) -> FloatArray:
    """A natural cubic spline through standard normal values at six knots."""
    # Imported here: most simulations are linear and need no splines.
    from scipy.interpolate import CubicSpline

    knots = np.linspace(-REACH, REACH, _N_KNOTS)
    spline = CubicSpline(knots, rng.standard_normal(_N_KNOTS), bc_type="natural")
    return np.asarray(spline(GRID), dtype=np.float64)


def _sigmoid(rng: np.random.Generator) -> FloatArray:
    """``tanh(a (z - b))``, a from 1 to 3, b from -1 to 1."""
    slope, place = rng.uniform(1.0, 3.0), rng.uniform(-1.0, 1.0)
    return np.tanh(slope * (GRID - place))


def _threshold(rng: np.random.Generator) -> FloatArray:
    """A step at a place from -1 to 1: sharp (within a cell of the grid) or, as often, rising over about half a unit."""
    place, is_sharp = rng.uniform(-1.0, 1.0), rng.random() < 0.5
    return np.where(place < GRID, 1.0, -1.0) if is_sharp else np.tanh(8.0 * (GRID - place))


def _quadratic(rng: np.random.Generator) -> FloatArray:
    """``(z - b)^2``, b from -1/2 to 1/2, constant beyond +-2: with longer tails it feeds on itself."""
    return np.asarray((np.clip(GRID, -2.0, 2.0) - rng.uniform(-0.5, 0.5)) ** 2)


CURVES: Mapping[str, Callable[[np.random.Generator], FloatArray]] = MappingProxyType(
    {
        "gp": gaussian_process,
        "spline": _spline,
        "sigmoid": _sigmoid,
        "threshold": _threshold,
        "quadratic": _quadratic,
    }
)
"""Every kind of curve by name, with the function that draws its values at `GRID`."""

EFFECTS = ("linear", *CURVES, "mixed")
"""What effects can be asked for; "mixed": every edge straight with probability 1/2, else a curve of any kind."""


def draw_curve(effects: str, rng: np.random.Generator) -> TrueCurve | None:
    """A curve of mean 0 and variance 1 over a standard normal cause; None for a straight line."""
    kind = effects
    if effects == "mixed":
        kind = "linear" if rng.random() < 0.5 else str(rng.choice(list(CURVES)))
    return None if kind == "linear" else TrueCurve(kind, standardised(CURVES[kind](rng)))


def flat_curve() -> TrueCurve:
    """The curve of a cause that acts through products only."""
    return TrueCurve("product", np.zeros(len(GRID)))


def standardised(table: FloatArray) -> FloatArray:
    """The table less its mean, over its standard deviation, for a standard normal cause."""
    mass = _mass()
    centred = table - mass @ table
    return np.asarray(centred / np.sqrt(mass @ centred**2))


@cache
def _mass() -> FloatArray:
    """The probability of every point of `GRID`, for a standard normal cause that is rounded to it."""
    from scipy.special import ndtr

    middles = (GRID[1:] + GRID[:-1]) / 2.0
    return np.diff(ndtr(np.concatenate([[-np.inf], middles, [np.inf]])))


Edge = tuple[int, int, int]
"""(lag, from, to); lag 0 is within a time step."""


@dataclass(frozen=True)
class TrueProduct:
    """``weight * sqrt(s_a s_b) * c(z_a) c(z_b)`` acts on a target, with c: kept within +-`feddbn.sim.shapes.REACH`.

    Attributes
    ----------
    causes
        Two different variables, each as (variable, lag), lags from 1 on.
    target
        The variable they act on.
    weight
        Its size, with a sign.
    """

    causes: tuple[tuple[int, int], tuple[int, int]]
    target: int
    weight: float

    @property
    def edges(self) -> tuple[Edge, Edge]:
        """The two edges it stands for."""
        (a, lag_a), (b, lag_b) = self.causes
        return (lag_a, a, self.target), (lag_b, b, self.target)


@dataclass(frozen=True, eq=False)
class Shapes:
    """Everything about a system that is not linear.

    Attributes
    ----------
    curves
        Edge -> its curve; an edge that is not here is straight.
    products
        Pairs of lagged causes that act together.
    centre, scale
        (d,) about the means and standard deviations of the variables: curves are functions of
        ``z = (x - centre) / scale``.
    """

    curves: Mapping[Edge, TrueCurve] = field(default_factory=dict)
    products: tuple[TrueProduct, ...] = ()
    centre: FloatArray = field(default_factory=lambda: np.zeros(0))
    scale: FloatArray = field(default_factory=lambda: np.zeros(0))

    def damped(self, factor: float) -> Shapes:
        """The shapes with every product multiplied by `factor` to the power of its largest lag."""
        products = tuple(
            replace(product, weight=product.weight * factor ** max(lag for _, lag in product.causes))
            for product in self.products
        )
        return replace(self, products=products)

    def standardised(self, x: FloatArray, variable: int) -> FloatArray:
        """``z`` of values of a variable."""
        return np.asarray((x - self.centre[variable]) / self.scale[variable])

    def acting(self, product: TrueProduct, *lagged: FloatArray) -> FloatArray:
        """What a product adds to its target, given the values of its two causes."""
        size = product.weight
        total = np.ones_like(lagged[0])
        for (variable, _), x in zip(product.causes, lagged, strict=True):
            size *= float(np.sqrt(self.scale[variable]))
            total = total * np.clip(self.standardised(x, variable), -REACH, REACH)
        return size * total


@dataclass(frozen=True, eq=False)
class EdgeEffect:
    """The function of one edge: what a value of the cause adds to the target. Call it with values.

    Attributes
    ----------
    kind
        "linear", a kind of curve, or "product" for a cause that acts through products only (it then adds 0 by itself).
    weight
        Of the edge: ``weight * scale * f((x - centre) / scale)``, or ``weight * x`` if it is linear.
    centre, scale
        About the mean and the standard deviation of the cause.
    curve
        f, or None if it is linear.

    Examples
    --------
    >>> from feddbn.sim import EdgeEffect
    >>> straight = EdgeEffect("linear", weight=0.5, centre=0.0, scale=1.0, curve=None)
    >>> straight([0.0, 2.0]).tolist()
    [0.0, 1.0]
    """

    kind: str
    weight: float
    centre: float
    scale: float
    curve: TrueCurve | None

    def __call__(self, values: ArrayLike) -> FloatArray:
        """What these values of the cause add to the target."""
        x = np.asarray(values, dtype=np.float64)
        if self.curve is None:
            return np.asarray(self.weight * x)
        return np.asarray(self.weight * self.scale * self.curve((x - self.centre) / self.scale))

    def points(self, n: int = 61) -> tuple[FloatArray, FloatArray]:
        """`n` values of the cause from three standard deviations below its mean to three above, and what they add."""
        x = self.centre + self.scale * np.linspace(-REACH, REACH, n)
        return x, self(x)
