"""``feddbn site check | studies | approve | answer | refuse | log | verify``: what a site's owner decides and reads."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feddbn.cli.options import AnswerFile, Json, QuestionFile
from feddbn.cli.terminal import print_table, remark, say, tell
from feddbn.errors import FileError, ParameterError
from feddbn.words import card, counted, full_sentence
from feddbn.words import say as sentence_of

if TYPE_CHECKING:
    from feddbn.console.site_facts import SiteFacts
    from feddbn.runtime.site.owner import Owner

__all__ = ["approve", "facts_of", "read_log", "site_app"]

site_app = typer.Typer(help="Approve studies at a site, and see what left it.", no_args_is_help=True)
Kit = Annotated[
    Path,
    typer.Option(
        "--kit", envvar="FEDDBN_KIT", help="The site's kit (the folder with its keys and settings)."
    ),
]
KitOrNone = Annotated[
    Path | None,
    typer.Option(
        "--kit", envvar="FEDDBN_KIT", help="The site's kit (the folder with its keys and settings)."
    ),
]
StudyName = Annotated[str, typer.Argument(help="The study's name, or the beginning of its digest.")]


def facts_of(kit: Path) -> SiteFacts:
    """Return what the owner of a site's kit signs and reads, as the console does."""
    from feddbn.cli.study import check_study
    from feddbn.console.site_facts import SiteFacts

    return SiteFacts(kit, check_study, tell=remark)


@site_app.command()
def check(
    kit: Kit,
    study: Annotated[
        Path | None, typer.Option(help="Also check whether the site can join this study.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check settings, data, policy, keys and budget; nothing leaves the site."""
    from feddbn.cli.study import read_study

    findings = facts_of(kit).findings(None if study is None else read_study(study))
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
        raise typer.Exit(1)


class Only(StrEnum):
    """Which studies are listed."""

    waiting = "waiting"
    approved = "approved"


@site_app.command()
def studies(
    kit: Kit,
    only: Annotated[
        Only | None,
        typer.Option(
            help="Only studies that wait for a decision, or only approved ones.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the studies that wait for a decision at a site, and the approved ones."""
    owner = facts_of(kit).owner
    waiting = [] if only == "approved" else owner.waiting()
    approved = [] if only == "waiting" else owner.approvals.all()
    if as_json:
        listed = {
            "waiting": [
                {"study": json.loads(one.study.to_json()), "digest": one.study.digest, "came": one.came}
                for one in waiting
            ],
            "approved": [{**asdict(approval), "state": state} for approval, state in approved],
        }
        say(json.dumps(listed if only is None else listed[only]))
    elif not waiting and not approved:
        say(
            f"no study {'waits or is approved' if only is None else 'waits' if only == 'waiting' else 'is approved'} here."
        )
    rows = []
    for one in waiting:
        study = one.study
        rows.append(
            (study.name, study.digest[:12], study.lead or "-", f"waits since {one.came[:10]}", "", "", "")
        )
    for given, state in approved:
        cost = "-" if given.epsilon is None else f"{given.epsilon:g}"
        used = f"{len(given.used)} of {given.runs}"
        rows.append(
            (given.study, given.digest[:12], given.lead or "-", state, given.expires[:10], used, cost)
        )
    if rows and not as_json:
        print_table(("study", "digest", "lead", "state", "until", "runs", "epsilon"), rows, n_text=5)
    if waiting and not as_json:
        remark("`feddbn console` explains waiting studies; `feddbn site approve` takes the lead's file.")
    for digest in [] if only == "waiting" else owner.approvals.damaged():
        remark(
            f"note: the approval {digest[:12]} is damaged or was not signed by this site's key; it approves nothing."
        )


@site_app.command()
def approve(
    study: Annotated[Path, typer.Argument(help="The study file (TOML) of the lead, or a question file.")],
    kit: Kit,
    days: Annotated[float, typer.Option(help="Number of days the approval is valid.")] = 30.0,
    runs: Annotated[int, typer.Option(help="Number of runs allowed; a resumed run counts once.")] = 1,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Privacy budget for all runs together; by default what the study states for each."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Show a study in plain words and approve it with the site's key; nothing leaves the site."""
    from feddbn.cli.study import open_study
    from feddbn.console.site_facts import study_facts

    facts = facts_of(kit)
    plan = facts.possible(open_study(study))
    policy = facts.policy
    found = study_facts(plan, facts.settings, policy)
    found.require_told()
    if not as_json:
        for section, told in found.sections.items():
            rows = [(said.question, said.detail) for said in (card(one, "owner") for one in told)]
            print_table((section, ""), rows, n_text=2)
    for one in found.refused:
        reason = card(one, "owner").detail
        remark(f"note: this site would refuse the study even with an approval: {reason}")
    if policy.approve_by_rule:
        remark("note: this site's policy has approve_by_rule = true: it answers any study within its rules.")
    if not yes:
        how_often = "1 run" if runs == 1 else f"{runs} runs"
        typer.confirm(f"Approve this study for {how_often} within {days:g} days?", abort=True, err=True)
    given = facts.sign(found, days, runs, epsilon)
    if as_json:
        say(json.dumps(asdict(given)))
    else:
        say(f"approved until {given.expires}; `feddbn site refuse {given.study}` withdraws it.")


@site_app.command()
def answer(
    question: QuestionFile,
    kit: Kit,
    out: AnswerFile = None,
    as_json: Json = False,
) -> None:
    """Answer a question file of a study; nothing but the answer file leaves the site.

    The same question again gives the same answer. If this site refuses, the answer says why. The question can be answered
    again when the reason is gone.
    """
    from feddbn.runtime.files.about import about_file, refusals
    from feddbn.runtime.files.signed import put_file, read_plain, read_signed
    from feddbn.runtime.files.site import FileSite, answer_name

    end = FileSite(kit)
    asked = end.read(read_plain(question), str(question))
    answered = end.answer(asked)
    place = out if out is not None and not out.is_dir() else (out or question.parent) / answer_name(asked)
    if place.exists() and place.samefile(question):
        raise ParameterError(
            f"--out {place} is the question itself; choose another name.", code="out-is-question"
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    put_file(place, answered.content)
    found = about_file(read_signed(answered.content, str(place)), is_checked=True)
    refused = list(refusals(found[-1:]))
    if as_json:
        held = [one.to_dict() for one in found]
        say(
            json.dumps({"answer": str(place), "again": answered.was_given, "refused": refused, "holds": held})
        )
    elif refused:
        say(f"{place}: {card(found[-1], 'owner').detail}")
        remark(
            "The answer tells the lead why and holds no data. Answer the question again when the reason is gone."
        )
    else:
        again = ", the same as before" if answered.was_given else ""
        say(f"{place}: {card(found[-1], 'owner').detail}{again}.")
        remark("Send it to the lead.")
    if refused:
        raise typer.Exit(1)


@site_app.command()
def refuse(
    study: StudyName,
    kit: Kit,
    reason: Annotated[
        str,
        typer.Option(help="Why, in one sentence. The lead reads it: write nothing about single patients."),
    ] = "",
    as_json: Json = False,
) -> None:
    """Refuse a study, or withdraw an approval; a run under way is refused from its next message on."""
    from feddbn.runtime.site.owner import named_digest

    owner = facts_of(kit).owner
    approved = {one.digest: one.study for one, state in owner.approvals.all() if state != "revoked"}
    waiting = {one.study.digest: one.study for one in owner.waiting()}
    names = {**{digest: one.name for digest, one in waiting.items()}, **approved}
    digest = named_digest(study, names, "study that waits or is approved", "which-study")
    if digest in approved:
        owner.revoke(digest, reason)
        said = f"the approval of {approved[digest]} ({digest[:12]}) was withdrawn."
    else:
        owner.refuse(waiting[digest], reason)
        said = f"the study {names[digest]} ({digest[:12]}) was refused; it no longer waits."
    done = "taken back" if digest in approved else "refused"
    tell(as_json, {"study": names[digest], "digest": digest, "done": done, "reason": reason}, said)


@site_app.command()
def admit(
    name: Annotated[str, typer.Argument(help="The new site.")],
    key: Annotated[str, typer.Argument(help="Its public key: 64 digits.")],
    kit: Annotated[
        Path, typer.Option("--kit", envvar="FEDDBN_KIT", help="The kit of a site or of the lead.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Write the key of a new site into a kit. Studies with it still need the owner's approval."""
    from feddbn.runtime.site.owner import admit as write_key

    if not yes:
        digits = " ".join(key[k : k + 8] for k in range(0, len(key), 8))
        say(f"{name}: {digits}")
        question = "Has the site told you these digits, by another way than they came here?"
        typer.confirm(question, abort=True, err=True)
    is_new = write_key(kit, name, key)
    said = f"{kit} now has {name}." if is_new else f"{kit} had {name} already; nothing was changed."
    tell(as_json, {"site": name, "is_new": is_new}, said)


@site_app.command()
def log(
    file: Annotated[
        Path | None, typer.Argument(help="One audit log instead of all logs of the kit.", show_default=False)
    ] = None,
    kit: KitOrNone = None,
    run: Annotated[str, typer.Option(help="Only this run.")] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Write all logs to this folder as JSON lines, and show nothing.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show who asked a site for what, in which study, and what left the site."""
    from feddbn.console.site_facts import verdict_here
    from feddbn.privacy.audit import totals, verify_chain
    from feddbn.runtime.site.audit import export_logs, logs_of

    place = _logs(file, kit)
    if out is not None:
        paths = export_logs(place, out)
        said = f"{counted(len(paths), 'log')} written to {out}."
        tell(as_json, {"files": [str(path) for path in paths]}, said)
        return
    logs = logs_of(place, run)
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
        verdict = None if kit is None or file is not None else verdict_here(facts_of(kit).settings, one.run)
        if verdict is not None:
            say(full_sentence(sentence_of(verdict, "owner")))
    count = totals(entries)
    sent, refused, n_bytes = (int(count[name]) for name in ("sent", "refused", "bytes"))
    answers = "1 answer" if sent == 1 else f"{sent} answers"
    say(f"{answers} left this site ({n_bytes} bytes of numbers); {refused} refused.")
    problem = verify_chain(read_log(place)).problem if place.name.endswith(".jsonl") else None
    if problem is not None:
        say(f"Do not trust this log: {problem}.")
    remark(f"`feddbn site verify {place}` checks whether the logs are intact.")


def _logs(file: Path | None, kit: Path | None) -> Path:
    """Return where the logs are: what was named, or those of the kit."""
    if file is not None:
        return file
    if kit is None:
        raise ParameterError("name an audit log, or a site's kit with --kit.")
    return facts_of(kit).settings.state


def read_log(path: Path) -> list[str]:
    """Return the lines of an audit log."""
    from feddbn.runtime.site.audit import logs_at

    logs = logs_at(path)
    if path.name not in logs:
        reason = "is a directory" if path.is_dir() else "no such file or directory"
        raise FileError(f"the audit log {str(path)!r} cannot be read: {reason}.")
    return logs[path.name]


_SEALS = {
    "signed": "signed by {site}",
    "unchecked": "signed, but not checked: give --peers or --kit",
    "unkeyed": "not signed: anybody who can write the file could have changed it",
}


@site_app.command()
def verify(
    logs: Annotated[
        Path | None,
        typer.Argument(
            help="A site's state folder, a folder of exported logs, or one log; by default the logs of the kit.",
            show_default=False,
        ),
    ] = None,
    kit: KitOrNone = None,
    last: Annotated[
        list[str] | None,
        typer.Option(
            help="A hash of a last line that the lead has of this site (`logs` in outcome.json); repeat for more.",
            show_default=False,
        ),
    ] = None,
    peers: Annotated[
        Path | None,
        typer.Option(
            help="peers.toml with the sites' public keys; by default that of the kit.", show_default=False
        ),
    ] = None,
    site: Annotated[
        str,
        typer.Option(
            help="The site that should have written the logs; by default the site they name.",
            show_default=False,
        ),
    ] = "",
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Accept the kit's logs as complete, when their last hash was lost. Use it only if no log was deleted or "
            "shortened: the privacy budget is computed from them.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check that no entry of a site's logs was changed, removed or reordered; exit code 1 if one was.

    With a kit, or --peers, the site's signature is checked. Each answer of a site brings the lead the hash of the log's last
    line. With --last the logs must still have it: none was shortened or rewritten since.
    """
    from feddbn.privacy.audit import verify_chain
    from feddbn.runtime.site.audit import LogReport, check_logs, logs_at, lost_lines

    own = None if kit is None or logs is not None else facts_of(kit).owner
    if own is None and adopt:
        raise ParameterError("--adopt needs --kit, the site's own kit, and no other logs.")
    place = _logs(logs, kit)
    if own is not None:
        if adopt:
            _adopt(own)
        peers = peers or own.settings.peers
        # Without keys nothing is signed, so it does not matter whose logs they are.
        site = site or ("" if peers is None else own.settings.name)
    site, key = _writer(place, peers, site)
    # A site that has not run yet has no logs; what was named must be there.
    are_all = own is not None or place.is_dir()
    if are_all:
        reports = check_logs(logs_at(place), key, last or ())
    else:
        lines = read_log(place)
        chain = verify_chain(lines, key)
        reports = [LogReport(place.name, chain, chain.problem), *lost_lines({place.name: lines}, last or ())]
    if as_json:
        values = [{"log": one.log, **asdict(one.chain), "problem": one.problem} for one in reports]
        say(json.dumps([{**one, "is_intact": one["problem"] is None} for one in values], indent=2))
    for one in () if as_json else reports:
        n = _entries(one.chain.n_entries)
        if one.problem is None:
            seal = _SEALS[one.chain.seal].format(site=site)
            say(f"{one.log}: Intact: {n}; {seal}; last hash {one.chain.last_hash}.")
        else:
            good = f" Good before it: {n}." if one.chain.problem else ""
            say(f"{one.log}: NOT intact: {one.problem}.{good}")
    if not reports and not as_json:
        say("There are no logs.")
    if any(one.problem is not None for one in reports):
        raise typer.Exit(1)


def _adopt(owner: Owner) -> None:
    from feddbn.runtime.settings import read_policy
    from feddbn.runtime.site.audit import budget_finding

    n_logs = owner.audit.adopt()
    remark(f"{n_logs} audit log{'' if n_logs == 1 else 's'} accepted as complete.")
    budget = budget_finding(owner.audit.account(), read_policy(owner.settings.policy))
    remark(f"Privacy budget: {card(budget, 'owner').detail}.")


def _writer(log: Path, peers: Path | None, site: str) -> tuple[str, bytes | None]:
    """Return which site wrote a log, and its public key if it is known."""
    from feddbn.privacy.audit import parse_entries
    from feddbn.runtime.site.audit import logs_at

    if peers is None and site:
        raise ParameterError(f"--site {site} needs --peers, the list of public keys.")
    if peers is None:
        return "", None
    from feddbn.runtime.site.kit_files import read_peers

    for lines in () if site else logs_at(log).values():
        # A log that cannot be read is reported with the others.
        with contextlib.suppress(FileError):
            site = site or next((entry.site for entry in parse_entries(lines[:1])), "")
    if not site:
        raise ParameterError(f"{log} does not say whose logs these are; name the site with --site.")
    key = read_peers(peers).get(site)
    if key is None:
        raise ParameterError(f"--peers {peers} has no key of {site!r}, whose logs these are.")
    return site, key


def _entries(n: int) -> str:
    return "1 entry" if n == 1 else f"{n} entries"
