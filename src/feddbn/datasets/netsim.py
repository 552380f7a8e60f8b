"""NetSim: simulated BOLD signals of brain networks (Smith et al. 2011, NeuroImage 54)."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy.io import loadmat

from feddbn.datasets.source import Dataset, locate
from feddbn.errors import FileError, ParameterError

__all__ = ["PAPER_SUBJECTS", "netsim"]

PAPER_SUBJECTS: dict[int, tuple[int, ...]] = {1: (3, 6, 9, 12, 15), 2: (2, 4, 6, 8, 10), 3: (1, 3, 5, 7, 9)}
"""Subjects of the paper's per-subject FDBNL experiment, counted from 1."""


def netsim(
    sim: int = 3,
    subjects: Iterable[int] | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Return subjects of sim1 (5 nodes), sim2 (10) or sim3 (15): one site per subject, 200 time steps each.

    ``net[i, j]`` of the file is read as i -> j. Its diagonal of -1 (self-decay) is not an edge and is left
    out.

    Parameters
    ----------
    sim
        1, 2 or 3.
    subjects
        Numbers from 1; all by default. `PAPER_SUBJECTS[sim]` are the paper's five.
    path
        Directory with ``netsim/sim*.mat``; by default FEDDBN_DATA, else a download.

    Examples
    --------
    >>> from feddbn.datasets import netsim
    >>> data = netsim(3, subjects=[1, 2])
    >>> sorted(data.sites), data.truth.shape
    (['subject-01', 'subject-02'], (15, 15))
    """
    if sim not in (1, 2, 3):
        raise ParameterError(f"sim={sim!r} must be 1, 2 or 3.")
    file = locate(f"netsim/sim{sim}.mat", path)
    try:
        content = loadmat(file)
        series, net = (
            np.asarray(content["ts"], dtype=np.float64),
            np.asarray(content["net"], dtype=np.float64),
        )
        series = series.reshape(len(net), -1, net.shape[1])
    except (ValueError, KeyError, IndexError, TypeError, OSError) as error:
        raise FileError(
            f"{str(file)!r} is not a NetSim file ({type(error).__name__}): it needs 'ts' and 'net'."
        ) from error
    chosen = list(range(1, len(net) + 1)) if subjects is None else [int(s) for s in subjects]
    wrong = [s for s in chosen if not 1 <= s <= len(net)]
    if wrong or not chosen or len(set(chosen)) < len(chosen):
        raise ParameterError(f"subjects={chosen!r} must be different numbers between 1 and {len(net)}.")
    variables = tuple(f"node-{i + 1}" for i in range(net.shape[1]))
    sites = {f"subject-{s:02d}": [pd.DataFrame(series[s - 1], columns=list(variables))] for s in chosen}
    off_diagonal = ~np.eye(len(variables), dtype=bool)
    truths = {f"subject-{s:02d}": ((net[s - 1] != 0) & off_diagonal).astype(int) for s in chosen}
    everywhere = np.min(list(truths.values()), axis=0)
    return Dataset(f"NetSim sim{sim}", sites, everywhere, truths, variables)
