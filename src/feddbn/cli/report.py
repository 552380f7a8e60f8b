"""``feddbn report``: a result as one HTML page."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from feddbn.cli.options import Json
from feddbn.cli.terminal import print_json, say
from feddbn.errors import FeddbnError, ParameterError

__all__ = ["has_report", "report", "write_page"]


def report(
    result: Annotated[Path, typer.Argument(help="A result file.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="By default the result's name with .html.")
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="truth.json of simulated data, to mark right edges.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    as_json: Json = False,
) -> None:
    """Write a result as one HTML page that needs no network: graph, edges, diagnosis, sites."""
    from feddbn.methods.result import Result
    from feddbn.methods.truth import read_truth
    from feddbn.model.dbn import DBN

    loaded = Result.load(result)
    true = None if truth is None else read_truth(truth)
    if true is not None and not isinstance(true, DBN):
        raise ParameterError(f"truth={str(truth)!r} has a network per site; a report takes one network.")
    page = write_page(loaded.to_dict(), out or result.with_suffix(".html"), true, title)
    if as_json:
        print_json({"report": str(page), "bytes": page.stat().st_size})
        return
    say(f"Report: {page}")


def has_report() -> bool:
    """Whether this installation can write reports."""
    return find_spec("feddbn.report.page") is not None


def write_page(stored: dict[str, object], path: Path, truth: object = None, title: str | None = None) -> Path:
    """Write the page and return its path."""
    if not has_report():
        raise FeddbnError("this installation of feddbn cannot write reports; upgrade feddbn.")
    path.parent.mkdir(parents=True, exist_ok=True)
    return Path(import_module("feddbn.report").write_report(stored, path, truth=truth, title=title))
