"""Networks that change over time: how often changes are found, and how often some are found that are not there.

    python benchmarks/changing.py [n_series] [first seed]

Prints the table of docs/changing.md. A series is d = 8 variables, 600 rows at each site; networks have about ten edges
within a moment and eight delayed ones. At each of two changes four edges are drawn anew: two vanish, two appear.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray

D, ROWS, BURN = 8, 600, 100
LOW, HIGH, LAG_SCALE = 0.3, 0.6, 0.7


@dataclass(frozen=True)
class Switching:
    """Networks one after the other: (S, d, d) within a moment, (S, d, d) at lag 1, (S, d) variances; first rows."""

    W: FloatArray
    A: FloatArray
    variances: FloatArray
    starts: tuple[int, ...]


def draw_switching(rng: np.random.Generator, n_changes: int, n_edges: int = 4, variances: bool = False) -> Switching:
    """Draw networks of which `n_edges` edges, or only noise variances, change at each of `n_changes` rows."""
    order = rng.permutation(D)
    rank = np.argsort(order)
    while True:
        C = _weights(rng, rng.random((2, D, D)) < np.array([10 / 28, 8 / 64])[:, None, None])
        C[0][rank[:, None] >= rank[None, :]] = 0.0
        found = [C]
        for _ in range(n_changes):
            found.append(found[-1] if variances else _changed(found[-1], rank, n_edges, rng))
        if all(_is_stable(one) for one in found):
            break
    spread = [np.ones(D)]
    for _ in range(n_changes):
        factor = np.ones(D)
        if variances:
            factor[rng.choice(D, 3, replace=False)] = rng.choice([0.3, 3.0], 3)
        spread.append(np.ones(D) * factor)
    # Changes are away from the ends and from one another, and anywhere within a block.
    starts = [0, *(int(ROWS * (k + 1) / (n_changes + 1) + rng.integers(-60, 61)) for k in range(n_changes))]
    stack = np.stack(found)
    return Switching(stack[:, 0], stack[:, 1], np.stack(spread), tuple(starts))


def _weights(rng: np.random.Generator, present: np.ndarray) -> FloatArray:
    weights = rng.uniform(LOW, HIGH, present.shape) * rng.choice([-1.0, 1.0], present.shape) * present
    weights[1] *= LAG_SCALE / HIGH
    return weights


def _changed(C: FloatArray, rank: np.ndarray, n_edges: int, rng: np.random.Generator) -> FloatArray:
    new = C.copy()
    present = np.argwhere(C)
    for place in present[rng.choice(len(present), n_edges // 2, replace=False)]:
        new[tuple(place)] = 0.0
    allowed = np.ones_like(C, dtype=bool)
    allowed[0] = rank[:, None] < rank[None, :]
    absent = np.argwhere(allowed & (C == 0))
    for place in absent[rng.choice(len(absent), n_edges - n_edges // 2, replace=False)]:
        drawn = _weights(rng, np.ones((2, D, D), dtype=bool))
        new[tuple(place)] = drawn[tuple(place)]
    return new


def _is_stable(C: FloatArray) -> bool:
    reduced = C[1] @ np.linalg.inv(np.eye(D) - C[0])
    return bool(np.abs(np.linalg.eigvals(reduced)).max() < 0.9)


def draw_sites(system: Switching, n_sites: int, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Rows of every site; all of them switch at the same rows."""
    x = np.zeros((n_sites, D))
    rows = np.empty((n_sites, ROWS, D))
    for t in range(-BURN, ROWS):
        s = int(np.searchsorted(system.starts, max(t, 0), side="right")) - 1
        noise = rng.standard_normal((n_sites, D)) * np.sqrt(system.variances[s])
        x = (x @ system.A[s] + noise) @ np.linalg.inv(np.eye(D) - system.W[s])
        if t >= 0:
            rows[:, t] = x
    return {f"site{k + 1}": rows[k] for k in range(n_sites)}
