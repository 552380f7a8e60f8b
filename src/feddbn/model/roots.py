"""Where is the root? Which variables' own noise explains an anomaly in given rows.

What a network does not expect of a variable, given its causes, is the variable's own noise. A root has unusual noise; a
variable that only follows its causes has not. Two questions are answered for the rows of a window:

1. Is the noise of a variable unusual? Its mean and its spread are compared with the noise in the rows before the window
   (with few such rows: with the noise of the network). A weight is known up to its standard error, so the noise of an effect
   is unusual only beyond what that error makes of the deviation of its causes.
2. How much of the deviation would be gone if the noise of one variable had been normal? Its noise is put back to normal, all
   other noise stays, and the rows are run again through the network. With ``delta`` what a target deviates by (from the rows
   without any noise in the window) and ``c_j`` what vanishes without the noise of j, the share of j is
   ``<c_j, delta> / <delta, delta>``. In a linear network the ``c_j`` add up to ``delta``, so the shares add up to 1.

Intervals of shares come from draws of normal noise and, in linear networks, of weights within their standard errors. An
effect may come lags later than its cause, so noise is looked at from `n_lags` rows before the window on.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.data.tables import plain_frame
from feddbn.errors import DataError, Given, ParameterError
from feddbn.findings import Finding, Findings
from feddbn.model.dynamics import columns_of, indicators, last_complete, with_past
from feddbn.model.forecast import check_order
from feddbn.model.network import Network, RandomState, Rows, random_generator, rows_of, variable_index
from feddbn.model.step import LinearSteps, Steps, run
from feddbn.settings import nothing, number, whole
from feddbn.shown import Shown
from feddbn.words import say

__all__ = ["RootCauses", "root_causes", "window_of"]

_FEWEST = 20
_NULL_DRAWS, _SHARE_DRAWS = 999, 200
_UNUSUAL = 0.05
_MOST_NUMBERS = 2_000_000


@dataclass(frozen=True, eq=False)
class RootCauses(Shown):
    """Which variables' own noise explains the deviation in a window.

    Attributes
    ----------
    table
        One row per variable, the most unusual noise first. `deviation`: mean noise in the window, in standard deviations of
        normal noise. `spread`: standard deviation of the noise over that of normal noise. `score`: log likelihood ratio of
        the noise in the window having a mean and a variance of its own. `p_value`: how often some variable has so high a
        score by chance. `share`, `lower`, `upper`: share of the deviation that vanishes with normal noise. `largest`:
        probability that no other share is larger.
    target
        The variable whose deviation is explained; None for all, each in its standard deviations.
    n_window, n_before
        Rows in the window, and complete rows before it that say what is normal.
    findings
        What to know.
    """

    table: pd.DataFrame
    target: str | None
    n_window: int
    n_before: int
    level: float
    findings: Findings

    @property
    def roots(self) -> tuple[str, ...]:
        """Variables whose own noise is unusual (p-value at most 0.05), the most unusual first."""
        return tuple(self.table["variable"][self.table["p_value"] <= _UNUSUAL])

    def __str__(self) -> str:
        table = self.table.to_string(index=False, float_format="{:.3g}".format, line_width=79)
        notes = [fill(f"{found.level}: {say(found)}", 79) for found in self.findings]
        return "\n".join([f"Root causes: {', '.join(self.roots) or 'none'}", table, *notes])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        table = self.table.astype(object).where(self.table.notna(), None).to_dict("records")
        found = [one.to_dict() for one in self.findings]
        return {**vars(self), "roots": list(self.roots), "table": table, "findings": found}


def root_causes(
    dbn: Network,
    rows: Rows,
    first: Any,
    last: Any = None,
    target: str | int | None = None,
    *,
    n_rows: int | None = None,
    level: float = 0.9,
    random_state: RandomState = 0,
) -> RootCauses:
    """Say which variables' own noise explains what is unusual in the rows from `first` to `last`.

    Parameters
    ----------
    rows
        One recording: the rows of the window, and rows before it, which say what is normal. At least n_lags are needed, and
        20 or more that lack nothing are better. A missing cell (NaN) in or just before the window is taken as the network
        expects it.
    first, last
        The first and the last row of the window, both included: labels of a frame's index, positions in an array. Without
        `last` the window goes on to the end.
    target
        The variable whose deviation is explained; by default all, each in its standard deviations.
    n_rows
        How many rows the network was learned from. By default weights are taken to be as sure as the rows before the window
        can make them.
    level
        Probability of the intervals of shares.

    Examples
    --------
    >>> import feddbn
    >>> dbn = feddbn.DBN([[0, 0.8], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> rows = dbn.simulate(200, random_state=0)
    >>> rows.loc[190:, "x"] += 8
    >>> rows.loc[190:, "y"] += 0.8 * 8
    >>> dbn.root_causes(rows, 190).roots
    ('x',)
    """
    level = number(above=0, below=1).check("level", level)
    known = (whole(1) | nothing()).check("n_rows", n_rows)
    of = None if target is None else variable_index(target, dbn.variables, "target")
    rng, p = random_generator(random_state), dbn.n_lags
    begin, end = window_of(rows, first, last)
    values = rows_of(rows, dbn.variables, "rows", dbn.kinds)[:end]
    if np.isinf(values).any():
        raise DataError("rows has an infinite value; remove it or mark it as missing (NaN).")
    if begin < p:
        raise DataError(f"rows needs at least n_lags={p} rows before {Given('first', first)}, got {begin}.")
    span, missing = max(begin - p, p), np.isnan(values)
    lagged = with_past(values, p)
    before = lagged[: span - p]
    rounding = np.maximum(1e-12 * np.abs(np.nan_to_num(values)).max(axis=0), 1e-200)
    normal = _normal(dbn, before[~np.isnan(before).any(axis=1)], rounding, known, rng)
    values = _filled(dbn, values, span, normal.mean)
    within, unseen = with_past(values, p)[span - p :], missing[span:]
    noise = np.where(unseen, normal.mean, dbn.steps.shocks_of(within, rng))

    found = _unusual(normal, noise, within, unseen, rng)
    shares = _shares(dbn, normal, values, begin, within, noise, of, rng)
    low, high = np.quantile(shares[1:], [0.5 - level / 2, 0.5 + level / 2], axis=0)
    largest = np.bincount(shares[1:].argmax(axis=1), minlength=dbn.d) / _SHARE_DRAWS
    found |= {"share": shares[0], "lower": low, "upper": high, "largest": largest}
    table = pd.DataFrame({"variable": dbn.variables, **found})
    table = table.sort_values("score", ascending=False, kind="stable", ignore_index=True)
    name = None if of is None else dbn.variables[of]
    told = Findings(_told(dbn, table, normal, unseen))
    return RootCauses(table, name, end - begin, normal.n, level, told)


def window_of(rows: Rows, first: Any, last: Any) -> tuple[int, int]:
    """Positions of the first row of the window and of the row after its last."""
    rows = plain_frame(rows)
    index = rows.index if isinstance(rows, pd.DataFrame) else pd.RangeIndex(len(rows))
    check_order(rows, "rows")
    try:
        found = index.slice_indexer(first, last)
    except (KeyError, TypeError, ValueError):
        found = slice(0, 0)
    if found.start >= found.stop:
        ends = f"{index[0]} to {index[-1]}" if len(index) else "none"
        raise ParameterError(
            f"{Given('first', first)} and {Given('last', last)} name no rows; there are rows {ends}."
        )
    return int(found.start), int(found.stop)


def _filled(dbn: Network, values: FloatArray, span: int, noise: FloatArray) -> FloatArray:
    """The rows with missing cells as the network expects them, given the rows before and the causes in the same row."""
    p, missing = dbn.n_lags, np.isnan(values)
    if not missing[span - p :].any():
        return values
    start = last_complete(np.asarray(~missing[:span].any(axis=1)), p)
    if start is None:
        raise DataError(f"rows has no {p} complete rows in a row before the window; fill the missing cells.")
    values = values.copy()
    for t in range(start, len(values)):
        values[t] = dbn.steps.step(values[None, t - p : t], noise[None], values[t])[0]
    return values


class _Normal(NamedTuple):
    """What noise usually is: its mean and standard deviation (d,), (m, d) noise to draw from, what is rounding only (d,),
    and how many rows tell it.

    `level` is the mean of rows with their past. `weights` has for every variable the columns of its causes there, and the
    covariance of its weights over the variance of its noise; None where too few rows tell it.
    """

    mean: FloatArray
    sd: FloatArray
    noise: FloatArray
    rounding: FloatArray
    n: int
    level: FloatArray
    weights: list[tuple[IntArray, FloatArray]] | None


def _normal(
    dbn: Network, before: FloatArray, rounding: FloatArray, n_rows: int | None, rng: np.random.Generator
) -> _Normal:
    """What is normal, from complete rows with their past; from the network if they are few."""
    going, n = dbn.steps, len(before)
    if n < _FEWEST:
        drawn, sd = going.shocks("gaussian", (_NULL_DRAWS,), rng), going.sd
        return _Normal(np.zeros(dbn.d), np.maximum(sd, rounding), drawn, rounding, n, np.zeros(0), None)
    noise, level, weights = going.shocks_of(before, rng), before.mean(axis=0), []
    for j in range(dbn.d):
        lags, causes = np.nonzero(dbn.is_edge[:, :, j])
        places = lags * dbn.d + causes
        X = before[:, places] - level[places]
        # As if one row more had been seen, so that a cause that did not vary has a standard error, too.
        inner = X.T @ X + np.diag(np.maximum(X.std(axis=0), rounding[causes]) ** 2)
        weights.append((places, np.linalg.inv(inner) * (1.0 if n_rows is None else n / n_rows)))
    sd = np.maximum(noise.std(axis=0), rounding)
    return _Normal(noise.mean(axis=0), sd, noise, rounding, n, level, weights)


def _unusual(
    normal: _Normal, noise: FloatArray, within: FloatArray, unseen: BoolArray, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """(d,) deviation, spread, score and p-value of noise (m, d) in rows with their past `within`."""
    z = (noise - normal.mean) / normal.sd
    deviation, spread, score = (np.full(noise.shape[1], np.nan) for _ in range(3))
    for j in np.flatnonzero(~unseen.all(axis=0)):
        seen = ~unseen[:, j]
        mine = z[seen, j]
        deviation[j], spread[j] = mine.mean(), mine.std(ddof=1) if len(mine) > 1 else np.nan
        if normal.weights is not None:
            # In units of normal noise its covariance is I + F F', with F from the errors of weights.
            places, covariance = normal.weights[j]
            F = (within[seen][:, places] - normal.level[places]) @ np.linalg.cholesky(covariance)
            U, s, _ = np.linalg.svd(F, full_matrices=False)
            mine = mine + U @ ((1 / np.sqrt(1 + s**2) - 1) * (U.T @ mine))
        still = (np.abs(noise[seen, j] - normal.mean[j]) <= normal.rounding[j]).all()
        score[j] = 0.0 if still else _score(mine)
    rows = np.concatenate([normal.noise, noise])
    highest = np.sort(_by_chance(rows[:, rows.std(axis=0) > normal.rounding], len(noise), rng))
    above = _NULL_DRAWS - np.searchsorted(highest, score)
    p_value = np.where(np.isnan(score), np.nan, (1 + above) / (1 + _NULL_DRAWS))
    return {"deviation": deviation, "spread": spread, "score": score, "p_value": p_value}


def _by_chance(rows: FloatArray, m: int, rng: np.random.Generator) -> list[float]:
    """The highest score of any variable if the m rows of the window are any of all rows: a permutation of rows."""
    z = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    squares, n = (z**2).sum(axis=0), len(z) - m
    found: list[float] = []
    for _ in range(_NULL_DRAWS):
        drawn = z[rng.choice(len(z), m, replace=False, shuffle=False)]
        mean = -drawn.sum(axis=0) / n
        variance = (squares - (drawn**2).sum(axis=0)) / n - mean**2
        found.append(_score((drawn - mean) / np.sqrt(np.maximum(variance, 1e-12))).max(initial=0.0))
    return found


def _score(z: FloatArray) -> FloatArray:
    """Log likelihood ratio of standardised noise (m, ...) having its own mean and variance against 0 and 1; the variance is
    estimated as if one more value had been at distance 1.
    """
    m, rest = len(z), ((z - z.mean(axis=0)) ** 2).sum(axis=0)
    variance = (rest + 1) / m
    return np.asarray(((z**2).sum(axis=0) - rest / variance - m * np.log(variance)) / 2)


def _shares(
    dbn: Network,
    normal: _Normal,
    values: FloatArray,
    begin: int,
    within: FloatArray,
    noise: FloatArray,
    of: int | None,
    rng: np.random.Generator,
) -> FloatArray:
    """(1 + draws, d) shares of the deviation that vanish: with mean noise, then with draws of noise and weights.

    `within` are the last of `values` with their past, and `noise` (m, d) is their noise; the window begins at `begin`.
    """
    d, p, (m, _) = dbn.d, dbn.n_lags, noise.shape
    span = len(values) - m
    seen, scale = indicators(dbn, values[begin:]), np.nanstd(indicators(dbn, values[:begin]), axis=0)
    unit = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    if of is not None:
        unit[:] = 0.0
        unit[columns_of(dbn, of)] = 1.0

    def shares(going: Steps, noise: FloatArray, mean: FloatArray, instead: FloatArray) -> FloatArray:
        """(k, d) with normal noise `instead` (k, m, d)."""
        # One path for each variable with its noise put back to normal, and one with all noise at its mean.
        shocks = np.tile(noise, (len(instead), d + 1, 1, 1))
        for j in range(d):
            shocks[:, j, :, j] = instead[:, :, j]
        shocks[:, d] = mean
        paths = run(going.step, p, values[None, span - p : span], shocks.reshape(-1, m, d))[:, begin - span :]
        vanished = ((seen - indicators(dbn, paths)) * unit).reshape(len(instead), d + 1, -1)
        deviation = vanished[:, d:]
        size = (deviation**2).sum(axis=2)
        return np.asarray((vanished[:, :d] * deviation).sum(axis=2) / np.where(size > 0, size, 1.0))

    going, found = (
        dbn.steps,
        [shares(dbn.steps, noise, normal.mean, normal.mean * np.ones((1, m, 1)))],
    )
    drawn = normal.noise[rng.integers(len(normal.noise), size=(_SHARE_DRAWS, m))]
    if isinstance(going, LinearSteps) and normal.weights is not None:
        for one in drawn:
            other = _drawn(going, normal, rng)
            mean = other.residuals(normal.level[None])[0]
            found.append(shares(other, other.residuals(within), mean, one[None] - normal.mean + mean))
    else:
        at_once = max(1, _MOST_NUMBERS // ((d + 1) * m * d))
        for k in range(0, _SHARE_DRAWS, at_once):
            found.append(shares(going, noise, normal.mean, drawn[k : k + at_once]))
    return np.concatenate(found)


def _drawn(going: LinearSteps, normal: _Normal, rng: np.random.Generator) -> LinearSteps:
    """The same network with weights drawn within their standard errors; its level stays."""
    weights, d = np.concatenate([going.W, *going.A]), going.d
    for j, (places, covariance) in enumerate(normal.weights or ()):
        error = np.linalg.cholesky(covariance) @ rng.standard_normal(len(places))
        weights[places, j] += normal.sd[j] * error
    W, *A = weights.reshape(-1, d, d)
    return LinearSteps(W, np.array(A).reshape(-1, d, d), going.intercept, going.variances)


def _told(dbn: Network, table: pd.DataFrame, normal: _Normal, unseen: BoolArray) -> list[Finding]:
    """What to know about the answer."""
    unusual = tuple(table["variable"][table["p_value"] <= _UNUSUAL])
    found = []
    if not unusual:
        found.append(Finding("roots-none", "note", {"p_value": float(table["p_value"].min())}))
    if len(unusual) > max(2, dbn.d / 2):
        found.append(Finding("roots-everywhere", "warning", {"n": len(unusual), "d": dbn.d}))
    if normal.weights is None:
        found.append(Finding("roots-few-rows", "warning", {"n": normal.n, "fewest": _FEWEST}))
    if unseen.any():
        empty = np.flatnonzero(unseen.any(axis=0))
        about = tuple(dbn.variables[j] for j in empty)
        found.append(Finding("roots-missing-cells", "warning", {"n": int(unseen.sum())}, about))
    open_ends = [
        f"{source} -> {target}" for source, target in dbn.open_edges if {source, target} & {*unusual}
    ]
    if open_ends:
        found.append(Finding("roots-open", "warning", about=tuple(open_ends)))
    return found
