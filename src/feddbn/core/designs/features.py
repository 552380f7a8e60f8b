"""Feature maps of regulators, computed where the rows are.

Rules of this file
------------------
- A feature map sees one row at a time: the features of x_t depend on x_t and on public numbers (origin,
  scale, knots) only. Time enters through the causal smoothing alone, so a row never depends on a later one.
- Everything a map needs is public or broadcast, so that the features of two sites mean the same and their
  sums add up.
- A stream cut into blocks gives the same rows as the whole segment: smoothing and lags are carried over the
  cut.

The columns of a feature row, for d variables, p lags and m features per regulator::

    [ x_t (d) | x_{t-1} (d) ... x_{t-p} (d) | phi(e_{t-1}) (d m) ... phi(e_{t-p}) (d m) ]
    e_t = s x_t + (1 - s) e_{t-1},   e = x in the first row of a segment

The features of one regulator at one lag stand next to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.lagged import Block
from feddbn.errors import ParameterError

__all__ = [
    "DEFAULT_KNOTS",
    "FeatureLayout",
    "FeatureMap",
    "FeatureRows",
    "callable_map",
    "feature_map",
    "feature_rows",
    "natural_spline",
    "register_feature_map",
    "smooth",
]

DEFAULT_KNOTS = (-1.645, -0.385, 0.385, 1.645)
"""Knots in public standard deviations: the 5, 35, 65 and 95 % points of a normal."""

Labels = NDArray[np.generic]
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


@dataclass(frozen=True)
class FeatureLayout:
    """Where the columns of a feature row are: d variables, p lags, m features per regulator."""

    d: int
    n_lags: int
    m: int

    @property
    def q(self) -> int:
        """Number of columns."""
        return self.d * (1 + self.n_lags * (1 + self.m))

    @property
    def n_regulators(self) -> int:
        """Number of (lag, variable) pairs, in the order lag 1 first."""
        return self.d * self.n_lags

    def own(self, target: int) -> NDArray[np.intp]:
        """(p,) columns of the target's own past."""
        return np.arange(1, self.n_lags + 1) * self.d + target

    def features(self) -> NDArray[np.intp]:
        """(n_regulators, m) columns of each regulator's features."""
        start = self.d * (1 + self.n_lags)
        return np.arange(start, self.q).reshape(self.n_regulators, self.m)


@dataclass(frozen=True)
class FeatureRows:
    """Consecutive feature rows (n, q) and the label of each row's own time t, or None."""

    rows: FloatArray
    labels: Labels | None


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


def feature_rows(
    blocks: Iterable[Block],
    n_lags: int,
    features: FeatureMap,
    *,
    smoothing: float = 1.0,
    origin: FloatArray | None = None,
    scale: FloatArray | None = None,
    knots: FloatArray | None = None,
    chunk_rows: int = 4096,
) -> Iterator[FeatureRows]:
    """Yield feature rows of ``(x - origin) / scale``, at most `chunk_rows` rows at a time.

    A row is usable if its `n_lags` predecessors lie in the same segment.
    """
    public_knots = np.array(DEFAULT_KNOTS) if knots is None else knots
    memory: FloatArray | None = None
    tail: FloatArray | None = None
    for block in blocks:
        if block.starts_segment:
            memory, tail = None, None
        for start in range(0, len(block.values), chunk_rows):
            piece = slice(start, start + chunk_rows)
            values = np.asarray(block.values[piece], dtype=np.float64)
            if origin is not None:
                values = values - origin
            if scale is not None:
                values = values / scale
            smoothed = smooth(values, smoothing, memory)
            memory = smoothed[-1]
            d = values.shape[1]
            mapped = features(smoothed, public_knots).reshape(len(values), -1)
            both = np.concatenate([values, mapped], axis=1)
            n_carried = 0
            if tail is not None:
                n_carried = len(tail)
                both = np.concatenate([tail, both])
            n_usable = len(both) - n_lags
            if n_usable > 0:
                labels = None if block.labels is None else block.labels[piece][max(n_lags - n_carried, 0) :]
                yield FeatureRows(_stack(both, n_lags, d), labels)
            tail = both[max(len(both) - n_lags, 0) :]


def _stack(both: FloatArray, n_lags: int, d: int) -> FloatArray:
    """Rows ``[x_t | x_{t-1} .. x_{t-p} | phi_{t-1} .. phi_{t-p}]`` from rows ``[x_t | phi_t]``."""
    n = len(both) - n_lags
    shifted = [both[n_lags - lag : n_lags - lag + n] for lag in range(n_lags + 1)]
    return np.concatenate([part[:, :d] for part in shifted] + [part[:, d:] for part in shifted[1:]], axis=1)


def _linear(values: FloatArray, knots: FloatArray) -> FloatArray:
    return values[:, :, None]


def _quadratic(values: FloatArray, knots: FloatArray) -> FloatArray:
    return np.stack([values, values**2], axis=-1)


_REGISTRY: dict[str, FeatureMap] = {
    "linear": FeatureMap("linear", _linear, lambda k: 1, has_knots=False),
    "quadratic": FeatureMap("quadratic", _quadratic, lambda k: 2, has_knots=False),
    "spline": FeatureMap("spline", natural_spline, lambda k: k - 1),
}


def register_feature_map(features: FeatureMap) -> None:
    """Make a feature map available by its name; every site of a federation must register the same one."""
    if features.name in ("linear", "quadratic", "spline"):
        raise ParameterError(f"the feature map name {features.name!r} is taken; choose another name.")
    _REGISTRY[features.name] = features


def feature_map(name: str) -> FeatureMap:
    """Return the feature map registered under `name`."""
    try:
        return _REGISTRY[name]
    except KeyError:
        raise ParameterError(
            f"no feature map is named {name!r} here; known are {', '.join(sorted(_REGISTRY))}."
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
