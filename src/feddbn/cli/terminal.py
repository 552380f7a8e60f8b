"""What people see: sentences, tables that fit 80 columns, progress; JSON when a program reads along.

Results go to standard output; progress and remarks go to standard error, so that a pipe gets only results.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from rich.console import Console

__all__ = [
    "bar",
    "complain",
    "number",
    "print_frame",
    "print_json",
    "print_table",
    "progress",
    "remark",
    "say",
    "short",
    "tell",
    "write_csv",
]

Watch = Callable[[Any, Any], None]
# Redrawing more often than a person can read would slow down rounds that take a millisecond.
_SECONDS_BETWEEN_UPDATES = 0.1
_SPACES = "\n\t\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"


def printable(text: str) -> str:
    """Return a text that cannot steer a terminal: names and words of studies, files and servers come from anybody."""
    return "".join(letter if letter.isprintable() or letter in _SPACES else "?" for letter in text)


def say(text: str) -> None:
    """Print a line of the result."""
    typer.echo(printable(text))


def remark(text: str) -> None:
    """Print a line that is not part of the result."""
    typer.echo(printable(text), err=True)


def complain(text: str) -> None:
    """Print the one sentence of an error."""
    typer.echo(printable(f"feddbn: {text}"), err=True)


def print_json(value: Any) -> None:
    """Print pure JSON; what is not finite is null."""
    from feddbn.results.result import plain

    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=2)
    typer.echo(
        "".join(
            letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1] for letter in text
        )
    )


def tell(as_json: bool, value: Any, *lines: str) -> None:
    """Print a result as JSON, or as lines for people."""
    if as_json:
        print_json(value)
        return
    for line in lines:
        say(line)


def number(value: float | int | None, digits: int = 2) -> str:
    """Return a count as it is, a share or a weight with `digits`, and a dash for what is not known."""
    if value is None or value != value:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.{digits}f}"


def short(value: float) -> str:
    """Return a weight with three decimals, or with three digits where units make it large or tiny."""
    return f"{value:.3f}" if value == 0 or 0.01 <= abs(value) < 1000 else f"{value:.3g}"


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str | None = None,
    n_text: int = 1,
    numbers: Collection[int] | None = None,
) -> None:
    """Print a table; the first `n_text` columns are text, the others, or those of `numbers`, numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    # A name may contain square brackets, which rich would take for markup.
    head = None if title is None else Text(_one_line(title))
    table = Table(box=SIMPLE_HEAD, title=head, title_justify="left", title_style="bold", pad_edge=False)
    for k, name in enumerate(columns):
        is_text = k < n_text if numbers is None else k not in numbers
        table.add_column(
            Text(_one_line(name)),
            justify="left" if is_text else "right",
            overflow="fold" if is_text else "ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(_one_line(cell)) for cell in row))
    _console().print(table)


def _one_line(text: str) -> str:
    return printable(text).replace("\n", " ")


def print_frame(frame: pd.DataFrame, title: str | None = None, n_text: int = 1, digits: int = 3) -> None:
    """Print a frame as a table: whole numbers as they are, others with `digits`."""
    columns = [frame[name].tolist() for name in frame.columns]
    rows = [
        [value if isinstance(value, str) else number(value, digits) for value in row]
        for row in zip(*columns, strict=True)
    ]
    print_table([str(name) for name in frame.columns], rows, title, n_text)


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame without its index, so that no cell is a formula; folders that are missing are made."""
    from feddbn.model.export import guarded_frame

    path.parent.mkdir(parents=True, exist_ok=True)
    guarded_frame(frame).to_csv(path, index=False)


@contextmanager
def bar(what: str, total: float | None = None, timed: bool = False) -> Iterator[Callable[..., None]]:
    """Show a bar while the block runs; yields a function that takes what is new: description, completed, note.

    Without `total` it only shows that something is going on; `timed` also shows how long it will take. Where nobody
    looks on, nothing is shown.
    """
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        *([TextColumn("left"), TimeRemainingColumn()] if timed else []),
    ]
    console = _console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(_one_line(what), total=total, note="")

        def update(**new: Any) -> None:
            tidy: dict[str, Any] = {key: _one_line(x) if isinstance(x, str) else x for key, x in new.items()}
            bars.update(task, **tidy)

        yield update


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[tuple[Watch, Callable[[str], None]]]:
    """Show a bar while the block runs; yields an observer of sums and a function that starts the next part."""
    with bar(what, total) as update:
        n_parts, last = 0, 0.0

        def watch(task: Any, answer: Any) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= _SECONDS_BETWEEN_UPDATES:
                last = now
                update(note=_note(task.name, task.note))

        def part(name: str) -> None:
            nonlocal n_parts
            update(description=name, note="", completed=n_parts)
            n_parts += 1

        yield watch, part


def _note(task: str, values: Mapping[str, float]) -> str:
    if "round" not in values:
        return task
    text = f"round {values['round']:.0f}"
    return text + "".join(f"  {key} {values[key]:.1e}" for key in ("h", "primal") if key in values)


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)
