"""``feddbn audit``: what a curious server could learn, and what really left a site."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.audit_verify import Json, heads, read_log, verify
from feddbn.errors import ParameterError

if TYPE_CHECKING:
    from feddbn.experiments.leakage import LeakReport

__all__ = ["audit"]

audit = typer.Typer(no_args_is_help=True, help="What could leak, what left, and whether the log is intact.")

Log = Annotated[Path, typer.Argument(help="A site's audit log (JSON lines).", show_default=False)]


@audit.command()
def attack(
    data: Annotated[
        Path | None,
        typer.Argument(help="Sites to attack; a simulated federation if left out.", show_default=False),
    ] = None,
    method: Annotated[str, typer.Option(help="fdbnl or pfdbnl.")] = "fdbnl",
    variables: Annotated[int, typer.Option(help="Variables of the simulated federation.")] = 6,
    lags: Annotated[int, typer.Option(help="Number of lags.")] = 1,
    sites: Annotated[int, typer.Option(help="Sites of the simulated federation.")] = 5,
    rows: Annotated[int, typer.Option(help="Rows of each simulated site.")] = 100,
    rounds: Annotated[int | None, typer.Option(help="Rounds to listen to.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    as_json: Json = False,
) -> None:
    """Play the curious server: reconstruct every site's Gram matrix from the messages of a run.

    Shows, for each round, how well it works on plain messages, and that with secure aggregation the attacker
    is left with guessing the federation's mean.
    """
    from feddbn.data import read_sites
    from feddbn.experiments.leakage import attack_fdbnl, attack_pfdbnl
    from feddbn.methods.simulation import simulate

    attacks: dict[str, Callable[..., Any]] = {"fdbnl": attack_fdbnl, "pfdbnl": attack_pfdbnl}
    if method.lower() not in attacks:
        raise ParameterError(f"--method {method!r} is not known; choose fdbnl or pfdbnl.")
    source = data
    if source is None:
        for option, value, least in (
            ("--variables", variables, 1),
            ("--sites", sites, 3),
            ("--rows", rows, 2),
        ):
            if value < least:
                raise ParameterError(f"{option} must be at least {least}, got {value}.")
        federation = simulate(
            d=variables, n_lags=lags, n_sites=sites, n_samples=rows * sites, mean_degree=2, random_state=seed
        )
        report = attacks[method.lower()](read_sites(federation.sites), lags, rounds)
    else:
        report = attacks[method.lower()](read_sites(source), lags, rounds)
    if as_json:
        typer.echo(json.dumps(asdict(report), indent=2))
    else:
        _print_attack(report)


def _print_attack(report: LeakReport) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(
        box=SIMPLE_HEAD,
        title=f"{report.method}: relative error of the reconstructed Gram matrices",
        show_edge=False,
    )
    for column in ("round", "plain, median site", "plain, worst site", "secure aggregation"):
        table.add_column(column, justify="right")
    for row in report.rounds:
        masked = "-" if row.masked_rms is None else f"{row.masked_rms:.2g}"
        table.add_row(str(row.round), f"{row.plain_median:.1e}", f"{row.plain_worst:.1e}", masked)
    Console().print(table)
    typer.echo(
        f"Guessing the federation's mean for every site has error {report.mean_guess:.2g}; with secure"
    )
    typer.echo("aggregation no attacker can do better, because all sites share one sum.")
    for site, distance in report.rows.items():
        typer.echo(
            f"{site} has fewer rows than columns: its rows follow up to a rotation, error {distance:.1e}."
        )


@audit.command()
def show(log: Log, as_json: Json = False) -> None:
    """Print what left a site, line by line, for a person."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from feddbn.privacy.audit import parse_entries, totals, verify_chain
    from feddbn.privacy.ledger import entry_epsilon

    lines = read_log(log)
    entries = parse_entries(lines)
    if as_json:
        typer.echo(json.dumps([asdict(entry) for entry in entries], indent=2))
        return
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    right = ("numbers", "epsilon", "so far")
    for column in ("time", "event", "task", "asked by", "numbers", "protection", *right[1:]):
        table.add_column(column, justify="right" if column in right else "left")
    for entry in entries:
        spent = "-" if entry.epsilon is None else f"{entry.epsilon:.3g} per {entry.unit}"
        cost = entry_epsilon(entry)
        numbers = str(entry.length) if entry.event == "sent" else "none"
        seen = (entry.time, entry.event, entry.task, entry.asked_by, numbers, entry.protection)
        table.add_row(*seen, "-" if cost is None else f"{cost:.3g}", spent)
    Console().print(table)
    for entry in entries:
        if entry.note:
            typer.echo(f"line {entry.index + 1}, {entry.event}: {entry.note}")
    count = totals(entries)
    sent, refused, n_bytes = (int(count[key]) for key in ("sent", "refused", "bytes"))
    left = "1 answer" if sent == 1 else f"{sent} answers"
    typer.echo(f"{left} left this site ({n_bytes} bytes of numbers), {refused} refused.")
    problem = verify_chain(lines).problem
    if problem:
        typer.echo(f"Do not trust this log: {problem}. See feddbn audit verify.")


for _command in (verify, heads):
    audit.command()(_command)
