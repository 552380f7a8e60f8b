"""``feddbn check``: what is wrong with data, before a fit; and what a study found that checked the data of all sites."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from feddbn.cli.options import Data, Json, reads_data
from feddbn.cli.terminal import print_json, print_table, say
from feddbn.errors import FileError, ParameterError
from feddbn.findings import Finding, Findings
from feddbn.words import Audience, card, counted, setting

__all__ = ["check", "findings_of", "print_findings", "read_findings"]


@reads_data()
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
    audience: Audience = "lead" if of_study else "cli"
    if as_json:
        said = ((one, card(one, audience)) for one in findings)
        print_json(
            [{**one.to_dict(), "finding": words.detail, "advice": words.advice} for one, words in said]
        )
    else:
        print_findings(findings, audience)
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


def read_findings(path: Path) -> Findings:
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


def findings_of(values: Any, where: str) -> Findings:
    """Return findings from plain values, also as version 0.2 wrote them; refuse what are none."""
    try:
        return Findings(Finding.from_dict(_coded(one) if "sentence" in one else one) for one in values)
    except (TypeError, KeyError, ValueError, AttributeError):
        raise FileError(
            f"{where} holds no findings; they are in findings.json of a study with goal = 'check'."
        ) from None


def _coded(old: dict[str, Any]) -> dict[str, Any]:
    """A finding of version 0.2, which had a sentence and no code that has words now."""
    where = {name: old[name] for name in ("site", "recording") if old.get(name) is not None}
    values = {"text": str(old["sentence"]), "cure": f"Cure: {old['cure']}." if old["cure"] else "", **where}
    return {"code": "text", "level": old["severity"], "values": values, "about": old["columns"]}


def print_findings(findings: Sequence[Finding], audience: Audience = "cli") -> None:
    """One row for each kind of finding; sites that share it stand together."""
    if not findings:
        say("Nothing was found that would make a network wrong.")
        return
    groups: dict[tuple[str, str, tuple[str, ...]], list[Finding]] = {}
    for one in findings:
        # Old files have one code for all.
        groups.setdefault((one.level, str(one.values.get("text", one.code)), one.about), []).append(one)
    rows = []
    for same in groups.values():
        words = card(same[0], audience)
        where = str(same[0].values.get("site", "all"))
        where += f" and {len(same) - 1} more" if len(same) > 1 else ""
        rows.append([same[0].level, where, "\n".join(filter(None, [words.detail, words.advice]))])
    print_table(["level", "site", "finding and cure"], rows, n_text=3)
    for one in findings:
        if one.code == "kinds" and audience == "cli":
            # Lines of a table are cut; this one is to be copied.
            say(f"If you agree: --method mixed {setting('kinds', one.cure['kinds'], 'cli')}")
    counts = {level: sum(row[0] == level for row in rows) for level in ("error", "warning", "note")}
    say(", ".join(counted(n, level) for level, n in counts.items() if n) + ".")
