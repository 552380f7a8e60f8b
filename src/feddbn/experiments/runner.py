"""Runs cells and records their rows: resumable, parallel, each cell once.

Theory of operation: the cells that have no row yet are given to joblib; workers only compute; this process appends
each row as it comes. Killing it loses the cells that were being computed and nothing else.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import joblib

from feddbn._version import __version__
from feddbn.core.backend.device import one_thread
from feddbn.errors import FeddbnError, FederationError, FileError, MissingExtra, ParameterError, ResultWarning
from feddbn.experiments.cells import Cell, in_order
from feddbn.experiments.registry import METHODS
from feddbn.experiments.store import RowStore

__all__ = ["Plan", "plan", "run_cell", "run_cells"]

Row = dict[str, Any]


class Plan:
    """What a run has to do.

    Attributes
    ----------
    todo
        Cells without a row, in the order in which they will run.
    n_done
        Cells that have one.
    waiting
        Reason, in a sentence -> number of cells that cannot run for it.
    """

    def __init__(self, cells: Iterable[Cell], done: Callable[[str], bool]) -> None:
        ordered = in_order(cells)
        rest = [cell for cell in ordered if not done(cell.id)]
        self.n_done = len(ordered) - len(rest)
        reasons = {key: _obstacle(*key) for key in {(cell.kind, cell.method) for cell in rest}}
        self.todo = [cell for cell in rest if reasons[cell.kind, cell.method] is None]
        self.waiting: dict[str, int] = {}
        for cell in rest:
            reason = reasons[cell.kind, cell.method]
            if reason is not None:
                self.waiting[reason] = self.waiting.get(reason, 0) + 1

    @property
    def cost(self) -> float:
        """Expected seconds of the whole, on one core."""
        return sum(cell.cost for cell in self.todo)


def _obstacle(kind: str, method: str) -> str | None:
    """Why cells of this kind and method cannot run here, or None."""
    settings = METHODS[method]
    if not settings.is_available:
        if settings.needs is not None:
            return f"{method} needs the package {settings.needs!r}; install feddbn[bench]."
        return f"{method} is not available: {settings.where} cannot be imported."
    return _data_obstacle(kind)


@cache
def _data_obstacle(kind: str) -> str | None:
    from feddbn import datasets

    try:
        if kind == "dream4":
            datasets.dream4(1)
        elif kind == "netsim":
            datasets.netsim(1, [1])
    except (FileError, MissingExtra) as error:
        return str(error)
    return None


def plan(cells: Iterable[Cell], store: RowStore) -> Plan:
    """What is left of `cells` given the rows in `store`."""
    return Plan(cells, store.__contains__)


def run_cell(cell: Cell) -> Row:
    """The row of one cell. A refusal by the method, in a sentence, is a result; a bug is not, and is raised."""
    started = time.perf_counter()
    row: Row = {"cell": cell.id, "version": __version__, **cell.config}
    try:
        with one_thread(), warnings.catch_warnings():
            # Units and convergence are results here: they are in the rows.
            warnings.simplefilter("ignore", ResultWarning)
            warnings.simplefilter("ignore", RuntimeWarning)
            row["results"] = _results(cell)
    except (MissingExtra, FileError, FederationError):
        raise
    except FeddbnError as error:
        row["results"], row["error"] = [], str(error)
    row["seconds"] = round(time.perf_counter() - started, 3)
    return row


def run_cells(
    cells: Iterable[Cell],
    store: RowStore,
    *,
    jobs: int = 1,
    backend: str | None = None,
    observe: Callable[[Cell, Row], None] | None = None,
) -> int:
    """Run the cells that have no row, append their rows, return how many ran.

    Parameters
    ----------
    jobs
        Processes at the same time; -1 for one per core.
    backend
        A joblib backend, such as "dask" with a connected ``distributed.Client``; by default processes.
    observe
        Called after each row is on disk.
    """
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs == 0 or jobs < -1:
        raise ParameterError(
            f"jobs must be a whole number of at least 1, or -1 for one per core, got {jobs!r}."
        )
    by_id = {cell.id: cell for cell in plan(cells, store).todo}
    n_run = 0
    for row in _rows(list(by_id.values()), jobs, backend):
        store.append(row)
        n_run += 1
        if observe is not None:
            observe(by_id[row["cell"]], row)
    return n_run


def _rows(cells: list[Cell], jobs: int, backend: str | None) -> Iterator[Row]:
    if jobs == 1 and backend is None:
        yield from map(run_cell, cells)
        return
    chosen: AbstractContextManager[Any] = (
        nullcontext() if backend is None else joblib.parallel_config(backend)
    )
    with chosen:
        # One cell per message and rows as they finish: nothing that is done waits for its neighbours.
        parallel = joblib.Parallel(n_jobs=jobs, batch_size=1, return_as="generator_unordered")
        yield from parallel(joblib.delayed(run_cell)(cell) for cell in cells)


def _results(cell: Cell) -> list[dict[str, Any]]:
    # Imported here so that listing experiments stays quick.
    if cell.kind == "dream4":
        from feddbn.experiments.real_data import run_dream4

        return run_dream4(cell)
    if cell.kind == "netsim":
        from feddbn.experiments.real_data import run_netsim

        return run_netsim(cell)
    from feddbn.experiments.simulated import run_simulated

    return run_simulated(cell)
