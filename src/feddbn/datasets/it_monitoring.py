"""Four monitored computer systems with graphs drawn by their engineers (Ait-Bachir et al. 2023)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.datasets.source import Dataset, locate_local
from feddbn.errors import FileError, ParameterError

__all__ = ["IT_SYSTEMS", "load_it_monitoring"]

IT_SYSTEMS: tuple[str, ...] = ("antivirus", "middleware", "storm", "web")
"""The systems, in the order of the tables in docs/real-data.md."""

_ORIGIN = "the repository ckassaad/Case_Studies_of_Causal_Discovery_from_IT_Monitoring_Time_Series"
_GRAPHS = {"storm": "storm_structure.txt"}
_PREPARED = ("antivirus", "web")
_UNEVEN = "middleware"


def load_it_monitoring(
    system: str, path: str | os.PathLike[str] | None = None, *, preparation: int = 1
) -> Dataset:
    """Return one system: its sites and the edges that its engineers expect, at any lag.

    ==========  ==========================================  =======================================================
    system      sites                                       rows
    ==========  ==========================================  =======================================================
    antivirus   one                                         1,320 of five minutes
    middleware  two runs of a load test, hours apart        288 and 364 seconds; those that were skipped are empty
    storm       one                                         991
    web         one                                         7,500 of five minutes
    ==========  ==========================================  =======================================================

    The two files of antivirus and of web are two preparations of the same measurements, so they are no two sites, and their
    rows must not be counted twice; docs/real-data.md says how this is seen.

    Parameters
    ----------
    system
        One of `IT_SYSTEMS`.
    path
        Directory with ``it-monitoring/<system>/``; by default FEDDBN_DATA. These files are not downloaded.
    preparation
        Which file of antivirus and web: 1 keeps measured values, 2 interpolates between them, which puts a part of
        the next measurement into the present.

    Examples
    --------
    >>> from feddbn.datasets import IT_SYSTEMS, load_it_monitoring
    >>> data = load_it_monitoring(IT_SYSTEMS[0])
    >>> data.truth.shape[0] == len(data.variables)
    True
    """
    if system not in IT_SYSTEMS:
        raise ParameterError(f"system={system!r} must be one of {', '.join(IT_SYSTEMS)}.")
    if preparation not in (1, 2) or (preparation == 2 and system not in _PREPARED):
        raise ParameterError(
            f"preparation={preparation!r} must be 1, or 2 for {' and '.join(_PREPARED)}; the system is {system!r}."
        )

    def file(name: str) -> Path:
        return locate_local(f"it-monitoring/{system}/{name}", path, _ORIGIN)

    if system in _PREPARED:
        sites = {system: [_read_rows(file(f"preprocessed_{preparation}.csv"))]}
    elif system == _UNEVEN:
        sites = {f"run-{k}": [_every_second(_read_rows(file(f"monitoring_metrics_{k}.csv")))] for k in (1, 2)}
    else:
        sites = {system: [_read_rows(file("storm_data_normal.csv"))]}
    frames = [recordings[0] for recordings in sites.values()]
    variables = tuple(str(name) for name in frames[0].columns)
    if any(list(frame.columns) != list(variables) for frame in frames):
        raise FileError(f"the files of {system} in 'it-monitoring/{system}' do not have the same columns.")
    truth = _read_graph(file(_GRAPHS.get(system, "structure.txt")), variables)
    return Dataset(f"IT monitoring: {system}", sites, truth, dict.fromkeys(sites, truth), variables)


def _read_rows(file: Path) -> pd.DataFrame:
    """The measurements; the first column is the time or the number of the row and becomes the index."""
    try:
        frame = pd.read_csv(file, index_col=0)
        frame = frame.astype(np.float64)
    except (ValueError, TypeError, pd.errors.ParserError) as error:
        raise FileError(f"{str(file)!r} is no table of numbers with a time in its first column.") from error
    if not len(frame) or not len(frame.columns):
        raise FileError(f"{str(file)!r} is no table of numbers with a time in its first column: it is empty.")
    return frame


def _every_second(frame: pd.DataFrame) -> pd.DataFrame:
    """The same with an empty row for every second that was skipped, so that a lag is a second everywhere."""
    seconds = pd.RangeIndex(int(frame.index[0]), int(frame.index[-1]) + 1, name=frame.index.name)
    return frame.reindex(seconds)


def _read_graph(file: Path, variables: tuple[str, ...]) -> NDArray[np.int_]:
    """(d, d) of 0 and 1 from lines ``cause effect``."""
    position = {name: k for k, name in enumerate(variables)}
    truth = np.zeros((len(variables), len(variables)), dtype=int)
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        cells = line.split()
        if not cells:
            continue
        if len(cells) != 2 or any(name not in position for name in cells):
            raise FileError(
                f"{str(file)!r} is not a graph of these variables: line {number} is not 'cause effect'."
            )
        truth[position[cells[0]], position[cells[1]]] = 1
    np.fill_diagonal(truth, 0)
    return truth
