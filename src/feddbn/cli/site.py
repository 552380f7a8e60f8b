"""``feddbn site check``, ``approve``, ``log``, ``start`` and their kin: what an institution runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console as Terminal
from rich.table import Table

from feddbn.cli.console import site_console
from feddbn.cli.site_approvals import Kit, approvals, approve, refuse, revoke, waiting
from feddbn.cli.site_log import log

__all__ = ["site_app"]

site_app = typer.Typer(help="Run a site on the machine that holds its data.", no_args_is_help=True)


@site_app.command("check")
def check(
    kit: Kit,
    study: Annotated[
        Path | None, typer.Option(help="Also check whether the site can join this study.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check data, policy, certificates, clock and the way to the server; nothing leaves the site."""
    from feddbn.cli.submit import read_study
    from feddbn.runtime.engines.registry import engine_of

    findings = engine_of(kit).check_site(kit, None if study is None else read_study(study))
    bad = [finding for finding in findings if finding.ok is False]
    if as_json:
        typer.echo(json.dumps([vars(finding) for finding in findings]))
    else:
        table = Table("check", "", "finding")
        for finding in findings:
            mark = {True: "[green]ok[/]", False: "[red]no[/]", None: ""}[finding.ok]
            table.add_row(finding.what, mark, finding.text)
        Terminal().print(table)
    if bad:
        raise typer.Exit(2)


for _command in (approve, approvals, waiting, refuse, revoke, log):
    site_app.command()(_command)
site_app.command("console")(site_console)


@site_app.command("adopt")
def adopt(
    settings: Annotated[Path, typer.Option(help="The site's settings file.")],
) -> None:
    """Take the audit logs in the site's state as complete, after an update or when their index was lost.

    The privacy budget is what all logs say was spent. Do this only if no log was deleted or shortened.
    """
    from feddbn.runtime.deployed.books import books_of
    from feddbn.runtime.deployed.protection import read_policy
    from feddbn.runtime.deployed.settings import read_site_settings

    values = read_site_settings(settings)
    books = books_of(values, typer.echo)
    n_logs = books.adopt()
    typer.echo(f"{n_logs} audit log{'' if n_logs == 1 else 's'} taken as complete.")
    typer.echo(f"Privacy budget: {books.account().words(read_policy(values.policy))}.")


@site_app.command("start")
def start(kit: Kit) -> None:
    """Run the site in the foreground until it is stopped; systemd restarts it."""
    from feddbn.runtime.engines.registry import engine_of

    engine_of(kit).site_process(kit).become()
