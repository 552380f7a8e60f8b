"""What tables show by themselves, counted while their rows pass by.

Counts and extremes are exact. Everything costly looks at the first rows (at most `HEAD_ROWS` of a recording, and
`SITE_ROWS` of a site). Memory is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import SiteData

__all__ = ["Profile", "profile_of"]

HEAD_ROWS = 20_000
SITE_ROWS = 200_000


class Profile:
    """What is known of the rows of one site; arrays have one entry for each of `columns`."""

    def __init__(self, name: str, columns: tuple[str, ...], is_timed: bool = False) -> None:
        d = len(columns)
        self.name, self.columns, self.is_timed = name, columns, is_timed
        self.place = {column: j for j, column in enumerate(columns)}
        self.n_rows = 0
        self.n_missing, self.n_text = np.zeros(d, dtype=np.int64), np.zeros(d, dtype=np.int64)
        self.lowest, self.highest = np.full(d, np.inf), np.full(d, -np.inf)
        self._sizes: dict[int, int] = {}
        self._heads: dict[int, list[FloatArray]] = {}
        self._room = SITE_ROWS

    def feed(self, values: FloatArray, code: NDArray[np.integer], texts: Mapping[int, pd.Series]) -> None:
        """Take the next rows (n, d), those of a recording (its `code`) together; columns that hold texts as they are."""
        n = len(values)
        if not n:
            return
        codes = values.copy() if texts else values
        with np.errstate(invalid="ignore", over="ignore"):
            is_finite = bool(np.isfinite(values.sum()))
        if not is_finite:
            absent = np.isnan(values)
            for j, column in texts.items():
                # Texts are coded by their order, so that their changes, and dates that rise, can be seen.
                is_text = absent[:, j] & column.notna().to_numpy()
                codes[is_text, j] = pd.factorize(column.astype(str), sort=True)[0][is_text]
                self.n_text[j] += is_text.sum()
                absent[is_text, j] = False
            self.n_missing += absent.sum(axis=0)
            values = np.where(np.isinf(values), np.nan, values)
        self.n_rows += n
        self.lowest = np.fmin(self.lowest, np.fmin.reduce(values, axis=0))
        self.highest = np.fmax(self.highest, np.fmax.reduce(values, axis=0))
        edges = [0, *(np.flatnonzero(np.diff(code)) + 1).tolist(), n]
        for start, stop in pairwise(edges):
            recording = int(code[start])
            before = self._sizes.get(recording, 0)
            self._sizes[recording] = before + stop - start
            room = min(HEAD_ROWS - before, self._room, stop - start)
            if room > 0:
                self._heads.setdefault(recording, []).append(codes[start : start + room])
                self._room -= room

    @cached_property
    def heads(self) -> list[FloatArray]:
        """The first rows (m, d) of recordings; text is coded by whole numbers."""
        return [np.concatenate(parts) for parts in self._heads.values()]

    def head(self, column: str) -> FloatArray:
        """The first cells of a column of all recordings."""
        j = self.place[column]
        return np.concatenate([one[:, j] for one in self.heads]) if self.heads else np.zeros(0)

    @property
    def n_numbers(self) -> NDArray[np.int64]:
        """(d,) how many cells hold numbers."""
        return np.asarray(self.n_rows - self.n_missing - self.n_text)

    @cached_property
    def numeric(self) -> tuple[str, ...]:
        """The columns that hold numbers only."""
        is_number = (self.n_text == 0) & (self.n_numbers > 0)
        return tuple(name for name in self.columns if is_number[self.place[name]])

    @property
    def is_whole(self) -> bool:
        """Whether no cell is empty."""
        return not self.n_missing.any()

    def largest(self) -> dict[str, float]:
        """Column -> the largest absolute value of its cells; -inf if it has none."""
        return dict(zip(self.columns, np.maximum(self.highest, -self.lowest).tolist(), strict=True))


def profile_of(name: str, site: SiteData) -> Profile:
    """Return what was counted while a site was read; of one that was read elsewhere it is counted now."""
    known: Profile | None = getattr(site, "profile", None)
    if known is not None:
        return known
    is_timed = getattr(site, "step", None) is not None
    found = Profile(name, tuple(site.variables), is_timed)
    for code, recording in enumerate(site.recordings()):
        for block in recording.blocks():
            found.feed(block.values, np.full(len(block.values), code), {})
    return found
