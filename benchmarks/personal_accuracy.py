"""PFDBNL(mu="auto") against LocalOnly and FDBNL: d=10, K=6, n_k=60, weights .3-.5, mean degree 4.

python benchmarks/personal_accuracy.py [n_seeds] [heterogeneity ...]
"""

import sys
import time

import numpy as np

import feddbn
from feddbn import FDBNL, PFDBNL, LocalOnly


def main(n_seeds: int, settings: list[float | str]) -> None:
    for heterogeneity in settings:
        shd: dict[str, list[float]] = {"PFDBNL": [], "FDBNL": [], "LocalOnly": []}
        chosen, seconds = [], 0.0
        for seed in range(n_seeds):
            fed = feddbn.simulate(
                d=10, n_sites=6, n_samples=360, mean_degree=4, heterogeneity=heterogeneity, random_state=seed
            )
            start = time.process_time()
            personal = PFDBNL(mu="auto").fit(fed.sites)
            seconds += time.process_time() - start
            chosen.append(personal.selected_["mu"])
            models = {
                "PFDBNL": personal.dbns_,
                "FDBNL": FDBNL().fit(fed.sites).dbn_,
                "LocalOnly": LocalOnly().fit(fed.sites).dbns_,
            }
            for name, model in models.items():
                shd[name].append(feddbn.score_sites(fed.truths, model)["W"]["mshd"])
        text = "  ".join(
            f"{name} {np.mean(v):.2f} ± {np.std(v) / len(v) ** 0.5:.2f}" for name, v in shd.items()
        )
        print(
            f"heterogeneity {heterogeneity}: {text}  mu {chosen}  cpu {seconds / n_seeds:.1f} s", flush=True
        )


if __name__ == "__main__":
    given = [x if x == "independent" else float(x) for x in sys.argv[2:]]
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10, given or [0.1, 0.3, "independent"])
