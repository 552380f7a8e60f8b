"""What units do to penalised methods: SHD of W and A with scale="none", "federated" and "auto".

python benchmarks/units.py                       clean data and units that differ, seeds 500 to 509
python benchmarks/units.py --methods FDBNL PFDBNL --seeds 3 --first-seed 0
"""

import argparse

import numpy as np
import pandas as pd
from timing import Table

import feddbn

SCALES = ("none", "federated", "auto")
VITALS = {"hr": 12.0, "bp": 15.0, "rr": 4.0, "spo2": 1.5, "temperature": 0.4}
"""Standard deviations of vital signs in the units they are written down in."""


def federation(d: int, n_sites: int, n: int, units: np.ndarray, seed: int, degree: float = 4):
    """Sites with equal noise variances whose variables are then multiplied by `units`, and their truth."""
    fed = feddbn.simulate(d=d, n_sites=n_sites, n_samples=n, mean_degree=degree, random_state=seed)
    sites = {name: [frame * units for frame in frames] for name, frames in fed.sites.items()}
    change = units / units[:, None]
    return sites, feddbn.DBN(fed.truth.W * change, fed.truth.A * change, fed.truth.variables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=500)
    parser.add_argument(
        "--methods", nargs="+", default=["Dynotears"], choices=["Dynotears", "FDBNL", "PFDBNL"]
    )
    parser.add_argument("--settings", nargs="+", type=int, help="which rows, from 0; all by default")
    options = parser.parse_args()

    def spread(factor: float):
        return lambda d, rng: np.exp(rng.uniform(0, np.log(factor), d))

    vitals = np.array(list(VITALS.values()))
    clean = [(f"clean, K = {K}", d, K, 512, 4, spread(1)) for d in (10, 20) for K in (8, 64)]
    wide = [
        (f"units by up to {f}", d, 8, 512, 4, spread(f)) for d in (8, 20) for f in (1.5, 2, 3, 4, 6, 10, 30)
    ]
    settings = [*clean, *wide, ("vital signs", 5, 8, 1600, 2, lambda d, rng: vitals)]
    title = f"SHD of W / A, mean over seeds {options.first_seed} to {options.first_seed + options.seeds - 1}"
    table = Table(title, ["method", "data", "d", *SCALES, "scaled by auto"])
    for k in options.settings or range(len(settings)):
        name, d, n_sites, n, degree, units = settings[k]
        for method in options.methods:
            found = {scale: [] for scale in SCALES}
            chosen = 0
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                factors = units(d, np.random.default_rng(seed))
                sites, truth = federation(d, n_sites, n, factors, seed, degree)
                for scale in SCALES:
                    model = getattr(feddbn, method)(prepare={"scale": scale}).fit(sites)
                    shd: pd.Series = feddbn.score(truth, model.dbn_).to_frame()["shd"]
                    found[scale].append([shd["W"], shd["A"]])
                    chosen += scale == "auto" and model.scale_ == "federated"
            cells = ["{:.1f} / {:.1f}".format(*np.mean(found[scale], axis=0)) for scale in SCALES]
            table.add(method, name, d, *cells, f"{chosen} of {options.seeds}")
    print(table.text())


if __name__ == "__main__":
    main()
