"""The recording that a forecast goes on from: its last rows, and the times that come next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.cells import mapped
from feddbn.core.designs.recordings import Recording, all_rows
from feddbn.data import Site
from feddbn.data.described import described
from feddbn.data.layout import Layout
from feddbn.data.read import read_all
from feddbn.data.tables import plain_frame
from feddbn.data.times import Clock
from feddbn.errors import DataError, Given, ParameterError
from feddbn.findings import Finding

__all__ = ["History", "read_history"]


@dataclass(frozen=True)
class History:
    """The end of one recording.

    Attributes
    ----------
    rows
        (n, d) rows after its last gap, NaN where a cell is missing.
    n_rows
        Number of rows that have a value.
    values, steps
        (m, d) all rows of the recording, also those before gaps, and their (m,) times in rows since the first.
    end
        Time of the last of `rows` on the same clock.
    n_empty
        How many rows at its very end have no value.
    last
        The time of the last row, or None without times.
    """

    rows: FloatArray
    n_rows: int
    n_empty: int
    values: FloatArray
    steps: FloatArray
    end: int
    last: Any = None
    clock: Clock | None = None
    remarks: tuple[Finding, ...] = ()

    def times(self, steps: int) -> list[Any] | None:
        """Return the times of the next `steps` time steps, or None if they are not known."""
        clock = self.clock
        if self.last is None or clock is None or clock.step is None:
            return None
        ahead = [k * clock.step for k in range(1, steps + 1)]
        if clock.unit == "number":
            times = [round(self.last + k, 9) for k in ahead]
            return [int(one) if one == int(one) else one for one in times]
        if clock.unit == "month":
            ends = pd.offsets.MonthEnd(0) if self.last.is_month_end else pd.Timedelta(0)
            return [self.last + pd.DateOffset(months=int(k)) + ends for k in ahead]
        if clock.unit == "business":
            return [self.last + pd.offsets.BDay(int(k)) for k in ahead]
        if clock.unit == "wall" and self.last.tz is not None:
            local = self.last.tz_localize(None)
            return [(local + pd.Timedelta(k, unit="ns")).tz_localize(self.last.tz) for k in ahead]
        return [self.last + pd.Timedelta(k, unit="ns") for k in ahead]


def read_history(
    source: Any,
    variables: Sequence[str],
    layout: Layout | None = None,
    cell_maps: tuple[str, ...] = (),
    series: str | None = None,
) -> History:
    """Return the end of one recording in a file or table; `layout` says how it is read, `cell_maps` its cells.

    Of several recordings ``series="patient=p3"`` takes one: the rows that have p3 in the column patient.
    """
    where = f"history={str(source)!r}" if isinstance(source, (str, PathLike)) else "history"
    source, layout = described(source, replace(layout or Layout(), variables=tuple(variables)))
    source = _of_series(source, layout, series)
    sites = read_all(source, layout).sites
    site = next(iter(sites.values()))
    assert isinstance(site, Site)
    if site.refused is not None:
        raise site.refused
    if len(sites) > 1 or len(list(site.recordings())) != 1:
        n = sum(len(list(one.recordings())) for one in sites.values())
        raise DataError(f"{where} holds {n} recordings; {_CHOOSE}.")
    (own,), (recording,) = site.recordings(), mapped(site, cell_maps).recordings()
    rows, n_rows, end = _end(recording, where)
    values, at = all_rows(recording)
    # Reading cuts empty rows at the end, but time has gone on.
    n_empty = own.end - end
    rows = np.concatenate([rows, np.full((n_empty, len(variables)), np.nan)])
    last = own.last if site.clock is not None and site.clock.step is not None else None
    return History(rows, n_rows, n_empty, values, at, own.end, last, site.clock, site.findings)


_CHOOSE = f"give the rows of one recording, or say which with {Given('series', 'COLUMN=NAME')}"


def _of_series(source: Any, layout: Layout, series: str | None) -> Any:
    """The source, or a frame of those of its rows that belong to one recording."""
    if series is None:
        return source
    frame = plain_frame(source, layout)
    column, sign, name = (part.strip() for part in series.partition("="))
    if not sign or column not in frame:
        raise ParameterError(
            f"{Given('series', series)} must look like COLUMN=NAME with one of the columns "
            f"{', '.join(map(str, frame.columns[:10]))}."
        )
    texts = frame[column].astype(str)
    if not (texts == name).any():
        names = ", ".join(texts.unique()[:10])
        raise ParameterError(
            f"{Given('series', series)}: the column {column!r} has no {name!r}; it has {names}."
        )
    return frame[texts == name].drop(columns=column).reset_index(drop=True)


def _end(recording: Recording, where: str) -> tuple[FloatArray, int, int]:
    """Return the rows after the last gap, the number of all that have a value, and at which time step the last of them is."""
    pieces: list[FloatArray] = []
    n_rows, end = 0, -1
    for block in recording.blocks():
        n_rows += int((~np.isnan(block.values)).any(axis=1).sum())
        pieces = [block.values] if block.starts_segment else [*pieces, block.values]
        end = (end + 1 if block.time is None else block.time) + len(block.values) - 1
    if not n_rows:
        raise DataError(f"{where} has no usable row; a forecast goes on from its last ones.")
    return np.concatenate(pieces), n_rows, end
