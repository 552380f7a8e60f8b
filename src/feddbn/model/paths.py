"""Simulated paths of networks that bend: how they go on, where they usually are, where they leave the range seen."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.mechanisms import run
from feddbn.model.network import Network

__all__ = [
    "BY_LEVEL",
    "Outcome",
    "Usual",
    "columns_of",
    "drawn_windows",
    "first_rows",
    "indicators",
    "outcome_columns",
    "paths_from",
    "ranges_seen",
    "share_beyond",
    "usual",
    "usual_lagged",
]

_BOUND = 1e100
_N_PATHS, _BURN_IN, _N_ROWS = 50, 200, 200
_QUIET = 0.05
# What a relaxation time of some 90 of the 200 steps gives.
_STUCK = 0.5


def paths_from(
    dbn: Network, start: FloatArray, shocks: FloatArray, held: FloatArray | None = None
) -> FloatArray:
    """(n_paths, steps, d) paths driven by `shocks` (n_paths, steps, d) from `start` (1 or n_paths, p, d).

    `held` (steps, d) has values that variables are held at, NaN where they are free.
    """

    def check(t: int, x: FloatArray) -> None:
        far = ~(np.abs(x) < _BOUND).all(axis=0)
        if far.any():
            name = dbn.variables[int(np.flatnonzero(far)[0])]
            raise ParameterError(
                f"simulated paths of {name!r} leave all bounds at step {t + 1}: the effects of this network are not stable;"
                " take fewer steps, or hold the variable."
            )

    return run(dbn.mechanisms.step, dbn.n_lags, start, shocks, held, check if dbn.bends else None)


def ranges_seen(dbn: Network) -> tuple[FloatArray, FloatArray]:
    """(d,) and (d,) between which values the functions of each variable are free; infinite without such functions."""
    low, high = np.full(dbn.d, -np.inf), np.full(dbn.d, np.inf)
    for source, (begin, end) in (both for part in dbn.parts for both in part.ranges.items()):
        low[source], high[source] = max(low[source], begin), min(high[source], end)
    return low, high


def share_beyond(dbn: Network, paths: FloatArray) -> FloatArray:
    """(steps, d) share of paths (n_paths, steps, d) outside the range in which a variable's functions are free."""
    low, high = ranges_seen(dbn)
    return np.asarray(((paths < low) | (paths > high)).mean(axis=0))


class Usual(NamedTuple):
    """Where a process usually is, from simulated paths that have forgotten their start."""

    rows: FloatArray
    mean: FloatArray
    covariance: FloatArray


_KNOWN: WeakKeyDictionary[Network, Usual | str] = WeakKeyDictionary()


def usual(dbn: Network) -> Usual:
    """Return 10,000 rows of a network with curves: (50, 200, d), their mean and covariance; always the same for a network.

    Raises ParameterError if the paths leave all bounds, or if they still spread or drift after 200 steps.
    """
    if dbn not in _KNOWN:
        try:
            _KNOWN[dbn] = _simulated(dbn)
        except ParameterError as error:
            _KNOWN[dbn] = str(error)
    known = _KNOWN[dbn]
    if isinstance(known, str):
        raise ParameterError(known)
    return known


def _simulated(dbn: Network) -> Usual:
    # The seed is fixed: what a network implies does not change from call to call.
    rng = np.random.default_rng(0)
    shocks = dbn.mechanisms.shocks("gaussian", (_N_PATHS, _BURN_IN + _N_ROWS), rng)
    start = _at_any_level(dbn, first_rows(dbn), rng)
    rows = paths_from(dbn, start, shocks)[:, _BURN_IN:].copy()
    _check_settled(dbn, rows)
    _check_levels(dbn, rows)
    flat = rows.reshape(-1, dbn.d)
    return Usual(rows, flat.mean(axis=0), np.cov(flat.T, ddof=0).reshape(dbn.d, dbn.d))


def drawn_windows(dbn: Network, n: int, rng: np.random.Generator) -> FloatArray:
    """(n, p, d) stretches of p rows that the process visits by itself."""
    rows, p = usual(dbn).rows, dbn.n_lags
    path, last = rng.integers(rows.shape[0], size=n), rng.integers(p, rows.shape[1] + 1, size=n)
    return np.asarray(rows[path[:, None], last[:, None] + np.arange(-p, 0)])


def usual_lagged(dbn: Network, n: int = 1000) -> FloatArray:
    """(n, (p+1) d) lagged rows ``[x_t, ..., x_{t-p}]`` that the process visits by itself; always the same for a network."""
    rows, p = usual(dbn).rows, dbn.n_lags
    rng = np.random.default_rng(0)
    path, last = rng.integers(rows.shape[0], size=n), rng.integers(p, rows.shape[1], size=n)
    return np.asarray(rows[path[:, None], last[:, None] - np.arange(p + 1)].reshape(n, -1))


def _check_settled(dbn: Network, rows: FloatArray) -> None:
    rows = _on_their_scales(dbn, rows)
    early, late = np.split(rows, [_N_ROWS // 2], axis=1)
    spread, later = early.var(axis=(0, 1)), late.var(axis=(0, 1))
    drift = np.abs(late.mean(axis=(0, 1)) - early.mean(axis=(0, 1)))
    moving = (later > 2 * spread) | (drift > np.sqrt(later))
    moving &= later > 1e-20 * (1 + early.mean(axis=(0, 1)) ** 2)
    if moving.any():
        name = dbn.variables[int(np.flatnonzero(moving)[0])]
        raise ParameterError(
            f"this network has no usual level: simulated paths of {name!r} still move away after {_BURN_IN} steps; pass a"
            " history."
        )


def _at_any_level(dbn: Network, start: FloatArray, rng: np.random.Generator) -> FloatArray:
    """(50, p, d) the same start with variables at levels drawn evenly, so that no level is missed that is left rarely."""
    rows = np.tile(start, (_N_PATHS, 1, 1))
    for j, kind in enumerate(dbn.kinds):
        if kind.levels:
            rows[:, :, j] = rng.integers(kind.n_levels, size=(_N_PATHS, 1))
    return rows


def _check_levels(dbn: Network, rows: FloatArray) -> None:
    """Refuse variables whose level depends on where their path began: the means of paths differ as much as single rows."""
    spread, between = rows.var(axis=(0, 1)), rows.mean(axis=1).var(axis=0)
    stuck = np.array([bool(kind.levels) for kind in dbn.kinds]) & (between > _STUCK * spread) & (spread > 0)
    if stuck.any():
        name = dbn.variables[int(np.flatnonzero(stuck)[0])]
        raise ParameterError(
            f"this network has no usual level: {name!r} changes so rarely that {_BURN_IN} simulated steps do not tell where"
            " it usually is; pass a history, or rows to average over."
        )


def _on_their_scales(dbn: Network, rows: FloatArray) -> FloatArray:
    """Rows whose spread can grow without bounds, on the scales on which causes act; levels have none, so they are 0."""
    shown = np.zeros_like(rows)
    for j, kind in enumerate(dbn.kinds):
        if not kind.levels:
            # Rare counts are all but constant: what is left of their spread is chance.
            shown[..., j] = kind.encode(rows[..., j])[..., 0]
            quiet = kind.name == "count" and shown[..., j].var() < _QUIET
            shown[..., j] *= not quiet
    return shown


def first_rows(dbn: Network) -> FloatArray:
    """(1, p, d) where to begin: the origin of a variable's functions, 0 if it has none; 1 if it is positive."""
    origins = np.array([1.0 if kind.name == "positive" else 0.0 for kind in dbn.kinds])
    for source, (origin, _) in dbn.units.items():
        origins[source] = origin
    return np.tile(origins, (1, dbn.n_lags, 1))


BY_LEVEL = ("ordinal", "categorical")
"""Kinds of which every level is told by itself: a mean, or the probability of 1, is told of the others."""


class Outcome(NamedTuple):
    """What one column tells of."""

    variable: str
    level: str = ""

    @property
    def name(self) -> str:
        """The variable, or variable=level."""
        return f"{self.variable}={self.level}" if self.level else self.variable


def outcome_columns(dbn: Network) -> tuple[Outcome, ...]:
    """The columns, variable after variable."""
    found = []
    for name, kind in zip(dbn.variables, dbn.kinds, strict=True):
        found += [Outcome(name, level) for level in kind.levels] if kind.name in BY_LEVEL else [Outcome(name)]
    return tuple(found)


def columns_of(dbn: Network, variable: int) -> slice:
    """Which of these columns are those of one variable."""
    widths = [kind.n_levels if kind.name in BY_LEVEL else 1 for kind in dbn.kinds]
    begin = sum(widths[:variable])
    return slice(begin, begin + widths[variable])


def indicators(dbn: Network, values: FloatArray) -> FloatArray:
    """(..., m) the outcomes of values (..., d): values themselves, or 1 at the level that is there."""
    parts = []
    for j, kind in enumerate(dbn.kinds):
        column = values[..., j, None]
        parts.append((column == np.arange(kind.n_levels)) * 1.0 if kind.name in BY_LEVEL else column)
    return np.concatenate(parts, axis=-1)
