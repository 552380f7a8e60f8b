"""Other people's methods behind one call: rows (n, d) of one recording in, W [from, to] out.

A method whose package is not installed is left out of the table and named below it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

Method = Callable[[np.ndarray], np.ndarray]


def varlingam(x: np.ndarray) -> np.ndarray:
    from lingam import VARLiNGAM

    model = VARLiNGAM(lags=1, criterion=None, prune=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x)
    return model.adjacency_matrices_[0].T


def directlingam(x: np.ndarray) -> np.ndarray:
    from lingam import DirectLiNGAM

    model = DirectLiNGAM()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x)
    return model.adjacency_matrix_.T


def pcmci_plus(x: np.ndarray) -> np.ndarray:
    from tigramite import data_processing
    from tigramite.independence_tests.parcorr import ParCorr
    from tigramite.pcmci import PCMCI

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = PCMCI(dataframe=data_processing.DataFrame(x), cond_ind_test=ParCorr(), verbosity=0)
        graph = search.run_pcmciplus(tau_min=0, tau_max=1, pc_alpha=0.01)["graph"][:, :, 0]
    W = np.zeros(graph.shape)
    # An edge without a direction stands in both, so that it costs one error, as a reversal does.
    W[(graph == "-->") | (graph == "o-o") | (graph == "x-x")] = 1.0
    return W


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
STATIC_PEERS: dict[str, tuple[str, Method]] = {
    "DirectLiNGAM": ("lingam", directlingam),
    "dagma": ("dagma", dagma),
}


def installed(peers: dict[str, tuple[str, Method]]) -> tuple[dict[str, Method], list[str]]:
    """Return the methods that can run, and the packages that are missing."""
    there = {name: method for name, (package, method) in peers.items() if find_spec(package)}
    return there, sorted({package for package, _ in peers.values() if not find_spec(package)})
