"""``feddbn report``: a result as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from feddbn.cli.options import Json
from feddbn.cli.terminal import print_json, say
from feddbn.errors import ParameterError

__all__ = ["report"]


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
    from feddbn.report import write_report

    loaded = Result.load(result)
    true = None if truth is None else read_truth(truth)
    if true is not None and not isinstance(true, DBN):
        raise ParameterError(f"truth={str(truth)!r} has a network per site; a report takes one network.")
    target = out or result.with_suffix(".html")
    target.parent.mkdir(parents=True, exist_ok=True)
    page = write_report(loaded.to_dict(), target, truth=true, title=title)
    if as_json:
        print_json({"report": str(page), "bytes": page.stat().st_size})
        return
    say(f"Report: {page}")
