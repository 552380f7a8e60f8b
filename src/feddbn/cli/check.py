"""``feddbn check``: what is wrong with data, before a fit."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from feddbn.cli.options import Data, Json, reads_data
from feddbn.cli.terminal import print_json
from feddbn.errors import ParameterError

__all__ = ["check"]


@reads_data
def check(
    data: Data,
    n_lags: Annotated[int, typer.Option("--lags", help="Number of lags of the model to come.")] = 1,
    as_json: Json = False,
    *,
    read: dict[str, Any],
) -> None:
    """Look for what would make a network wrong, and say what cures it; nothing is learned or written.

    DATA may also be findings.json of a study that checked the data of all sites.

    Exit code 0: nothing, notes or warnings. 1: an error, with which a fit is refused or cannot be right. 2: the data
    cannot be opened.
    """
    from feddbn.cli.findings import print_findings, read_findings
    from feddbn.data.preflight import preflight

    if n_lags < 0:
        raise ParameterError(f"--lags {n_lags} must be a whole number of at least 0.")
    of_study = data.suffix == ".json"
    findings = read_findings(data) if of_study else preflight(data, n_lags, **read)
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        print_findings(findings, of_study)
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(1)
