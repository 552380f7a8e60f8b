"""``feddbn site log``: who asked what, when, and what left."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from feddbn.cli.site_approvals import Json, Kit, printable, settings_of
from feddbn.cli.terminal import print_table, remark, say
from feddbn.errors import ParameterError

__all__ = ["log"]


def log(
    kit: Kit,
    run: Annotated[str, typer.Option(help="Only this run.")] = "",
    as_json: Json = False,
) -> None:
    """Show who asked what of a site, for which study, and what left; greetings, refusals and approvals too."""
    from feddbn.privacy.audit import totals
    from feddbn.runtime.deployed.site_log import logs_of
    from feddbn.runtime.deployed.store import AUDIT

    directory = settings_of(kit).state / AUDIT
    logs = logs_of(directory, run)
    if run and not logs:
        raise ParameterError(f"--run {run}: nothing is logged about this run at this site.")
    entries = [entry for one in logs for entry in one.entries]
    if as_json:
        say(json.dumps([{**asdict(entry), "run": one.run} for one in logs for entry in one.entries]))
        return
    for one in logs:
        lines = list(one.lines())
        has_noise = any(line.epsilon != "-" for line in lines)
        rows = []
        for line in lines:
            asked = line.asked if line.times == 1 else f"{line.times} times {line.asked}"
            time = line.time.replace("T", " ").rstrip("Z")
            cost = (line.epsilon, line.left) if has_noise else ()
            rows.append([printable(word) for word in (time, line.outcome, asked, *cost)])
        columns = ("time (UTC)", "outcome", "asked", *(("epsilon so far", "left") if has_noise else ()))
        print_table(columns, rows, title=printable(one.title), n_text=len(columns))
    count = totals(entries)
    sent, refused, n_bytes = (int(count[name]) for name in ("sent", "refused", "bytes"))
    say(f"{sent} answers left this site ({n_bytes} bytes of numbers); {refused} refusals.")
    remark(f"`feddbn audit verify {directory}` says whether these logs are intact.")
