"""Recorded rows of the reproduction drawn at random, computed again and compared number by number.

python benchmarks/recompute_rows.py                                   100 rows, at most 120 recorded seconds each
python benchmarks/recompute_rows.py --rows-wanted 20 --seed again --results found.jsonl --json
python benchmarks/recompute_rows.py --kinds dream4 netsim             only rows of these kinds of data

The code under test is whichever feddbn Python imports, so PYTHONPATH points the script at another version. The draw
depends on the seed's name, the rows, the cap and the packages installed: two versions are asked for the same rows. With
--results a stopped run goes on where it was. --against compares with the --json output of another version, since a row
may differ from the recorded one for the machine's sake alone (other kernels of BLAS round otherwise). DREAM4 and NetSim
rows need FEDDBN_DATA, or the network.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from timing import Table

import feddbn
from feddbn.experiments.cells import Cell
from feddbn.experiments.config import Point
from feddbn.experiments.runner import Plan, run_cell

ROWS = Path(__file__).parents[1] / "docs" / "reproduction" / "rows.jsonl"
SOURCE = str(Path(feddbn.__file__).parent)
CLOSE = 1e-9
VERDICTS = ("equal", "close", "different")
Row = dict[str, Any]


def cell_of(row: Row) -> Cell:
    """The cell that a row records; a tour's cell differs from the full one in its settings alone."""
    cells = [
        Cell(row["kind"], row["protocol"], Point(**row["point"]), row["method"], row["seed"], quick)
        for quick in (False, True)
    ]
    return next((cell for cell in cells if cell.id == row["cell"]), cells[0])


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain value inside nested lists and dicts, with its path such as ``[0].W.shd``."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from leaves(value[key], f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for i, one in enumerate(value):
            yield from leaves(one, f"{path}[{i}]")
    else:
        yield path, value


def verdict_of(recorded: Any, found: Any) -> str:
    """Whether two plain values are equal bit for bit, close (1e-9 relative) or different."""
    if type(recorded) is type(found) and recorded == found:
        return "equal"
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (recorded, found))
    if numbers and math.isclose(recorded, found, rel_tol=CLOSE, abs_tol=0.0):
        return "close"
    return "different"


def compared(recorded: Row, found: Row) -> Row:
    """How often each verdict was given over the numbers of two rows, and the numbers that are not equal."""
    before, after = (
        dict(leaves({"results": row.get("results"), "error": row.get("error")})) for row in (recorded, found)
    )
    counts, unequal = Counter(), []
    for path in dict.fromkeys([*before, *after]):
        pair = before.get(path, "(absent)"), after.get(path, "(absent)")
        verdict = verdict_of(*pair)
        counts[verdict] += 1
        if verdict != "equal":
            unequal.append({"where": path, "verdict": verdict, "recorded": pair[0], "found": pair[1]})
    worst = max((v for v in VERDICTS if counts[v]), key=VERDICTS.index, default="equal")
    return {"verdict": worst, "numbers": {v: counts[v] for v in VERDICTS}, "unequal": unequal}


def recomputed(row: Row) -> Row:
    """What the current code makes of a row; an exception that is no result counts as different."""
    cell, started = cell_of(row), time.perf_counter()
    try:
        # Through JSON, as the recorded row went: a tuple becomes a list, a numpy float would not pass.
        outcome = compared(row, json.loads(json.dumps(run_cell(cell), allow_nan=False)))
    except Exception as error:  # whatever the code under test raises belongs in the table
        what = {"where": "run_cell", "verdict": "different", "recorded": "a row", "found": repr(error)}
        outcome = {"verdict": "different", "numbers": dict.fromkeys(VERDICTS, 0), "unequal": [what]}
    return {
        **{key: row[key] for key in ("cell", "kind", "protocol", "method", "point", "seed")},
        "same_identity": cell.id == row["cell"],
        "seconds_recorded": row["seconds"],
        "seconds": round(time.perf_counter() - started, 3),
        "source": SOURCE,
        **outcome,
    }


def obstacle(row: Row) -> str | None:
    """Why a row cannot be computed here (a package or data that is missing), or None."""
    return next(iter(Plan([cell_of(row)], lambda _: False).waiting), None)


def recompute(rows: list[Row], wanted: int, seed: str, cap: float, results: Path | None) -> Row:
    """Draw rows without replacement until `wanted` of them have been computed; a row over the cap is drawn past."""
    known = {line["cell"]: line for line in stored(results) if line["source"] == SOURCE}
    done: list[Row] = []
    too_dear: list[Row] = []
    waiting: Counter[str] = Counter()
    for row in random.Random(seed).sample(rows, len(rows)):
        if len(done) == wanted:
            break
        if row["seconds"] > cap:
            too_dear.append({key: row[key] for key in ("cell", "kind", "method", "point", "seconds")})
        elif (reason := obstacle(row)) is not None:
            waiting[reason] += 1
        else:
            found = known.get(row["cell"])
            if found is None:
                found = recomputed(row)
                if results is not None:
                    with results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(found) + "\n")
            done.append(found)
            print(
                f"{len(done):4d}/{wanted} {found['seconds']:8.1f} s {found['verdict']:9s} {label(found)}",
                file=sys.stderr,
                flush=True,
            )
    return {
        "source": SOURCE,
        "seed": seed,
        "cap_seconds": cap,
        "rows_recorded": len(rows),
        "rows_over_cap": sum(row["seconds"] > cap for row in rows),
        "drawn_over_cap": too_dear,
        "replaced": dict(waiting),
        "rows": done,
    }


def stored(results: Path | None) -> list[Row]:
    """Rows of an earlier run; a torn last line is left out."""
    if results is None or not results.is_file():
        return []
    whole = results.read_text(encoding="utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def moved(rows: list[Row], before: list[Row]) -> list[str]:
    """A line for every row that two versions compute differently, beyond rounding."""
    lines = []
    known = {row["cell"]: row for row in before}
    both = [(row, known[row["cell"]]) for row in rows if row["cell"] in known]
    for row, old in both:
        now, then = ({u["where"]: u["found"] for u in one["unequal"]} for one in (row, old))
        recorded = {u["where"]: u["recorded"] for u in (*row["unequal"], *old["unequal"])}
        pairs = {where: (then.get(where, value), now.get(where, value)) for where, value in recorded.items()}
        changed = [f"{w} {a} -> {b}" for w, (a, b) in pairs.items() if verdict_of(a, b) == "different"]
        if changed:
            lines.append(f"  {label(row)}: {len(changed)} numbers, first {changed[0]}")
    return [f"Against the other version: {len(lines)} of {len(both)} rows differ between the two.", *lines]


def label(row: Row) -> str:
    """One row in a few words."""
    point = " ".join(f"{key}={value}" for key, value in row["point"].items())
    return f"{row['cell']} {row['kind']} {row['method']} {point}"


def text_of(found: Row, most: int = 8) -> str:
    """The table, what was left out, and the rows that differ with both values."""
    table = Table(
        f"{len(found['rows'])} recorded rows computed again, seed {found['seed']!r}",
        ["method", "rows", *VERDICTS, "numbers", "unequal numbers", "seconds", "recorded"],
        note=f"Equal is bit for bit, close within {CLOSE:g} relative. A row counts as its worst number.",
    )
    for method in [*sorted({row["method"] for row in found["rows"]}), "all"]:
        rows = [row for row in found["rows"] if method in (row["method"], "all")]
        verdicts = Counter(row["verdict"] for row in rows)
        table.add(
            method, len(rows), *(verdicts[v] for v in VERDICTS),
            sum(sum(row["numbers"].values()) for row in rows), sum(len(row["unequal"]) for row in rows),
            *(float(sum(row[key] for row in rows)) for key in ("seconds", "seconds_recorded")),
        )  # fmt: skip
    renamed = sum(not row["same_identity"] for row in found["rows"])
    dear = found["drawn_over_cap"]
    lines = [
        table.text(),
        f"Over the cap of {found['cap_seconds']:g} s: {found['rows_over_cap']} of {found['rows_recorded']} rows, "
        f"{len(dear)} of them drawn and left out.",
        *(f"  {label(row)} ({row['seconds']:g} s)" for row in dear),
        *(f"Replaced by another draw, {n} rows: {reason}" for reason, n in found["replaced"].items()),
        f"Rows whose settings hash differently now: {renamed}.",
    ]
    for row in found["rows"]:
        if row["unequal"]:
            lines.append(f"{row['verdict']}: {label(row)} {row['protocol']} seed={row['seed']}")
            lines += [f"  {u['where']}: {u['recorded']} -> {u['found']}" for u in row["unequal"][:most]]
            lines += [f"  and {len(row['unequal']) - most} more"] * (len(row["unequal"]) > most)
    return "\n".join([*lines, *found.get("against", ())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, default=ROWS, help="the recorded rows, JSON lines")
    parser.add_argument("--rows-wanted", type=int, default=100, metavar="N", help="how many are computed")
    parser.add_argument("--seed", default="the numbers stay", help="name of the draw, any text")
    parser.add_argument("--cap", type=float, default=120.0, help="most recorded seconds of a row")
    parser.add_argument("--kinds", nargs="+", help="draw among these kinds of data only")
    parser.add_argument("--results", type=Path, help="append each row to this file and resume from it")
    parser.add_argument("--against", type=Path, help="JSON of another version's run")
    parser.add_argument("--json", action="store_true", help="print JSON, every unequal number included")
    options = parser.parse_args()
    recorded = [json.loads(line) for line in options.rows.read_text(encoding="utf-8").splitlines()]
    recorded = [row for row in recorded if options.kinds is None or row["kind"] in options.kinds]
    found = recompute(recorded, options.rows_wanted, options.seed, options.cap, options.results)
    if options.against is not None:
        found["against"] = moved(
            found["rows"], json.loads(options.against.read_text(encoding="utf-8"))["rows"]
        )
    print(json.dumps(found, indent=1) if options.json else text_of(found))


if __name__ == "__main__":
    main()
