"""``feddbn check``: what is wrong with data, before a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.options import Data, Json, reads_data
from feddbn.cli.terminal import print_json, print_table, say
from feddbn.cli.wording import as_options
from feddbn.errors import ParameterError

if TYPE_CHECKING:
    from feddbn.data.preflight import Finding

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

    Exit code 0: nothing, notes or warnings. 1: an error, with which a fit is refused or cannot be right. 2: the data
    cannot be opened.
    """
    from feddbn.data.preflight import preflight

    if n_lags < 0:
        raise ParameterError(f"--lags {n_lags} must be a whole number of at least 0.")
    findings = preflight(data, n_lags, **read)
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        _print(findings)
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(1)


def _print(findings: list[Finding]) -> None:
    """One row for each kind of finding; sites that share it stand together."""
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
        rows.append([first.severity, where, f"{first.sentence}\n-> {as_options(first.cure)}"])
    print_table(["level", "site", "finding -> cure"], rows, n_text=3)
    for finding in findings:
        if finding.what == "kinds":
            # Lines of a table are cut; this one is to be copied.
            say(f"If you agree: {as_options(finding.cure).split('; other')[0].removeprefix('if so, use ')}")
    counts = {level: sum(row[0] == level for row in rows) for level in ("error", "warning", "note")}
    say(", ".join(f"{n} {level}{'' if n == 1 else 's'}" for level, n in counts.items() if n) + ".")
