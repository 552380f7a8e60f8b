"""The Tennessee Eastman chemical plant, simulated, with its graph (CIPCaD-Bench; Menegozzo et al. 2022)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.datasets.source import Dataset, locate_local
from feddbn.errors import FileError

__all__ = ["load_tennessee_eastman"]

_ORIGIN = "the repository giovanniMen/CPCaD-Bench"
_N = 33


def load_tennessee_eastman(path: str | os.PathLike[str] | None = None) -> Dataset:
    """Return the plant: one site, 1,499 rows, 31 of the variables X1 to X33 (X27 and X31 are absent), and 28 edges.

    The graph's file does not say which way it is meant. It is read as [effect, cause], because the valves X23 to X26
    then set the flows X1 to X4 and not the other way round; `Dataset.truth` is [from, to] as everywhere.

    Parameters
    ----------
    path
        Directory with ``tep/datasetTE.csv`` and ``tep/TEGroundTruth.txt``; by default FEDDBN_DATA. These files are not
        downloaded.

    Examples
    --------
    >>> from feddbn.datasets import load_tennessee_eastman
    >>> data = load_tennessee_eastman()
    >>> data.truth.shape[0] == len(data.variables)
    True
    """
    frame = _read_rows(locate_local("tep/datasetTE.csv", path, _ORIGIN))
    graph = _read_graph(locate_local("tep/TEGroundTruth.txt", path, _ORIGIN))
    variables = tuple(str(name) for name in frame.columns)
    measured = [int(name[1:]) - 1 for name in variables]
    truth = graph[np.ix_(measured, measured)].T.copy()
    np.fill_diagonal(truth, 0)
    sites = {"plant": [frame]}
    return Dataset("Tennessee Eastman", sites, truth, {"plant": truth}, variables)


def _read_rows(file: Path) -> pd.DataFrame:
    try:
        frame = pd.read_csv(file, index_col=0).astype(np.float64)
    except (ValueError, TypeError, pd.errors.ParserError) as error:
        raise FileError(
            f"{str(file)!r} is no table of numbers with a row number in its first column."
        ) from error
    known = {f"X{k}" for k in range(1, _N + 1)}
    unknown = [str(name) for name in frame.columns if str(name) not in known]
    if unknown or not len(frame.columns):
        what = f"{unknown[0]!r}" if unknown else "no column"
        raise FileError(f"{str(file)!r} must have columns X1 to X{_N}, got {what}.")
    return frame


def _read_graph(file: Path) -> NDArray[np.int_]:
    try:
        graph = np.loadtxt(file)
    except ValueError as error:
        raise FileError(f"{str(file)!r} is not a matrix of {_N} x {_N} numbers.") from error
    if graph.shape != (_N, _N):
        raise FileError(f"{str(file)!r} is not a matrix of {_N} x {_N} numbers, but of shape {graph.shape}.")
    edges: NDArray[np.int_] = (graph != 0).astype(int)
    return edges
