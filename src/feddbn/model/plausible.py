"""Whether a history can be what a network was learned from: its units, its level, the order of its rows.

A network says how rows follow each other up to noise of known size. Rows in other units, of another level or in another
order leave residuals of another size; that is all that is looked at, so the answer holds for any stable or unstable network.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.errors import DataError, ParameterError
from feddbn.model.additive import additive
from feddbn.model.conditional_residuals import quantile_residuals
from feddbn.model.dynamics import stationary_covariance, stationary_mean
from feddbn.model.inputs import Rows
from feddbn.model.network import Network

__all__ = ["check_order", "doubts"]

_MOST_ROWS = 2000
_FEW_ROWS = 20
# Residuals of a site with noise of its own are rarely three times as large; units usually differ by ten or more.
_FACTOR = 3.0
_FAR = 8.0
# The median of |u| for a standard normal u.
_MEDIAN = 0.6744897501960817
_PERMUTATIONS = 10


def check_order(history: Rows) -> None:
    """Refuse a frame whose index says that its rows are several recordings, or not in the order of time."""
    if not isinstance(history, pd.DataFrame):
        return
    index = history.index
    if index.nlevels > 1:
        raise DataError(
            f"history has an index of {index.nlevels} levels, so it may hold several recordings; give the rows of one, "
            "with one level."
        )
    if isinstance(index, (pd.DatetimeIndex, pd.PeriodIndex)) and not (
        index.is_monotonic_increasing and index.is_unique
    ):
        what = "the same time twice" if index.is_monotonic_increasing else "times that are not in order"
        raise DataError(f"history has {what} in its index; give one recording, sorted with sort_index().")


def doubts(dbn: Network, rows: FloatArray) -> list[str]:
    """Return sentences on what speaks against `rows` (n, d) being of the kind that the network describes."""
    rows = rows[-_MOST_ROWS:]
    whole = rows[np.isfinite(rows).all(axis=1)]
    noise = _noise(dbn)
    known = noise > 0
    p = dbn.n_lags
    if not known.any() or len(rows) < p or not len(whole):
        return []
    u = _residuals(dbn, rows)[:, known] / noise[known]
    u = u[np.isfinite(u).all(axis=1)]
    if len(u) < _FEW_ROWS:
        return _far(dbn, whole)
    typical = np.median(np.abs(u), axis=0) / _MEDIAN
    root_mean = np.sqrt((u**2).mean(axis=0))
    large = typical > _FACTOR
    small = (typical < 1 / _FACTOR) & (root_mean < 1 / _FACTOR)
    names = [name for name, is_known in zip(dbn.variables, known, strict=True) if is_known]
    out = []
    if large.any():
        ratio = float(typical[large].max())
        out.append(
            f"the rows of history are up to {ratio:.3g} times as far from what the network expects of "
            f"{_listed(names, large)} as its noise explains: other units, another level (dbn.at_level), rows out "
            "of order or another kind of recording; the forecast may be worthless."
        )
    elif small.any():
        ratio = float(typical[small].min())
        out.append(
            f"{_listed(names, small)} varies {ratio:.2g} times as much as the network expects: check the units of history; "
            "the forecast may be worthless."
        )
    elif _is_shuffled(dbn, whole, u):
        out.append(
            "the rows of history follow each other no better than in random order: sort them by time, and give one "
            "recording only; the forecast may be worthless."
        )
    return out


def _noise(dbn: Network) -> FloatArray:
    """(d,) standard deviations of residuals; those of variables of other kinds are standard normal, 0 without any."""
    if dbn.conditionals:
        return np.where(dbn.noise_variances > 0, 1.0, 0.0)
    return np.sqrt(dbn.noise_variances)


def _residuals(dbn: Network, rows: FloatArray) -> FloatArray:
    p, n = dbn.n_lags, len(rows)
    if dbn.conditionals:
        lagged = np.concatenate([rows[p - lag : n - lag] for lag in range(p + 1)], axis=1)
        u = np.full((n - p, dbn.d), np.nan)
        whole = np.isfinite(lagged).all(axis=1)
        u[whole] = quantile_residuals(dbn, lagged[whole], np.random.default_rng(0))
        return u
    u = rows[p:] - dbn.intercept - rows[p:] @ dbn.W
    for lag in range(1, p + 1):
        u = u - rows[p - lag : n - lag] @ dbn.A[lag - 1]
    if dbn.bends:
        whole = np.isfinite(u).all(axis=1)
        lagged = np.concatenate([rows[p - lag : n - lag] for lag in range(p + 1)], axis=1)
        u[whole] -= additive(dbn).of_rows(lagged[whole])
    return np.asarray(u)


def _far(dbn: Network, rows: FloatArray) -> list[str]:
    """With few rows: are they where a stationary process can be?"""
    try:
        mean, sd = stationary_mean(dbn), np.sqrt(np.diag(stationary_covariance(dbn)))
    except ParameterError:
        return []
    if dbn.conditionals:
        # Levels are where they can be; of others the mean says little about how far away is far.
        sd = np.where([kind.name == "continuous" for kind in dbn.kinds], sd, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.where(sd > 0, np.abs(rows - mean).min(axis=0) / sd, 0.0)
    far = off > _FAR
    if not far.any():
        return []
    return [
        f"{_listed(dbn.variables, far)} in history is {off.max():.3g} standard deviations from the "
        "mean of the network: other units or another level (dbn.at_level); the forecast may be worthless."
    ]


def _is_shuffled(dbn: Network, rows: FloatArray, u: FloatArray) -> bool:
    """Whether rows in random order would fit as well, although the network says that order matters."""
    if dbn.n_lags == 0 or len(u) < 3 * _FEW_ROWS:
        return False
    noise = _noise(dbn)
    known = noise > 0
    rng = np.random.default_rng(0)
    mixed = np.mean(
        [
            _size(_residuals(dbn, rows[rng.permutation(len(rows))])[:, known] / noise[known])
            for _ in range(_PERMUTATIONS)
        ]
    )
    return bool(mixed > 1.3 and _size(u) > 0.92 * mixed)


def _size(u: FloatArray) -> float:
    """Mean square of standardised residuals, in which no spike counts for much."""
    return float(np.minimum(u**2, 25.0).mean())


def _listed(variables: Sequence[str], chosen: NDArray[np.bool_]) -> str:
    names = [name for name, is_chosen in zip(variables, chosen, strict=True) if is_chosen]
    shown = ", ".join(map(repr, names[:5]))
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")
