"""``feddbn reproduce``: run the paper's experiments, resume them, write their pages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from feddbn.errors import FeddbnError, MissingExtra, ParameterError

__all__ = ["reproduce"]


def reproduce(
    name: Annotated[str, typer.Argument(help="An experiment, a TOML file of your own, or all.")] = "all",
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of simulated data sets per setting.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes at the same time; -1 for one per core.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Small grids: all of it in under five minutes.")] = False,
    out: Annotated[Path, typer.Option(help="Directory of the recorded rows; run again to resume.")] = Path("results"),
    pages: Annotated[
        Path | None, typer.Option(help="Run nothing; write pages and figures from the rows into this directory.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler that runs the cells, such as tcp://host:8786.")
    ] = None,
    list_names: Annotated[bool, typer.Option("--list", help="List the experiments and stop.")] = False,
) -> None:
    """Reproduce the paper's figures and tables.

    Rows are kept in OUT/rows.jsonl as they are finished. Stop at any time; the same command goes on where it was.
    """
    console = Console(stderr=True)
    try:
        if list_names:
            _list(Console())
        elif pages is not None:
            _write(name, seeds, quick, out, pages, console)
        else:
            _run(name, seeds, jobs, quick, out, scheduler, console)
    except FeddbnError as error:
        console.print(f"error: {error}", style="red", highlight=False, markup=False)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        console.print(f"stopped; finished cells are in {out}, run the same command to go on.", highlight=False)
        raise typer.Exit(130) from None


def _list(console: Console) -> None:
    from feddbn.experiments.cells import expand
    from feddbn.experiments.config import load_experiments

    for experiment in load_experiments():
        n = len(expand(experiment))
        console.print(f"{experiment.name}: {experiment.title} ({n} cells)", highlight=False, markup=False)


def _run(
    name: str, seeds: int | None, jobs: int, quick: bool, out: Path, scheduler: str | None, console: Console
) -> None:
    from feddbn.experiments.cells import Cell, expand
    from feddbn.experiments.config import load_experiments
    from feddbn.experiments.runner import plan, run_cells
    from feddbn.experiments.store import RowStore

    cells = [cell for experiment in load_experiments(name) for cell in expand(experiment, seeds=seeds, quick=quick)]
    backend = None if scheduler is None else _connect(scheduler)
    with RowStore(out) as store:
        todo = plan(cells, store)
        for reason, count in todo.waiting.items():
            console.print(f"{count} cells wait: {reason}", style="yellow", highlight=False, markup=False)
        console.print(f"{todo.n_done} cells are recorded in {out}, {len(todo.todo)} to run.", highlight=False, markup=False)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        # The bar counts cells; the clock of the time left counts expected seconds, as cells differ a hundredfold.
        with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
            bar = progress.add_task("running", total=len(todo.todo))
            n_errors = 0

            def observe(cell: Cell, row: dict[str, object]) -> None:
                nonlocal n_errors
                n_errors += "error" in row
                progress.update(bar, advance=1, description=f"{cell.kind} {cell.method}")

            n_run = run_cells(cells, store, jobs=jobs, backend=backend, observe=observe)
    refused = f", {n_errors} of them refused by their method" if n_errors else ""
    console.print(f"{n_run} cells run{refused}; write pages with --pages DIR.", highlight=False, markup=False)


def _connect(scheduler: str) -> str:
    try:
        from distributed import Client
    except ImportError:
        raise MissingExtra("distributed", "dask") from None
    try:
        Client(scheduler, timeout=10)
    except (OSError, ValueError, TimeoutError) as error:
        raise ParameterError(f"scheduler={scheduler!r} does not answer ({type(error).__name__}); is it running?") from None
    return "dask"


def _write(name: str, seeds: int | None, quick: bool, out: Path, pages: Path, console: Console) -> None:
    from feddbn.experiments.config import load_experiments
    from feddbn.experiments.pages import write_pages
    from feddbn.experiments.store import ROWS_FILE, read_rows
    from feddbn.experiments.tables import ResultTable
    from feddbn.report.reproduction import draw_reproduction_figures

    rows = read_rows(out)
    if not rows:
        raise ParameterError(f"out={str(out)!r} has no {ROWS_FILE}; run feddbn reproduce first.")
    tables = [ResultTable(experiment, rows, seeds=seeds, quick=quick) for experiment in load_experiments(name)]
    figures = draw_reproduction_figures(tables, pages)
    written = write_pages(tables, pages, figures)
    console.print(f"{len(written)} pages written to {pages}.", highlight=False, markup=False)


def main() -> None:
    """Run as ``python -m feddbn.cli.reproduce``."""
    typer.run(reproduce)


if __name__ == "__main__":
    main()
