"""What one edge does, value by value: its line and its curve, with a band, and a table of all curves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtri

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.curves import Curve, Product
from feddbn.model.dynamics import stationary_covariance, stationary_mean
from feddbn.model.inputs import interval_level, positive_int, variable_index
from feddbn.model.network import Network
from feddbn.model.paths import usual

__all__ = ["EdgeEffect", "curves_table", "edge_effect", "origin_and_scale"]

_REACH = 2.4
# How far beyond the range seen a table goes, so that it shows how the line goes on.
_MARGIN = 1.25
_COLUMNS = ["source", "target", "lag", "value", "effect", "lower", "upper", "inside"]


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
        ranges = [square.range_seen(0) for square in self.squares]
        ranges += [self.curve.range_seen] if self.curve else []
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
        level = interval_level(level, "level")
        x = np.asarray(values, dtype=np.float64)
        effect = self.at(x)
        if not self.has_band or self.curve is None:
            unknown = np.full(x.shape, np.nan)
            return unknown, unknown.copy()
        h = self.curve.features(x) - self.curve.features(self.origin)
        columns = np.concatenate([(x - self.origin)[..., None], h], axis=-1)
        variance = ((columns @ np.array(self.curve.covariance)) * columns).sum(axis=-1)
        reach = ndtri(0.5 + level / 2) * np.sqrt(np.maximum(variance, 0.0))
        return np.asarray(effect - reach), np.asarray(effect + reach)

    def to_frame(self, n: int = 41, level: float = 0.95) -> pd.DataFrame:
        """Frame value, effect, lower, upper, inside over n values, a quarter further than the range seen.

        `inside` is False beyond the range seen, where a straight line goes on.
        """
        n = positive_int(n, "n", 2)
        low, high = self.range_seen
        reach = _MARGIN * (
            min(self.origin - low, high - self.origin) if np.isfinite(high) else _REACH * self.scale
        )
        values = np.linspace(self.origin - reach, self.origin + reach, n)
        lower, upper = self.band(values, level)
        inside = (values >= low) & (values <= high)
        effect = self.at(values)
        return pd.DataFrame(
            {"value": values, "effect": effect, "lower": lower, "upper": upper, "inside": inside}
        )

    def table(self, n: int = 41, level: float = 0.95) -> pd.DataFrame:
        """The older name of `to_frame`."""
        return self.to_frame(n, level)


def edge_effect(dbn: Network, source: str | int, target: str | int, lag: int) -> EdgeEffect:
    """Return the effect of the edge source -> target at `lag`; ParameterError if there is none."""
    i = variable_index(source, dbn.variables, "source")
    j = variable_index(target, dbn.variables, "target")
    lag = positive_int(lag, "lag", 0)
    names = dbn.variables
    if lag > dbn.n_lags or not dbn.is_edge[lag, i, j]:
        raise ParameterError(
            f"there is no edge {names[i]} -> {names[j]} at lag={lag} in this network; dbn.edges() lists those there are."
        )
    place = (i, j, lag)
    curve = next((c for c in dbn.curves if (c.source, c.target, c.lag) == place), None)
    squares = tuple(p for p in dbn.products if p.first == p.second and (p.first, p.target, p.lag) == place)
    origin, scale = (curve.origin, curve.scale) if curve else origin_and_scale(dbn, i)
    weight = float(dbn.adjacency_matrices[lag, i, j])
    return EdgeEffect(names[i], names[j], lag, weight, curve, squares, origin, scale)


def curves_table(dbn: Network, n: int = 41, level: float = 0.95) -> pd.DataFrame:
    """Frame source, target, lag, value, effect, lower, upper, inside of every effect that is no straight line."""
    parts = []
    places = {(c.lag, c.source, c.target) for c in dbn.curves}
    places |= {(p.lag, p.first, p.target) for p in dbn.products if p.first == p.second}
    for lag, i, j in sorted(places):
        effect = edge_effect(dbn, i, j, lag)
        part = effect.to_frame(n, level)
        parts.append(part.assign(source=effect.source, target=effect.target, lag=lag)[_COLUMNS])
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=_COLUMNS)


def origin_and_scale(dbn: Network, source: int) -> tuple[float, float]:
    """Origin and scale of a variable: those of its functions; without any, its mean and standard deviation."""
    for curve in dbn.curves:
        if curve.source == source:
            return curve.origin, curve.scale
    for product in dbn.products:
        if source in (product.first, product.second):
            which = int(product.first != source)
            return product.origins[which], product.scales[which]
    try:
        if dbn.conditionals:
            # Of a categorical variable these are numbers without a meaning; nobody asks for them.
            mean, variance = usual(dbn).mean[source], usual(dbn).covariance[source, source]
        else:
            mean, variance = stationary_mean(dbn)[source], stationary_covariance(dbn)[source, source]
    except ParameterError:
        return (1.0 if dbn.kinds[source].name == "positive" else 0.0), 1.0
    return float(mean), float(np.sqrt(variance)) if variance > 0 else 1.0
