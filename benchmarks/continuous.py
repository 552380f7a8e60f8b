"""Networks in continuous time from sums by the time between readings: simulated with known rates.

    export PYTHONPATH=.
    python benchmarks/continuous.py                                  # d = 6 and 10, all methods, seeds 700-709
    python benchmarks/continuous.py --d 6 --seeds 700-703 --what plain levels --methods sums
    python benchmarks/continuous.py --count rows                     # 20,000 rows, not 20,000 values
    python benchmarks/continuous.py --what regular jitter two-rates --methods estimator oneshot   # rows at usual times

dx = A x dt + G dw with G diagonal, as many edges as variables, drawn by `reproduction.differential.draw_rates`;
rows at random times, one a
step at half of the sites and two at the others, 60 % of the cells empty. A wrong edge is an entry of A off the diagonal that
is missing or extra. Rates: median of |found / true - 1| over the entries found. Sure: edges with probability .95 or more.
"regular", "jitter" and "two-rates" have whole rows, one a step, up to .3 steps early or late, or every second step at half of
the sites; for these a further table has the share of pairs of variables of which two methods say the same, link or none.

`sums` is `learn_rates` on the sums of all sites, `estimator` is ContinuousDBN on tables with times. The others get means over
whole steps, empty cells where there is no reading, pooled or by site: OneShotDBN with one lag (its edges of A, and those of W
or A), PCMCI+ (tigramite, ParCorr, alpha .01, empty cells flagged). SINDy (pysindy, linear terms, thresholds .05 to .2, the
best one for each seed) gets the rows at their times, empty cells on the line between their neighbours.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from arena import seeds_of
from peers import installed, pcmci_plus_of_sites
from timing import Table

import feddbn
from feddbn.core.continuous import learn_rates
from feddbn.core.designs.lags import lag_sums
from reproduction.differential import diffusion, draw_rates

Recordings = list[tuple[np.ndarray, np.ndarray]]
EDGES = 2.0 ** ((np.arange(-6, 12) - 0.5) / 2)
SURE = 0.95


@dataclass(frozen=True)
class Drawn:
    """A with the recordings of every site."""

    A: np.ndarray
    sites: list[Recordings]


def drawn(
    what: str, d: int, seed: int, readings: int = 20_000, count: str = "values", n_sites: int = 8
) -> Drawn:
    """One federation of one kind."""
    rng = np.random.default_rng([seed, 33])
    A, sds = draw_rates(d, d, rng=rng), rng.uniform(0.7, 1.2, d)
    Q = np.diag(sds**2)
    if what == "shared noise":
        for i, j in rng.permutation(d)[: 2 * (d // 2)].reshape(-1, 2):
            Q[i, j] = Q[j, i] = 0.5 * sds[i] * sds[j]
    spread = np.sqrt(np.diag(np.cov(diffusion(A, Q, np.arange(4000.0), rng).T)))
    share = 1.0 if what in USUAL_TIMES else 0.4
    n_rows = readings if count == "rows" else round(readings / d / share)
    n_recordings = {"levels": 128, "short": 128}.get(what, n_sites)
    sites: list[Recordings] = [[] for _ in range(n_sites)]
    for k in range(n_recordings):
        rows = max(10, round(n_rows / n_recordings * (rng.uniform(0.2, 1.8) if what == "short" else 1.0)))
        step = 1.0 if k % 2 else 0.5
        if what in USUAL_TIMES:
            times = np.arange(float(rows)) * (2.0 if what == "two-rates" and k % 2 else 1.0)
            times += rng.uniform(0.2, 0.8, rows) if what == "jitter" else 0.0
        else:
            times = np.cumsum(rng.exponential(step, rows))
        x = diffusion(A, Q, times, rng)
        if what == "errors of reading":
            x = x + 0.5 * spread * rng.standard_normal(x.shape)
        if what in ("levels", "short"):
            x = x + spread * rng.standard_normal(d)
        x[rng.random(x.shape) >= share] = np.nan
        sites[k % n_sites].append((times, x))
    return Drawn(A, sites)


USUAL_TIMES = ("regular", "jitter", "two-rates")
WHAT = ("plain", "errors of reading", "levels", "short", "shared noise", *USUAL_TIMES)


def hourly(recordings: Recordings) -> list[np.ndarray]:
    """Means of the readings of every step, NaN where there is none."""
    found = []
    for times, values in recordings:
        step = np.floor(times).astype(int)
        means = pd.DataFrame(values).groupby(step).mean()
        found.append(means.reindex(range(step[0], step[-1] + 1)).to_numpy())
    return found


def by_sums(data: Drawn) -> dict[str, Any]:
    sums = reduce(add, (lag_sums(recordings, EDGES) for recordings in data.sites))
    found = learn_rates(sums, np.random.default_rng(0))
    return {"sums": found.rates, "probabilities": found.probabilities, "fit": found.misfit / max(found.df, 1)}


def by_estimator(data: Drawn) -> dict[str, Any]:
    sites = {
        f"site-{k}": [
            pd.DataFrame(x).rename(columns=lambda c: f"x{c}").assign(t=times) for times, x in recordings
        ]
        for k, recordings in enumerate(data.sites)
    }
    model = feddbn.ContinuousDBN().fit(sites, time="t")
    return {"ContinuousDBN": model.rates_.to_numpy().T}


def by_oneshot(data: Drawn) -> dict[str, Any]:
    sites = {
        f"site-{k}": [pd.DataFrame(x).rename(columns=lambda c: f"x{c}") for x in hourly(recordings)]
        for k, recordings in enumerate(data.sites)
    }
    model = feddbn.OneShotDBN(n_lags=1).fit(sites)
    A, W = model.A_[0].T, model.W_.T
    return {"OneShotDBN, A": A, "OneShotDBN, W or A": np.where(A != 0, A, W)}


def by_pcmci(data: Drawn) -> dict[str, Any]:
    W, A = pcmci_plus_of_sites([x for recordings in data.sites for x in hourly(recordings)])
    return {"PCMCI+, lagged": A[0].T, "PCMCI+, any": np.where(A[0] != 0, A[0], W).T}


def by_sindy(data: Drawn) -> dict[str, Any]:
    import pysindy

    rows, clocks = [], []
    for times, x in (one for recordings in data.sites for one in recordings):
        here = [~np.isnan(column) for column in x.T]
        rows.append(
            np.stack([np.interp(times, times[h], c[h]) for h, c in zip(here, x.T, strict=True)], axis=1)
        )
        clocks.append(times)
    found = []
    for threshold in (0.05, 0.1, 0.2):
        model = pysindy.SINDy(
            optimizer=pysindy.STLSQ(threshold=threshold),
            feature_library=pysindy.PolynomialLibrary(degree=1, include_bias=False),
        )
        model.fit(rows, t=clocks)
        found.append(np.asarray(model.coefficients()))
    return {"SINDy": min(found, key=lambda A: wrong(data.A, A))}


METHODS: dict[str, tuple[str, Callable[[Drawn], dict[str, Any]]]] = {
    "sums": ("numpy", by_sums),
    "estimator": ("numpy", by_estimator),
    "oneshot": ("numpy", by_oneshot),
    "pcmci": ("tigramite", by_pcmci),
    "sindy": ("pysindy", by_sindy),
}


def wrong(truth: np.ndarray, found: np.ndarray) -> int:
    """Entries off the diagonal that are missing or extra."""
    return int(((truth != 0) != (found != 0))[~np.eye(len(truth), dtype=bool)].sum())


def links(A: np.ndarray) -> np.ndarray:
    """Of every pair of variables whether one acts on the other."""
    return ((A != 0) | (A.T != 0))[np.triu_indices(len(A), 1)]


def agreement(what: str, d: int, done: list[dict[str, Any]]) -> Iterator[Table]:
    """The share of pairs of variables of which methods say the same as the one with W or A."""
    of = {
        label: np.concatenate([t["links"] for t in done if t["method"] == label]) for label in _labels(done)
    }
    oneshot = of.pop("OneShotDBN, W or A", None)
    if what not in USUAL_TIMES or oneshot is None:
        return
    table = Table(
        f"links of OneShotDBN (W or A) and others, {what}, d = {d}", ["method", "pairs", "the same"]
    )
    for label, own in of.items():
        table.add(label, len(own), float((own == oneshot).mean()))
    yield table


def _labels(done: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(t["method"] for t in done))


def errors(truth: np.ndarray, found: np.ndarray) -> np.ndarray:
    """How far rates that were found are from the true ones, in parts of these."""
    both = (truth != 0) & (found != 0)
    return np.abs(found[both] / truth[both] - 1)


def trials(arguments: argparse.Namespace, what: str, d: int) -> Iterator[dict[str, Any]]:
    for seed in arguments.seeds:
        data = drawn(what, d, seed, arguments.readings, arguments.count)
        for name in arguments.methods:
            started = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = METHODS[name][1](data)
            seconds = time.process_time() - started
            off = ~np.eye(d, dtype=bool)
            probabilities, fit = found.pop("probabilities", None), found.pop("fit", None)
            for label, A in found.items():
                one = {"method": label, "wrong": wrong(data.A, A), "seconds": seconds, "fit": fit}
                one["links"] = links(A)
                if probabilities is not None:
                    one["rates"] = errors(data.A, A)
                    one["claims"] = np.stack([probabilities[off], (data.A != 0)[off]])
                yield one


def tables(arguments: argparse.Namespace) -> Iterator[Table]:
    there, missing = installed(METHODS)
    arguments.methods = [name for name in arguments.methods if name in there]
    for d in arguments.d:
        for what in arguments.what:
            done = list(trials(arguments, what, d))
            table = Table(
                f"{what}, d = {d}",
                ["method", "wrong edges", "fewest-most", "rates off by", "misfit / df", "CPU seconds"],
                note=f"{len(arguments.seeds)} seeds from {arguments.seeds[0]}, {d} edges, 8 sites, "
                f"{arguments.readings:,} {arguments.count}."
                + (f" Not installed, left out: {', '.join(missing)}." if missing else ""),
            )
            for label in _labels(done):
                own = [t for t in done if t["method"] == label]
                counts = [t["wrong"] for t in own]
                rates = [t["rates"] for t in own if "rates" in t]
                fits = [t["fit"] for t in own if t["fit"] is not None]
                table.add(
                    label,
                    float(np.mean(counts)),
                    f"{min(counts)}-{max(counts)}",
                    f"{100 * np.median(np.concatenate(rates)):.1f} %" if rates else "-",
                    float(np.median(fits)) if fits else None,
                    float(np.mean([t["seconds"] for t in own])),
                )
            yield table
            yield from agreement(what, d, done)
            yield from calibration(what, d, [t["claims"] for t in done if "claims" in t])


def calibration(what: str, d: int, claims: list[np.ndarray]) -> Iterator[Table]:
    """How many of the edges of some probability there are."""
    if not claims:
        return
    probability, true = np.concatenate(claims, axis=1)
    table = Table(f"probabilities of edges, {what}, d = {d}", ["probability", "edges", "mean", "true"])
    limits = [0.0, 0.05, 0.5, SURE, 1.0 + 1e-9]
    for low, high in pairwise(limits):
        part = (probability >= low) & (probability < high)
        if part.any():
            table.add(
                f"{low:g} to {min(high, 1):g}",
                int(part.sum()),
                float(probability[part].mean()),
                float(true[part].mean()),
            )
    yield table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--d", type=int, nargs="+", default=[6, 10], help="variables")
    parser.add_argument("--what", nargs="+", choices=WHAT, default=["plain"])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--readings", type=int, default=20_000)
    parser.add_argument(
        "--count", choices=["values", "rows"], default="values", help="what readings are counted in"
    )
    parser.add_argument(
        "--seeds", type=seeds_of, default=tuple(range(700, 710)), help="one, or a range such as 700-704"
    )
    for table in tables(parser.parse_args()):
        print(table.text(), flush=True)


if __name__ == "__main__":
    main()
