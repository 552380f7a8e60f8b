"""The curved parts of effects: one variable's (`Curve`) and two variables' together (`Product`).

    x_t = c + x_t W + sum_l x_{t-l} A_l + sum of curves + sum of products + u_t

A curve stands beside the straight part ``weight * x``, which stays in W or A. Under a normal with the curve's origin and
scale its functions have mean 0 and are uncorrelated with x, so the weight is the average slope of the whole effect
(`EdgeEffect`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtri

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.features import (
    CURVE_KNOTS,
    N_CURVES,
    SQUARE_REACH,
    curve_features,
    feature_map,
    square_features,
)
from feddbn.errors import ParameterError
from feddbn.settings import number, whole

__all__ = ["PRODUCT_REACH", "Curve", "EdgeEffect", "Product", "basis_features", "normal_reach"]

PRODUCT_REACH = 4.0
"""Beyond this many scales from its origin a variable counts in a product as if it were there."""
_OWN_REACH = 3.0
_REACH = {"spline": CURVE_KNOTS[-1], "quadratic": SQUARE_REACH}
_WIDTH = {"spline": N_CURVES, "quadratic": 1}


@dataclass(frozen=True)
class Curve:
    """The curved part of one edge: ``sum_k b_k h_k((x - origin) / scale)``.

    Attributes
    ----------
    source, target, lag
        Which edge, as in ``W[source, target]`` or ``A[lag - 1, source, target]``.
    origin, scale
        Where the source is 0 and what counts as 1, in its units.
    coefficients
        b_1, ..., b_m in the units of the target.
    basis
        ``"spline"`` (`feddbn.core.designs.features.curve_features`; fewer coefficients than functions: the others are 0),
        ``"quadratic"`` (`square_features`), or a feature map registered under this name, of which a first feature that is
        the value itself is left out.
    covariance
        (m+1, m+1) of (weight, b_1, ..., b_m) as estimates; empty if unknown, then there is no band.
    """

    source: int
    target: int
    lag: int
    origin: float
    scale: float
    coefficients: tuple[float, ...]
    basis: str = "spline"
    covariance: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        for name in ("source", "target", "lag"):
            object.__setattr__(self, name, whole(0).check(f"{name} of a curve", getattr(self, name)))
        object.__setattr__(self, "origin", _number(self.origin, "origin of a curve"))
        object.__setattr__(self, "scale", _positive(self.scale, "scale of a curve"))
        b = _numbers(self.coefficients, "coefficients of a curve", 1)
        object.__setattr__(self, "coefficients", tuple(b.tolist()))
        if not isinstance(self.basis, str) or self.basis in ("", "linear"):
            raise ParameterError(
                f"basis of a curve must be 'spline', 'quadratic' or the name of a registered feature map, got {self.basis!r}."
            )
        if len(b) == 0 or len(b) > _WIDTH.get(self.basis, len(b)):
            raise ParameterError(
                f"coefficients of a curve must be 1 to {_WIDTH.get(self.basis, 'm')} numbers with the basis"
                f" {self.basis!r}, got {len(b)}."
            )
        object.__setattr__(self, "covariance", _covariance(self.covariance, len(b) + 1))

    def at(self, values: ArrayLike) -> FloatArray:
        """The curved part at values of the source, in the units of the target; same shape as `values`."""
        return np.asarray(self.features(values) @ np.array(self.coefficients))

    def features(self, values: ArrayLike) -> FloatArray:
        """(..., m) the functions ``h_k((x - origin) / scale)`` at values (...) of the source."""
        z = (np.asarray(values, dtype=np.float64) - self.origin) / self.scale
        return basis_features(self.basis, z, len(self.coefficients))

    def moved(self, shift: FloatArray) -> Curve:
        """Return the same curve about an origin that has moved with its source; `shift` (d,) has all variables."""
        return replace(self, origin=self.origin + float(shift[self.source]))

    @property
    def sources(self) -> tuple[int, ...]:
        """The variables it is a function of."""
        return (self.source,)

    @property
    def units(self) -> dict[int, tuple[float, float]]:
        """Variable -> its origin and scale."""
        return {self.source: (self.origin, self.scale)}

    @property
    def ranges(self) -> dict[int, tuple[float, float]]:
        """Variable -> `range_seen`."""
        return {self.source: self.range_seen}

    @property
    def range_seen(self) -> tuple[float, float]:
        """Between which values of the source the function is free; outside it stays what it is there, and the whole effect
        goes on with its average slope.

        They are the outer knots: sums tell no smallest and no largest value.
        """
        reach = _REACH.get(self.basis, _OWN_REACH) * self.scale
        return self.origin - reach, self.origin + reach


@dataclass(frozen=True)
class Product:
    """What two variables at one lag do together: ``weight * clip((x_a - o_a) / s_a) * clip((x_b - o_b) / s_b)``.

    Attributes
    ----------
    first, second, target, lag
        Positions, ``first <= second`` (equal: a square), and how many time steps before the target both are.
    weight
        In the units of the target.
    origins, scales
        Where each of the two is 0 and what counts as 1. Each factor is clipped to +-4 (`PRODUCT_REACH`).
    """

    first: int
    second: int
    target: int
    lag: int
    weight: float
    origins: tuple[float, float]
    scales: tuple[float, float]

    def __post_init__(self) -> None:
        for name in ("first", "second", "target", "lag"):
            object.__setattr__(self, name, whole(0).check(f"{name} of a product", getattr(self, name)))
        if self.first > self.second:
            raise ParameterError(
                f"first of a product must not be larger than second, got {self.first} and {self.second};"
                " exchange them with their origins and scales."
            )
        object.__setattr__(self, "weight", _number(self.weight, "weight of a product"))
        for name in ("origins", "scales"):
            pair = _numbers(getattr(self, name), f"{name} of a product", 1)
            if len(pair) != 2 or (name == "scales" and not (pair > 0).all()):
                kind = "positive numbers" if name == "scales" else "numbers"
                raise ParameterError(f"{name} of a product must be two {kind}, got {getattr(self, name)!r}.")
            object.__setattr__(self, name, tuple(pair.tolist()))
        if self.first == self.second and (
            self.origins[0] != self.origins[1] or self.scales[0] != self.scales[1]
        ):
            raise ParameterError(
                f"a square has one origin and one scale, got {self.origins} and {self.scales}."
            )

    def at(self, first: ArrayLike, second: ArrayLike) -> FloatArray:
        """The product's part of the target at values of the two variables."""
        factors = [
            np.clip((np.asarray(x, dtype=np.float64) - o) / s, -PRODUCT_REACH, PRODUCT_REACH)
            for x, o, s in zip((first, second), self.origins, self.scales, strict=True)
        ]
        return np.asarray(self.weight * factors[0] * factors[1])

    @property
    def sources(self) -> tuple[int, ...]:
        """The variables it is a function of."""
        return self.first, self.second

    @property
    def units(self) -> dict[int, tuple[float, float]]:
        """Variable -> its origin and scale."""
        return dict(zip(self.sources, zip(self.origins, self.scales, strict=True), strict=True))

    @property
    def ranges(self) -> dict[int, tuple[float, float]]:
        """Variable -> between which values it still counts."""
        return {k: (o - PRODUCT_REACH * s, o + PRODUCT_REACH * s) for k, (o, s) in self.units.items()}

    def moved(self, shift: FloatArray) -> Product:
        """Return the same product about origins that have moved with their variables; `shift` (d,) has all of them."""
        first, second = (
            origin + float(shift[k])
            for origin, k in zip(self.origins, (self.first, self.second), strict=True)
        )
        return replace(self, origins=(first, second))


_BEYOND = 2.4
# How far beyond the range seen a table goes, so that it shows how the line goes on.
_MARGIN = 1.25


@dataclass(frozen=True)
class EdgeEffect:
    """The effect of one edge as a function of its source.

    Attributes
    ----------
    source, target, lag
        Which edge.
    weight
        Its straight part: the average slope.
    curve
        Its curved part, or None.
    squares
        Products of the source with itself at this lag. Products with others are 0 where those are at their origin, and
        are no part of this.
    origin, scale
        Where the effect is called 0, and what counts as one step away from there, in the units of the source.
    """

    source: str
    target: str
    lag: int
    weight: float
    curve: Curve | None
    squares: tuple[Product, ...]
    origin: float
    scale: float

    @property
    def range_seen(self) -> tuple[float, float]:
        """Between which values of the source the function is free; infinite for a straight line."""
        ranges = [both for part in (*self.squares, self.curve) if part for both in part.ranges.values()]
        return max((low for low, _ in ranges), default=-np.inf), min(
            (high for _, high in ranges), default=np.inf
        )

    @property
    def has_band(self) -> bool:
        """Whether it is known how sure the effect is."""
        return self.curve is not None and bool(self.curve.covariance) and not self.squares

    def at(self, values: ArrayLike) -> FloatArray:
        """What the target gains if the source has these values rather than its origin; same shape as `values`."""
        x = np.asarray(values, dtype=np.float64)
        effect = self.weight * (x - self.origin)
        if self.curve is not None:
            effect = effect + (self.curve.at(x) - self.curve.at(self.origin))
        for square in self.squares:
            effect = effect + (square.at(x, x) - square.at(self.origin, self.origin))
        # Exactly so, also where sums are rounded in another order.
        return np.where(x == self.origin, 0.0, effect)

    def band(self, values: ArrayLike, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bound of the effect at each value, pointwise; NaN if it is not known how sure the weights are."""
        sds = normal_reach(level)
        x = np.asarray(values, dtype=np.float64)
        effect = self.at(x)
        if not self.has_band or self.curve is None:
            unknown = np.full(x.shape, np.nan)
            return unknown, unknown.copy()
        h = self.curve.features(x) - self.curve.features(self.origin)
        columns = np.concatenate([(x - self.origin)[..., None], h], axis=-1)
        variance = ((columns @ np.array(self.curve.covariance)) * columns).sum(axis=-1)
        reach = sds * np.sqrt(np.maximum(variance, 0.0))
        return np.asarray(effect - reach), np.asarray(effect + reach)

    def to_frame(self, n: int = 41, level: float = 0.95) -> pd.DataFrame:
        """Frame value, effect, lower, upper, inside over n values, a quarter further than the range seen.

        `inside` is False beyond the range seen, where a straight line goes on.
        """
        n = whole(2).check("n", n)
        low, high = self.range_seen
        reach = _MARGIN * (
            min(self.origin - low, high - self.origin) if np.isfinite(high) else _BEYOND * self.scale
        )
        values = np.linspace(self.origin - reach, self.origin + reach, n)
        lower, upper = self.band(values, level)
        inside = (values >= low) & (values <= high)
        effect = self.at(values)
        return pd.DataFrame(
            {"value": values, "effect": effect, "lower": lower, "upper": upper, "inside": inside}
        )


def basis_features(basis: str, z: FloatArray, n: int) -> FloatArray:
    """(..., n) the first n functions of a basis at standardised values (...)."""
    if basis == "spline":
        return curve_features(z)[..., :n]
    if basis == "quadratic":
        return square_features(z)
    own = feature_map(basis)
    flat = own(z.reshape(-1, 1))[:, 0, int(own.has_identity) :]
    if flat.shape[1] != n:
        raise ParameterError(
            f"a curve has {n} coefficients, but the feature map {basis!r} has {flat.shape[1]} functions here"
            " beside the value itself; register the map that the network was learned with."
        )
    return np.asarray(flat.reshape(*z.shape, n))


def normal_reach(level: float) -> float:
    """How many standard deviations to each side hold a share `level` of a normal distribution."""
    return float(ndtri(0.5 + number(above=0, below=1).check("level", level) / 2))


def _number(value: object, what: str) -> float:
    return float(number().check(what, value))


def _positive(value: object, what: str) -> float:
    number = _number(value, what)
    if number <= 0:
        raise ParameterError(f"{what} must be positive, got {value!r}.")
    return number


def _numbers(value: object, what: str, n_axes: int) -> FloatArray:
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if array.ndim != n_axes or not np.isfinite(array).all():
        raise ParameterError(f"{what} must be finite numbers, got {value!r}.")
    return array


def _covariance(value: object, size: int) -> tuple[tuple[float, ...], ...]:
    if isinstance(value, (tuple, list)) and not value:
        return ()
    array = _numbers(value, "covariance of a curve", 2)
    if array.shape != (size, size):
        raise ParameterError(
            f"covariance of a curve must be {size} x {size}, of the weight and the coefficients, got shape {array.shape}."
        )
    root = np.sqrt(np.abs(np.diag(array)))
    units = np.where(root > 0, root, 1.0)
    R = array / np.outer(units, units)
    if np.abs(R - R.T).max() > 1e-6 or np.linalg.eigvalsh((R + R.T) / 2)[0] < -1e-6 * size:
        raise ParameterError(
            "covariance of a curve must be symmetric and without negative variances; the given one is not."
        )
    return tuple(map(tuple, array.tolist()))
