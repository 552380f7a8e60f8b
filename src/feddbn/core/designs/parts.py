"""Rows dealt to parts that are summed apart: what changes from part to part is no law of all rows.

A part is a union of whole recordings where a site has at least two for each part, the longest first, each to the part that
has the fewest rows; else it is a stretch of all its rows, one recording after the other, as long as every other. So parts of
all sites go together: whoever has many recordings varies over recordings, whoever has one over time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from feddbn.core.designs.recordings import Block, Recording, RecordingView, SiteData, SiteView

N_PARTS = 4
"""Parts of the rows of a study."""
_RECORDINGS_OF_A_PART = 2


def least_rows(columns: int) -> int:
    """Rows of a site below which parts are not asked for: of each a usual policy wants three for each column."""
    return N_PARTS * max(100, 8 * columns)


@dataclass(frozen=True)
class DealtSite(SiteView):
    """A site whose rows have the number of their part for a label.

    Attributes
    ----------
    parts
        For each recording the part it is in, or (rows of the site before it, rows of the site) where stretches are dealt.
    n_parts
        Number of parts.
    """

    parts: tuple[int | tuple[int, int], ...]
    n_parts: int

    def recordings(self) -> Iterator[Recording]:
        """Yield the recordings with these labels."""
        for recording, part in zip(self.data.recordings(), self.parts, strict=True):
            yield RecordingView(recording, partial(self._labelled, part))

    def _labelled(self, part: int | tuple[int, int], recording: Recording) -> Iterator[Block]:
        place = 0
        for block in recording.blocks():
            rows = place + np.arange(len(block.values), dtype=np.int64)
            place += len(rows)
            if isinstance(part, tuple):
                before, total = part
                labels = (before + rows) * self.n_parts // max(total, 1)
            else:
                labels = np.full(len(rows), part, dtype=np.int64)
            yield replace(block, labels=labels)


def dealt(data: SiteData, n_parts: int) -> SiteData:
    """The site with its rows dealt to parts; as it is if that has been done, also below other views of it."""
    if is_dealt(data):
        return data
    lengths = [sum(len(block.values) for block in one.blocks()) for one in data.recordings()]
    if sum(n > 0 for n in lengths) >= _RECORDINGS_OF_A_PART * n_parts:
        return DealtSite(data, tuple(_by_length(lengths, n_parts)), n_parts)
    before = np.cumsum([0, *lengths]).tolist()
    return DealtSite(data, tuple((first, before[-1]) for first in before[:-1]), n_parts)


def is_dealt(data: SiteData) -> bool:
    """Whether the rows of a site have been dealt, whatever was done to its cells since."""
    while isinstance(data, SiteView):
        if isinstance(data, DealtSite):
            return True
        data = data.data
    return False


def _by_length(lengths: Sequence[int], n_parts: int) -> list[int]:
    """The part of each recording, parts in the order of their rows: the longest are those of all sites."""
    rows, found = np.zeros(n_parts, dtype=np.int64), np.zeros(len(lengths), dtype=np.int64)
    for k in sorted(range(len(lengths)), key=lambda k: (-lengths[k], k)):
        found[k] = int(rows.argmin())
        rows[found[k]] += lengths[k]
    rank = np.empty(n_parts, dtype=np.int64)
    rank[np.argsort(-rows, kind="stable")] = np.arange(n_parts)
    return [int(k) for k in rank[found]]
