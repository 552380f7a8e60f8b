"""Networks that change over time: how often changes are found, and how often some are found that are not there.

    python benchmarks/changing.py [n_series] [first seed] [kinds of series ...]

Prints the table of docs/changing.md. A series is d = 8 variables, 600 rows at each site; networks have about ten edges
within a time step and eight delayed ones. At each of two changes four edges are drawn anew: two vanish, two appear.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feddbn import ChangingDBN
from feddbn.core.arrays import FloatArray

D, ROWS, BURN = 8, 600, 100
LOW, HIGH, LAG_SCALE = 0.3, 0.6, 0.7


@dataclass(frozen=True)
class Switching:
    """Networks one after the other: (S, d, d) within a time step and at lag 1; first rows; (S, d) variances and levels."""

    W: FloatArray
    A: FloatArray
    variances: FloatArray
    starts: tuple[int, ...]
    levels: FloatArray

    def at(self, t: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Weights within a time step and at lag 1, variances and levels at a row."""
        s = int(np.searchsorted(self.starts, max(t, 0), side="right")) - 1
        return self.W[s], self.A[s], self.variances[s], self.levels[s]


def draw_switching(
    rng: np.random.Generator,
    n_changes: int,
    n_edges: int = 4,
    *,
    variances: bool = False,
    levels: bool = False,
    strength: float = 1.0,
) -> Switching:
    """Draw networks of which `n_edges` edges, or only noise variances or levels, change at each of `n_changes` rows."""
    order = rng.permutation(D)
    rank = np.argsort(order)
    while True:
        C = _weights(rng, rng.random((2, D, D)) < np.array([10 / 28, 8 / 64])[:, None, None])
        C[0][rank[:, None] >= rank[None, :]] = 0.0
        found = [C]
        for _ in range(n_changes):
            found.append(found[-1] if variances or levels else _changed(found[-1], rank, n_edges, rng))
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
    stack = strength * np.stack(found)
    shifts = np.zeros((n_changes + 1, D))
    if levels:
        shifts[1:, :3] = rng.choice([-1.0, 1.0], (n_changes, 3))
    return Switching(stack[:, 0], stack[:, 1], np.stack(spread), tuple(starts), shifts)


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


def draw_sites(
    system: Switching, n_sites: int, rng: np.random.Generator, *, has_tails: bool = False
) -> dict[str, FloatArray]:
    """Rows of every site; all of them switch at the same rows. Noise is Gaussian, or Laplacian of the same variance."""
    x = np.zeros((n_sites, D))
    rows = np.empty((n_sites, ROWS, D))
    for t in range(-BURN, ROWS):
        W, A, variances, levels = system.at(t)
        size = (n_sites, D)
        noise = rng.laplace(size=size) / np.sqrt(2) if has_tails else rng.standard_normal(size)
        noise = noise * np.sqrt(variances) + levels
        x = (x @ A + noise) @ np.linalg.inv(np.eye(D) - W)
        if t >= 0:
            rows[:, t] = x
    return {f"site{k + 1}": rows[k] for k in range(n_sites)}


@dataclass(frozen=True)
class Kind:
    """A kind of series: how it is drawn, of how many sites, and how many series for each one asked for."""

    words: str
    n_changes: int
    n_sites: int
    share: float = 1.0
    variances: bool = False
    levels: bool = False
    has_tails: bool = False
    strength: float = 1.0


KINDS = {
    "edges-16": Kind("four edges change twice, 16 sites", 2, 16, 0.4),
    "edges-4": Kind("four edges change twice, 4 sites", 2, 4, 0.4),
    "edges-1": Kind("four edges change twice, 1 site", 2, 1, 0.4),
    "weak-4": Kind("the same with weights half as large, 4 sites", 2, 4, 0.4, strength=0.5),
    "weak-1": Kind("the same with weights half as large, 1 site", 2, 1, 0.4, strength=0.5),
    "variances": Kind("only three noise variances change once, 4 sites", 1, 4, variances=True),
    "levels": Kind("only three levels change once, 4 sites", 1, 4, 0.5, levels=True),
    "constant": Kind("nothing changes, 4 sites", 0, 4),
    "constant-1": Kind("nothing changes, 1 site", 0, 1),
    "tails": Kind("nothing changes, Laplacian noise, 4 sites", 0, 4, has_tails=True),
}


def measured(kind: Kind, n_series: int, first: int) -> list[float]:
    """Series; true changes, those found within a block, false ones; edges that changed, found, false; seconds a fit."""
    total = np.zeros(8)
    for seed in range(first, first + n_series):
        rng = np.random.default_rng(seed)
        system = draw_switching(
            rng,
            kind.n_changes,
            variances=kind.variances,
            levels=kind.levels,
            strength=kind.strength,
        )
        rows = draw_sites(system, kind.n_sites, rng, has_tails=kind.has_tails)
        begun = time.process_time()
        fit = ChangingDBN().fit(rows)
        seconds = time.process_time() - begun
        true = system.starts[1:]
        found = fit.segments_["start"].tolist()[1:]
        hit = [any(abs(row - start) <= fit.block_rows_ for row in found) for start in true]
        false = [row for row in found if all(abs(row - start) > fit.block_rows_ for start in true)]
        changed = set()
        for s, start in enumerate(system.starts[1:]):
            for lag, C in enumerate((system.W, system.A)):
                changed |= {(int(i), int(j), lag, start) for i, j in np.argwhere(C[s] != C[s + 1])}
        edges = [
            (int(row.source[1:]), int(row.target[1:]), row.lag, row.row) for row in fit.changes_.itertuples()
        ]
        right = [
            edge
            for edge in edges
            if any(edge[:3] == one[:3] and abs(edge[3] - one[3]) <= fit.block_rows_ for one in changed)
        ]
        total += [
            1,
            len(true),
            sum(hit),
            len(false),
            len(changed),
            len(right),
            len(edges) - len(right),
            seconds,
        ]
    return [*total[:-1].astype(int).tolist(), float(total[-1] / n_series)]


def main(n_series: int = 20, first: int = 1000, kinds: Sequence[str] = ()) -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    print("| series | number | changes | found | false | edges changed | found | false | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in kinds or KINDS:
        kind = KINDS[name]
        row = measured(kind, max(1, round(kind.share * n_series)), first)
        print(
            f"| {kind.words} | " + " | ".join(str(value) for value in row[:-1]) + f" | {row[-1]:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(*(int(number) for number in sys.argv[1:3]), kinds=sys.argv[3:])
