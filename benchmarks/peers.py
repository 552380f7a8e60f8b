"""Other people's methods behind one call: rows (n, d) of one recording in, W [from, to] out.

Those of `LAGGED_PEERS` take the recordings of several sites, NaN where a cell is empty, and return W and A, both [from, to].

A method whose package is not installed is left out of the table and named below it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TypeVar

import numpy as np

Method = Callable[[np.ndarray], np.ndarray]
Lagged = tuple[np.ndarray, np.ndarray]
Call = TypeVar("Call")
EMPTY = 1e9


def varlingam(x: np.ndarray) -> np.ndarray:
    return varlingam_of_sites([x])[0]


def varlingam_of_sites(recordings: list[np.ndarray], threshold: float = 0.0) -> Lagged:
    """Every recording centred on its own mean, one below the other: the package knows one recording without gaps.

    Empty cells are interpolated in time. With complete rows only it makes more errors, since rows that were apart touch.
    """
    from lingam import VARLiNGAM

    x = np.vstack([interpolated(x - np.nanmean(x, axis=0)) for x in recordings])
    model = VARLiNGAM(lags=1, criterion=None, prune=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x)
    W, A = (np.asarray(m).T for m in model.adjacency_matrices_[:2])
    return np.where(np.abs(W) > threshold, W, 0.0), np.where(np.abs(A) > threshold, A, 0.0)[None]


def interpolated(x: np.ndarray) -> np.ndarray:
    """Empty cells on the line between their neighbours in time."""
    filled, t = x.copy(), np.arange(len(x))
    for j in np.flatnonzero(np.isnan(x).any(axis=0)):
        here = ~np.isnan(x[:, j])
        filled[:, j] = np.interp(t, t[here], x[here, j]) if here.any() else 0.0
    return filled


def directlingam(x: np.ndarray) -> np.ndarray:
    from lingam import DirectLiNGAM

    model = DirectLiNGAM()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x)
    return model.adjacency_matrix_.T


def pcmci_plus(x: np.ndarray) -> np.ndarray:
    return pcmci_plus_of_sites([x])[0]


def pcmci_plus_of_sites(
    recordings: list[np.ndarray], robust: bool = False, alpha: float = 0.01, fdr: float | None = None
) -> Lagged:
    """Every recording centred on its own mean; with `fdr` only links that Benjamini and Hochberg's rule keeps."""
    from tigramite import data_processing
    from tigramite.independence_tests.parcorr import ParCorr
    from tigramite.independence_tests.robust_parcorr import RobustParCorr
    from tigramite.pcmci import PCMCI

    centred = [x - np.nanmean(x, axis=0) for x in recordings]
    data = {k: np.where(np.isnan(x), EMPTY, x) for k, x in enumerate(centred)}
    test = RobustParCorr() if robust else ParCorr()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if len(data) == 1:
            frame = data_processing.DataFrame(data[0], missing_flag=EMPTY)
        else:
            frame = data_processing.DataFrame(data, analysis_mode="multiple", missing_flag=EMPTY)
        search = PCMCI(dataframe=frame, cond_ind_test=test, verbosity=0)
        found = search.run_pcmciplus(tau_min=0, tau_max=1, pc_alpha=alpha)
        graph, p = found["graph"], found["p_matrix"]
        if fdr is not None:
            p = search.get_corrected_pvalues(p, fdr_method="fdr_bh", tau_max=1, exclude_contemporaneous=False)
            graph = np.where(p <= fdr, graph, "")
    return edges_of(graph)


def edges_of(graph: np.ndarray) -> Lagged:
    """W and A of a graph of edge marks (d, d, 2)."""
    now, before = graph[:, :, 0], graph[:, :, 1]
    # An edge without a direction stands in both, so that it costs one error, as a reversal does.
    W = (now == "-->") | (now == "o-o") | (now == "x-x")
    return W.astype(float), (before == "-->").astype(float)[None]


def dagma(x: np.ndarray) -> np.ndarray:
    from dagma.linear import DagmaLinear

    return DagmaLinear(loss_type="l2", verbose=False).fit(x - x.mean(axis=0), lambda1=0.03, w_threshold=0.3)


def var_ols(x: np.ndarray) -> np.ndarray:
    """No graph at all: the regression every method has to do at least."""
    from statsmodels.tsa.api import VAR

    VAR(x).fit(1)
    return np.full((x.shape[1], x.shape[1]), np.nan)


PEERS: dict[str, tuple[str, Method]] = {
    "VARLiNGAM": ("lingam", varlingam),
    "PCMCI+": ("tigramite", pcmci_plus),
    "VAR OLS": ("statsmodels", var_ols),
}
LAGGED_PEERS: dict[str, tuple[str, Callable[[list[np.ndarray]], Lagged]]] = {
    "PCMCI+": ("tigramite", pcmci_plus_of_sites),
    "robust PCMCI+": ("tigramite", partial(pcmci_plus_of_sites, robust=True)),
    "VARLiNGAM": ("lingam", partial(varlingam_of_sites, threshold=0.1)),
}
STATIC_PEERS: dict[str, tuple[str, Method]] = {
    "DirectLiNGAM": ("lingam", directlingam),
    "dagma": ("dagma", dagma),
}


def installed(peers: dict[str, tuple[str, Call]]) -> tuple[dict[str, Call], list[str]]:
    """Return the methods that can run, and the packages that are missing."""
    there = {name: method for name, (package, method) in peers.items() if find_spec(package)}
    return there, sorted({package for package, _ in peers.values() if not find_spec(package)})
