"""The picture and the example of docs/causal.md: five variables of a plant, two of which share a hidden cause.

    python benchmarks/latent_picture.py [file]

Load acts on flow an hour later, flow on heat; a weather that nobody measured acts on heat and on draught in the same hour,
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from pictures import save

import feddbn
from feddbn.report import plot_marks

NAMES = ["load", "flow", "heat", "draught", "wind"]


def rows(n: int = 3000, seed: int = 2) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    weather, noise = rng.standard_normal(n), rng.standard_normal((n, 5))
    x = np.zeros((n, 5))
    for t in range(1, n):
        load, flow, heat, draught, wind = x[t - 1]
        x[t, 0] = 0.7 * load + noise[t, 0]
        x[t, 1] = 0.5 * flow + 0.6 * load + noise[t, 1]
        x[t, 2] = 0.5 * heat + 0.5 * flow + weather[t] + noise[t, 2]
        x[t, 3] = 0.4 * draught + 0.6 * wind + weather[t] + noise[t, 3]
        x[t, 4] = noise[t, 4]
    return pd.DataFrame(x, columns=NAMES)


def main(target: Path) -> None:
    x = rows()
    sites = {f"plant-{k}": x.iloc[part] for k, part in enumerate(np.array_split(np.arange(len(x)), 3))}
    fitted = feddbn.LatentDBN().fit(sites)
    print(fitted.edges_.round(3).to_string(index=False))
    print(fitted.findings_.codes)
    save(plot_marks(fitted.ancestral_graph_), target)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "marks.png"))
