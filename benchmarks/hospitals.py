"""Five hospitals with everything that goes wrong at once: how many edges are wrong, and what is said first?

python benchmarks/hospitals.py                      all ways; some minutes
python benchmarks/hospitals.py --ways mixed three   those whose names begin so

Twelve hourly variables of patients, a 0/1 flag and a count among them, 24 true edges. A fifth of the cells is empty,
hospitals and patients have levels, three variables have a daily cycle, a hidden slow cause acts on hr and sbp. As recorded,
one hospital has sbp in kPa, one has exchanged two columns, one has spikes, one has times that are off and rows that are there
twice; "repaired" is without these four. Commands are run as somebody would type them. "Hidden" are wrong edges into hr and
sbp from these two and their causes: a hidden cause makes them. "Beyond" are the others.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from timing import Table
from typer.testing import CliRunner

from feddbn.cli.main import app
from feddbn.report.record import read_edges, read_record
from feddbn.report.verdicts import verdicts
from feddbn.results.result import Result
from feddbn.words import say

Edge = tuple[str, str, int]
REMEMBERS = {
    "hr": 0.5,
    "sbp": 0.5,
    "rr": 0.4,
    "spo2": 0.4,
    "temp": 0.6,
    "lactate": 0.6,
    "wbc": 0.6,
    "crp": 0.6,
    "norepi": 0.6,
    "fio2": 0.5,
}
NAMES = [*REMEMBERS, "vent", "suctions"]
NOW = {("temp", "hr"): 0.45, ("rr", "spo2"): 0.4}
BEFORE = {
    **{(name, name): weight for name, weight in REMEMBERS.items()},
    ("crp", "temp"): 0.3,
    ("wbc", "crp"): 0.35,
    ("norepi", "sbp"): 0.45,
    ("sbp", "lactate"): -0.3,
    ("sbp", "norepi"): -0.3,
    ("fio2", "spo2"): 0.35,
    ("spo2", "fio2"): -0.25,
    ("lactate", "rr"): 0.3,
    ("vent", "fio2"): 0.9,
}
TRUTH = {
    *((a, b, 0) for a, b in (*NOW, ("vent", "suctions"))),
    *((a, b, 1) for a, b in (*BEFORE, ("spo2", "vent"), ("vent", "vent"))),
}
OF_HIDDEN = ("hr", "sbp")
MADE_BY_HIDDEN = {
    (source, target, lag)
    for target in OF_HIDDEN
    for source in {*OF_HIDDEN, *(a for a, b, _ in TRUTH if b in OF_HIDDEN)}
    for lag in (0, 1)
} - TRUTH
LEVELS = [85.0, 120.0, 18.0, 95.0, 37.2, 2.0, 11.0, 90.0, 0.15, 0.4]
UNITS = [10.0, 12.0, 3.0, 1.8, 0.5, 0.45, 2.5, 22.0, 0.04, 0.06]
DIGITS = [0, 0, 0, 1, 1, 2, 2, 1, 3, 2]
HOSPITALS = ("berlin", "lyon", "porto", "delft", "turin")
CYCLES = {"hr": 1.0, "temp": 1.0, "sbp": 0.8}
EMPTY = 0.2


def stay(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """One patient's hours in units of the noise, without levels and cycle."""
    place = {name: j for j, name in enumerate(NAMES)}
    A = np.zeros((len(NAMES), len(NAMES)))
    for (a, b), weight in BEFORE.items():
        A[place[a], place[b]] = weight
    rows, hidden = np.zeros((n + 50, len(NAMES))), 0.0
    for t in range(1, len(rows)):
        last, hidden = rows[t - 1], 0.7 * hidden + 0.7 * rng.standard_normal()
        x = last @ A + 0.8 * rng.standard_normal(len(NAMES))
        x[[place[name] for name in OF_HIDDEN]] += 0.6 * hidden
        for (a, b), weight in NOW.items():
            x[place[b]] += weight * x[place[a]]
        odds = -2.2 - 1.2 * last[place["spo2"]] + 3.5 * last[place["vent"]]
        x[place["vent"]] = rng.random() < 1 / (1 + np.exp(-odds))
        x[place["suctions"]] = rng.poisson(np.exp(-0.4 + 1.1 * x[place["vent"]]))
        rows[t] = x
    return pd.DataFrame(rows[50:], columns=NAMES)


def hospital(n_patients: int, n_rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """What one hospital would record if nothing went wrong but for empty cells."""
    numbers, parts = list(REMEMBERS), []
    own = 0.8 * rng.standard_normal(len(numbers))
    for k in range(n_patients):
        n = int(rng.integers(round(0.75 * n_rows), round(1.25 * n_rows)))
        table, hours = stay(n, rng), np.arange(n)
        for name, size in CYCLES.items():
            table[name] += size * np.sin(2 * np.pi * (hours - 6) / 24)
        shift = own + 0.6 * rng.standard_normal(len(numbers))
        table[numbers] = (table[numbers] + shift) * UNITS + LEVELS
        for name, digits in zip(numbers, DIGITS, strict=True):
            table[name] = table[name].round(digits)
        table = table.mask(rng.random(table.shape) < EMPTY)
        begin = pd.Timestamp("2023-01-01") + pd.Timedelta(days=int(rng.integers(200)))
        table.insert(0, "time", begin + pd.to_timedelta(hours, unit="h"))
        table.insert(0, "patient", f"p{k:02d}")
        parts.append(table)
    return pd.concat(parts, ignore_index=True)


def as_recorded(name: str, table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """The same with what went wrong at this hospital."""
    table = table.copy()
    if name == "lyon":
        table["sbp"] = (table["sbp"] * 0.1333).round(2)
    elif name == "porto":
        table.loc[rng.random(len(table)) < 0.02, "spo2"] = 12.0
    elif name == "delft":
        table["time"] += pd.to_timedelta(rng.integers(-720, 720, len(table)), unit="s")
        twice = table.sample(frac=0.03, random_state=int(rng.integers(1000)))
        table = pd.concat([table, twice]).sort_values(["patient", "time"])
    elif name == "turin":
        table = table.rename(columns={"lactate": "wbc", "wbc": "lactate"})
    return table


AVERAGED = ["--freq", "1h", "--irregular", "average"]
KINDS = ["--kinds", "vent=binary", "--kinds", "suctions=count"]
WAYS: Mapping[str, tuple[str, list[str]]] = {
    "as recorded": ("recorded", AVERAGED),
    "as recorded, personal": ("recorded", [*AVERAGED, "--method", "pfdbnl"]),
    "repaired": ("repaired", []),
    "repaired, penalties": (
        "repaired",
        ["--method", "fdbnl", "--lambda-w", "0.05", "--lambda-a", "0.05"],
    ),
    "mixed": ("repaired", ["--method", "mixed", *KINDS]),
    "three hospitals": ("three", []),
    "three hospitals, penalties": ("three", ["--method", "fdbnl"]),
    "confidence and report": ("repaired", []),
}
MARKS = {"good": "green", "warning": "yellow", "error": "red", "unknown": "?", "note": "note"}


def command(*arguments: object) -> None:
    """Run a command line in this process; one that fails is an error."""
    outcome = CliRunner().invoke(app, [str(one) for one in arguments], prog_name="feddbn")
    if outcome.exit_code:
        raise SystemExit(f"feddbn {' '.join(map(str, arguments))}: {outcome.output}")


def measured(way: str, place: Path, replicates: int) -> list[object]:
    """One row of the table: wrong edges, those of the hidden cause, what is said first, colours of the cards."""
    folder, options = WAYS[way]
    keys = [place / folder, "--series", "patient", "--time", "time"]
    found = place / "result.json"
    beside: dict[str, object] = {}
    command("fit", *keys, *options, "-o", found)
    if way == "confidence and report":
        edges, page = place / "edges.csv", place / "report.html"
        command("confidence", *keys, "--replicates", replicates, "-o", edges)
        command("report", found, "--edges", edges, "-o", page)
        beside = {"edges": read_edges(edges)}
    result = Result.load(found)
    table = result.dbn.edges()
    network: set[Edge] = set(zip(table["source"], table["target"], table["lag"], strict=True))
    wrong = network ^ TRUTH
    hidden = wrong & MADE_BY_HIDDEN
    cards = [MARKS[one.level] for one in verdicts(read_record(result.to_dict(), beside))]
    counts = ", ".join(
        f"{cards.count(mark)} {mark}" for mark in dict.fromkeys(MARKS.values()) if mark in cards
    )
    told = result.findings.single
    doubted = {
        (edge["source"], edge["target"], edge["lag"]) for edge in result.edges if edge.get("could_be_hidden")
    }
    first = f"{told[0].level}: {say(told[0], 'cli')}"[:90] if told else "nothing"
    return [way, len(wrong), len(hidden), len(hidden & doubted), len(wrong - hidden), first, counts]


def tabled(ways: Sequence[str], n_patients: int, n_rows: int, seed: int, replicates: int) -> Table:
    """Make the hospitals, run the ways, and return the table."""
    heads = ["what was typed", "wrong", "hidden", "of these in doubt", "beyond", "said first", "cards"]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        place = Path(folder)
        for k, name in enumerate(HOSPITALS):
            rng = np.random.default_rng([seed, k])
            table = hospital(n_patients, n_rows, rng)
            kinds = {"repaired": table, "recorded": as_recorded(name, table, rng)}
            if k < 3:
                kinds["three"] = table
            for kind, one in kinds.items():
                (place / kind).mkdir(exist_ok=True)
                one.to_csv(place / kind / f"{name}.csv", index=False)
        rows = [measured(way, place, replicates) for way in ways]
    return Table("Five hospitals", heads, rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ways", nargs="*", default=[""], help="beginnings of their names")
    parser.add_argument("--patients", type=int, default=8, help="of each hospital")
    parser.add_argument("--rows", type=int, default=205, help="of a patient, about")
    parser.add_argument("--replicates", type=int, default=20, help="of confidence")
    parser.add_argument("--seed", type=int, default=700)
    given = parser.parse_args()
    ways = [way for way in WAYS if way.startswith(tuple(given.ways))]
    print(tabled(ways, given.patients, given.rows, given.seed, given.replicates).text())


if __name__ == "__main__":
    main()
