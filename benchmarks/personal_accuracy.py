"""PFDBNL(mu="auto") against LocalOnly and FDBNL: d=10, K=6, n_k=60, weights .3-.5, mean degree 4.

python benchmarks/personal_accuracy.py [--seeds N] [--first SEED] [heterogeneity ...]
"""

import argparse
import time

import numpy as np

import feddbn
from feddbn import FDBNL, PFDBNL, LocalOnly


def main(seeds: range, settings: list[float | str], d: int = 10, n_samples: int = 360) -> None:
    for heterogeneity in settings:
        shd: dict[str, list[float]] = {"PFDBNL": [], "FDBNL": [], "LocalOnly": []}
        chosen, seconds = [], 0.0
        for seed in seeds:
            fed = feddbn.simulate(
                d=d,
                n_sites=6,
                n_samples=n_samples,
                mean_degree=4,
                heterogeneity=heterogeneity,
                random_state=seed,
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
            row = " ".join(f"{values[-1]:.2f}" for values in shd.values())
            print(f"heterogeneity {heterogeneity} seed {seed}: {row}  mu {chosen[-1]}", flush=True)
        text = "  ".join(
            f"{name} {np.mean(v):.2f} ± {np.std(v) / len(v) ** 0.5:.2f}" for name, v in shd.items()
        )
        print(f"heterogeneity {heterogeneity}: {text}  cpu {seconds / len(seeds):.1f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("heterogeneity", nargs="*", default=["0.1", "0.3", "independent"])
    given = parser.parse_args()
    main(
        range(given.first, given.first + given.seeds),
        [x if x == "independent" else float(x) for x in given.heterogeneity],
    )
