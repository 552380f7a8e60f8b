"""Values that somebody made before they came here: interpolated, carried forward, smoothed; told by six sums a variable.

Measured values do not lie on straight lines, and do not repeat. Rounded ones do both; but these also come back: after a
change the value before it is next more often than in one of fifty rows. Values of few levels are not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray

MADE_UP = ("lines", "repeats")
"""What cells can be emptied for."""
N_MADE_UP = 6
"""Sums for each variable: triples of neighbours, on a line, with a repeat, with two, back again, correlation of changes."""
_ROUNDING = 8 * np.finfo(np.float64).eps
_FEW_LEVELS, _LOOKED_AT = 20, 1000
_FEWEST, _SHARE_OF_LINES, _SHARE_OF_REPEATS = 20.0, 0.01, 0.005
_BACK = 0.02
"""Share of changes after which values that were not rounded come back at most."""
_BACK_PER_REPEAT = 0.1
_RUNS, _MORE_OFTEN, _SELDOM = 0.5, 3.0, 0.33
"""Repeats after a repeat, by share, by how much more often than else, and up to which share of repeats, of rounded values
that were carried on."""
_SMOOTH = 0.8


def triples(values: FloatArray) -> BoolArray:
    """(2, n, d) which cells lie on the line between their neighbours, and which repeat the one before; leading axes stay."""
    found = np.zeros((2, *values.shape), dtype=bool)
    change, size = np.diff(values, axis=-2), np.abs(values)
    before, after = change[..., :-1, :], change[..., 1:, :]
    with np.errstate(invalid="ignore"):
        near = _ROUNDING * np.maximum(size[..., 1:-1, :], np.maximum(size[..., 2:, :], size[..., :-2, :]))
        found[0, ..., 1:-1, :] = (np.abs(after - before) <= near) & (np.abs(after) > 100 * near)
    found[1, ..., 1:, :] = change == 0
    return found


def made_up_sums(values: FloatArray) -> FloatArray:
    """(N_MADE_UP, d) sums over the rows of one block, which add up."""
    found = np.zeros((N_MADE_UP, values.shape[1]))
    if len(values) < 3:
        return found
    (line, repeat), change = triples(values), np.diff(values, axis=0)
    before, after = change[:-1], change[1:]
    there, first, second = ~np.isnan(before + after), repeat[1:-1], repeat[2:]
    back = there & ~first & (values[2:] == values[:-2])
    before, after = np.where(there, before, 0.0), np.where(there, after, 0.0)
    size = np.sqrt((before**2).sum(axis=0) * (after**2).sum(axis=0))
    n = there.sum(axis=0)
    r = np.divide((before * after).sum(axis=0), size, out=np.zeros(len(n)), where=size > 0)
    counted = (line, first & there, first & second, back)
    found[:] = n, *(which.sum(axis=0) for which in counted), n * r
    for j, column in enumerate(values[:_LOOKED_AT].T):
        cells = column[~np.isnan(column)]
        if len(np.unique(cells)) <= min(_FEW_LEVELS, len(cells) // 4):
            found[:, j] = 0.0
    return found


def made_up_kinds(sums: FloatArray, periods: Sequence[float] = ()) -> dict[int, tuple[str, float]]:
    """Position of a variable -> "lines", "repeats" or "smooth", and the share of such cells, or the correlation of changes.

    A cycle without noise is smooth, too: with `periods` nothing is said to be.
    """
    found = {}
    for j, (n, line, repeat, run, back, r) in enumerate(sums.T.tolist()):
        is_back = back > _BACK * (n - repeat) or back > _BACK_PER_REPEAT * repeat
        carried = repeat <= _SELDOM * n and run >= repeat * max(_RUNS, _MORE_OFTEN * repeat / max(n, 1.0))
        if line >= max(_FEWEST, _SHARE_OF_LINES * n) and back <= _BACK_PER_REPEAT * line:
            found[j] = "lines", line / n
        elif repeat >= max(_FEWEST, _SHARE_OF_REPEATS * n) and (carried or not is_back):
            found[j] = "repeats", repeat / n
        elif n >= _FEWEST and r > _SMOOTH * n and not periods:
            found[j] = "smooth", r / n
    return found
