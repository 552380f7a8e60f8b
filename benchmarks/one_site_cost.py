"""What one deployed site pays per round of FDBNL and PFDBNL, and what simulated fits of many sites cost.

python benchmarks/one_site_cost.py --json > before.json
python benchmarks/one_site_cost.py --against before.json      ratios to that run, and whether the numbers of calls agree

The real server programs run against real sites, each of which answers for itself, as in a deployment (K = 1); only
`Site.answer` is timed. The code under test is whichever feddbn Python imports: PYTHONPATH points at another version.
CPU time of one thread; of each kind of round the median, of the repetitions the least median.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from timing import Table

import feddbn
from feddbn import FDBNL, PFDBNL, PersonalRounds, Rounds
from feddbn.data import read_sites

SIZES = (5, 10, 20, 50)
N_SITES = 3
PAPER = {"schedule": "paper", "prepare": feddbn.Prepare(scale="none")}
# Which estimator is driven for each kind of round; the paper's schedules never end by themselves in so few rounds.
STEPS: dict[str, Callable[..., Any]] = {
    "FDBNL": lambda **more: FDBNL(schedule="rounds", **more),
    "FDBNL, paper": lambda **more: FDBNL(
        weighting="sites", refit=False, rounds=Rounds(max_rounds=100), **PAPER, **more
    ),
    "PFDBNL": lambda **more: PFDBNL(**more),
    "PFDBNL, paper": lambda **more: PFDBNL(
        mu=0.1,
        rounds=PersonalRounds(
            alpha="shared", average="participants", weighting="sites", refit=False, max_rounds=30
        ),
        **PAPER,
        **more,
    ),
}
FITS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "FDBNL d=10 K=64 n=512": (FDBNL, {"n_sites": 64, "n_samples": 512}),
    "FDBNL, paper d=10 K=64 n=512": (STEPS["FDBNL, paper"], {"n_sites": 64, "n_samples": 512}),
    "PFDBNL d=10 K=16 n=1024": (PFDBNL, {"n_sites": 16, "n_samples": 1024, "heterogeneity": 0.1}),
    "PFDBNL d=10 K=64 n=4096": (PFDBNL, {"n_sites": 64, "n_samples": 4096, "heterogeneity": 0.1}),
}


def part(name: str, *modules: str) -> Any:
    """`name` from the first of the modules that exists: folders differ between versions."""
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"none of {', '.join(modules)} has {name}.")


Site = part("Site", "feddbn.federation.protocol.site", "feddbn.federation.site")
Sum = part("Sum", "feddbn.federation.protocol.task", "feddbn.federation.task")


def kind_of(task: Any) -> str:
    """A task's name with the stage, or what is asked, if it has one, wherever this version keeps that."""
    words = [task.name]
    for key in ("ask", "stage"):
        params = getattr(task, "params", None)
        value = params.get(key) if isinstance(params, Mapping) else getattr(params, key, None)
        value = getattr(task, key, None) if value is None else value
        if value is not None:
            words.append(str(value.value if isinstance(value, Enum) else value))
    return " ".join(words)


class TimedFederation:
    """Sites that answer one by one; keeps the CPU seconds and the length of every answer by kind of task."""

    answered_tasks = None

    def __init__(self, sites: Mapping[str, Any]) -> None:
        self._sites = {name: Site(name, data) for name, data in sorted(sites.items())}
        self.variables = tuple(next(iter(sites.values())).variables)
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.sent: dict[str, int] = {}

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self._sites)

    def state_of(self, name: str) -> Any:
        return self._sites[name].state

    def sum(self, task: Any) -> Any:
        names = tuple(task.participants or self._sites)
        kind, vectors = kind_of(task), []
        for name in names:
            answer = self._sites[name].answer
            start = time.process_time()
            vectors.append(answer(task))
            self.seconds[kind].append(time.process_time() - start)
        self.sent[kind] = vectors[0].size
        return Sum(np.sum(vectors, axis=0), names)


def steps_of(method: str, d: int) -> dict[str, dict[str, float]]:
    """Median milliseconds, number of answers and of numbers sent, of every kind of round of one run."""
    simulated = feddbn.simulate(
        d=d, n_sites=N_SITES, n_samples=20 * d * N_SITES, heterogeneity=0.1, random_state=0
    )
    federation = TimedFederation(read_sites(simulated.sites))
    STEPS[method](federation=federation).fit(None)
    return {
        f"{method}: {kind}, d={d}": {
            "ms": 1e3 * float(np.median(seconds)),
            "calls": len(seconds) // N_SITES,
            "sent": federation.sent[kind],
        }
        for kind, seconds in federation.seconds.items()
        if "step" in kind
    }


def fit_of(name: str) -> dict[str, dict[str, float]]:
    """Milliseconds and rounds of one fit through the public interface, reading of the data included."""
    estimator, settings = FITS[name]
    simulated = feddbn.simulate(d=10, random_state=0, **settings)
    start = time.process_time()
    model = estimator().fit(simulated.sites)
    return {
        f"fit {name}": {"ms": 1e3 * (time.process_time() - start), "calls": model.n_rounds_, "sent": None}
    }


def measure(sizes: tuple[int, ...], repeats: int) -> dict[str, dict[str, float]]:
    """Everything, `repeats` times; the least time of each."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(repeats):
        for work, arguments in [(fit_of, (name,)) for name in FITS] + [
            (steps_of, (method, d)) for d in sizes for method in STEPS
        ]:
            for key, found in work(*arguments).items():
                best[key] = min(best.get(key, found), found, key=lambda one: one["ms"])
    return best


def table_of(found: dict[str, dict[str, float]], before: dict[str, dict[str, float]]) -> Table:
    table = Table(
        "A site's step by itself (K = 1), and simulated fits",
        ["what", "ms", "rounds", "numbers sent", "ms before", "ratio", "rounds before", "sent before"],
        note="CPU milliseconds: of a step the median over rounds and sites, of a fit the whole.",
    )
    for key, now in found.items():
        old = before.get(key)
        after = (old["ms"], now["ms"] / old["ms"], old["calls"], old["sent"]) if old else (None,) * 4
        table.add(key, now["ms"], now["calls"], now["sent"], *after)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, metavar="D", help="numbers of variables"
    )
    parser.add_argument("--repeats", type=int, default=5, help="the least time of so many runs is kept")
    parser.add_argument("--against", type=Path, help="JSON of another run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = measure(tuple(options.sizes), options.repeats)
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        before = json.loads(options.against.read_text()) if options.against else {}
        print(table_of(found, before).text())


if __name__ == "__main__":
    main()
