"""How far stated probabilities hold: edges at probability >= .9, 90 % forecast intervals.

    python benchmarks/calibration.py edges --rows 128 512 --federations 20
    python benchmarks/calibration.py edges --estimator dynotears --method stability
    python benchmarks/calibration.py edges --method posterior
    python benchmarks/calibration.py edges --estimator curved --variables 6 --sites 5 --rows 300 --replicates 20
    python benchmarks/calibration.py intervals --series 200
    python benchmarks/calibration.py intervals --series 200 --fitted

Every federation has its own network; nothing about it is used except to score the finished table.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd

from feddbn.analysis.confidence import confidence
from feddbn.errors import UnitsWarning
from feddbn.model.dbn import DBN
from feddbn.sim.simulation import simulate

_EDGE = ["source", "target", "lag"]
BINS = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9 - 1e-9, 1.0]
LABELS = ["(0, .1]", "(.1, .3]", "(.3, .5]", "(.5, .7]", "(.7, .9)", "[.9, 1]"]


def estimator(name: str) -> Any:
    if name == "dynotears":
        from feddbn import Dynotears

        return Dynotears(n_lags=1, lambda_w=0.05, lambda_a=0.05, w_threshold=0.15, a_threshold=0.15)
    from feddbn import OneShotDBN

    # Averaging over orders says how sure one sample is; a bootstrap answers that itself, at half the time.
    features = "spline" if name == "curved" else "auto"
    return OneShotDBN(n_lags=1, average="auto" if name == "averaged" else False, features=features)


def edge_tables(arguments: argparse.Namespace, rows: int) -> pd.DataFrame:
    """Tables of all federations, with the columns right, seed and n_true."""
    tables = []
    for seed in range(arguments.federations):
        federation = simulate(
            d=arguments.variables,
            n_lags=1,
            n_sites=arguments.sites,
            n_samples=rows,
            random_state=seed,
            effects="spline" if arguments.estimator == "curved" else "linear",
        )
        truth, sites = federation.truth, federation.sites
        if arguments.rescale:
            units = np.random.default_rng(seed).uniform(0.5, 2.0, size=arguments.variables)
            sites = {name: [frame * units for frame in frames] for name, frames in sites.items()}
        with warnings.catch_warnings():
            # Advice to a person with unknown units; here they are known.
            warnings.simplefilter("ignore", UnitsWarning)
            if arguments.method == "posterior":
                table = estimator(arguments.estimator).fit(sites).edge_probabilities_
            else:
                table = confidence(
                    estimator(arguments.estimator),
                    sites,
                    n_replicates=arguments.replicates,
                    method=arguments.method,
                    random_state=seed,
                )
        true = set(truth.edges()[["source", "target", "lag"]].itertuples(index=False, name=None))
        found = list(table[["source", "target", "lag"]].itertuples(index=False, name=None))
        tables.append(table.assign(right=[edge in true for edge in found], seed=seed, n_true=len(true)))
    return pd.concat(tables, ignore_index=True)


def report_edges(arguments: argparse.Namespace) -> None:
    for rows in arguments.rows:
        start = time.process_time()
        table = edge_tables(arguments, rows)
        seconds = time.process_time() - start
        n_true = int(table.groupby("seed")["n_true"].first().sum())
        print(
            f"\n{arguments.estimator}, {arguments.method}{', rescaled' * arguments.rescale}, "
            f"{arguments.federations} federations of {arguments.sites} sites, "
            f"d={arguments.variables}, {rows} rows in all, "
            f"{0 if arguments.method == 'posterior' else arguments.replicates} replicates, "
            f"{seconds:.0f} s of processor time"
        )
        print("| probability | edges | mean probability | right |\n|---|---|---|---|")
        for label, part in table.groupby(pd.cut(table["probability"], BINS, labels=LABELS), observed=True):
            print(
                f"| {label} | {len(part)} | {part['probability'].mean():.2f} | {part['right'].mean():.3f} |"
            )
        sure = table[table["probability"] >= 0.9]
        per_federation = sure.groupby("seed")["right"].mean()
        fit = table[table["weight"] != 0]
        print(
            f"probability >= .9: {sure['right'].mean():.3f} of {len(sure)} right "
            f"(per federation {per_federation.mean():.3f} +- {per_federation.std():.3f}, "
            f"worst {per_federation.min():.3f}), {sure['right'].sum() / n_true:.3f} of true edges reported; "
            f"single fit: {fit['right'].mean():.3f} right, {fit['right'].sum() / n_true:.3f} found"
        )


def report_intervals(arguments: argparse.Namespace) -> None:
    methods = ("analytic", "simulation")
    shares: dict[str, list[float]] = {method: [] for method in methods}
    for seed in range(arguments.series):
        rng = np.random.default_rng(seed)
        federation = simulate(
            d=arguments.variables,
            n_lags=1,
            n_sites=arguments.sites,
            n_samples=arguments.rows[-1],
            random_state=seed,
        )
        truth: DBN = federation.truth
        network = truth
        if arguments.fitted:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnitsWarning)
                network = estimator(arguments.estimator).fit(federation.sites).dbn_
        path = truth.simulate(60 + arguments.steps, random_state=rng).to_numpy()
        for method in methods:
            ours = network.forecast(path[:60], arguments.steps, 0.9, method, rng)  # type: ignore[arg-type]
            assert ours.lower is not None
            assert ours.upper is not None
            inside = (path[60:] >= ours.lower) & (path[60:] <= ours.upper)
            shares[method].append(float(inside.to_numpy().mean()))
    which = f"learned from {arguments.rows[-1]} rows" if arguments.fitted else "true"
    for method, found in shares.items():
        spread = np.std(found, ddof=1) / np.sqrt(len(found))
        print(
            f"90 % intervals, {which} network, {method}: "
            f"cover {np.mean(found):.4f} +- {spread:.4f} on {len(found)} series"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["edges", "intervals"])
    parser.add_argument(
        "--estimator", choices=["oneshot", "averaged", "curved", "dynotears"], default="oneshot"
    )
    parser.add_argument("--method", choices=["bootstrap", "stability", "posterior"], default="bootstrap")
    parser.add_argument("--federations", type=int, default=20)
    parser.add_argument("--rows", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--variables", type=int, default=10)
    parser.add_argument("--replicates", type=int, default=50)
    parser.add_argument("--series", type=int, default=200)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument(
        "--fitted", action="store_true", help="intervals of the learned, not the true network"
    )
    parser.add_argument("--rescale", action="store_true", help="give every variable a unit of its own")
    arguments = parser.parse_args()
    {"edges": report_edges, "intervals": report_intervals}[arguments.what](arguments)


if __name__ == "__main__":
    main()
