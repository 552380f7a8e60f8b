"""``feddbn audit``: what a curious server could learn, what really left a site, and whether logs are intact."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.options import Json
from feddbn.cli.site import owner_of
from feddbn.cli.terminal import print_table, say
from feddbn.errors import FileError, ParameterError

if TYPE_CHECKING:
    from feddbn.experiments.leakage import LeakReport
    from feddbn.privacy.audit import Head

__all__ = ["audit", "read_log"]

audit = typer.Typer(no_args_is_help=True, help="What could leak, what left, and whether the log is intact.")

_SEALS = {
    "signed": "signed by {site}",
    "unchecked": "signed, but not checked: give --peers",
    "unkeyed": "unkeyed: whoever can write it could have rewritten it",
}


def read_log(path: Path) -> list[str]:
    """Return the lines of an audit log."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise FileError(f"the audit log {str(path)!r} cannot be read: {reason}.") from None
    except UnicodeDecodeError:
        raise FileError(f"{str(path)!r} is not an audit log: it is not text.") from None


@audit.command()
def verify(
    log: Annotated[
        Path,
        typer.Argument(help="An audit log, or a site's state/_audit with all of them.", show_default=False),
    ],
    last: Annotated[
        str | None, typer.Option(help="The last hash, if it was written down.", show_default=False)
    ] = None,
    peers: Annotated[
        Path | None, typer.Option(help="peers.toml with the sites' public keys.", show_default=False)
    ] = None,
    from_peer: Annotated[
        list[Path] | None,
        typer.Option(
            "--heads", help="Heads from another site (`feddbn audit heads --out`); repeat for more."
        ),
    ] = None,
    site: Annotated[
        str,
        typer.Option(
            help="Whose logs they should be; by default whose they say they are.", show_default=False
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Check that no entry was changed, removed or reordered; exit code 1 if one was.

    With --peers the site's signature is checked; with --heads also that the log is not older than what others hold of it.
    """
    from feddbn.privacy.audit import ChainReport, verify_chain
    from feddbn.runtime.deployed.audit import LogReport, check_logs
    from feddbn.runtime.deployed.peer_heads import own_heads

    site, key = _writer(log, peers, site)
    held = _held(site, peers, from_peer or [])
    if log.is_dir():
        if last is not None:
            raise ParameterError("--last is the last hash of one log; name that log instead of a directory.")
        reports = check_logs(log, key, [*held, *(own_heads(log, site, key) if key is not None else ())])
    else:
        report = verify_chain(read_log(log), last, key)
        problem = report.problem or _against(log, held)
        reports = [LogReport(log.name, ChainReport(**{**asdict(report), "problem": problem}), problem)]
    bad = [report for report in reports if report.problem is not None]
    if as_json:
        values = [{"log": one.log, **asdict(one.chain), "problem": one.problem} for one in reports]
        values = [{**one, "is_intact": one["problem"] is None} for one in values]
        say(json.dumps(values if log.is_dir() else values[0], indent=2))
    for one in () if as_json else reports:
        name = f"{one.log}: " if log.is_dir() else ""
        n = _entries(one.chain.n_entries)
        if one.problem is None:
            seal = _SEALS[one.chain.seal].format(site=site)
            say(f"{name}Intact: {n}; {seal}; last hash {one.chain.last_hash}.")
        else:
            good = f" Good before it: {n}." if one.chain.problem else ""
            say(f"{name}NOT intact: {one.problem}.{good}")
    if not reports:
        say("There are no logs.")
    if bad:
        raise typer.Exit(1)


@audit.command()
def heads(
    kit: Annotated[Path, typer.Option("--kit", envvar="FEDDBN_KIT", help="The site's kit.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write them to a file to hand over.")
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(help="A file that another site's owner wrote with --out.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how far this site's log reaches and what other sites hold of it; compare with another person's file.

    Exit code 1 if the two contradict each other: then somebody's log was shortened or rewritten.
    """
    from feddbn.runtime.deployed.peer_heads import compare as contradictions
    from feddbn.runtime.deployed.peer_heads import export_heads, read_export

    owner = owner_of(kit)
    text = export_heads(owner.heads, owner.audit)
    if out is not None:
        out.write_text(text, encoding="utf-8")
        say(
            f"written to {out}; hand it to the owner of another site, who types `feddbn audit heads --compare`."
        )
    elif as_json:
        say(text.rstrip())
    elif compare is None:
        own = owner.audit.head()
        say(
            "this site has no key, so no heads."
            if own is None
            else f"this site's log: {_entries(own.n_entries)}."
        )
        rows = []
        for peer in owner.heads.all():
            held = "-" if peer.held is None else f"{_entries(peer.held.n_entries)}, {peer.held.time}"
            given = peer.receipt
            word = "-" if given is None else f"{_entries(given.head.n_entries)}, {given.head.time}"
            rows.append((peer.site, held, word, str(len(peer.odd) or "-")))
        print_table(("site", "held of its log", "it holds of this one", "contradictions"), rows, n_text=3)
    if compare is None:
        return
    found = contradictions(owner.heads, owner.audit, read_export(compare, owner.keys))
    for sentence in found:
        say(f"NOT consistent: {sentence}.")
    if found:
        raise typer.Exit(1)
    say("Consistent: nothing in the file contradicts this site's log or the heads it holds.")


def _writer(log: Path, peers: Path | None, site: str) -> tuple[str, bytes | None]:
    """Return which site wrote a log, and its public key if it is known."""
    from feddbn.privacy.audit import parse_entries
    from feddbn.runtime.deployed.audit import SITE_LOG, whole_lines

    if peers is None and site:
        raise ParameterError(f"--site {site} needs --peers, the list of public keys.")
    if peers is None:
        return "", None
    from feddbn.runtime.deployed.kit_files import read_peers

    paths = [log / SITE_LOG, *sorted(log.glob("*.jsonl"))] if log.is_dir() else [log]
    for path in paths:
        if site:
            break
        # A log that cannot be read is reported with the others.
        with contextlib.suppress(FileError):
            site = next((entry.site for entry in parse_entries(whole_lines(path)[:1])), "")
    if not site:
        raise ParameterError(f"{log} does not say whose logs these are; name the site with --site.")
    key = read_peers(peers).get(site)
    if key is None:
        raise ParameterError(f"--peers {peers} has no key of {site!r}, whose logs these are.")
    return site, key


def _held(site: str, peers: Path | None, files: list[Path]) -> list[Head]:
    """Return the heads of this site's log in other people's files."""
    from feddbn.runtime.deployed.kit_files import read_peers
    from feddbn.runtime.deployed.peer_heads import read_export

    if not files:
        return []
    if peers is None:
        raise ParameterError("--heads needs --peers, the list of public keys, to check who signed them.")
    keys: Mapping[str, bytes] = read_peers(peers)
    found = [read_export(path, keys) for path in files]
    everything = [head for one in found for head in (*one.held, *(word.head for word in one.receipts))]
    return [head for head in everything if head.site == site]


def _against(log: Path, held: list[Head]) -> str | None:
    from feddbn.privacy.audit import against_log, parse_entries
    from feddbn.runtime.deployed.audit import SITE_LOG

    if not held:
        return None
    if log.name != SITE_LOG:
        raise ParameterError(f"heads are of a site's own log {SITE_LOG}; name it, or the directory it is in.")
    entries = parse_entries(read_log(log))
    return next((wrong for wrong in (against_log(head, entries) for head in held) if wrong is not None), None)


def _entries(n: int) -> str:
    return "1 entry" if n == 1 else f"{n} entries"


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
    source: Any = data
    if source is None:
        for option, value, least in (("variables", variables, 1), ("sites", sites, 3), ("rows", rows, 2)):
            if value < least:
                raise ParameterError(f"--{option} must be at least {least}, got {value}.")
        n = rows * sites
        source = simulate(
            d=variables, n_lags=lags, n_sites=sites, n_samples=n, mean_degree=2, random_state=seed
        ).sites
    report = attacks[method.lower()](read_sites(source), lags, rounds)
    if as_json:
        say(json.dumps(asdict(report), indent=2))
    else:
        _print_attack(report)


def _print_attack(report: LeakReport) -> None:
    rows = [
        (
            str(row.round),
            f"{row.plain_median:.1e}",
            f"{row.plain_worst:.1e}",
            "-" if row.masked_rms is None else f"{row.masked_rms:.2g}",
        )
        for row in report.rounds
    ]
    heads = ("round", "plain, median site", "plain, worst site", "secure aggregation")
    print_table(heads, rows, f"{report.method}: relative error of the reconstructed Gram matrices", n_text=0)
    say(
        f"Guessing the federation's mean for every site has error {report.mean_guess:.2g}; with secure\n"
        "aggregation no attacker can do better, because all sites share one sum."
    )
    for site, distance in report.rows.items():
        say(f"{site} has fewer rows than columns: its rows follow up to a rotation, error {distance:.1e}.")


@audit.command()
def show(log: Log, as_json: Json = False) -> None:
    """Print what left a site, line by line, for a person."""
    from feddbn.privacy.audit import parse_entries, totals, verify_chain
    from feddbn.privacy.ledger import entry_epsilon

    lines = read_log(log)
    entries = parse_entries(lines)
    if as_json:
        say(json.dumps([asdict(entry) for entry in entries], indent=2))
        return
    rows = []
    for entry in entries:
        cost, numbers = entry_epsilon(entry), str(entry.length) if entry.event == "sent" else "none"
        seen = (entry.time, entry.event, entry.task, entry.asked_by, entry.protection, numbers)
        spent = "-" if entry.epsilon is None else f"{entry.epsilon:.3g} per {entry.unit}"
        rows.append((*seen, "-" if cost is None else f"{cost:.3g}", spent))
    heads = ("time", "event", "task", "asked by", "protection", "numbers", "epsilon", "so far")
    print_table(heads, rows, n_text=5)
    for entry in entries:
        if entry.note:
            say(f"line {entry.index + 1}, {entry.event}: {entry.note}")
    count = totals(entries)
    sent, refused, n_bytes = (int(count[key]) for key in ("sent", "refused", "bytes"))
    left = "1 answer" if sent == 1 else f"{sent} answers"
    say(f"{left} left this site ({n_bytes} bytes of numbers), {refused} refused.")
    problem = verify_chain(lines).problem
    if problem:
        say(f"Do not trust this log: {problem}. See feddbn audit verify.")
