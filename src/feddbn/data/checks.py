"""What a set of sites contains, and whether a model with a given number of lags can be fitted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray, may_lack_cells
from feddbn.core.designs.recordings import Block, SiteData, complete_blocks
from feddbn.errors import DataError, Given
from feddbn.findings import Level
from feddbn.settings import whole

__all__ = [
    "ROWS_PER_COLUMN",
    "check_sites",
    "check_variances",
    "rows_doubt",
    "rows_level",
    "summary",
]

ROWS_PER_COLUMN = 10.0
"""With fewer rows for each column a regression on all of them is mostly chance."""


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
        raise DataError(
            f"data has {len(sites)} site{'' if len(sites) == 1 else 's'}; this needs at least {min_sites}."
        )
    variables: tuple[str, ...] | None = None
    for name, site in sites.items():
        if variables is not None and tuple(site.variables) != variables:
            raise DataError(
                f"site {name!r} has other variables, or another order of them, than site "
                f"{next(iter(sites))!r}; "
                "pass the data through feddbn.data.read_sites, which aligns them."
            )
        variables = tuple(site.variables)
        longest = _longest_segment(site, enough=n_lags + 1)
        if longest <= n_lags:
            rows = (
                f"only {longest} row{'' if longest == 1 else 's'} in its longest segment"
                if longest
                else "no usable row"
            )
            raise DataError(
                f"site {name!r} has {rows}; n_lags={n_lags} needs at least {n_lags + 1}: lower n_lags, fill "
                "its gaps, "
                "or leave the site out."
            )


def _longest_segment(site: SiteData, enough: int) -> int:
    longest = 0
    for recording in site.recordings():
        length = 0
        for block in recording.blocks():
            length = len(block.values) + (0 if block.starts_segment else length)
            longest = max(longest, length)
            if longest >= enough:
                return longest
    return longest


def check_variances(
    variables: Sequence[str], variances: FloatArray, means: FloatArray | None = None, rtol: float = 1e-13
) -> None:
    """Raise DataError if a variable is constant over the whole federation.

    Takes sums only: a variance counts as zero if it is at most ``rtol * mean**2``, which is what rounding
    leaves of a constant when a variance is computed from totals of squares.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data import check_variances
    >>> check_variances(["x", "y"], np.array([1.0, 0.0]))
    Traceback (most recent call last):
        ...
    feddbn.errors.DataError: variable 'y' is constant over all sites, so no edge can be learned; leave it out with variables=.
    """
    floor = 0.0 if means is None else rtol * np.square(means)
    constant = [name for name, flat in zip(variables, ~(np.asarray(variances) > floor), strict=True) if flat]
    if constant:
        many = len(constant) > 1
        more = f" and {len(constant) - 10} more" if len(constant) > 10 else ""
        names = ", ".join(map(repr, constant[:10])) + more
        raise DataError(
            f"variable{'s' if many else ''} {names} {'are' if many else 'is'} constant over all sites, so no edge can "
            f"be learned; leave {'them' if many else 'it'} out with {Given('variables')}.",
            columns=tuple(constant),
        )


def rows_level(usable: float, columns: int) -> Level:
    """Return how much a number of usable rows matters for so many columns of a lagged row (variables now and at each lag).

    "error": no more rows than columns, which explain each other exactly, whatever the data. "warning": fewer than
    `ROWS_PER_COLUMN` for each. "note": enough.

    Examples
    --------
    >>> [rows_level(usable, 8) for usable in (8, 79, 80)]
    ['error', 'warning', 'note']
    """
    if usable <= columns:
        return "error"
    return "warning" if usable < ROWS_PER_COLUMN * columns else "note"


def rows_doubt(usable: float, columns: int) -> float:
    """Return how far too few rows speak against all edges: 1 up to two rows a column, 0 from five on.

    Pure noise of 4 variables at lag 1, three sites, six seeds, edges shown in all: 28 with 9 rows for 8 columns, 17 with 12,
    2 with 15.
    """
    return float(np.clip((5.0 - usable / columns) / 3.0, 0.0, 1.0))


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
