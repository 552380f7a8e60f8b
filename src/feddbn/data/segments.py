"""Where rows stop following each other: at gaps in time and, unless they are kept, at rows with missing values.

Rules
-----
- A row without a label, where labels are asked for, is left out and ends the segment.
- "drop" does the same with a row with any missing cell.
- "keep" leaves such rows where they are, NaN where a cell is missing. Rows of which nothing is present keep the
  clock between two others; they are left out where they lead or trail a segment, and more than `MOST_EMPTY` of them in
  a row end it.

Only what is out of the ordinary is looked at: the rows before which time jumps, and where rows that cannot begin or end a
segment ("hollow") begin and end. So memory does not grow with the number of ordinary rows.
"""

from __future__ import annotations

import numpy as np

from feddbn.data.rows import Rows
from feddbn.data.times import Clock, IntArray, steps_between

__all__ = ["MOST_EMPTY", "jumps", "segments", "stretches_of"]

MOST_EMPTY = 10
"""How many rows without any cell may lie within a segment, one after the other."""


def segments(n: int, breaks: IntArray, hollow: IntArray, most: int) -> tuple[IntArray, IntArray]:
    """Return the first rows and the ends of the segments of n rows.

    Parameters
    ----------
    breaks
        Rows that do not follow the row before, ascending.
    hollow
        (m, 2) first rows and ends of all stretches of hollow rows.
    most
        So many hollow rows may lie within a segment.
    """
    bounds = np.concatenate([[0], hollow.ravel(), [n]]).reshape(-1, 2)
    first, end = bounds[bounds[:, 0] < bounds[:, 1]].T
    # Stretches of full rows are cut at breaks, and put together again over few hollow ones.
    owner = np.searchsorted(first, breaks, side="right") - 1
    inside = breaks[(owner >= 0) & (breaks < end[np.maximum(owner, 0)])] if len(first) else breaks[:0]
    starts = np.union1d(first, inside)
    stops = np.minimum(np.append(starts[1:], n), end[np.searchsorted(first, starts, side="right") - 1])
    n_breaks = np.searchsorted(breaks, starts[1:], side="right") - np.searchsorted(breaks, stops[:-1])
    begins = np.append(True, (starts[1:] - stops[:-1] > most) | (n_breaks > 0))[: len(starts)]
    return starts[begins], stops[np.append(begins[1:], True)[: len(starts)]]


def jumps(
    rows: Rows, begins: IntArray, clock: Clock, zone: object, tolerance: float
) -> tuple[IntArray, IntArray, tuple[int, str] | None]:
    """Return the rows before which time jumps, how many steps lie there, and the first row whose time is wrong and how.

    `begins` are the rows that begin a recording: no time lies before them. A time may be the "same-time" as the one before,
    "earlier", or "closer" than a step.
    """
    found, lengths = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for start, stop in rows.chunks():
        before = max(start - 1, 0)
        ticks = clock.ticks(rows.read("tick", before, stop), zone)
        goes_on = np.ones(len(ticks), dtype=bool)
        goes_on[begins[(begins >= before) & (begins < stop)] - before] = False
        apart, goes_on = np.diff(ticks), goes_on[1:]
        steps, is_close = steps_between(ticks, clock.step or 1, tolerance)
        wrong = np.flatnonzero(((apart <= 0) | is_close) & goes_on)
        if len(wrong):
            first = wrong[np.argmin(apart[wrong] > 0)]
            code = "closer" if apart[first] > 0 else "same-time" if apart[first] == 0 else "earlier"
            return found[0], lengths[0], (before + 1 + int(first), code)
        at = np.flatnonzero(goes_on & (steps > 1))
        found.append(before + 1 + at)
        lengths.append(steps[at])
    return np.concatenate(found), np.concatenate(lengths), None


def stretches_of(rows: Rows, name: str) -> IntArray:
    """(m, 2) first rows and ends of all stretches of rows where a column of truths is True."""
    edges, was = [np.zeros(0, dtype=np.int64)], False
    for start, stop in rows.chunks():
        now = rows.read(name, start, stop)
        if now.any() or was:
            edges.append(start + np.flatnonzero(np.diff(now.astype(np.int8), prepend=np.int8(was))))
        was = bool(now[-1])
    found = np.concatenate(edges)
    return (np.append(found, rows.n) if was else found).reshape(-1, 2)
