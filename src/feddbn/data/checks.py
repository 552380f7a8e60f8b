"""What a set of sites contains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pandas as pd

from feddbn.core.arrays import may_lack_cells
from feddbn.core.designs.recordings import Block, SiteData, complete_blocks
from feddbn.settings import whole

__all__ = ["summary"]


def summary(sites: Mapping[str, SiteData], n_lags: int = 0) -> pd.DataFrame:
    """One row per site: recordings, segments, rows kept and left out, and how many of them can be used.

    usable_rows
        Rows whose `n_lags` predecessors lie in the same segment.
    complete_rows
        Usable rows that lack no cell, nor do those predecessors: all that methods use which need whole rows.
    missing_percent
        Share of the cells of the kept rows that are empty; 0 if rows were read with ``missing="drop"``.

    Reads every site once, streamed ones in batches.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data import read_sites, summary
    >>> summary(read_sites({"a": np.ones((5, 2)), "b": np.ones((8, 2))}), n_lags=1)["usable_rows"].to_dict()
    {'a': 4, 'b': 7}
    """
    whole(0).check("n_lags", n_lags)
    table = []
    for name, site in sites.items():
        every, complete = _Count(n_lags), _Count(n_lags)
        n_recordings = 0
        for recording in site.recordings():
            n_recordings += 1
            for block in complete_blocks(every.watch(recording.blocks())):
                complete.add(block)
        dropped = int(getattr(site, "n_dropped_rows", 0))
        percent = 100.0 * every.n_missing / max(every.n_rows * len(site.variables), 1)
        counts = (every.n_segments, every.n_rows, every.n_usable, dropped, complete.n_usable, percent)
        table.append((name, n_recordings, *counts))
    columns = [
        "recordings",
        "segments",
        "rows",
        "usable_rows",
        "dropped_rows",
        "complete_rows",
        "missing_percent",
    ]
    return pd.DataFrame(table, columns=["site", *columns]).set_index("site")


class _Count:
    """Counts what passes by."""

    def __init__(self, n_lags: int) -> None:
        self.n_segments = self.n_rows = self.n_usable = self.n_missing = 0
        self._n_lags, self._length = n_lags, 0

    def add(self, block: Block) -> None:
        n = len(block.values)
        if block.starts_segment:
            self.n_segments += 1
            self._length = 0
        before = max(self._length - self._n_lags, 0)
        self._length += n
        self.n_usable += max(self._length - self._n_lags, 0) - before
        self.n_rows += n

    def watch(self, blocks: Iterable[Block]) -> Iterator[Block]:
        for block in blocks:
            self.add(block)
            self.n_missing += int(np.isnan(block.values).sum()) if may_lack_cells(block.values) else 0
            yield block
