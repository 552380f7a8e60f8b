"""``python -m reproduction NAME``: run the paper's experiments; ``attack``: what a curious server could learn."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from feddbn.data import read_sites
from feddbn.errors import FeddbnError, ParameterError
from feddbn.sim.simulation import simulate
from reproduction.cells import Cell, expand
from reproduction.config import load_experiments
from reproduction.figures import draw_figures
from reproduction.leakage import LeakReport, attack_fdbnl, attack_pfdbnl
from reproduction.pages import write_pages
from reproduction.runner import ROWS_FILE, RowStore, plan, read_rows, run_cells
from reproduction.tables import ResultTable

ATTACKS = {"fdbnl": attack_fdbnl, "pfdbnl": attack_pfdbnl}


def main(words: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words = sys.argv[1:] if words is None else words
    try:
        if words[:1] == ["attack"]:
            attack(_attack_parser().parse_args(words[1:]))
        else:
            reproduce(_parser().parse_args(words))
    except FeddbnError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m reproduction",
        description="Reproduce the paper's figures and tables. Each result is written to OUT/rows.jsonl at once; the same "
        "command continues where it was stopped. `python -m reproduction attack --help` shows the other command.",
    )
    add = parser.add_argument
    add("name", nargs="?", default="all", help="the name of an experiment, your own TOML file, or all")
    add("--seeds", type=int, help="number of simulated data sets per setting")
    add("--jobs", type=int, default=1, help="number of processes; -1 for one per core")
    add("--quick", action="store_true", help="small grids: all in under five minutes")
    add("--out", type=Path, default=Path("results"), help="folder for the results; run again to resume")
    add("--pages", type=Path, help="run nothing; write pages and figures of stored results to this folder")
    add("--list", action="store_true", help="list the experiments and stop")
    return parser


def _attack_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m reproduction attack",
        description="Attack as a curious server: reconstruct every site's Gram matrix from the plain messages of a run. "
        "With secure aggregation the attacker can only guess the federation's mean.",
    )
    add = parser.add_argument
    add("data", nargs="?", type=Path, help="data of the sites to attack; simulated if left out")
    add("--method", choices=sorted(ATTACKS), default="fdbnl")
    add("--variables", type=int, default=6, help="number of simulated variables")
    add("--n-lags", type=int, default=1, help="number of lags")
    add("--sites", type=int, default=5, help="number of simulated sites")
    add("--rows", type=int, default=100, help="number of rows of each simulated site")
    add("--rounds", type=int, help="number of rounds that the server observes")
    add("--seed", type=int, default=0, help="seed of the simulation")
    add("--json", action="store_true", help="print the errors as JSON")
    return parser


def reproduce(asked: argparse.Namespace) -> None:
    """List experiments, run their cells, or write the pages of stored rows."""
    experiments = load_experiments(asked.name)
    if asked.list:
        for one in experiments:
            print(f"{one.name}: {one.title} ({len(expand(one))} cells)")
        return
    if asked.pages is not None:
        rows = read_rows(asked.out)
        if not rows:
            raise ParameterError(f"out={str(asked.out)!r} has no {ROWS_FILE}; run the experiments first.")
        tables = [ResultTable(one, rows, seeds=asked.seeds, quick=asked.quick) for one in experiments]
        written = write_pages(tables, asked.pages, draw_figures(tables, asked.pages))
        print(f"{len(written)} pages written to {asked.pages}.")
        return
    cells = [cell for one in experiments for cell in expand(one, seeds=asked.seeds, quick=asked.quick)]
    with RowStore(asked.out) as store:
        todo = plan(cells, store)
        for reason, count in todo.waiting.items():
            print(f"{count} cells wait: {reason}")
        print(f"{todo.n_done} cells (single fits) are already in {asked.out}, {len(todo.todo)} remain.")
        seen: list[float] = []
        refused = []

        def observe(cell: Cell, row: dict[str, Any]) -> None:
            # Shares of expected seconds, because cells differ a hundredfold.
            seen.append(cell.cost)
            if "error" in row:
                refused.append(cell)
            share = sum(seen) / todo.cost
            print(f"{len(seen)}/{len(todo.todo)} ({share:.0%}) {cell.kind} {cell.method}", file=sys.stderr)

        n_run = run_cells(cells, store, jobs=asked.jobs, observe=observe)
    told = f", {len(refused)} of them refused by their method" if refused else ""
    print(f"{n_run} cells run{told}; the results are in {asked.out}. Write pages with --pages DIR.")


def attack(asked: argparse.Namespace) -> None:
    """Attack the messages of one run and print the errors after each round."""
    source: Any = asked.data
    if source is None:
        source = simulate(
            d=asked.variables,
            n_lags=asked.n_lags,
            n_sites=asked.sites,
            n_samples=asked.rows * asked.sites,
            mean_degree=2,
            random_state=asked.seed,
        ).sites
    report = ATTACKS[asked.method](read_sites(source, missing="drop"), asked.n_lags, asked.rounds)
    if asked.json:
        print(json.dumps(asdict(report)))
    else:
        _print(report)


def _print(report: LeakReport) -> None:
    print(f"{report.method}: relative error of the reconstructed Gram matrices")
    print(f"{'round':>5}  {'plain, median site':>18}  {'plain, worst site':>17}  {'secure aggregation':>18}")
    for row in report.rounds:
        masked = "-" if row.masked_rms is None else f"{row.masked_rms:.2g}"
        print(f"{row.round:>5}  {row.plain_median:>18.1e}  {row.plain_worst:>17.1e}  {masked:>18}")
    print(
        f"Guessing the federation's mean for every site has error {report.mean_guess:.2g}; with secure\n"
        "aggregation no attacker can do better, because all sites share one sum."
    )
    for site, distance in report.rows.items():
        print(f"{site} has fewer rows than columns: its rows follow up to a rotation, error {distance:.1e}.")


if __name__ == "__main__":
    sys.exit(main())
