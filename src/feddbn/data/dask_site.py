"""A site too large for one machine: its Parquet files are read and multiplied by the workers of a Dask cluster.

Theory of operation
-------------------
- Recordings are cut into parts, at the ends of files and after every `part_rows` rows: a rule that knows nothing of workers.
- A worker reads its part and the p rows before it, which are only looked back at: a row needs p rows before it to be used,
  and the first of those p has fewer. So each usable row is in one part, whatever was cut where.
- What comes back is merged here in the order of time, whoever was ready first. The bits depend on the parts alone.

The sites of a federation do not know each other's clusters: all of this happens inside one site, before it answers.

Known weaknesses: only sums of products of linear rows without trends or cycles are made there (`core.designs.gram`); whatever
else is asked reads the files here, batch by batch. Workers need the same files under the same paths.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, final

from feddbn.core.designs.recordings import Block, Recording
from feddbn.data.streaming import FileIndex, FileRecording, FileSite, Paths, RowRange
from feddbn.data.tables import ParquetTable, Table
from feddbn.errors import MissingExtra, ParameterError
from feddbn.settings import whole

__all__ = ["DaskSite"]

T = TypeVar("T")
_PART_ROWS = 2_000_000


@final
class DaskSite(FileSite):
    """A site whose Parquet files are summed by a Dask cluster (needs dask and pyarrow).

    Parameters
    ----------
    paths, variables
        As in `ParquetSite`.
    client
        A ``distributed.Client``. None: whatever ``dask.compute`` uses, which is a client if one is connected, else threads of
        this process.
    part_rows
        Rows of a part at most; a worker holds `batch_rows` of them at once.
    reading
        Further arguments of `ParquetSite`: ``time``, ``series``; ``joined=True`` where recordings go on from file to file.

    Examples
    --------
    >>> import tempfile, pathlib, pandas as pd
    >>> from feddbn.data import DaskSite
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.parquet"
    >>> pd.DataFrame({"x": [1.0, 3.0], "y": [2.0, 4.0]}).to_parquet(path)
    >>> DaskSite(path, part_rows=1_000_000).variables
    ('x', 'y')
    """

    def __init__(
        self,
        paths: Paths,
        variables: Sequence[str] | None = None,
        *,
        client: Any = None,
        part_rows: int = _PART_ROWS,
        **reading: Any,
    ) -> None:
        whole(1).check("part_rows", part_rows)
        if client is not None and not (hasattr(client, "map") and hasattr(client, "gather")):
            raise ParameterError(f"client={client!r} must be a distributed.Client or None.")
        self.part_rows = int(part_rows)
        self.client = client
        given = [paths] if isinstance(paths, (str, PathLike)) else paths
        # Workers may stand in another directory.
        absolute = [Path(path).absolute() for path in given]
        super().__init__(absolute, variables, **reading)

    def _table(self, path: Path) -> Table:
        return ParquetTable(path)

    def _gather(self) -> None:
        raise ParameterError(
            "DaskSite reads rows at equal steps; make them of readings first, or read the files with ParquetSite."
        )

    def recordings(self) -> Iterator[FileRecording]:
        """Yield the recordings in the order of the files and their rows."""
        for one in super().recordings():
            yield _DaskRecording(self, one.run, one.cursor)

    def cuts(self, run: RowRange) -> list[int]:
        """Return the rows at which a recording is cut, its first and its end among them."""
        assert run.stop is not None
        table = self.tables[run.table]
        assert isinstance(table, ParquetTable)
        files = sorted({run.start, run.stop, *(row for row in table.starts if run.start < row < run.stop)})
        return sorted({row for a, b in pairwise(files) for row in range(a, b, self.part_rows)} | {*files})

    def at_worker(self) -> DaskSite:
        """Return what a worker needs of this site: no client, no list of recordings."""
        site = copy.copy(self)
        site.client, site._given_index, site.known = None, FileIndex((), self.index.clock), {}
        vars(site).pop("index", None)
        return site

    def compute(self, work: Callable[[Recording], T], parts: Sequence[Recording]) -> list[T]:
        """Return `work` of every part, in their order, done by the cluster."""
        if self.client is not None:
            # Not pure: files may have changed since the same work was last done.
            return list(self.client.gather(self.client.map(work, parts, pure=False)))
        try:
            import dask
        except ImportError:
            raise MissingExtra("dask", "dask") from None
        return list(
            dask.compute(*(dask.delayed(partial(work, part), pure=False, traverse=False)() for part in parts))
        )


@dataclass(frozen=True)
class _Part:
    """Rows of one recording, and before them those that lags reach back to; read where it is worked on."""

    name: str
    site: DaskSite
    run: RowRange
    first_row: int

    def blocks(self) -> Iterator[Block]:
        """Yield the rows in batches."""
        return FileRecording(self.site, self.run, self.site.cursor(self.run.table), self.first_row).blocks()


class _DaskRecording(FileRecording):
    """A recording of a `DaskSite`; read from beginning to end, it is that of any file."""

    site: DaskSite

    def over_parts(self, n_lags: int, work: Callable[[Recording], T]) -> list[T]:
        """Return `work` of every part, in the order of time."""
        run, cuts = self.run, self.site.cuts(self.run)
        there = self.site.at_worker()
        # One part that is empty stands for a recording without rows.
        spans = list(pairwise(cuts)) or [(run.start, run.start)]
        parts = []
        for start, stop in spans:
            first = max(start - n_lags, run.start)
            parts.append(_Part(self.name, there, replace(run, start=first, stop=stop), first - run.start))
        return self.site.compute(work, parts)
