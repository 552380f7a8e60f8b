"""Networks of counts, yes/no and categories: edges found and forecasts, in one run.

    python benchmarks/mixed.py [n_networks] [first seed]

Prints the tables of docs/mixed.md. Twelve variables, a third each normal, yes/no and Poisson; the
rows are spread over four sites.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

import feddbn
from feddbn.core.kinds import Kind

D, SITES, WEIGHTS = 12, 4, (0.2, 0.5)
MIXED = ["continuous", "binary", "count"]
Lagged = tuple[np.ndarray, np.ndarray]
Learner = Callable[[dict[str, list[np.ndarray]], dict[str, Kind]], Lagged]


def draw(seed: int, n_rows: int, kinds: list[str], d: int = D) -> feddbn.SimulatedFederation:
    """About d contemporaneous edges and d delayed ones."""
    return feddbn.simulate(
        d=d,
        n_sites=SITES,
        n_samples=n_rows,
        mean_degree=2,
        lag_degree=1,
        w_range=WEIGHTS,
        kinds=kinds,
        random_state=seed,
    )


def links(W: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Edges whatever their direction within a time step, and delayed ones."""
    either = np.triu((W != 0) | (W.T != 0))
    return np.concatenate([either.ravel(), (A != 0).ravel()])


def directed(W: np.ndarray, A: np.ndarray) -> np.ndarray:
    return np.concatenate([(W != 0).ravel(), (A != 0).ravel()])


def f1(true: np.ndarray, found: np.ndarray) -> float:
    return float(2 * (true & found).sum() / max(true.sum() + found.sum(), 1))


def ours(sites: dict[str, list[np.ndarray]], kinds: dict[str, Kind]) -> Lagged:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = feddbn.MixedDBN(1, kinds=kinds).fit(sites)
    return fit.W_, fit.A_


def straight(sites: dict[str, list[np.ndarray]], kinds: dict[str, Kind]) -> Lagged:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = feddbn.OneShotDBN(1, features="linear").fit(sites)
    return fit.W_, fit.A_


LEARNERS: dict[str, Learner] = {
    "MixedDBN": ours,
    "OneShotDBN (lines)": straight,
}


def table(learners: dict[str, Learner], n_rows: int, kinds: list[str], seeds: range, d: int = D) -> None:
    """Print one line per learner: links and directed edges found, wrong edges, seconds of one core."""
    found: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in learners}
    # What is imported on first use is nobody's cost.
    warm = draw(seeds[0], 60, kinds, 4)
    for learn in learners.values():
        learn(warm.sites, dict(zip(warm.truth.variables, warm.truth.kinds, strict=True)))
    for seed in seeds:
        made = draw(seed, n_rows, kinds, d)
        known = dict(zip(made.truth.variables, made.truth.kinds, strict=True))
        true = made.truth.W, made.truth.A
        for name, learn in learners.items():
            start = time.process_time()
            W, A = learn(made.sites, known)
            seconds = time.process_time() - start
            scores = f1(links(*true), links(W, A)), f1(directed(*true), directed(W, A))
            # A turned or undirected link is one wrong edge.
            wrong = float((links(*true) != links(W, A)).sum())
            turned = ((true[0] != 0) & (W == 0) & (W.T != 0)).sum() + (
                (true[0] != 0) & (W != 0) & (W.T != 0)
            ).sum()
            found[name].append((*scores, wrong + float(turned), seconds))
    first = np.array(next(iter(found.values())))
    for name, lines in found.items():
        mean, spread = np.mean(lines, axis=0), np.std(lines, axis=0, ddof=1) / np.sqrt(len(lines))
        slower = np.array(lines)[:, 3].sum() / first[:, 3].sum()
        print(
            f"| {n_rows} | {name} | {mean[0]:.3f} ± {spread[0]:.3f} | {mean[1]:.3f} ± {spread[1]:.3f} | {mean[2]:.1f} "
            f"| {mean[3]:.2f} | {slower:.1f} |",
            flush=True,
        )


def binned(dbn: feddbn.DBN, rows: pd.DataFrame, name: str) -> Iterator[pd.DataFrame]:
    """Frame low, predicted, seen, n of five bins of probability, for each level of one variable."""
    x, j = rows.to_numpy(), list(rows).index(name)
    lagged = np.concatenate([x[1:], x[:-1]], axis=1)
    told = dbn.steps.laws(lagged, [dbn.variables.index(name)])[0].probabilities
    for k, p in enumerate(() if told is None else told.T):
        if k or dbn.kinds[j].name != "binary":
            frame = pd.DataFrame(
                {"low": np.minimum(p * 5, 4).astype(int) / 5, "predicted": p, "seen": x[1:, j] == k}
            )
            yield (
                frame.groupby("low")
                .agg(predicted=("predicted", "mean"), seen=("seen", "mean"), n=("seen", "size"))
                .reset_index()
            )


def held_out(seeds: range, n_rows: int = 1500) -> None:
    """Print the log score of fresh rows by the learned network and by the true one, and the calibration of the first."""
    shares, tables = [], []
    for seed in seeds:
        made = draw(seed, n_rows, MIXED)
        known = dict(zip(made.truth.variables, made.truth.kinds, strict=True))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = feddbn.MixedDBN(1, kinds=known).fit(made.sites)
        rows = made.truth.simulate(2000, random_state=seed + 1)
        shares.append((fit.dbn_.log_likelihood(rows), made.truth.log_likelihood(rows)))
        tables += [one for name in rows for one in binned(fit.dbn_, rows, name)]
    mine, theirs = np.array(shares).T
    print(f"log score per row: {mine.mean() / 1999:.4f}, truth {theirs.mean() / 1999:.4f}")
    every = pd.concat(tables)
    every = every.assign(p=every["predicted"] * every["n"], s=every["seen"] * every["n"])
    print("| predicted between | predicted | seen | rows |\n|---|---|---|---|")
    for low, line in every.groupby("low")[["p", "s", "n"]].sum().iterrows():
        print(f"| {low} | {line['p'] / line['n']:.3f} | {line['s'] / line['n']:.3f} | {line['n']:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("n_networks", nargs="?", type=int, default=20)
    parser.add_argument("first", nargs="?", type=int, default=1000)
    parser.add_argument("--rows", type=int, nargs="*", default=[300, 600, 1500])
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.n_networks)
    print("| rows | method | F1 of links | F1 of directed edges | wrong edges | seconds | times as long |")
    print("|---|---|---|---|---|---|---|")
    for n_rows in given.rows:
        table(LEARNERS, n_rows, MIXED, seeds)
    held_out(seeds[:5])


if __name__ == "__main__":
    main()
