"""``feddbn federation init | try`` and ``feddbn server start``: kits for a server and its sites; all of it on one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from feddbn.cli.federation_try import try_it
from feddbn.cli.terminal import print_table, say
from feddbn.runtime.engines.interface import DEFAULT_ENGINE, engine_names
from feddbn.runtime.engines.interface import engine as find_engine

__all__ = ["federation_app", "server_app"]

federation_app = typer.Typer(help="Set up a federation of sites on their own machines.", no_args_is_help=True)


@federation_app.callback()
def _group() -> None:
    """Set up a federation of sites on their own machines."""


@federation_app.command("init")
def init(
    directory: Annotated[
        Path, typer.Argument(help="New directory for the kits and the certificate authority.")
    ],
    server: Annotated[str, typer.Option(help="Host name of the server as the sites reach it.")],
    site: Annotated[list[str], typer.Option(help="Name of a site; repeat for each.")],
    name: Annotated[str, typer.Option(help="Name of the federation.")] = "feddbn",
    port: Annotated[int, typer.Option(help="Port the sites connect to.")] = 8002,
    admin_port: Annotated[int, typer.Option(help="Port people connect to when they submit studies.")] = 8003,
    lead: Annotated[
        str, typer.Option(help="Who submits studies, as an e-mail address.")
    ] = "lead@example.org",
    engine: Annotated[str, typer.Option(help=f"{' or '.join(engine_names())}.")] = DEFAULT_ENGINE,
) -> None:
    """Write one kit per participant: certificates, safe settings, start script."""
    from feddbn.runtime.engines.interface import FederationPlan

    plan = FederationPlan(name, server, tuple(site), port, admin_port, lead)
    kits = find_engine(engine).make_kits(plan, directory)
    rows = [(participant, str(kit)) for participant, kit in kits.items()]
    print_table(("participant", "kit"), rows, f"Federation {name!r}", n_text=2)
    say("Each kit holds a private key: hand it to its owner only. Keep the authority directory offline.")


federation_app.command("try")(try_it)


server_app = typer.Typer(
    help="Run the server of a federation; it sees sums, never data.", no_args_is_help=True
)


@server_app.callback()
def _server_group() -> None:
    """Run the server of a federation; it sees sums, never data."""


@server_app.command("start")
def start(
    kit: Annotated[Path, typer.Option("--kit", envvar="FEDDBN_KIT", help="The server's kit.")],
) -> None:
    """Run the server in the foreground until it is stopped; systemd restarts it."""
    from feddbn.runtime.engines.interface import engine_of

    engine_of(kit).server_process(kit).become()
