"""``feddbn check``: what is wrong with data, before a fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from feddbn.cli.options import Data, Json, reads_data
from feddbn.cli.terminal import print_json, print_table, say
from feddbn.cli.wording import as_options, as_parameters
from feddbn.data.preflight import Finding
from feddbn.data.preflight.finding import SEVERITIES
from feddbn.errors import FileError, ParameterError

__all__ = ["check", "findings_of", "print_findings", "read_findings"]


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


def read_findings(path: Path) -> list[Finding]:
    """Return the findings in ``findings.json`` of a study that checked the data."""
    where = f"file {str(path)!r}"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{where} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise FileError(
            f"{where} is not JSON; findings are in findings.json of a study that checked data."
        ) from None
    return findings_of(values, where)


def findings_of(values: Any, where: str) -> list[Finding]:
    """Return findings from plain values; refuse what are none."""
    try:
        found = [Finding(**{**one, "columns": tuple(map(str, one["columns"]))}) for one in values]
        if all(one.severity in SEVERITIES for one in found):
            return found
    except (TypeError, KeyError):
        pass
    raise FileError(f"{where} holds no findings; they are in findings.json of a study with goal = 'check'.")


def print_findings(findings: Sequence[Finding], of_study: bool = False) -> None:
    """One row for each kind of finding; sites that share it stand together. Cures are options, or lines of a study's file."""
    worded = as_parameters if of_study else as_options
    if not findings:
        say("Nothing was found that would make a network wrong.")
        return
    groups: dict[tuple[str, str, tuple[str, ...]], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.severity, finding.what, finding.columns), []).append(finding)
    rows = []
    for same in groups.values():
        first = same[0]
        where = "all" if first.site is None else first.site
        where += f" and {len(same) - 1} more" if len(same) > 1 else ""
        rows.append([first.severity, where, f"{first.sentence}\n-> {worded(first.cure)}"])
    print_table(["level", "site", "finding -> cure"], rows, n_text=3)
    for finding in findings:
        if finding.what == "kinds" and not of_study:
            # Lines of a table are cut; this one is to be copied.
            say(f"If you agree: {as_options(finding.cure).split('; other')[0].removeprefix('if so, use ')}")
    counts = {level: sum(row[0] == level for row in rows) for level in ("error", "warning", "note")}
    say(", ".join(f"{n} {level}{'' if n == 1 else 's'}" for level, n in counts.items() if n) + ".")
