"""The README's table: the demo's federation over several seeds, mean and standard deviation.

Run: python benchmarks/demo_table.py [n_seeds]
"""

from __future__ import annotations

import sys

import numpy as np

from feddbn.analysis.comparison import compare, default_methods
from feddbn.data import read_sites
from feddbn.sim.simulation import simulate


def main(n_seeds: int, d: int = 10, n_samples: int = 512) -> None:
    rows: dict[str, list[list[float]]] = {}
    for seed in range(n_seeds):
        fed = simulate(d=d, n_lags=1, n_sites=10, n_samples=n_samples, random_state=seed)
        for line in compare(read_sites(fed.sites), default_methods(False), {}, fed.truth):
            assert line.scores is not None
            cells = [line.scores[part][key] for part in "WA" for key in ("shd", "tpr", "fdr")]
            rows.setdefault(line.method.label, []).append([*cells, line.seconds])
    print("| method | SHD of W | TPR | FDR | SHD of A | TPR | FDR | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for label, values in rows.items():
        mean, spread = np.mean(values, axis=0), np.std(values, axis=0, ddof=1)
        cells = [f"{m:.2f} ± {s:.2f}" for m, s in zip(mean[:-1], spread[:-1], strict=True)]
        print("| " + " | ".join([label, *cells, f"{mean[-1]:.1f}"]) + " |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
