"""Feature maps of regulators, computed where the rows are.

Rules of this file
------------------
- A feature map sees one row at a time: the features of x_t depend on x_t and on public numbers (origin,
  scale, knots) only. Time enters through the causal smoothing alone, so a row never depends on a later one.
- Everything a map needs is public or broadcast, so that the features of two sites mean the same and their
  sums add up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError

__all__ = [
    "DEFAULT_KNOTS",
    "FeatureMap",
    "callable_map",
    "feature_map",
    "feature_map_names",
    "natural_spline",
    "register_feature_map",
    "smooth",
]

DEFAULT_KNOTS = (-1.645, -0.385, 0.385, 1.645)
"""Knots in public standard deviations: the 5, 35, 65 and 95 % points of a normal."""

FeatureFunction = Callable[[FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True)
class FeatureMap:
    """A named map from values (n, d) to features (n, d, m).

    Attributes
    ----------
    name
        What travels between server and sites; the function itself never does.
    function
        ``(values (n, d), knots (k,)) -> (n, d, m)``; row by row.
    width
        m for k knots.
    has_identity
        Whether the first feature is the value itself, so that a weight has the units of the regulator.
    has_knots
        Whether it reads its knots.
    """

    name: str
    function: FeatureFunction
    width: Callable[[int], int]
    has_identity: bool = True
    has_knots: bool = True

    def __call__(self, values: FloatArray, knots: FloatArray) -> FloatArray:
        """(n, d, m) features of (n, d) values."""
        result = np.asarray(self.function(values, knots), dtype=np.float64)
        if result.ndim == 2:
            result = result[:, :, None]
        expected = (*values.shape, self.width(len(knots)))
        if result.shape != expected:
            raise ParameterError(
                f"the feature map {self.name!r} returned shape {result.shape} for values of shape"
                f" {values.shape}; it must return {expected} (rows, variables, features)."
            )
        if not np.all(np.isfinite(result)):
            raise ParameterError(
                f"the feature map {self.name!r} returned values that are not finite;"
                " make it defined everywhere."
            )
        return result


def smooth(values: FloatArray, smoothing: float, before: FloatArray | None = None) -> FloatArray:
    """(n, d) causal exponential moving average ``e_t = s x_t + (1 - s) e_{t-1}``.

    `before` is the e of the row before, or None at the start of a segment, where e = x.
    """
    if not 0.0 < smoothing <= 1.0:
        raise ParameterError(f"smoothing must lie in (0, 1], got {smoothing!r}; 1 means no smoothing.")
    if smoothing == 1.0 or len(values) == 0:
        return values
    # Imported here: it takes longer than all else a site's process imports, and few studies smooth.
    from scipy.signal import lfilter

    start = values[0] if before is None else before
    memory = (1.0 - smoothing) * start[None, :]
    smoothed, _ = lfilter([smoothing], [1.0, smoothing - 1.0], values, axis=0, zi=memory)
    return np.asarray(smoothed, dtype=np.float64)


def natural_spline(values: FloatArray, knots: FloatArray) -> FloatArray:
    """(..., k-1) basis of cubic splines that are linear beyond the outer of k knots, without the constant.

    The value itself, then for j = 1..k-2, with u+ = max(u, 0)::

        [ (x - t_j)+^3 - (x - t_{k-1})+^3 (t_k - t_j) / (t_k - t_{k-1})
                       + (x - t_k)+^3 (t_{k-1} - t_j) / (t_k - t_{k-1}) ] / (t_k - t_1)^2
    """
    if len(knots) < 3 or np.any(np.diff(knots) <= 0):
        raise ParameterError(f"knots must be at least 3 increasing numbers, got {tuple(map(float, knots))}.")
    last, previous = knots[-1], knots[-2]
    columns = [values]
    cube_last = np.maximum(values - last, 0.0) ** 3 / (last - previous)
    cube_previous = np.maximum(values - previous, 0.0) ** 3 / (last - previous)
    for knot in knots[:-2]:
        term = (
            np.maximum(values - knot, 0.0) ** 3
            - cube_previous * (last - knot)
            + cube_last * (previous - knot)
        )
        columns.append(term / (last - knots[0]) ** 2)
    return np.stack(columns, axis=-1)


def _linear(values: FloatArray, knots: FloatArray) -> FloatArray:
    return values[:, :, None]


def _quadratic(values: FloatArray, knots: FloatArray) -> FloatArray:
    return np.stack([values, values**2], axis=-1)


_REGISTRY: dict[str, FeatureMap] = {
    "linear": FeatureMap("linear", _linear, lambda k: 1, has_knots=False),
    "quadratic": FeatureMap("quadratic", _quadratic, lambda k: 2, has_knots=False),
    "spline": FeatureMap("spline", natural_spline, lambda k: k - 1),
}
_PARTS = ("curve", "bend")
"""What splines and squares have beside the value (`core.designs.curve_basis`): parts of designs, no maps to choose."""


def register_feature_map(features: FeatureMap) -> None:
    """Make a feature map available by its name; every site of a federation must register the same one."""
    if features.name in ("linear", "quadratic", "spline", *_PARTS) and features.name in _REGISTRY:
        raise ParameterError(f"the feature map name {features.name!r} is taken; choose another name.")
    _REGISTRY[features.name] = features


def feature_map_names() -> list[str]:
    """Return the names of the feature maps that are known here."""
    return sorted({*_REGISTRY} - {*_PARTS})


def feature_map(name: str) -> FeatureMap:
    """Return the feature map registered under `name`."""
    try:
        return _REGISTRY[name]
    except KeyError:
        raise ParameterError(
            f"no feature map is named {name!r} here; known are {', '.join(feature_map_names())}."
            " A map of your own must be registered at every site with register_feature_map."
        ) from None


def callable_map(function: Callable[[FloatArray], FloatArray], d: int) -> FeatureMap:
    """Return a feature map around a user's ``f(values (n, d)) -> (n, d)`` or ``(n, d, m)``.

    It is named after the function, so that a deployment can register the same one at every site; m is learned
    by calling it on two rows of zeros.
    """
    with np.errstate(all="ignore"):
        probe = np.asarray(function(np.zeros((2, d))))
    if probe.ndim not in (2, 3) or probe.shape[:2] != (2, d):
        raise ParameterError(
            f"features returned shape {probe.shape} for values of shape (2, {d});"
            f" it must return (2, {d}) or (2, {d}, m): rows, variables, features."
        )
    m = 1 if probe.ndim == 2 else int(probe.shape[2])
    name = (
        f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__name__)}"
    )
    return FeatureMap(name, lambda values, knots: function(values), lambda k: m, False, False)
