"""How many of the edges that a fit calls discoveries are false, and how many of the true ones it finds.

    export PYTHONPATH=.
    python benchmarks/discoveries.py --out discoveries.csv         # 1,000 clean networks and 200 of each violation
    python benchmarks/discoveries.py --clean 20 --others 10 --scenarios none spikes --seed 900
    python benchmarks/discoveries.py --read discoveries.csv
    python benchmarks/discoveries.py --quick

Every network is fitted once with ``fdr=0.1``; its q-values also tell the discoveries at .2. False is a lagged edge that the
truth does not have, or a contemporaneous link that it has neither way. The share is 0 where nothing was found. The first
networks of every row are also fitted by the score (BIC), and by PCMCI+ (ParCorr, alpha .1) with Benjamini and Hochberg's rule
of its own package. "said" counts fits whose finding `discoveries` is a
warning: the data contradict what the level rests on.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from arena import SCENARIOS, World
from peers import LAGGED_PEERS, installed, pcmci_plus_of_sites
from timing import Table

import feddbn

VIOLATIONS = (
    *("unequal-noise", "heavy-tails", "offsets", "trend", "missing-10", "spikes", "autocorrelated-noise"),
    *("changing-noise", "hidden-lagged-cause", "tanh"),
)
LEVELS = (0.1, 0.2)
WORLD = World(d=5, n_sites=3, rows=300, weights=(0.05, 0.35))
COLUMNS = ["scenario", "seed", "method", "level", "lagged", "links", "all", "found", "said", "seconds"]


def shares(truth: feddbn.DBN, W: np.ndarray, A: np.ndarray) -> dict[str, float]:
    """The shares of false lagged edges, of false links and of both together, and the share of true edges found."""
    links, true_links = (np.triu((m != 0) | (m != 0).T, 1) for m in (W, truth.W))
    lagged, true_lagged = A != 0, truth.A != 0
    n_lagged, n_links = int(lagged.sum()), int(links.sum())
    false_lagged, false_links = int((lagged & ~true_lagged).sum()), int((links & ~true_links).sum())
    n_found, n_false = n_lagged + n_links, false_lagged + false_links
    return {
        "lagged": false_lagged / max(n_lagged, 1),
        "links": false_links / max(n_links, 1),
        "all": n_false / max(n_found, 1),
        "found": (n_found - n_false) / max(int(true_lagged.sum() + true_links.sum()), 1),
    }


def edges_at(table: Any, level: float, variables: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """W, both ways, and A of all edges with a q-value up to a level."""
    d, place = len(variables), {name: k for k, name in enumerate(variables)}
    stack = np.zeros((int(table["lag"].max()) + 1, d, d))
    found = table[table["q_value"] <= level]
    stack[found["lag"], found["source"].map(place), found["target"].map(place)] = 1.0
    return stack[0], stack[1:]


def trials(key: str, seed: int, methods: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """What every method finds in one federation, at every level."""
    fed = WORLD.draw(SCENARIOS[key], seed)
    recordings = [np.asarray(frame, dtype=float) for frames in fed.sites.values() for frame in frames]
    for method in methods:
        started = time.process_time()
        found: dict[float, tuple[np.ndarray, np.ndarray]] = {}
        said = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if method == "fdr":
                model = feddbn.OneShotDBN(fdr=LEVELS[0]).fit(fed.sites)
                table, names = model.edge_probabilities_, model.dbn_.variables
                found = {level: edges_at(table, level, names) for level in LEVELS}
                said = any(one.level == "warning" for one in model.findings_.of("discoveries"))
            elif method == "bic":
                model = feddbn.OneShotDBN().fit(fed.sites)
                found = {0.0: (model.W_, model.A_)}
            else:
                found = {LEVELS[0]: pcmci_plus_of_sites(recordings, alpha=0.1, fdr=LEVELS[0])}
        seconds = time.process_time() - started
        for level, (W, A) in found.items():
            told = {"scenario": key, "seed": seed, "method": method, "level": level}
            yield {**told, **shares(fed.truth, W, A), "said": int(said), "seconds": seconds}


def run(
    scenarios: tuple[str, ...], clean: int, others: int, n_bic: int, n_peer: int, seed: int
) -> Iterator[dict[str, Any]]:
    """All trials, a share of every row after the other, so that a run that is stopped has all rows."""
    n_peer = n_peer if "PCMCI+" in installed(LAGGED_PEERS)[0] else 0
    wanted = {key: clean if key == "none" else others for key in scenarios}
    places = sorted(((k + 1) / n, key, k) for key, n in wanted.items() for k in range(n))
    for _, key, k in places:
        methods = ("fdr", *(["bic"] if k < n_bic else []), *(["pcmci+"] if k < n_peer else []))
        yield from trials(key, seed + k, methods)


def mean(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{np.mean(values):.3f} +- {np.std(values) / np.sqrt(len(values)):.3f}"


def summary(done: list[dict[str, Any]]) -> Table:
    """One row per scenario."""
    head = [f"false at {level:g}{part}" for level in LEVELS for part in ("", ", lagged", ", links")]
    head += [f"found at {level:g}" for level in LEVELS]
    head += [f"{what}, {name}" for name in ("BIC", "PCMCI+ at .1") for what in ("false", "found")]
    note = (
        f"d={WORLD.d}, {WORLD.n_sites} sites of {WORLD.rows} rows, |weights| {WORLD.weights[0]:g} to "
        f"{WORLD.weights[1]:g}. Means with standard errors. Networks: by fdr / BIC / PCMCI+. Said: fits that warn; in "
        "brackets those among the fits with more than a share of .2 false edges at level .1."
    )
    table = Table("False discoveries", ["what the sites do", "networks", *head, "said", "seconds"], note=note)
    for key in (key for key in SCENARIOS if any(one["scenario"] == key for one in done)):
        rows = [one for one in done if one["scenario"] == key]

        def of(method: str, level: float, what: str, rows: list[dict[str, Any]] = rows) -> list[float]:
            return [one[what] for one in rows if (one["method"], one["level"]) == (method, level)]

        cells = [mean(of("fdr", level, part)) for level in LEVELS for part in ("all", "lagged", "links")]
        cells += [mean(of("fdr", level, "found")) for level in LEVELS]
        cells += [mean(of("bic", 0.0, what)) for what in ("all", "found")]
        cells += [mean(of("pcmci+", LEVELS[0], what)) for what in ("all", "found")]
        said, wrong = np.array(of("fdr", LEVELS[0], "said")), np.array(of("fdr", LEVELS[0], "all")) > 0.2
        numbers = [len(of(*one, "all")) for one in (("fdr", 0.1), ("bic", 0.0), ("pcmci+", 0.1))]
        table.add(
            SCENARIOS[key].label,
            " / ".join(map(str, numbers)),
            *cells,
            f"{int(said.sum())} ({int(said[wrong].sum())} of {int(wrong.sum())})",
            f"{np.mean(of('fdr', LEVELS[0], 'seconds')):.2f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=["none", *VIOLATIONS])
    parser.add_argument("--clean", type=int, default=1000, help="networks where nothing is violated")
    parser.add_argument("--others", type=int, default=200, help="networks of every violation")
    parser.add_argument("--bic", type=int, default=50, help="of these, fitted by BIC")
    parser.add_argument("--peer", type=int, default=20, help="of these, fitted by PCMCI+")
    parser.add_argument("--seed", type=int, default=70_000, help="the first one")
    parser.add_argument("--out", type=Path, help="CSV file, a line for each trial as soon as it is there")
    parser.add_argument("--read", type=Path, help="such a file, instead of running")
    parser.add_argument("--quick", action="store_true", help="seconds: three networks of two rows")
    options = parser.parse_args()
    if options.read:
        with options.read.open(newline="") as file:
            lines = list(csv.DictReader(file))
        done = [{k: v if k in ("scenario", "method") else float(v) for k, v in one.items()} for one in lines]
    else:
        if options.quick:
            options.scenarios, options.clean, options.others = ["none", "spikes"], 3, 3
            options.bic = options.peer = 1
        numbers = (options.clean, options.others, options.bic, options.peer, options.seed)
        found = run(tuple(options.scenarios), *numbers)
        if options.out:
            done = []
            with options.out.open("w", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                writer.writeheader()
                for one in found:
                    writer.writerow(one)
                    file.flush()
                    done.append(one)
        else:
            done = list(found)
    print(summary(done).text(), flush=True)


if __name__ == "__main__":
    main()
