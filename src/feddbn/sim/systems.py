"""Random graphs with weights, all ``[from, to]``, and stable systems with known structure, alone or as variations of one
backbone.

A system is ``x_t = x_t W + sum_l x_{t-l} A_l + u_t``. Its reduced form ``x_t = sum_l x_{t-l} B_l + v_t`` has
``B_l = A_l (I - W)^{-1}`` and is stable iff the companion matrix of the B_l has a spectral radius below 1.
Every random choice here is redrawn until the radius is at most `MAX_RADIUS`. If `MAX_DRAWS` draws do not
suffice (dense, strongly weighted systems), the best draw is damped: ``A_l -> c^l A_l`` multiplies every
companion eigenvalue by c exactly, so the structure is kept, and `lag_damping` records c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.model.dynamics import largest_eigenvalue
from feddbn.model.step import impact
from feddbn.sim.settings import SimulationSettings

Edge = tuple[int, int, int]
"""(lag, from, to); lag 0 is within a time step."""


def draw_dag(d: int, mean_degree: float, rng: np.random.Generator) -> tuple[BoolArray, IntArray]:
    """A random DAG ``(d, d)`` and a causal order of its variables.

    The mean degree counts edges in both directions, so ``mean_degree * d / 2`` edges are expected, capped at
    the ``d (d-1) / 2`` that an order allows: every pair is an edge with probability ``mean_degree / (d - 1)``.
    """
    # DEVIATES [fdbnl] supplement, "Intra-slice graph": pr / d over d (d-1) / 2 pairs would give (d-1)/d of the mean
    # degree named there; see test_mean_degree_counts_edges_in_both_directions.
    probability = min(1.0, mean_degree / (d - 1)) if d > 1 else 0.0
    ranked = np.triu(rng.random((d, d)) < probability, k=1)
    order = rng.permutation(d).astype(np.int64)
    adjacency = np.zeros((d, d), dtype=bool)
    adjacency[np.ix_(order, order)] = ranked
    return adjacency, order


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


MAX_RADIUS = 0.95
MAX_DRAWS = 100


@dataclass(frozen=True, eq=False)
class System:
    """The parameters of one simulated network.

    Attributes
    ----------
    W
        (d, d), acyclic.
    A
        (p, d, d).
    order
        (d,) a causal order: W has no edge from a later to an earlier variable.
    lag_damping
        c in (0, 1]: 1 unless the system had to be damped to be stable.
    """

    W: FloatArray
    A: FloatArray
    order: IntArray
    lag_damping: float = 1.0

    @property
    def edges(self) -> list[Edge]:
        """Every edge as (lag, from, to), those within a time step first."""
        stack = np.concatenate([self.W[None], self.A])
        return [(int(lag), int(i), int(j)) for lag, i, j in np.argwhere(stack)]

    def weight(self, edge: Edge) -> float:
        """The weight of an edge."""
        lag, i, j = edge
        return float(self.A[lag - 1, i, j] if lag else self.W[i, j])

    @property
    def spectral_radius(self) -> float:
        """The largest modulus of an eigenvalue of the companion matrix; 0 without lags."""
        return largest_eigenvalue(self.A @ impact(self.W))

    def damped(self, factor: float) -> System:
        """The system with every companion eigenvalue multiplied by `factor`."""
        powers = factor ** np.arange(1, len(self.A) + 1)
        return replace(self, A=self.A * powers[:, None, None], lag_damping=self.lag_damping * factor)


def draw_system(settings: SimulationSettings, rng: np.random.Generator) -> System:
    """A stable system: W once, A redrawn until the radius allows it."""
    mask, order = draw_dag(settings.d, settings.mean_degree, rng)
    W = draw_weights(mask, settings.w_range, rng)

    def attempt() -> System:
        A = np.zeros((settings.n_lags, settings.d, settings.d))
        for lag in range(settings.n_lags):
            A[lag] = _lag_weights(draw_lag_graph(settings.d, settings.lag_degree, rng), lag, settings, rng)
        return System(W, A, order)

    return first_stable(attempt)


def draw_systems(settings: SimulationSettings, rng: np.random.Generator) -> tuple[list[System], list[int]]:
    """The different systems and, for every site, the number of the one it follows."""
    share = settings.heterogeneity
    n_systems = 1 if share == 0 else settings.n_sites
    if settings.is_independent:
        systems = [draw_system(settings, rng) for _ in range(n_systems)]
    else:
        systems = [draw_system(settings, rng)] * n_systems
        if share != 0:
            systems = [vary_system(system, float(share), settings, rng) for system in systems]
    return systems, [k % n_systems for k in range(settings.n_sites)]


def vary_system(
    system: System, share: float, settings: SimulationSettings, rng: np.random.Generator
) -> System:
    """A stable system in which a share of the edges of W and of A is replaced by others.

    Of m edges ``share * m`` are removed (rounded up or down at random, so that the share is right on average)
    and as many are put where the given system has none, with new weights; the rest keep theirs. New edges of
    W follow the same causal order. Where too few places are free (a dense W), fewer are added than removed.
    """
    d = settings.d
    position = np.empty(d, dtype=np.int64)
    position[system.order] = np.arange(d)
    is_forward = position[:, None] < position[None, :]

    def attempt() -> System:
        kept, added = _swap(system.W != 0, is_forward, share, rng)
        W = np.where(kept, system.W, 0.0) + draw_weights(added, settings.w_range, rng)
        kept_lags, added_lags = _swap(system.A != 0, np.ones_like(system.A, dtype=bool), share, rng)
        A = np.where(kept_lags, system.A, 0.0)
        for lag in range(settings.n_lags):
            A[lag] += _lag_weights(added_lags[lag], lag, settings, rng)
        return System(W, A, system.order, system.lag_damping)

    return first_stable(attempt)


def _lag_weights(
    mask: BoolArray, lag_index: int, settings: SimulationSettings, rng: np.random.Generator
) -> FloatArray:
    # [fdbnl] supplement, "Assigning Weights": alpha = 1 / eta^(l-1) for lag l.
    return draw_weights(mask, settings.w_range, rng, scale=settings.decay**-lag_index)


def _swap(
    present: BoolArray, allowed: BoolArray, share: float, rng: np.random.Generator
) -> tuple[BoolArray, BoolArray]:
    """Masks of the edges that stay and of the edges that are new."""
    edges = np.flatnonzero(present)
    free = np.flatnonzero(allowed & ~present)
    n_removed = min(len(edges), int(share * len(edges) + rng.random()))
    kept = present.ravel().copy()
    kept[rng.choice(edges, size=n_removed, replace=False)] = False
    added = np.zeros(present.size, dtype=bool)
    added[rng.choice(free, size=min(n_removed, len(free)), replace=False)] = True
    return kept.reshape(present.shape), added.reshape(present.shape)


def first_stable(attempt: Callable[[], System]) -> System:
    """The first of up to `MAX_DRAWS` attempts that is stable enough, or the best of them, damped."""
    best, best_radius = attempt(), np.inf
    for draw in range(MAX_DRAWS):
        system = best if draw == 0 else attempt()
        radius = system.spectral_radius
        if radius <= MAX_RADIUS:
            return system
        if radius < best_radius:
            best, best_radius = system, radius
    return best.damped(MAX_RADIUS / best_radius)
