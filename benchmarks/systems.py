"""Simulated systems with a known truth; every one is a function of a seed that returns (sites, truth).

Sites are name -> recordings. Except `clean`, which is `feddbn.simulate`, they are numpy alone, so that a
mistake of the package's own simulator is not shared by what is measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import feddbn
from benchmarks.tables import Truth

__all__ = ["KINDS", "Drawn", "calls", "clean", "messy", "physical"]

N_SITES = 4
BURN_IN = 100
Rows = NDArray[np.float64]
Drawn = tuple[dict[str, list[pd.DataFrame]], Truth]


def clean(seed: int, d: int, n: int) -> Drawn:
    """Linear and Gaussian networks with equal noise, as `feddbn.simulate` draws them."""
    fed = feddbn.simulate(d=d, n_lags=1, n_sites=N_SITES, n_samples=n, n_recordings=3, random_state=seed)
    edges = [(e.source, e.target, e.lag) for e in fed.truth.edges().itertuples() if e.source != e.target]
    instant = frozenset((a, b) for a, b, lag in edges if lag == 0)
    return fed.sites, Truth(instant, frozenset((a, b) for a, b, lag in edges if lag == 1))


def messy(seed: int, n: int, d: int = 10, n_hidden: int = 0) -> Drawn:
    """Recordings of 15 to 60 rows with levels of their own, t noise, volatility and 15 % of the cells empty.

    Hidden causes are white noise that acts on three variables each within the step; nobody records them.
    """
    rng = np.random.default_rng(seed)
    W, A = network(rng, d)
    sizes = rng.uniform(0.5, 1.5, d)
    loads = np.zeros((n_hidden, d))
    for load in loads:
        load[rng.choice(d, 3, replace=False)] = rng.choice([-1.0, 1.0], 3) * rng.uniform(0.6, 0.9, 3)
    offsets = rng.normal(0.0, 2.0, (N_SITES, d))
    sites: list[list[Rows]] = [[] for _ in range(N_SITES)]
    left = n
    while left > 0:
        rows = min(int(rng.integers(15, 61)), max(left, 3)) + 1
        left -= rows - 1
        shocks = rng.standard_t(3, (BURN_IN + rows, d)) / np.sqrt(3.0)
        wander = autoregression(rng, BURN_IN + rows, memory=0.95)
        shocks *= np.exp(0.5 * wander)[:, None]
        hidden = rng.standard_normal((BURN_IN + rows, n_hidden)) @ loads
        x = followed(W, A, (shocks + hidden) * sizes)[BURN_IN:]
        site = min(range(N_SITES), key=lambda k: sum(map(len, sites[k])))
        x += offsets[site] + rng.normal(0.0, 1.5, d) * x.std(axis=0)
        x[rng.random(x.shape) < 0.15] = np.nan
        sites[site].append(x)
    return named(sites), Truth(edges_of(W), edges_of(A))


def physical(seed: int, n: int = 3000, d: int = 20) -> Drawn:
    """Inputs that are set at random in every row, and sensors that depend on products and squares of them.

    Rows have no memory. Half of the sensors also depend on another sensor, and sensors share inputs, so that
    common effects of inputs abound. An arrow into an input is always wrong.
    """
    rng = np.random.default_rng(seed)
    n_knobs = int(rng.integers(5, 8))
    low = rng.uniform(-0.5, 1.0, n_knobs)
    x = np.empty((n, d))
    x[:, :n_knobs] = low + rng.uniform(1.0, 2.0, n_knobs) * rng.random((n, n_knobs))
    instant = set()
    for j in range(n_knobs, d):
        causes = rng.choice(n_knobs, int(rng.integers(1, 4)), replace=False)
        z = (x[:, causes] - x[:, causes].mean(axis=0)) / x[:, causes].std(axis=0)
        signal = z @ (rng.choice([-1.0, 1.0], len(causes)) * rng.uniform(0.5, 1.0, len(causes)))
        if rng.random() < 0.6:
            signal += rng.uniform(0.4, 0.9) * (z[:, 0] ** 2 - 1.0)
        if len(causes) > 1:
            signal += rng.choice([-1.0, 1.0]) * rng.uniform(0.4, 0.9) * z[:, 0] * z[:, 1]
        if j > n_knobs and rng.random() < 0.5:
            other = int(rng.integers(n_knobs, j))
            signal += rng.uniform(0.5, 1.0) * (x[:, other] - x[:, other].mean()) / x[:, other].std()
            instant.add((other, j))
        x[:, j] = rng.uniform(0.5, 20.0) * (signal + rng.uniform(0.3, 1.0) * rng.standard_normal(n))
        instant |= {(int(cause), j) for cause in causes}
    # Names and columns say nothing of what is an input.
    place = rng.permutation(d)
    shown = np.empty_like(x)
    shown[:, place] = x
    sites = [np.array_split(part, 3) for part in np.array_split(shown, N_SITES)]
    true = frozenset((f"x{place[i]}", f"x{place[j]}") for i, j in instant)
    return named(sites), Truth(true, frozenset(), frozenset(f"x{place[k]}" for k in range(n_knobs)))


def calls(seed: int, n: int = 3000, d: int = 30) -> Drawn:
    """Latencies of services that call each other: near the sum of the callees' plus a share of their own.

    Own shares are lognormal with heavy tails; they grow with traffic, which drifts, differs between the two
    sites and is not recorded. A third of the services adds next to nothing of its own, so it nearly equals
    what it calls. Some callers repeat calls, and what was slow a step ago makes them slower now: these are
    the delayed edges.
    """
    rng = np.random.default_rng(seed)
    weights, late = np.zeros((d, d)), np.zeros((d, d))
    for j in range(d // 3, d):
        callees = rng.choice(j, int(rng.integers(1, 4)), replace=False)
        weights[callees, j] = rng.choice([1.0, 1.0, 2.0], len(callees)) * rng.uniform(0.8, 1.0, len(callees))
        if rng.random() < 0.2:
            late[rng.choice(callees), j] = rng.uniform(0.2, 0.4)
    base, tails = rng.uniform(2.0, 20.0, d), rng.uniform(0.5, 1.2, d)
    thin = np.arange(d) >= d // 3
    thin &= rng.random(d) < 0.5
    burden = rng.uniform(0.0, 0.5, d)
    place = rng.permutation(d)
    sites = []
    for level in (0.0, 1.0):
        traffic = level + autoregression(rng, n // 2 + BURN_IN, memory=0.99)
        own = base * np.exp(tails * rng.standard_normal((len(traffic), d)) + 0.3 * burden * traffic[:, None])
        own *= np.where(rng.random(own.shape) < 0.01, rng.pareto(2.0, own.shape) + 5.0, 1.0)
        x = np.zeros_like(own)
        for t in range(len(x)):
            before = x[t - 1] @ late if t else 0.0
            for j in range(d):
                # The share of a service that only passes calls on is some hundredths of what it waits for.
                share = 0.03 * own[t, j] if thin[j] else own[t, j]
                x[t, j] = x[t] @ weights[:, j] + share + (before[j] if t else 0.0)
        shown = np.empty_like(x)
        shown[:, place] = x
        sites.append(np.array_split(shown[BURN_IN:], 6))
    return named(sites), Truth(edges_of(weights, place), edges_of(late, place))


def network(rng: np.random.Generator, d: int, degree: float = 4.0) -> tuple[Rows, Rows]:
    """Weights [from, to] within a step and one step later of a stable network in a random order."""
    order = rng.permutation(d)
    W, A = np.zeros((d, d)), np.zeros((d, d))
    for b in range(d):
        for a in range(b):
            if rng.random() < degree / (d - 1):
                W[order[a], order[b]] = rng.choice([-1.0, 1.0]) * rng.uniform(0.3, 0.5)
    for i, j in rng.integers(0, d, (d, 2)):
        A[i, j] = rng.choice([-1.0, 1.0]) * rng.uniform(0.25, 0.4)
    np.fill_diagonal(A, rng.uniform(0.2, 0.5, d))
    radius = np.abs(np.linalg.eigvals(A @ np.linalg.inv(np.eye(d) - W))).max()
    return W, A * min(1.0, 0.85 / radius)


def followed(W: Rows, A: Rows, shocks: Rows) -> Rows:
    """The rows x_t = x_t W + x_{t-1} A + shock_t."""
    through = np.linalg.inv(np.eye(len(W)) - W)
    x = np.zeros_like(shocks)
    for t in range(len(x)):
        x[t] = (shocks[t] + (x[t - 1] @ A if t else 0.0)) @ through
    return x


def autoregression(rng: np.random.Generator, n: int, memory: float) -> Rows:
    """A series of variance 1 that keeps a share of itself from row to row."""
    x = rng.standard_normal(n)
    for t in range(1, n):
        x[t] = memory * x[t - 1] + np.sqrt(1 - memory**2) * x[t]
    return x


def edges_of(weights: Rows, place: NDArray[np.int_] | None = None) -> frozenset[tuple[str, str]]:
    """The edges between two variables whose weight is not 0, by name; `place`: the column of a variable."""
    at = np.arange(len(weights)) if place is None else place
    return frozenset((f"x{at[i]}", f"x{at[j]}") for i, j in np.argwhere(weights) if i != j)


def named(sites: Sequence[Sequence[Rows]]) -> dict[str, list[pd.DataFrame]]:
    """The recordings of each site as frames with names for sites and columns."""
    return {
        f"site-{k}": [pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])]) for x in one]
        for k, one in enumerate(sites)
    }


KINDS: dict[str, dict[str, Callable[[int], Drawn]]] = {
    "clean": {
        "clean, d = 8, n = 1000": partial(clean, d=8, n=1000),
        "clean, d = 12, n = 2000": partial(clean, d=12, n=2000),
        "clean, d = 20, n = 4000": partial(clean, d=20, n=4000),
    },
    "messy": {
        "messy, n = 2000": partial(messy, n=2000),
        "messy, n = 5000": partial(messy, n=5000),
    },
    "hidden": {"messy with hidden causes, n = 2000": partial(messy, n=2000, n_hidden=2)},
    "physical": {"physical, n = 3000": physical},
    "calls": {"calls, n = 3000": calls},
}
"""Kind -> case -> what draws its system from a seed."""
