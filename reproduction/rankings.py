"""Rankings of ordered pairs by ours and by others: a data set in, (d, d) scores [from, to] out, larger is likelier.

Whoever cannot hold several recordings gets their rows one below the other, each recording centred, all scaled to unit
variance. A method whose package is not installed is left out and named.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import pandas as pd

import feddbn
from feddbn.results.edge_table import pair_ranking
from reproduction.datasets import Dataset
from reproduction.edge_ranking import LaggedEdgeRanker

Ranking = Callable[[Dataset], np.ndarray]


def frames(data: Dataset) -> list[pd.DataFrame]:
    return [frame for recordings in data.sites.values() for frame in recordings]


def pooled(data: Dataset, n_lags: int) -> np.ndarray:
    """(n, (n_lags + 1) d) rows ``[x_t, ..., x_{t-p}]`` without empty cells, every column of unit variance."""
    parts = []
    for frame in frames(data):
        x = frame.to_numpy(dtype=float)
        x = x - np.nanmean(x, axis=0)
        rows = np.hstack([x[n_lags - k : len(x) - k] for k in range(n_lags + 1)])
        parts.append(rows[np.isfinite(rows).all(axis=1)])
    rows = np.vstack(parts)
    spread = rows.std(axis=0)
    return (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def correlation(data: Dataset) -> np.ndarray:
    return np.abs(np.corrcoef(pooled(data, 0).T))


def var_weights(data: Dataset, n_lags: int = 1) -> np.ndarray:
    """(n_lags, d, d) least-squares weights of a vector autoregression."""
    rows, d = pooled(data, n_lags), len(data.variables)
    return np.linalg.lstsq(rows[:, d:], rows[:, :d], rcond=None)[0].reshape(n_lags, d, d)


def var_size(data: Dataset) -> np.ndarray:
    return np.abs(var_weights(data)[0])


def var_signed(data: Dataset) -> np.ndarray:
    return var_weights(data)[0]


def classic_scores(data: Dataset, n_lags: int) -> dict[str, np.ndarray]:
    """Pairs by simple numbers: correlations, regressions, Granger's gain, what is left within a row."""
    rows, d = pooled(data, n_lags), len(data.variables)
    past, present = rows[:, d:], rows[:, :d]
    weights = np.linalg.lstsq(past, present, rcond=None)[0]
    left = present - past @ weights
    gain = np.zeros((d, d))
    for i in range(d):
        rest = past[:, np.arange(n_lags * d) % d != i]
        without = present - rest @ np.linalg.lstsq(rest, present, rcond=None)[0]
        gain[i] = np.log(np.maximum(without.var(axis=0), 1e-12) / np.maximum(left.var(axis=0), 1e-12))
    R = np.corrcoef(left.T)
    precision = np.linalg.pinv(R)
    root = np.sqrt(np.diag(precision))
    lagged = np.abs(past.T @ present / len(rows)).reshape(n_lags, d, d).max(axis=0)
    return {
        "correlation": np.abs(np.corrcoef(present.T)),
        "lagged correlation": lagged,
        "VAR, size": np.abs(weights).reshape(n_lags, d, d).max(axis=0),
        "VAR, signed": weights.reshape(n_lags, d, d).max(axis=0),
        "VAR, size of the sum over lags": np.abs(weights.reshape(n_lags, d, d).sum(axis=0)),
        "Granger's gain": gain,
        "residual correlation": np.abs(R),
        "residual partial correlation": np.abs(precision / np.outer(root, root)),
    }


def pcmci_plus(data: Dataset) -> np.ndarray:
    """Links found, by the size of their partial correlation; then the others, by their p-value."""
    from tigramite import data_processing
    from tigramite.independence_tests.parcorr import ParCorr
    from tigramite.pcmci import PCMCI

    frame = data_processing.DataFrame(pooled(data, 0))
    found = PCMCI(dataframe=frame, cond_ind_test=ParCorr(), verbosity=0).run_pcmciplus(
        tau_min=0, tau_max=1, pc_alpha=0.01
    )
    graph, size, p_value = found["graph"], np.abs(found["val_matrix"]), found["p_matrix"]
    # A link without a direction stands in both.
    there = (graph == "-->") | (graph == "o-o") | (graph == "x-x")
    return np.where(there, 1.0 + size, 1.0 - p_value).max(axis=2)


def varlingam(data: Dataset) -> np.ndarray:
    """Not pruned, so that every pair has a place."""
    from lingam import VARLiNGAM

    model = VARLiNGAM(lags=1, criterion=None, prune=False)
    model.fit(pooled(data, 0))
    return np.abs(np.asarray(model.adjacency_matrices_)).max(axis=0).T


def oneshot(data: Dataset, **parameters: object) -> np.ndarray:
    model = feddbn.OneShotDBN(**parameters).fit(data.sites)
    return pair_ranking(model.edge_probabilities_, data.variables)


def oneshot_by_probability(data: Dataset) -> np.ndarray:
    """By the largest probability of a pair and nothing else: how edges were ranked before they had a strength."""
    table = feddbn.OneShotDBN().fit(data.sites).edge_probabilities_
    best = table.groupby(["source", "target"])["probability"].max().unstack(fill_value=0.0)
    return best.reindex(index=data.variables, columns=data.variables, fill_value=0.0).to_numpy()


def fdbnl(data: Dataset) -> np.ndarray:
    """By the largest weight of a pair, in standard deviations."""
    model = feddbn.FDBNL().fit(data.sites)
    sd = np.vstack([frame.to_numpy(dtype=float) for frame in frames(data)])
    spread = np.nanstd(sd, axis=0)
    weights = np.concatenate([model.W_[None], model.A_]) * (spread[:, None] / spread)
    return np.abs(weights).max(axis=0)


def lagged_ranker(data: Dataset) -> np.ndarray:
    return LaggedEdgeRanker().fit(data.sites).probabilities_.max(axis=0)


OURS: dict[str, Ranking] = {
    "OneShotDBN": oneshot,
    "OneShotDBN, n_lags='auto'": lambda data: oneshot(data, n_lags="auto"),
    "OneShotDBN, by probability alone": oneshot_by_probability,
    "FDBNL": fdbnl,
    "LaggedEdgeRanker": lagged_ranker,
}
OTHERS: dict[str, tuple[str | None, Ranking]] = {
    "absolute correlation": (None, correlation),
    "VAR(1), size of coefficients": (None, var_size),
    "VAR(1), signed coefficients": (None, var_signed),
    "PCMCI+": ("tigramite", pcmci_plus),
    "VARLiNGAM": ("lingam", varlingam),
}


def available() -> tuple[dict[str, Ranking], list[str]]:
    """The others that can run here, and the packages that are missing."""
    there = {name: rank for name, (package, rank) in OTHERS.items() if package is None or find_spec(package)}
    return there, sorted(
        {package for package, _ in OTHERS.values() if package is not None and not find_spec(package)}
    )


def quietly(rank: Ranking, data: Dataset) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rank(data)
