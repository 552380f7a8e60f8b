"""What a check found, in a terminal and from the file of a study that checked the data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from feddbn.cli.terminal import print_table, say
from feddbn.cli.wording import as_options, as_parameters
from feddbn.data.preflight import Finding
from feddbn.data.preflight.finding import SEVERITIES
from feddbn.errors import FileError

__all__ = ["findings_of", "print_findings", "read_findings"]


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
