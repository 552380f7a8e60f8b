"""``feddbn lead console``: what a lead has open; sending and fetching are `feddbn submit` and its kin."""

from __future__ import annotations

import typer

from feddbn.cli.console import lead_console

__all__ = ["lead_app"]

lead_app = typer.Typer(help="Watch the studies that you lead.", no_args_is_help=True)


@lead_app.callback()
def _group() -> None:
    """Watch the studies that you lead."""


lead_app.command("console")(lead_console)
