"""``feddbn study plan | submit | status | stop | resume | results``: what the person who leads a study runs.

A session is opened while the study is tried out: one mostly waits for the server, the other for imports. Of a collection the
lead sees who is awaited, and the study is sent again when one of them is there.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn import words as in_words
from feddbn.cli.options import Json
from feddbn.cli.printed import print_held_out
from feddbn.cli.terminal import bar, print_json, print_table, remark, say, tell
from feddbn.errors import FederationError, ParameterError, StateError, reading
from feddbn.federation.protocol.study import (
    Study,
    check_name,
    check_sites,
    parse_study,
    study_from_json,
)
from feddbn.runtime.engines.interface import alarms_in, run_state, sites_that_refuse
from feddbn.settings import flat_names

if TYPE_CHECKING:
    from feddbn.runtime.engines.interface import Session

__all__ = [
    "MOST_CUT_OFF",
    "Awaited",
    "EarlySession",
    "check_study",
    "open_study",
    "plan",
    "read_study",
    "study_app",
    "submit",
    "wait_for_one",
]

MOST_CUT_OFF = 5
"""Jobs of a collection in a row that the engine may cut off before it is left alone."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0

MOST_STOPPED = 5
"""Of so many runs that have stopped `status` says why; each is asked of the server."""

MAGIC = b"FEDDBN"
"""How files of numbers begin; a study is text."""


@dataclass(frozen=True)
class Awaited:
    """The sites that have not come, until when they may, and a sentence about it."""

    sites: frozenset[str]
    until: float
    sentence: str
    was_cut_off: bool = False


_CUT_OFF = Awaited(
    frozenset(),
    float("inf"),
    "the server broke off a job of this run; the run continues.",
    was_cut_off=True,
)


def still_awaited(session: Session, run_id: str, job: str, out: Path) -> Awaited | None:
    """Return who is awaited when a job has ended; None if the run has ended with it, or was stopped."""
    from feddbn.runtime.server.results import read_outcome

    if session.job_of(run_id).was_stopped:
        return None
    try:
        outcome = read_outcome(session.fetch(job, out))
    except StateError:
        # A site's process was killed, and the engine ended the job before it could say anything.
        return _CUT_OFF
    if outcome.get("state") == "failed":
        return _CUT_OFF
    if outcome.get("state") != "collecting":
        return None
    return Awaited(frozenset(outcome["awaited"]), float(outcome["until"]), str(outcome["sentence"]))


def wait_for_one(
    session: Session,
    awaited: Awaited,
    run_id: str,
    clock: Callable[[], float] = time.time,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Return when an awaited site is connected, or the window has closed: the server then says so.

    A site that is there and refuses is asked ever more rarely. A server that cannot be reached is tried again.
    """
    pause = FIRST_PAUSE_S
    while True:
        wait(max(min(pause, awaited.until - clock()), 0.0))
        here: set[str] = set()
        with contextlib.suppress(FederationError), session:
            here = set(session.sites())
        if clock() >= awaited.until:
            if not here:
                raise FederationError(
                    f"run {run_id!r}: {awaited.sentence} That time has passed, and no site is connected; `feddbn study "
                    f"resume {run_id}` continues when one is connected."
                )
            return
        if here & (awaited.sites or here):
            return
        pause = min(1.5 * pause, LONGEST_PAUSE_S)


# A server that is there has answered by then; of one that is not there is nothing to close.
_LINGER_S = 2.0


class EarlySession:
    """A context manager that is entered once; what goes wrong while the session is opened is told then.

    Parameters
    ----------
    session
        Not yet connected. It is being opened when this returns.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._opened: Future[Session] = Future()
        Thread(target=self._open, daemon=True).start()

    def __enter__(self) -> Session:
        try:
            return self._opened.result()
        except KeyboardInterrupt:
            self.give_up()
            raise

    def __exit__(self, *error: object) -> None:
        self._session.__exit__(*error)

    def give_up(self) -> None:
        """Close the session without having used it.

        Where the server is not there, an engine's own threads may keep the process until their time to connect is over.
        """
        wait((self._opened,), timeout=_LINGER_S)
        self._opened.add_done_callback(self._close)

    def _open(self) -> None:
        try:
            self._opened.set_result(self._session.__enter__())
        except BaseException as error:
            self._opened.set_exception(error)

    def _close(self, opened: Future[Session]) -> None:
        if opened.exception() is None:
            self._session.__exit__(None, None, None)


study_app = typer.Typer(
    help="Send a study to the federation, watch it and fetch its result.", no_args_is_help=True
)
Kit = Annotated[
    Path,
    typer.Option("--kit", envvar="FEDDBN_KIT", help="The lead's kit (the folder with keys and settings)."),
]
Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until the run ends, and fetch the result.")
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder for the result; by default the run's name.")
]


def read_study(path: Path) -> Study:
    """Return the study in a file, its method's parameters checked."""
    study = open_study(path)
    check_study(study)
    return study


def open_study(path: Path) -> Study:
    """Return the study in a file; refused is what can be seen without the methods, whose imports take seconds."""
    with reading(f"the study file {path}"):
        content = path.read_bytes()
        if content.startswith(MAGIC):
            # A question has its study with it.
            from feddbn.runtime.engines.files.signed import read_signed

            study = study_from_json(read_signed(content, str(path), "question").study)
        else:
            study = parse_study(content.decode(), str(path))
    check_name(study.method)
    check_sites(study)
    return study


def check_study(study: Study) -> None:
    """Refuse a study that no site could take part in: an unknown method, impossible parameters, noise or sites."""
    from feddbn.core.designs.features import feature_map_names
    from feddbn.runtime.server import conduct

    conduct.check_study(study)
    features = study.parameters.get("features", "linear")
    if isinstance(features, str) and features not in ("auto", *feature_map_names()):
        remark(
            f"note: features = {features!r} is not known on this machine, so the study was not tested here; the server "
            "and every site must have registered it."
        )
    else:
        conduct.rehearse(study)


@study_app.command()
def submit(
    study: Annotated[Path, typer.Argument(help="The study file (TOML).")],
    kit: Kit,
    run: Annotated[str, typer.Option(help="Name of the run; by default the study's name and the time.")] = "",
    wait: Wait = False,
    out: Out = None,
    despite: Annotated[
        str,
        typer.Option(
            metavar="REASON",
            help="Reason for sending a study although its plan has red lines. Owners read it in their logs.",
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Send a study to the federation; if its plan has red lines, `--despite` is needed."""
    plan = open_study(study)
    if despite:
        plan = study_from_json(plan.model_copy(update={"despite": despite}).to_json())
    run_id = run or f"{plan.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    session = _session(kit)
    session.claim(plan, run_id)
    early = EarlySession(session)
    try:
        check_study(plan)
        _tell_tasks(plan)
    except BaseException:
        early.give_up()
        raise
    _send(session, plan, run_id, wait, out, as_json, early)


def _tell_tasks(study: Study) -> None:
    """Say which tasks of the study the sites' owners have to allow by name, and what its noise costs."""
    from feddbn.federation.guards.sampling_noise import few_rows
    from feddbn.federation.guards.study_plan import costs_in_words, plan_of
    from feddbn.federation.protocol.task import most_numbers, tasks_in, usual_numbers
    from feddbn.privacy.policy import SitePolicy
    from feddbn.words import say as words

    plan = plan_of(study)
    unusual = [task for task in tasks_in(plan) if not SitePolicy().allows(task)]
    if unusual:
        remark(
            f"note: this study asks for {', '.join(unusual)}. A site answers this only if `tasks` in its policy lists it. "
            "Ask the owners first; they can check it with `feddbn site check --study`."
        )
    if plan:
        usual, most = usual_numbers(plan), most_numbers(plan)
        remark(f"note: each site sends {usual:,} numbers if its data are clean, at most {most:,}.")
    if study.privacy.epsilon is not None:
        remark(f"note: {costs_in_words(study)}.")
    few = few_rows(study, study.rows)
    if few is not None:
        remark(f"note: {words(few, 'lead')}")
    if study.goal == "select":
        remark(
            "note: every candidate is fitted once for each block; `max_rounds` in a site's policy limits the rounds of all "
            "these fits together."
        )


@study_app.command()
def plan(
    study: Annotated[Path, typer.Argument(help="The study file (TOML).")],
    kit: Annotated[
        Path | None,
        typer.Option("--kit", envvar="FEDDBN_KIT", help="The lead's kit; without it no site is asked."),
    ] = None,
    ask: Annotated[
        bool,
        typer.Option("--ask/--no-ask", help="Ask the sites to check their data, if they have not done so."),
    ] = True,
    again: Annotated[
        bool,
        typer.Option("--again", help="Ask the sites again, for example after they have changed their data."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show in red, yellow and green what may go wrong with a study before it is sent.

    All sites of the study are asked to check their data, with the same masks; no network is learned. Owners approve this
    check like any study. Afterwards, sites may refuse a study of a slightly different set of sites, because differences
    of sums could reveal single sites. The exit code is 1 if a line is red.
    """
    from feddbn.runtime.engines.planning import ask_sites, known_rows
    from feddbn.runtime.server.plan import red_rows

    what, why = read_study(study), ""
    if kit is None:
        rows = known_rows(None, what, "--kit was not given.")
    else:
        try:
            session = _session(kit)
            with session:
                if ask:
                    with bar(f"plan of {what.name}") as update:
                        watch = lambda values: update(**_how_it_stands(values))  # noqa: E731
                        why = ask_sites(session, what, watch, again, remark)
                rows = known_rows(session, what, why)
        except FederationError as error:
            if error.code not in ("no-server", "engine-cannot"):
                raise
            rows = known_rows(None, what, str(error))
    if as_json:
        print_json({"study": what.name, "digest": what.digest, "rows": [vars(row) for row in rows]})
    else:
        lines = [(row.colour, row.about, row.sentence) for row in rows]
        print_table(("", "about", "what is known"), lines, f"plan of the study {what.name}", n_text=3)
    if red_rows(rows):
        raise typer.Exit(1)


@study_app.command()
def resume(
    run: Annotated[str, typer.Argument(help="The run that stopped.")],
    kit: Kit,
    wait: Wait = True,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Continue a run where it stopped; the result is the same as without the stop."""
    session = _session(kit)
    _send(session, session.study_of(run), run, wait, out, as_json)


@study_app.command()
def step(
    folder: Annotated[
        Path,
        typer.Argument(
            help="The run's folder; its name is the name of the run. A new folder must hold study.toml."
        ),
    ],
    kit: Kit,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait for answers in the folder until the run has ended."),
    ] = False,
    accept_refusals: Annotated[
        bool,
        typer.Option(
            "--accept-refusals",
            help="If a site refuses a question, continue without the question, or stop if that is impossible.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for the result; by default `result` in the run's folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Take one step of a study by files: read the answers in the folder, write the next questions.

    You may repeat it at any time. After a crash it continues where it was. Sites answer with `feddbn site answer`.
    """
    from feddbn.federation.protocol.messages import is_run_id
    from feddbn.runtime.engines.files.engine import FilesSession

    session, run_id = FilesSession(kit), folder.resolve().name
    if not is_run_id(run_id):
        raise ParameterError(
            f"the name of the folder is the name of the run, and {run_id!r} is not allowed: use 1 to 64 of a-z, 0-9, '.', "
            "'_' and '-', beginning with a-z or 0-9.",
            code="bad-run-id",
        )
    known = session.folder_of(run_id)
    is_new = known is None
    if known is not None and not folder.exists():
        # The name of a run is enough where its folder is known.
        folder = known
    path = folder / "study.toml"
    if is_new and not path.is_file():
        raise StateError(
            f"{folder} holds no study.toml, and this kit has begun no run {run_id!r}; put the study there.",
            code="no-study",
        )
    plan = open_study(path) if path.is_file() else session.study_of(run_id)
    session.check(plan, run_id)
    check_study(plan)
    if is_new:
        _check_plan(session, plan)
        _tell_tasks(plan)
        if not plan.attendance.collects:
            remark("note: in a study by files every question waits for all sites; [attendance] is not used.")
    session.remember(plan, run_id, folder)
    try:
        with bar(run_id) as update:
            watch = (lambda values: update(**_how_it_stands(values))) if wait else None
            stepped = session.step(plan, run_id, watch, accept_refusals)
    except KeyboardInterrupt:
        remark(session.told_when_left(run_id))
        raise
    for note in stepped.notes:
        remark(f"note: {note}")
    if stepped.state == "finished":
        _fetch(session, run_id, run_id, out or folder / "result", as_json)
        if not as_json:
            for line in session.told(run_id, stepped):
                remark(line)
    elif as_json:
        keys = ("run", "state", "sentence", "awaited", "until")
        said = {key: stepped.outcome.get(key) for key in keys}
        say(json.dumps({**said, "questions": {site: str(at) for site, at in stepped.questions.items()}}))
    else:
        for line in session.told(run_id, stepped):
            say(line)


@study_app.command()
def stop(run: Annotated[str, typer.Argument(help="The run.")], kit: Kit, as_json: Json = False) -> None:
    """Stop a run; `feddbn study resume` continues it."""
    with _session(kit) as session:
        job = session.job_of(run)
        if job.has_ended:
            raise StateError(f"run {run!r} has ended already, so there is nothing to stop: {job.words}.")
        session.abort(job.job)
    tell(as_json, {"run": run, "stopped": True}, f"run {run} was stopped.")


@study_app.command()
def status(
    kit: Kit, run: Annotated[str, typer.Argument(help="Only this run.")] = "", as_json: Json = False
) -> None:
    """Show the connected sites, and all runs with their progress."""
    with _session(kit) as session:
        known = session.known_sites()
        jobs = [job for job in session.jobs() if run in ("", job.run)]
        found = {job.job: session.progress(job.job) or {} for job in jobs if job.is_running}
        stopped = [job.job for job in jobs if job.code == "job-stopped"][:MOST_STOPPED]
        ended = {job: session.outcome(job) for job in stopped}
        sent = session.studies_sent()
        updates = [
            job for job in jobs if job.code == "job-finished" and job.run in sent and sent[job.run].update_of
        ]
        alarms = [one for job in updates[:1] for one in alarms_in(session.outcome(job.job))]
    sites = [one.site for one in known if one.is_here]
    if as_json:
        rows = [
            {
                **vars(job),
                "words": job.words,
                "progress": found.get(job.job),
                "outcome": ended.get(job.job) or None,
            }
            for job in jobs
        ]
        silent = {one.site: one.since for one in known if not one.is_here}
        told = {"sites": sites, "silent": silent, "runs": rows, "alarms": [one.to_dict() for one in alarms]}
        say(json.dumps(told, default=str))
        return
    lines = []
    for job in jobs:
        progress = found.get(job.job) or ended.get(job.job) or {}
        present = ", ".join(progress.get("present", []))
        words = in_words.say(run_state(progress), "lead") if progress else job.words
        lines.append((job.run, words, str(progress.get("sums", "")), present))
    title = f"connected: {', '.join(sites) or 'no site'}" if session.connects else None
    print_table(("run", "status", "sums", "sites present"), lines, title, n_text=4)
    for values in found.values():
        for refusal in sites_that_refuse(values):
            say(in_words.say(refusal, "lead"))
    for alarm in alarms:
        say(f"{updates[0].run}: {in_words.say(alarm, 'lead')}")
    for one in known if session.connects else ():
        if not one.is_here:
            say(f"{in_words.say(one.finding(), 'lead')}.")


@study_app.command()
def results(
    run: Annotated[str, typer.Argument(help="The run.")], kit: Kit, out: Out = None, as_json: Json = False
) -> None:
    """Fetch the result of a run that has ended."""
    with _session(kit) as session:
        job = session.job_of(run)
        if not job.has_ended:
            raise StateError(f"run {run!r} has not ended: {job.words}.")
        _fetch(session, job.job, run, out, as_json)


def _session(kit: Path) -> Session:
    from feddbn.runtime.engines.interface import engine_of

    return engine_of(kit).session(kit)


def _send(
    session: Session,
    study: Study,
    run_id: str,
    wait: bool,
    out: Path | None,
    as_json: bool,
    early: EarlySession | None = None,
) -> None:
    """Send a study and, with `wait`, fetch its result; `early` is the session where that is being opened already."""
    n_cut_off = 0
    while True:
        with early or session:
            early = None
            if run_id not in session.studies_sent():
                _check_plan(session, study)
            job = session.begin(study, run_id, lambda sentence: remark(f"note: {sentence}"))
            if not wait:
                for line in (
                    [json.dumps({"run": run_id, "job": job})] if as_json else session.told_when_sent(run_id)
                ):
                    say(line)
                return
            try:
                total = flat_names(study.parameters).get("max_rounds")
                with bar(run_id, total if isinstance(total, int) else None) as update:
                    session.wait(job, lambda values: update(**_how_it_stands(values)))
            except KeyboardInterrupt:
                remark(session.told_when_left(run_id))
                raise
            if not study.attendance.collects:
                _fetch(session, job, run_id, out, as_json)
                return
            awaited = still_awaited(session, run_id, job, out or Path(run_id))
            n_cut_off = n_cut_off + 1 if awaited is not None and awaited.was_cut_off else 0
            if awaited is None or n_cut_off > MOST_CUT_OFF:
                _fetch(session, job, run_id, out, as_json)
                return
        remark(awaited.sentence)
        wait_for_one(session, awaited, run_id)


def _check_plan(session: Session, study: Study) -> None:
    """Refuse a study with red lines in what is known of it; say how many others are not green."""
    from feddbn.runtime.engines.planning import check_red, known_rows

    rows = known_rows(session, study)
    check_red(study, rows)
    if study.despite:
        remark(f"note: sent despite red lines in its plan: {study.despite}")
    if any(row.code == "plan-not-asked" for row in rows):
        remark("note: the sites were not asked beforehand; `feddbn study plan` shows what may go wrong.")


def _fetch(session: Session, job: str, run_id: str, out: Path | None, as_json: bool) -> None:
    from feddbn.runtime.server.results import export_result, read_outcome

    directory = session.fetch(job, out or Path(run_id))
    outcome = read_outcome(directory)
    if outcome["state"] == "collecting":
        raise FederationError(
            f"run {run_id!r} is {outcome.get('sentence')} Continue with `feddbn study resume {run_id}` when one of them "
            "is connected."
        )
    if outcome["state"] != "finished":
        why = outcome.get("sentence") or "the server's log says why."
        raise FederationError(f"run {run_id!r} stopped: {why} Continue with `feddbn study resume {run_id}`.")
    export_result(directory)
    if as_json:
        say(json.dumps({"run": run_id, "out": str(directory), "summary": outcome.get("summary", {})}))
    else:
        say(f"run {run_id} has finished; its result is in {directory}.")
        for one in outcome.get("absent") or ():
            say(str(one["words"]))
        for alarm in alarms_in(outcome):
            say(in_words.full_sentence(in_words.say(alarm, "lead")))
        summary = outcome.get("summary", {})
        print_held_out(summary)
        if "findings" in summary:
            from feddbn.cli.data import findings_of, print_findings

            found = findings_of(summary["findings"], f"the result of run {run_id!r}")
            print_findings(found, "lead")


def _how_it_stands(values: dict[str, Any]) -> dict[str, Any]:
    """Round, h, residuals and the sites present, as the study's program tells them."""
    note = " ".join(f"{key}={value:.3g}" for key, value in (values.get("note") or {}).items())
    words = in_words.say(run_state(values), "lead")
    return {"completed": values.get("sums", 0), "note": f"{words} {note}".rstrip()}
