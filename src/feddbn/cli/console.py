"""``feddbn site console`` and ``feddbn lead console``: pages on this machine for the owner of data and for the lead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.terminal import remark, say

if TYPE_CHECKING:
    from feddbn.console.gate import Keys

__all__ = ["lead_app", "site_console"]

DEFAULT_PORT = 8764

Port = Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes any that is free.")]
Host = Annotated[str, typer.Option(help="A loopback address; no other is accepted.")]


def site_console(
    kit: Annotated[Path, typer.Option("--kit", envvar="FEDDBN_KIT", help="The site's kit.")],
    port: Port = DEFAULT_PORT,
    host: Host = "127.0.0.1",
) -> None:
    """Show what the owner of the data decides and what left, as pages in a browser on this machine."""
    from feddbn.cli.submit import check_study

    def make(keys: Keys) -> Any:
        from feddbn.console.site_pages import site_app

        return site_app(kit, check_study, keys)

    _serve(make, host, port)


def lead_console(
    kit: Annotated[Path, typer.Option("--kit", envvar="FEDDBN_KIT", help="The lead's kit.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where results go; by default `results` in the kit.")
    ] = None,
    port: Port = DEFAULT_PORT,
    host: Host = "127.0.0.1",
) -> None:
    """Show sites, runs with their curves, and results, as pages in a browser on this machine."""
    from feddbn.runtime.engines.interface import engine_of

    session = engine_of(kit).session(kit)
    watches = []

    def make(keys: Keys) -> Any:
        from feddbn.console.lead_pages import lead_app
        from feddbn.console.lead_watch import LeadWatch

        watches.append(LeadWatch(session))
        return lead_app(session, watches[0].start(), out or kit / "results", keys)

    try:
        _serve(make, host, port)
    finally:
        for watch in watches:
            watch.stop()


def _serve(make: Callable[[Keys], Any], host: str, port: int) -> None:
    from feddbn.console.gate import serve

    def tell(address: str) -> None:
        say(f"Open {address}")
        remark("Who has this address can decide for you: keep it to yourself. Ctrl-C closes the console.")

    try:
        serve(make, host, port, tell)
    except KeyboardInterrupt:
        remark("the console is closed.")


lead_app = typer.Typer(help="Watch the studies that you lead.", no_args_is_help=True)


@lead_app.callback()
def _group() -> None:
    """Watch the studies that you lead."""


lead_app.command("console")(lead_console)
