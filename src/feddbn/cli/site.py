"""``feddbn site check``, ``approve``, ``log``, ``start`` and their kin: what an institution runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feddbn.cli.console import site_console
from feddbn.cli.options import Json
from feddbn.cli.terminal import print_table, remark, say
from feddbn.errors import ParameterError
from feddbn.words import card

if TYPE_CHECKING:
    from feddbn.runtime.deployed.owner import Owner
    from feddbn.runtime.deployed.settings import SiteSettings

__all__ = ["approve", "owner_of", "site_app"]

site_app = typer.Typer(help="Run a site on the machine that holds its data.", no_args_is_help=True)
Kit = Annotated[Path, typer.Option("--kit", envvar="FEDDBN_KIT", help="The site's kit.")]


def settings_of(kit: Path) -> SiteSettings:
    """Return the settings in a site's kit."""
    from feddbn.runtime.deployed.settings import read_site_settings
    from feddbn.runtime.engines.interface import engine_of

    return read_site_settings(engine_of(kit).site_settings(kit))


def owner_of(kit: Path) -> Owner:
    """Return what the owner of a site's kit signs and reads."""
    from feddbn.runtime.deployed.owner import Owner

    return Owner(settings_of(kit), remark)


@site_app.command()
def approve(
    study: Annotated[Path, typer.Argument(help="The study file (TOML), as its lead wrote it.")],
    kit: Kit,
    days: Annotated[float, typer.Option(help="For how many days.")] = 30.0,
    runs: Annotated[int, typer.Option(help="How many runs; one that is resumed is the same run.")] = 1,
    epsilon: Annotated[
        float | None,
        typer.Option(help="What all runs together may cost; by default what the study promises for each."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Read a study in plain words and approve it, signed with the site's key; nothing leaves the site."""
    from feddbn.cli.submit import read_study
    from feddbn.runtime.deployed.check import about_study, why_refused
    from feddbn.runtime.deployed.open_site import read_data
    from feddbn.runtime.deployed.owner import Owner
    from feddbn.runtime.deployed.settings import read_policy

    plan = read_study(study)
    settings = settings_of(kit)
    if settings.name not in plan.sites:
        raise ParameterError(
            f"the study {plan.name!r} does not name the site {settings.name!r}; it names {', '.join(plan.sites)}."
        )
    owner = Owner(settings, remark)
    policy = read_policy(settings.policy)
    if not as_json:
        told = [card(one, "owner") for one in about_study(plan, settings)]
        words = [(one.question, one.detail) for one in told]
        print_table(("what", f"the study {plan.name} says"), words, n_text=2)
    for one in why_refused(settings, policy, tuple(read_data(settings).variables), plan):
        reason = card(one, "owner").detail
        remark(f"note: as things are, this site would refuse the study all the same: {reason}")
    if policy.approve_by_rule:
        remark("note: this site's policy has approve_by_rule = true: it answers any study within its rules.")
    if not yes:
        how_often = "1 run" if runs == 1 else f"{runs} runs"
        typer.confirm(f"Approve this study for {how_often} within {days:g} days?", abort=True, err=True)
    given = owner.approve(plan, days, runs, epsilon)
    if as_json:
        say(json.dumps(asdict(given)))
    else:
        say(f"approved until {given.expires}; `feddbn site revoke {given.study}` takes it back.")


@site_app.command()
def approvals(kit: Kit, as_json: Json = False) -> None:
    """List the studies that were approved at a site."""
    found = owner_of(kit).approvals
    listed = found.all()
    if as_json:
        say(json.dumps([{**asdict(approval), "state": state} for approval, state in listed]))
    elif listed:
        rows = []
        for one, state in listed:
            cost = "-" if one.epsilon is None else f"{one.epsilon:g}"
            left = f"{len(one.used)} of {one.runs}"
            rows.append((one.study, one.digest[:12], one.lead or "-", state, one.expires[:10], left, cost))
        print_table(("study", "digest", "lead", "state", "until", "runs", "epsilon"), rows, n_text=5)
    else:
        say("no study has been approved at this site.")
    for path in found.damaged():
        remark(f"note: {path} is damaged or was not signed by this site's key; it approves nothing.")


@site_app.command()
def waiting(kit: Kit, as_json: Json = False) -> None:
    """List the studies that came to a site and that its owner has not decided on."""
    found = owner_of(kit).waiting()
    if as_json:
        rows = [{"study": json.loads(one.study.to_json()), "digest": one.study.digest} for one in found]
        say(json.dumps([{**row, "came": one.came} for row, one in zip(rows, found, strict=True)]))
    elif found:
        lines = [
            (
                one.study.name,
                one.study.digest[:12],
                one.study.lead or "-",
                one.study.method,
                one.came,
            )
            for one in found
        ]
        print_table(("study", "digest", "lead", "method", "came"), lines, n_text=5)
        remark(
            "`feddbn site console` shows them in plain words; `feddbn site approve` takes the lead's file."
        )
    else:
        say("no study waits for a decision at this site.")


@site_app.command()
def refuse(
    study: Annotated[str, typer.Argument(help="The study's name, or the beginning of its digest.")], kit: Kit
) -> None:
    """Put a study that waits aside, and take that down; without an approval it does not run anyway."""
    owner = owner_of(kit)
    found = owner.offered.named(study).study
    owner.refuse(found)
    say(f"the study {found.name} ({found.digest[:12]}) was refused; it does not wait any more.")


@site_app.command()
def revoke(
    study: Annotated[str, typer.Argument(help="The study's name, or the beginning of its digest.")], kit: Kit
) -> None:
    """Take an approval back; a run under way is refused from its next message on."""
    taken = owner_of(kit).revoke(study)
    say(f"the approval of {taken.study} ({taken.digest[:12]}) was revoked.")


@site_app.command()
def log(
    kit: Kit,
    run: Annotated[str, typer.Option(help="Only this run.")] = "",
    as_json: Json = False,
) -> None:
    """Show who asked what of a site, for which study, and what left; greetings, refusals and approvals too."""
    from feddbn.privacy.audit import totals
    from feddbn.runtime.deployed.audit import logs_of
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
            rows.append((time, line.outcome, asked, *cost))
        columns = ("time (UTC)", "outcome", "asked", *(("epsilon so far", "left") if has_noise else ()))
        print_table(columns, rows, title=one.title, n_text=len(columns))
    count = totals(entries)
    sent, refused, n_bytes = (int(count[name]) for name in ("sent", "refused", "bytes"))
    say(f"{sent} answers left this site ({n_bytes} bytes of numbers); {refused} refusals.")
    remark(f"`feddbn audit verify {directory}` says whether these logs are intact.")


@site_app.command()
def check(
    kit: Kit,
    study: Annotated[
        Path | None, typer.Option(help="Also check whether the site can join this study.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check data, policy, certificates, clock and the way to the server; nothing leaves the site."""
    from feddbn.cli.submit import read_study
    from feddbn.runtime.engines.interface import engine_of

    findings = engine_of(kit).check_site(kit, None if study is None else read_study(study))
    said = [(one, card(one, "owner")) for one in findings]
    if as_json:
        ok = {"good": True, "error": False}
        lines = [
            {"what": words.question, "ok": ok.get(one.level), "text": words.detail, **one.to_dict()}
            for one, words in said
        ]
        say(json.dumps(lines))
    else:
        marks = {"good": "ok", "error": "no"}
        rows = [(words.question, marks.get(one.level, ""), words.detail) for one, words in said]
        print_table(("check", "", "finding"), rows, n_text=3)
    if any(one.level == "error" for one in findings):
        raise typer.Exit(2)


site_app.command("console")(site_console)


@site_app.command()
def adopt(
    settings: Annotated[Path, typer.Option(help="The site's settings file.")],
) -> None:
    """Take the audit logs in the site's state as complete, after an update or when their index was lost.

    The privacy budget is what all logs say was spent. Do this only if no log was deleted or shortened.
    """
    from feddbn.runtime.deployed.audit import books_of, budget_finding
    from feddbn.runtime.deployed.settings import read_policy, read_site_settings

    values = read_site_settings(settings)
    books = books_of(values, say)
    n_logs = books.adopt()
    say(f"{n_logs} audit log{'' if n_logs == 1 else 's'} taken as complete.")
    budget = budget_finding(books.account(), read_policy(values.policy))
    say(f"Privacy budget: {card(budget, 'owner').detail}.")


@site_app.command()
def start(kit: Kit) -> None:
    """Run the site in the foreground until it is stopped; systemd restarts it."""
    from feddbn.runtime.engines.interface import engine_of

    engine_of(kit).site_process(kit).become()
