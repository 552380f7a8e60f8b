"""What real sites do to data, and what methods make of it: wrong edges, warnings and confidence side by side.

    export PYTHONPATH=.
    python benchmarks/arena.py --methods OneShotDBN
    python benchmarks/arena.py --scenarios none offsets spikes=0.02 --seeds 700-702 --out arena
    python benchmarks/arena.py --read ours/arena.csv peers/arena.csv    # one table of earlier runs
    python benchmarks/arena.py --quick
    python benchmarks/arena.py --list

A wrong edge of W is a pair of variables whose edge differs from the truth, so a reversed edge and one without a direction
count 1 (`feddbn.metrics`, SHD); of A, an entry that differs. "sure" are the edges of `edge_probabilities_` with probability
.95 or more; a sure edge is wrong if the truth has none from there to there at that lag. Nothing is told about the corruptions
and nothing is tuned. The others get every site centred: PCMCI+ (ParCorr; robust: RobustParCorr) all sites as such, alpha .01,
empty cells flagged; VARLiNGAM all rows one below the other, empty cells interpolated in time, threshold .1.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from arena_words import gist
from peers import LAGGED_PEERS, installed
from timing import Size, Table

import feddbn
from feddbn.errors import FeddbnError
from feddbn.metrics import edge_scores
from feddbn.words import say
from reproduction.corruptions import names, simulate


def _fits(method: Any, protection: str = "exact") -> Callable[..., Any]:
    def fit(sites: Any, **layout: Any) -> Any:
        federation = feddbn.simulated(sites, protection=protection, random_state=0, **layout)
        return method(n_lags=1, federation=federation).fit(None)

    return fit


OURS = {"OneShotDBN": _fits(feddbn.OneShotDBN), "FDBNL": _fits(feddbn.FDBNL)}
USUAL = (*OURS, *LAGGED_PEERS)
# With the secret weights of rows that a masked study has.
OURS |= {f"{name}-weights": _fits(getattr(feddbn, name), "weights") for name in OURS}
METHODS = (*OURS, *LAGGED_PEERS)
SURE = 0.95


@dataclass(frozen=True)
class Scenario:
    """One row: what the sites do, and how else the simulation differs."""

    label: str
    corruptions: dict[str, float | None]
    simulation: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class World:
    """The networks and sites of all rows."""

    d: int = 8
    n_sites: int = 8
    rows: int = 200
    weights: tuple[float, float] = (0.3, 0.6)
    seeds: tuple[int, ...] = (700, 701, 702, 703, 704)

    def draw(self, scenario: Scenario, seed: int) -> feddbn.SimulatedFederation:
        """About 10 contemporaneous edges and 8 lagged ones at d = 8."""
        return simulate(
            scenario.corruptions,
            seed,
            d=self.d,
            n_sites=self.n_sites,
            n_samples=self.n_sites * self.rows,
            mean_degree=2.5,
            lag_degree=1,
            w_range=self.weights,
            **scenario.simulation,
        )


SCENARIOS: dict[str, Scenario] = {
    "none": Scenario("nothing", {}),
    "unequal-noise": Scenario("noise variances differ (Gaussian)", {"unequal-noise": None}),
    "unequal-laplace": Scenario(
        "noise variances differ (Laplace)", {"unequal-noise": None}, {"noise": "laplace"}
    ),
    "heavy-tails": Scenario("t noise with 3 degrees", {"heavy-tails": 3.0}),
    "unit-variance": Scenario("every variable scaled to unit variance", {"unit-variance": None}),
    "offsets": Scenario("a mean of its own per site and variable (sd 3)", {"offsets": 3.0}),
    "gains": Scenario("a gain of its own per site and variable (log sd .4)", {"gains": 0.4}),
    "trend": Scenario("a linear trend per site and variable", {"trend": None}),
    "cycle": Scenario("a daily cycle, other size and phase per site", {"cycle": None}),
    "missing-10": Scenario("10 % of the cells missing", {"missing": 0.1}),
    "missing-30": Scenario("30 % of the cells missing", {"missing": 0.3}),
    "spikes": Scenario("1 % of the cells are spikes (15 sd)", {"spikes": 0.01}),
    "rounding": Scenario("values rounded to whole numbers", {"rounding": 1.0}),
    "measurement-noise": Scenario("measurement noise (.5 sd)", {"measurement-noise": 0.5}),
    "other-units": Scenario("one site has one variable in other units (x 100)", {"other-units": 100.0}),
    "mixed-columns": Scenario("one site has its columns mixed up", {"mixed-columns": 1}),
    "hidden-causes": Scenario("two hidden common causes", {"hidden-causes": None}),
    "stopping-edges": Scenario("a quarter of the edges stops half-way", {"stopping-edges": 0.25}),
    "tanh": Scenario("effects tanh-shaped", {"tanh": None}),
    "squares": Scenario("effects with squares", {"squares": None}),
    "noisy-site": Scenario("one site with three times the noise", {"noisy-site": 3.0}),
    "jitter": Scenario("sampling jitter (.3 rows)", {"jitter": 0.3}),
    "two-rates": Scenario("half of the sites see every second row", {"two-rates": 2}),
    "stuck": Scenario("one sensor of one site stuck for a quarter of the time", {"stuck": 0.25}),
    "sentinels": Scenario("-999 in 1 % of the cells", {"sentinels": 0.01}),
    "sum-column": Scenario("one more column, the sum of three", {"sum-column": 3.0}),
    "duplicate": Scenario("one more column, a copy (it stands behind its original)", {"duplicate": None}),
    "slow-levels": Scenario("levels near a unit root (.97)", {"slow-levels": 0.97}),
    "autocorrelated-noise": Scenario("autocorrelated noise (.6)", {"autocorrelated-noise": 0.6}),
    "changing-noise": Scenario("noise variance changes with time", {"changing-noise": None}),
    "observation-noise": Scenario("observation noise of the size of the signal", {"measurement-noise": 1.0}),
    "hidden-lagged-cause": Scenario("a hidden lagged cause", {"hidden-lagged-cause": None}),
    "everything": Scenario(
        "everything at once: offsets, trend, 10 % missing, .5 % spikes",
        {"trend": 3.0, "offsets": 3.0, "spikes": 0.005, "missing": 0.1},
    ),
}


def scenario_of(text: str) -> tuple[str, Scenario]:
    """A row by its name, or any corruption as NAME[=STRENGTH]."""
    if text in SCENARIOS:
        return text, SCENARIOS[text]
    name, _, strength = text.partition("=")
    try:
        number = float(strength) if strength else None
        given = {name: int(number) if number is not None and number.is_integer() else number}
        simulate(given, d=2, n_sites=1, n_samples=10)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no scenario (see --list): {error}") from None
    return text, Scenario(text, given)


def seeds_of(text: str) -> tuple[int, ...]:
    first, _, last = text.partition("-")
    try:
        return tuple(range(int(first), int(last or first) + 1))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no seed and no range such as 700-704") from None


def trial(name: str, fed: feddbn.SimulatedFederation) -> dict[str, Any]:
    """One fit of one method: wrong edges, what it said, what it was sure of, seconds; the others know no times."""
    recordings = [np.asarray(frame, dtype=float) for frames in fed.sites.values() for frame in frames]
    said: list[str] = []
    table = None
    started = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if name in OURS:
                model = OURS[name](fed.sites)
                W, A, said = model.W_, model.A_, [say(one) for one in model.findings_ if one.level != "good"]
                table = getattr(model, "edge_probabilities_", None)
            else:
                W, A = LAGGED_PEERS[name][1](recordings)
    except FeddbnError as error:
        return {"seconds": time.process_time() - started, "refused": str(error)}
    except Exception as error:  # Another package's way of refusing; the table must go on.
        if name in OURS:
            raise
        return {"seconds": time.process_time() - started, "refused": f"{type(error).__name__}: {error}"}
    seconds = time.process_time() - started
    w, a = edge_scores(fed.truth.W, W), edge_scores(fed.truth.A, A)
    n_sure, n_wrong = (0, 0) if table is None else sure_edges(table, fed.truth)
    return {
        "w": w.shd,
        "a": a.shd,
        "w_fp_fn": w.shd_paper,
        "n_w": w.n_true,
        "n_a": a.n_true,
        "seconds": seconds,
        "warnings": said,
        "sure": n_sure,
        "sure_wrong": n_wrong,
    }


def sure_edges(table: Any, truth: feddbn.DBN) -> tuple[int, int]:
    """How many edges have probability .95 or more, and how many of these are not in the truth."""
    stack = np.concatenate([truth.W[None], truth.A])
    sure = table[table["probability"] >= SURE]
    place = {name: k for k, name in enumerate(truth.variables)}
    wrong = [
        stack[lag, place[i], place[j]] == 0
        for i, j, lag in zip(sure["source"], sure["target"], sure["lag"], strict=True)
    ]
    return len(wrong), int(sum(wrong))


def run(world: World, scenarios: dict[str, Scenario], methods: list[str]) -> Iterator[dict[str, Any]]:
    """Every trial, with the names of its row, seed and method."""
    for key, scenario in scenarios.items():
        for seed in world.seeds:
            fed = world.draw(scenario, seed)
            for name in methods:
                yield {"scenario": key, "seed": seed, "method": name, **trial(name, fed)}


def wrong_edges(trials: list[dict[str, Any]]) -> str:
    done = [t for t in trials if "refused" not in t]
    refused = f"refused {len(trials) - len(done)} of {len(trials)}" if len(done) < len(trials) else ""
    if not done:
        return refused or "-"
    means = " / ".join(f"{np.mean([t[part] for t in done]):.1f}" for part in ("w", "a"))
    both = [t["w"] + t["a"] for t in done]
    spread = f"{min(both)}-{max(both)}" if len(both) > 1 else ""
    remark = ", ".join(part for part in (spread, refused) if part)
    return f"{means} ({remark})" if remark else means


def words(trials: list[dict[str, Any]]) -> str:
    """In how many fits which warning came."""
    counts = Counter(kind for t in trials for kind in {gist(s) for s in t.get("warnings", [])})
    return "; ".join(f"{n}x {kind}" for kind, n in counts.most_common()) or "-"


def sureness(trials: list[dict[str, Any]]) -> str:
    sure, wrong = (sum(t.get(part, 0) for t in trials) for part in ("sure", "sure_wrong"))
    return f"{100 * wrong / sure:.0f} % of {sure}" if sure else "-"


def summary(
    world: World, scenarios: dict[str, Scenario], methods: list[str], trials: list[dict[str, Any]]
) -> Table:
    """One row per scenario."""
    ours = [name for name in methods if name in OURS]
    shown = [
        "what the sites do",
        *methods,
        *(f"{name} warned" for name in ours),
        "wrong of the sure",
        "seconds",
    ]
    note = (
        f"d={world.d}, {world.n_sites} sites of {world.rows} rows, |weights| {world.weights[0]:g} to {world.weights[1]:g}, "
        f"seeds {', '.join(map(str, world.seeds))}. Means of wrong edges of W / A "
        f"(both together, fewest-most over seeds); a reversed edge counts 1. "
        f"Wrong of the sure: OneShotDBN's edges at probability {SURE:g} or more. "
        f"Seconds: CPU time of a fit, {' / '.join(methods)}."
    )
    table = Table("What real sites do to data", shown, note=note)
    for key, scenario in scenarios.items():
        of = {name: [t for t in trials if (t["scenario"], t["method"]) == (key, name)] for name in methods}
        table.add(
            scenario.label,
            *(wrong_edges(of[name]) for name in methods),
            *(
                f"{sum(bool(t.get('warnings')) for t in of[name])}/{len(of[name])}: {words(of[name])}"
                for name in ours
            ),
            sureness(of.get("OneShotDBN", [])),
            " / ".join(
                f"{np.mean([t['seconds'] for t in of[name]]):.1f}" if of[name] else "-" for name in methods
            ),
        )
    return table


def chosen(names: list[str]) -> tuple[list[str], str]:
    """The methods that can run, and a sentence on those that cannot."""
    there, missing = installed(LAGGED_PEERS)
    left_out = f" Not installed, left out: {', '.join(missing)}." if missing else ""
    return [name for name in names if name in OURS or name in there], left_out


def tables(size: Size) -> Iterator[Table]:
    """What `run.py` shows."""
    if size == "tiny":
        world, rows, asked = World(4, 2, 60, seeds=(700,)), ["none", "everything"], ["OneShotDBN"]
    elif size == "quick":
        world = World(seeds=(700,))
        rows, asked = ["none", "offsets", "trend", "spikes", "squares", "everything"], ["OneShotDBN"]
    else:
        world, rows, asked = World(), list(SCENARIOS), list(USUAL)
    scenarios = {key: SCENARIOS[key] for key in rows}
    methods, left_out = chosen(asked)
    table = summary(world, scenarios, methods, list(run(world, scenarios, methods)))
    table.note += left_out if len(asked) > 1 else ""
    yield table


COLUMNS = ["scenario", "seed", "method", "w", "a", "w_fp_fn", "n_w", "n_a", "sure", "sure_wrong", "seconds"]


def noted(trials: Iterable[dict[str, Any]], path: Path) -> Iterator[dict[str, Any]]:
    """The trials, each also a line of a CSV file as soon as it is there, with whole sentences."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*COLUMNS, "warnings", "refused"], restval="", extrasaction="ignore")
        writer.writeheader()
        for t in trials:
            writer.writerow(
                {**t, "warnings": " | ".join(t.get("warnings", [])), "seconds": f"{t['seconds']:.3f}"}
            )
            file.flush()
            yield t


def read_trials(path: Path) -> Iterator[dict[str, Any]]:
    """What `noted` wrote."""
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            found: dict[str, Any] = {key: line[key] for key in ("scenario", "method")}
            found |= {"seed": int(line["seed"]), "seconds": float(line["seconds"])}
            if line["refused"]:
                yield {**found, "refused": line["refused"]}
                continue
            numbers = {key: int(float(line[key])) for key in COLUMNS[3:-1]}
            yield {**found, **numbers, "warnings": [s for s in line["warnings"].split(" | ") if s]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--d", type=int, default=8, help="variables")
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--rows", type=int, default=200, help="usable rows of a site")
    parser.add_argument("--weights", type=float, nargs=2, default=(0.3, 0.6), metavar=("LOW", "HIGH"))
    parser.add_argument("--strength", type=float, help="of every corruption, instead of the scenario's own")
    parser.add_argument("--seeds", type=seeds_of, default=World.seeds, help="one, or a range such as 700-704")
    parser.add_argument(
        "--scenarios", type=scenario_of, nargs="+", help="see --list; or NAME[=STRENGTH] of a corruption"
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(USUAL))
    parser.add_argument("--out", type=Path, help="folder for arena.md and arena.csv")
    parser.add_argument("--read", type=Path, nargs="+", help="arena.csv of earlier runs, instead of running")
    parser.add_argument(
        "--quick", action="store_true", help="below a minute: OneShotDBN, one seed, six scenarios"
    )
    parser.add_argument("--list", action="store_true", help="show scenarios and corruptions, and end")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{key:22s} {scenario.label}" for key, scenario in SCENARIOS.items()), "\n")
        print("corruptions:", *names())
        return
    if options.quick:
        for table in tables("quick"):
            print(table.text(), flush=True)
        return
    world = World(options.d, options.sites, options.rows, tuple(options.weights), options.seeds)
    scenarios = dict(options.scenarios or SCENARIOS)
    if options.strength is not None:
        scenarios = {
            key: Scenario(
                f"{s.label}, strength {options.strength:g}",
                dict.fromkeys(s.corruptions, options.strength),
                s.simulation,
            )
            for key, s in scenarios.items()
        }
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    if options.read:
        trials = [t for path in options.read for t in read_trials(path)]
        world = replace(world, seeds=tuple(sorted({t["seed"] for t in trials})))
        scenarios = {key: scenario_of(key)[1] for key in dict.fromkeys(t["scenario"] for t in trials)}
        methods, left_out = [name for name in METHODS if name in {t["method"] for t in trials}], ""
    else:
        methods, left_out = chosen(options.methods)
        found = run(world, scenarios, methods)
        trials = list(noted(found, options.out / "arena.csv") if options.out else found)
        left_out = left_out if set(methods) != set(options.methods) else ""
    table = summary(world, scenarios, methods, trials)
    table.note += left_out
    print(table.text(), flush=True)
    if options.out:
        (options.out / "arena.md").write_text(table.text())


if __name__ == "__main__":
    main()
