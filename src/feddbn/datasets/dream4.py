"""DREAM4 in-silico networks of 100 genes (GeneNetWeaver; Marbach et al. 2009, Prill et al. 2010)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd

from feddbn.datasets.source import Dataset, locate
from feddbn.errors import FileError, ParameterError

__all__ = ["STIMULUS", "dream4"]

STIMULUS = "stimulus"
_STIMULATED_TRANSITIONS = 10


def dream4(
    network: int = 1,
    path: str | os.PathLike[str] | None = None,
    *,
    n_sites: int = 5,
    stimulus: bool = False,
) -> Dataset:
    """Return one of the five networks: ten series of 21 time points, two per site by default, and the true
    edges.

    Parameters
    ----------
    network
        1 to 5.
    path
        Directory with ``dream4/insilico_size100_*.tsv``; by default FEDDBN_DATA, else a download.
    n_sites
        Number of sites, at most ten; the series are dealt out in order.
    stimulus
        Add the column ``stimulus``: 1 in rows that were reached under the perturbation (time points 0 to 10),
        0 after it was removed (challenge description). Its targets differ between series and are unknown,
        which is what ``center_by="stimulus"`` is for.

    Examples
    --------
    >>> from feddbn.datasets import dream4
    >>> data = dream4(1, n_sites=5)
    >>> len(data.sites), len(data.variables), int(data.truth.sum())
    (5, 100, 176)
    """
    if network not in (1, 2, 3, 4, 5):
        raise ParameterError(f"network={network!r} must be 1, 2, 3, 4 or 5.")
    stem = f"dream4/insilico_size100_{network}"
    series = _read_series(locate(f"{stem}_timeseries.tsv", path))
    if not 1 <= n_sites <= len(series):
        raise ParameterError(
            f"n_sites={n_sites!r} must lie between 1 and the number of series, {len(series)}."
        )
    variables = tuple(str(name) for name in series[0].columns)
    truth = _read_edges(locate(f"{stem}_goldstandard.tsv", path), variables)
    if stimulus:
        series = [
            frame.assign(**{STIMULUS: (np.arange(len(frame)) <= _STIMULATED_TRANSITIONS).astype(int)})
            for frame in series
        ]
    sites = {
        f"client-{k + 1}": [series[i] for i in part]
        for k, part in enumerate(np.array_split(np.arange(len(series)), n_sites))
    }
    return Dataset(f"DREAM4 size 100 network {network}", sites, truth, dict.fromkeys(sites, truth), variables)


def _read_series(file: Path) -> list[pd.DataFrame]:
    """Series of one file: a header, then groups of rows separated by blank lines; the time comes first."""
    lines = file.read_text(encoding="utf-8").splitlines()
    names = [name.strip().strip('"') for name in lines[0].split("\t")] if lines else []
    if len(names) < 2 or names[0] != "Time":
        raise FileError(f"{str(file)!r} is not a DREAM4 time series: its first column must be 'Time'.")
    groups: list[list[list[float]]] = [[]]
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            groups.append([])
            continue
        try:
            values = [float(cell) for cell in line.split("\t")]
        except ValueError:
            values = []
        if len(values) != len(names):
            raise FileError(
                f"{str(file)!r} has {len(names)} columns, but line {number} has not so many numbers."
            )
        groups[-1].append(values)
    frames = [pd.DataFrame(np.array(group)[:, 1:], columns=names[1:]) for group in groups if group]
    if not frames:
        raise FileError(f"{str(file)!r} is not a DREAM4 time series: it has no rows.")
    return frames


def _read_edges(file: Path, variables: tuple[str, ...]) -> np.ndarray:
    """(d, d) of 0 and 1 from lines ``from, to, 0 or 1``."""
    position = {name: i for i, name in enumerate(variables)}
    truth = np.zeros((len(variables), len(variables)), dtype=int)
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        cells = line.split()
        if (
            len(cells) != 3
            or cells[0] not in position
            or cells[1] not in position
            or cells[2] not in ("0", "1")
        ):
            raise FileError(
                f"{str(file)!r} is not a DREAM4 gold standard: line {number} is not 'from, to, 0 or 1'."
            )
        truth[position[cells[0]], position[cells[1]]] = int(cells[2])
    np.fill_diagonal(truth, 0)
    return truth
