"""``feddbn report``: a result as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from feddbn.cli.options import Json
from feddbn.cli.terminal import tell

__all__ = ["report"]


def report(
    result: Annotated[Path, typer.Argument(help="A result file.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="By default the result's name with .html.")
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="truth.json of simulated data, to mark right edges.")
    ] = None,
    edges: Annotated[
        Path | None, typer.Option(help="Edge table of `feddbn confidence`: probabilities and intervals.")
    ] = None,
    audit: Annotated[Path | None, typer.Option(help="A site's audit log, to show what left it.")] = None,
    check: Annotated[
        Path | None,
        typer.Option(help="findings.json of a study that checked the data, to show what it found."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    as_json: Json = False,
) -> None:
    """Write a result as one HTML page that needs no network: graph, edges, diagnosis, sites."""
    from feddbn.methods.result import Result
    from feddbn.methods.truth import read_network
    from feddbn.report import write_report
    from feddbn.report.record import read_edges

    stored = Result.load(result).to_dict()
    if check is not None:
        from feddbn.cli.check import read_findings

        stored["diagnostics"] = {
            **(stored.get("diagnostics") or {}),
            "check": [one.to_dict() for one in read_findings(check)],
        }
    page = write_report(
        stored,
        out or result.with_suffix(".html"),
        title=title,
        truth=None if truth is None else read_network(truth),
        edges=None if edges is None else read_edges(edges),
        audit=None if audit is None else _audit_rows(audit),
        audience="cli",
    )
    tell(as_json, {"report": str(page), "bytes": page.stat().st_size}, f"Report: {page}")


def _audit_rows(path: Path) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from feddbn.cli.audit import read_log
    from feddbn.privacy.audit import parse_entries

    return [asdict(entry) for entry in parse_entries(read_log(path))]
