"""``feddbn reproduce``: run the paper's experiments; ``feddbn attack``: what a curious server could learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.options import Json
from feddbn.cli.terminal import bar, print_json, print_table, remark, say, tell
from feddbn.errors import MissingExtra, ParameterError

if TYPE_CHECKING:
    from feddbn.experiments.leakage import LeakReport

__all__ = ["attack", "reproduce"]


def reproduce(
    name: Annotated[
        str, typer.Argument(help="The name of an experiment, your own TOML file, or all.")
    ] = "all",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of simulated data sets per setting.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes; -1 for one per core.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Small grids: all in under five minutes.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the results; run again to resume.")] = Path("results"),
    pages: Annotated[
        Path | None,
        typer.Option(help="Run nothing; write pages and figures of stored results to this directory."),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="A Dask scheduler that runs the experiments, such as tcp://host:8786.")
    ] = None,
    list_names: Annotated[bool, typer.Option("--list", help="List the experiments and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Reproduce the paper's figures and tables.

    Each result is written to OUT/rows.jsonl at once. Stop at any time: the same command continues where it stopped.
    Simulated experiments run under two protocols. DREAM4 and NetSim are read from FEDDBN_DATA or downloaded.
    """
    if list_names:
        _list(as_json)
    elif pages is not None:
        _write(name, seeds, quick, out, pages, as_json)
    else:
        _run(name, seeds, jobs, quick, out, scheduler, as_json)


def _list(as_json: bool) -> None:
    from feddbn.experiments.cells import expand
    from feddbn.experiments.config import load_experiments

    found = [{"name": one.name, "title": one.title, "cells": len(expand(one))} for one in load_experiments()]
    tell(as_json, found, *(f"{one['name']}: {one['title']} ({one['cells']} cells)" for one in found))


def _run(
    name: str, seeds: int | None, jobs: int, quick: bool, out: Path, scheduler: str | None, as_json: bool
) -> None:
    from feddbn.experiments.cells import Cell, expand
    from feddbn.experiments.config import load_experiments
    from feddbn.experiments.runner import RowStore, plan, run_cells

    cells = [
        cell for experiment in load_experiments(name) for cell in expand(experiment, seeds=seeds, quick=quick)
    ]
    backend = None if scheduler is None else _connect(scheduler)
    n_refused = 0
    with RowStore(out) as store:
        todo = plan(cells, store)
        for reason, count in todo.waiting.items():
            remark(f"{count} cells wait: {reason}")
        remark(f"{todo.n_done} cells (single fits) are already in {out}, {len(todo.todo)} remain.")
        # The bar counts expected seconds, because cells differ a hundredfold.
        with bar("", todo.cost, timed=True) as update:
            seen: list[float] = []

            def observe(cell: Cell, row: dict[str, Any]) -> None:
                nonlocal n_refused
                n_refused += "error" in row
                seen.append(cell.cost)
                count = f"{len(seen)}/{len(todo.todo)}"
                update(description=count, completed=sum(seen), note=f"{cell.kind} {cell.method}")

            n_run = run_cells(cells, store, jobs=jobs, backend=backend, observe=observe)
    refused = f", {n_refused} of them refused by their method" if n_refused else ""
    counts = {"run": n_run, "before": todo.n_done, "refused": n_refused, "waiting": todo.waiting}
    tell(
        as_json,
        counts,
        f"{n_run} cells run{refused}; the results are in {out}. Write pages with --pages DIR.",
    )


def _connect(scheduler: str) -> str:
    try:
        from distributed import Client
    except ImportError:
        raise MissingExtra("distributed", "dask") from None
    try:
        Client(scheduler, timeout=10)
    except (OSError, ValueError) as error:
        raise ParameterError(
            f"scheduler={scheduler!r} does not answer ({type(error).__name__}); start it or correct the address."
        ) from None
    return "dask"


def _write(name: str, seeds: int | None, quick: bool, out: Path, pages: Path, as_json: bool) -> None:
    from feddbn.experiments.config import load_experiments
    from feddbn.experiments.pages import write_pages
    from feddbn.experiments.runner import ROWS_FILE, read_rows
    from feddbn.experiments.tables import ResultTable
    from feddbn.report.reproduction import draw_reproduction_figures

    rows = read_rows(out)
    if not rows:
        raise ParameterError(f"out={str(out)!r} has no {ROWS_FILE}; run feddbn reproduce first.")
    tables = [ResultTable(one, rows, seeds=seeds, quick=quick) for one in load_experiments(name)]
    figures = draw_reproduction_figures(tables, pages)
    written = write_pages(tables, pages, figures)
    tell(as_json, {"pages": [str(one) for one in written]}, f"{len(written)} pages written to {pages}.")


def attack(
    data: Annotated[
        Path | None,
        typer.Argument(help="Data of the sites to attack; simulated if left out.", show_default=False),
    ] = None,
    method: Annotated[str, typer.Option(help="fdbnl or pfdbnl.")] = "fdbnl",
    variables: Annotated[int, typer.Option(min=1, help="Number of simulated variables.")] = 6,
    n_lags: Annotated[int, typer.Option(help="Number of lags.")] = 1,
    sites: Annotated[int, typer.Option(min=3, help="Number of simulated sites.")] = 5,
    rows: Annotated[int, typer.Option(min=2, help="Number of rows of each simulated site.")] = 100,
    rounds: Annotated[
        int | None, typer.Option(help="Number of rounds that the server observes.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    as_json: Json = False,
) -> None:
    """Attack as a curious server: reconstruct every site's Gram matrix from the messages of a run.

    Shows how well this works on plain (unmasked) messages after each round. With secure aggregation the attacker can only
    guess the federation's mean.
    """
    from feddbn.data import read_sites
    from feddbn.experiments.leakage import attack_fdbnl, attack_pfdbnl
    from feddbn.sim.simulation import simulate

    attacks: dict[str, Callable[..., Any]] = {"fdbnl": attack_fdbnl, "pfdbnl": attack_pfdbnl}
    if method.lower() not in attacks:
        raise ParameterError(f"--method {method!r} is not known; choose fdbnl or pfdbnl.")
    source: Any = data
    if source is None:
        n = rows * sites
        source = simulate(
            d=variables, n_lags=n_lags, n_sites=sites, n_samples=n, mean_degree=2, random_state=seed
        ).sites
    report = attacks[method.lower()](read_sites(source, missing="drop"), n_lags, rounds)
    if as_json:
        print_json(asdict(report))
    else:
        _print_attack(report)


def _print_attack(report: LeakReport) -> None:
    rows = [
        (
            str(row.round),
            f"{row.plain_median:.1e}",
            f"{row.plain_worst:.1e}",
            "-" if row.masked_rms is None else f"{row.masked_rms:.2g}",
        )
        for row in report.rounds
    ]
    heads = ("round", "plain, median site", "plain, worst site", "secure aggregation")
    print_table(heads, rows, f"{report.method}: relative error of the reconstructed Gram matrices", n_text=0)
    say(
        f"Guessing the federation's mean for every site has error {report.mean_guess:.2g}; with secure\n"
        "aggregation no attacker can do better, because all sites share one sum."
    )
    for site, distance in report.rows.items():
        say(
            f"{site} has fewer rows than columns: its rows can be reconstructed up to a rotation, error {distance:.1e}."
        )
