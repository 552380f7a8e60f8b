"""What a set of sites contains, and whether a model with a given number of lags can be fitted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pandas as pd

from feddbn.core.arrays import may_lack_cells
from feddbn.core.designs.recordings import Block, SiteData, complete_blocks
from feddbn.errors import DataError
from feddbn.settings import whole

__all__ = ["check_sites", "summary"]


def check_sites(sites: Mapping[str, SiteData], n_lags: int, min_sites: int = 1) -> None:
    """Raise DataError unless there are enough sites, with the same variables, each with a usable row.

    A row is usable if its `n_lags` predecessors lie in the same segment. Reads a site only until one is
    found.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data import check_sites, read_sites
    >>> sites = read_sites({"a": np.ones((5, 2))})
    >>> check_sites(sites, n_lags=1)
    >>> check_sites(sites, n_lags=5)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    feddbn.errors.DataError: site 'a' has only 5 rows in its longest segment; n_lags=5 needs at least 6...
    """
    whole(0).check("n_lags", n_lags)
    if len(sites) < min_sites:
        raise DataError(f"data has too few sites ({len(sites)}); this needs at least {min_sites}.")
    first, reference = next(((name, tuple(site.variables)) for name, site in sites.items()), ("", ()))
    for name, site in sites.items():
        if tuple(site.variables) != reference:
            raise DataError(
                f"site {name!r} has other variables, or another order of them, than site {first!r}; pass the data through "
                "feddbn.data.read_sites, which aligns them."
            )
        longest = 0
        for length in _lengths(site):
            longest = max(longest, length)
            if longest > n_lags:
                break
        else:
            raise DataError(
                f"site {name!r} has only {longest} rows in its longest segment; n_lags={n_lags} needs at least {n_lags + 1}: "
                "lower n_lags, fill its gaps, or leave the site out."
            )


def _lengths(site: SiteData) -> Iterator[int]:
    """Yield how many rows of its segment there are up to each block."""
    for recording in site.recordings():
        length = 0
        for block in recording.blocks():
            length = len(block.values) + (0 if block.starts_segment else length)
            yield length


def summary(sites: Mapping[str, SiteData], n_lags: int = 0) -> pd.DataFrame:
    """One row per site: recordings, segments, rows kept and left out, and how many of them can be used.

    usable_rows
        Rows whose `n_lags` predecessors lie in the same segment.
    complete_rows
        Usable rows that lack no cell, nor do those predecessors: all that methods use which need whole rows.
    missing_percent
        Share of the cells of the kept rows that are empty; 0 if rows were read with ``missing="drop"``.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data import read_sites, summary
    >>> summary(read_sites({"a": np.ones((5, 2)), "b": np.ones((8, 2))}), n_lags=1)["usable_rows"].to_dict()
    {'a': 4, 'b': 7}
    """
    whole(0).check("n_lags", n_lags)
    table = {}
    for name, site in sites.items():
        every, complete, n_recordings = _Count(n_lags), _Count(n_lags), 0
        for recording in site.recordings():
            n_recordings += 1
            for _ in complete.watch(complete_blocks(every.watch(recording.blocks()))):
                pass
        table[name] = {
            "recordings": n_recordings,
            "segments": every.n_segments,
            "rows": every.n_rows,
            "usable_rows": every.n_usable,
            "dropped_rows": int(getattr(site, "n_dropped_rows", 0)),
            "complete_rows": complete.n_usable,
            "missing_percent": 100.0 * every.n_missing / max(every.n_rows * len(site.variables), 1),
        }
    return pd.DataFrame.from_dict(table, orient="index").rename_axis("site")


class _Count:
    """Counts what passes by."""

    def __init__(self, n_lags: int) -> None:
        self.n_segments = self.n_rows = self.n_usable = self.n_missing = 0
        self._n_lags, self._length = n_lags, 0

    def watch(self, blocks: Iterable[Block]) -> Iterator[Block]:
        for block in blocks:
            before = 0 if block.starts_segment else self._length
            self._length = before + len(block.values)
            self.n_segments += block.starts_segment
            self.n_rows += len(block.values)
            self.n_usable += max(self._length - self._n_lags, 0) - max(before - self._n_lags, 0)
            self.n_missing += int(np.isnan(block.values).sum()) if may_lack_cells(block.values) else 0
            yield block
