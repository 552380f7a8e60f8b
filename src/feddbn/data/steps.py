"""Which step keeps how much of readings at irregular times.

A step keeps two readings of a variable apart if they lie in different steps; otherwise they are averaged. A step that is too
small leaves most of its rows empty, one that is too large averages over what happens within it. Steps are counted from the
zero of the clock, as those of the rows would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.data.times import Clock, IntArray, usual_steps

__all__ = ["MOST_APART", "StepCount", "StepTable"]

MOST_APART = 0.8
"""A step keeps most readings apart if it keeps this share of them."""


class StepCount:
    """Counts what usual steps would keep of readings that come in the order of recordings and times."""

    def __init__(self, variables: Sequence[str], clock: Clock) -> None:
        usual = usual_steps(clock.text)
        self.variables, self.steps = tuple(variables), tuple(usual)
        self._lengths = [length * (clock.step or 1) for length in usual.values()]
        self.n_readings = 0
        self.n_steps = np.zeros(len(usual))
        self.values = np.zeros((len(usual), len(self.variables)))
        # The last reading of each variable in the recording that may go on.
        self._ticks, self._variable = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.intp)

    def add(self, begins: BoolArray, ticks: IntArray, variable: IntArray) -> None:
        """Count the next readings: which of them begin a recording, their times, and positions of their variables."""
        n_held = len(self._ticks)
        ticks, variable = np.concatenate([self._ticks, ticks]), np.concatenate([self._variable, variable])
        whose = np.concatenate([np.zeros(n_held, dtype=np.intp), np.cumsum(begins)])
        is_new = np.arange(len(ticks)) >= n_held
        starts = np.flatnonzero(np.diff(whose, prepend=-1))
        low, high = np.minimum.reduceat(ticks, starts), np.maximum.reduceat(ticks, starts)
        if n_held:
            low[0] = self._ticks.max()
        order = np.lexsort([ticks, variable, whose])
        of = [one[order] for one in (variable, whose)]
        is_first = np.ones(len(order), dtype=bool)
        is_first[1:] = np.any([one[1:] != one[:-1] for one in of], axis=0)
        self.n_readings += int((_apart(ticks[order], is_first) & is_new[order]).sum())
        for k, length in enumerate(self._lengths):
            counted = _apart(_numbers(ticks[order], length), is_first) & is_new[order]
            self.values[k] += np.bincount(of[0][counted], minlength=len(self.variables))
            self.n_steps[k] += (_numbers(high, length) - _numbers(low, length)).sum() + begins.sum()
        is_last = np.append(is_first[1:], True) & (of[1] == whose[-1])
        self._ticks, self._variable = ticks[order][is_last], of[0][is_last]


def _numbers(ticks: IntArray, length: float) -> IntArray:
    """In which step each time lies; a step may be a part of a tick."""
    return ticks // round(length) if length >= 1 else np.rint(ticks / length).astype(np.int64)


def _apart(numbers: IntArray, is_first: BoolArray) -> BoolArray:
    found = is_first.copy()
    found[1:] |= numbers[1:] != numbers[:-1]
    return found


@dataclass(frozen=True)
class StepTable:
    """What each of some steps would do to readings.

    Attributes
    ----------
    steps
        (m,) as text, ascending.
    kept
        (m,) share of the readings that a step keeps apart; readings of one variable at one time are one.
    filled
        (m, d) share of the steps, from the first to the last reading of a recording, in which a variable was read.
    """

    variables: tuple[str, ...]
    steps: tuple[str, ...]
    kept: FloatArray
    filled: FloatArray

    @property
    def best(self) -> str | None:
        """The largest step that keeps most readings apart, None if there is none."""
        enough = np.flatnonzero(self.kept >= MOST_APART)
        return self.steps[enough[-1]] if len(enough) else None

    @classmethod
    def of(cls, counts: Sequence[StepCount]) -> Self:
        """The table of all readings that were counted; times are all dates or all numbers, or those like the first count."""
        steps = counts[0].steps if counts else ()
        alike = [one for one in counts if one.steps == steps]
        names = tuple(dict.fromkeys(name for one in alike for name in one.variables))
        total, n_steps = np.zeros((len(steps), len(names))), np.zeros(len(steps))
        for one in alike:
            total[:, [names.index(name) for name in one.variables]] += one.values
            n_steps += one.n_steps
        n = sum(one.n_readings for one in alike)
        return cls(names, steps, total.sum(axis=1) / max(n, 1), total / np.maximum(n_steps, 1)[:, None])
