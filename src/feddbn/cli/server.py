"""``feddbn server start``: what the coordinating institution runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["server_app"]

server_app = typer.Typer(
    help="Run the server of a federation; it sees sums, never data.", no_args_is_help=True
)


@server_app.callback()
def _group() -> None:
    """Run the server of a federation; it sees sums, never data."""


@server_app.command("start")
def start(
    kit: Annotated[Path, typer.Option("--kit", envvar="FEDDBN_KIT", help="The server's kit.")],
) -> None:
    """Run the server in the foreground until it is stopped; systemd restarts it."""
    from feddbn.runtime.engines.registry import engine_of

    engine_of(kit).server_process(kit).become()
