"""Runs cells and records their rows in one append-only file of JSON lines: resumable, parallel, each cell once.

Rules of the file
-----------------
* Only one process writes (an advisory lock on ``rows.lock``); workers hand their rows to it.
* A row is written by one call and forced to disk before the next cell counts as done. A kill can therefore only
  leave one torn line at the end, which has no newline; opening the store cuts it off. Its cell runs again.
* A cell is identified by the hash of everything that determines its result, so a finished cell never runs twice
  and an edited configuration never reuses a row it does not match.

Known weakness: on file systems without advisory locks (some network mounts) two writers are not kept apart.

Theory of operation: the cells that have no row yet are given to joblib; workers only compute; this process appends
each row as it comes. Killing it loses the cells that were being computed and nothing else.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

import joblib

from feddbn._version import __version__
from feddbn.core.threads import one_thread
from feddbn.errors import (
    FeddbnError,
    FederationError,
    FileError,
    ParameterError,
    ResultWarning,
    StateError,
)
from reproduction.cells import METHODS, Cell, in_order

ROWS_FILE = "rows.jsonl"
Row = dict[str, Any]


def read_rows(directory: str | os.PathLike[str]) -> dict[str, Row]:
    """Cell identity -> its row, for every complete line; a torn last line is left out, not repaired."""
    file = Path(directory) / ROWS_FILE
    return _parse(file.read_bytes(), file)[0] if file.is_file() else {}


class RowStore:
    """Rows of a directory, open for appending; use as a context manager."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.file = self.directory / ROWS_FILE
        self._rows: dict[str, Row] = {}
        self._handle: IO[bytes] | None = None
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> RowStore:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(
                f"out={str(self.directory)!r} cannot be made a directory ({error.strerror})."
            ) from error
        self._lock = _locked(self.directory / "rows.lock")
        content = self.file.read_bytes() if self.file.is_file() else b""
        self._rows, n_whole = _parse(content, self.file)
        self._handle = self.file.open("ab")
        if n_whole < len(content):
            self._handle.truncate(n_whole)
        return self

    def __exit__(self, *_: object) -> None:
        for handle in (self._handle, self._lock):
            if handle is not None:
                handle.close()
        self._handle = self._lock = None

    def __contains__(self, cell: str) -> bool:
        return cell in self._rows

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row and force it to disk; a cell that has a row already is an error."""
        if self._handle is None:
            raise StateError("the row store is not open; use it in a with statement.", code="not-open")
        cell = str(row["cell"])
        if cell in self._rows:
            raise StateError(f"cell {cell} has a row already; a cell runs once.", code="two-rows")
        line = json.dumps(row, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        self._handle.write(line)
        self._handle.flush()
        os.fsync(self._handle.fileno())
        self._rows[cell] = dict(row)


def _parse(content: bytes, file: Path) -> tuple[dict[str, Row], int]:
    """The rows, and the length of the part made of whole lines."""
    n_whole = content.rfind(b"\n") + 1
    rows: dict[str, Row] = {}
    for number, line in enumerate(content[:n_whole].splitlines(), start=1):
        try:
            row = json.loads(line)
            rows[row["cell"]] = row
        except (ValueError, TypeError, KeyError) as error:
            raise StateError(
                f"line {number} of {str(file)!r} is not a row; remove the line, its cell then runs again.",
                code="no-row",
            ) from error
    return rows, n_whole


def _locked(path: Path) -> IO[bytes]:
    handle = path.open("ab")
    try:
        import fcntl
    except ImportError:  # not a POSIX system: see the known weakness
        return handle
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise StateError(
            f"another run is writing to {str(path.parent)!r}; wait for it or choose another directory with --out.",
            code="two-writers",
        ) from None
    return handle


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
            return f"{method} needs the package {settings.needs!r}; install reproduction/requirements.txt."
        return f"{method} is not available: {settings.where} cannot be imported."
    return _data_obstacle(kind)


@cache
def _data_obstacle(kind: str) -> str | None:
    from reproduction import datasets

    try:
        if kind == "dream4":
            datasets.dream4(1)
        elif kind == "netsim":
            datasets.netsim(1, [1])
    except FileError as error:
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
    except (FileError, FederationError):
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
    observe: Callable[[Cell, Row], None] | None = None,
) -> int:
    """Run the cells that have no row, append their rows, return how many ran.

    Parameters
    ----------
    jobs
        Processes at the same time; -1 for one per core.
    observe
        Called after each row is on disk.
    """
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs == 0 or jobs < -1:
        raise ParameterError(
            f"jobs must be a whole number of at least 1, or -1 for one per core, got {jobs!r}."
        )
    by_id = {cell.id: cell for cell in plan(cells, store).todo}
    n_run = 0
    for row in _rows(list(by_id.values()), jobs):
        store.append(row)
        n_run += 1
        if observe is not None:
            observe(by_id[row["cell"]], row)
    return n_run


def _rows(cells: list[Cell], jobs: int) -> Iterator[Row]:
    if jobs == 1:
        yield from map(run_cell, cells)
        return
    # One cell per message and rows as they finish: nothing that is done waits for its neighbours.
    parallel = joblib.Parallel(n_jobs=jobs, batch_size=1, return_as="generator_unordered")
    yield from parallel(joblib.delayed(run_cell)(cell) for cell in cells)


def _results(cell: Cell) -> list[dict[str, Any]]:
    # Imported here so that listing experiments stays quick.
    if cell.kind == "dream4":
        from reproduction.fits import run_dream4

        return run_dream4(cell)
    if cell.kind == "netsim":
        from reproduction.fits import run_netsim

        return run_netsim(cell)
    from reproduction.fits import run_simulated

    return run_simulated(cell)
