"""Random graphs and the weights on their edges, all ``[from, to]``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray

GRAPHS = ("erdos-renyi", "scale-free")
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


def draw_dag(graph: str, d: int, mean_degree: float, rng: np.random.Generator) -> tuple[BoolArray, IntArray]:
    """A random DAG ``(d, d)`` and a causal order of its variables.

    The mean degree counts edges in both directions, so ``mean_degree * d / 2`` edges are expected, capped at
    the ``d (d-1) / 2`` that an order allows. "erdos-renyi": every pair is an edge with probability
    ``mean_degree / (d - 1)``. "scale-free": exactly that many edges by preferential attachment; the early,
    well connected variables are the causes.
    """
    # DEVIATES [fdbnl] supplement, "Intra-slice graph": pr / d over d (d-1) / 2 pairs would give (d-1)/d of the mean
    # degree named there; see test_mean_degree_counts_edges_in_both_directions.
    if graph == "erdos-renyi":
        probability = min(1.0, mean_degree / (d - 1)) if d > 1 else 0.0
        ranked = np.triu(rng.random((d, d)) < probability, k=1)
    else:
        ranked = _attach_preferentially(d, n_scale_free_edges(d, mean_degree), rng)
    order = rng.permutation(d).astype(np.int64)
    adjacency = np.zeros((d, d), dtype=bool)
    adjacency[np.ix_(order, order)] = ranked
    return adjacency, order


def n_scale_free_edges(d: int, mean_degree: float) -> int:
    """The number of edges of a scale-free graph: ``mean_degree * d / 2``, rounded and capped."""
    return min(round(mean_degree * d / 2), d * (d - 1) // 2)


def _attach_preferentially(d: int, n_edges: int, rng: np.random.Generator) -> BoolArray:
    """Strictly upper triangular (d, d): variable t takes distinct parents before it, likelier the more edges
    they have.

    Barabasi and Albert (1999) give every newcomer the same number m of edges; to meet `n_edges` exactly, the
    last unit of m is given to a random choice of the newcomers that can take it.
    """
    newcomers = np.arange(d)
    m = 0
    while np.minimum(newcomers, m).sum() < n_edges:
        m += 1
    n_parents = np.minimum(newcomers, m)
    excess = int(n_parents.sum()) - n_edges
    if excess:
        n_parents[rng.choice(newcomers[newcomers >= m], size=excess, replace=False)] -= 1
    adjacency = np.zeros((d, d), dtype=bool)
    degree = np.ones(d)
    for t in range(1, d):
        parents = rng.choice(t, size=n_parents[t], replace=False, p=degree[:t] / degree[:t].sum())
        adjacency[parents, t] = True
        degree[parents] += 1
        degree[t] += len(parents)
    return adjacency


def draw_lag_graph(d: int, lag_degree: float, rng: np.random.Generator) -> BoolArray:
    """A random inter-slice graph ``(d, d)`` with mean out-degree `lag_degree`; i at t-l -> i at t is allowed.

    [fdbnl] supplement, "Inter-slice graph": every pair is an edge with probability ``lag_degree / d``, capped
    at 1.
    """
    return rng.random((d, d)) < min(1.0, lag_degree / d)


def draw_weights(
    adjacency: BoolArray, weight_range: tuple[float, float], rng: np.random.Generator, scale: float = 1.0
) -> FloatArray:
    """Weights uniform on ``scale * ([-high, -low] u [low, high])`` where there is an edge, 0 elsewhere."""
    low, high = weight_range
    size = rng.uniform(low, high, size=adjacency.shape)
    sign = np.where(rng.random(adjacency.shape) < 0.5, -1.0, 1.0)
    return np.where(adjacency, scale * sign * size, 0.0)
