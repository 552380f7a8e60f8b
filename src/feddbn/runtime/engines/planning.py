"""The plan of a study on any engine: what the lead knows, and a dry round that asks the sites.

A dry round is a run like any other, with a name that follows from what it asks. What came of it is kept in the lead's kit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from feddbn.errors import FileError, StateError
from feddbn.federation.protocol.study import Study
from feddbn.runtime.engines.interface import Job, Session, Tell, Watch
from feddbn.runtime.server.plan import PlanRow, dry_round, plan_rows, red_rows
from feddbn.runtime.server.results import read_outcome

__all__ = ["PLANS", "ask_sites", "check_red", "known_rows", "last_round"]

PLANS = "plans"
"""Where a lead's kit keeps what came of dry rounds, one folder for each."""


def _places(session: Session, dry: Study) -> list[Path]:
    """The folders of this dry round and of those that asked the same again, the newest last."""
    place = session.kit / "runs" / PLANS
    return sorted(place.glob(f"plan-{dry.digest[:12]}-*"), key=lambda one: int(one.name.rpartition("-")[2]))


def ask_sites(
    session: Session,
    study: Study,
    watch: Watch | None = None,
    again: bool = False,
    tell: Tell = lambda sentence: None,
    stay: bool = True,
) -> str:
    """Have the sites answer the dry round of a study, in an open session; return why they were not asked, if so.

    One that has ended with a result is not asked again, unless `again`. One that waits goes on; `tell` hears what a person
    has to carry where nothing connects lead and sites. Without `stay` somebody else fetches what comes of it.
    """
    dry = dry_round(study)
    if dry is None:
        return ""
    places = _places(session, dry)
    is_done = bool(places) and _state(places[-1]) == "finished"
    if is_done and not again:
        return ""
    if any(row.code == "plan-earlier" for row in red_rows(known_rows(session, study))):
        return "because of an earlier run they would refuse."
    number = 1 if not places else int(places[-1].name.rpartition("-")[2]) + is_done
    run_id = f"plan-{dry.digest[:12]}-{number}"
    place = session.kit / "runs" / PLANS / run_id
    try:
        under_way = [one.job for one in session.jobs() if one.run == run_id and not one.has_ended]
        job = under_way[0] if under_way and session.connects else session.begin(dry, run_id)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        if session.connects and not stay:
            return ""
        if session.connects:
            session.wait(job, watch)
        session.fetch(job, place)
        for line in session.told_when_sent(run_id) if not session.connects else ():
            tell(line)
    except StateError as error:
        if error.code not in ("sites-away", "no-outcome"):
            raise
        return str(error)
    return ""


def last_round(session: Session, study: Study) -> str:
    """Return the name of the last run that was the dry round of a study; empty if there was none."""
    dry = dry_round(study)
    places = [] if dry is None else _places(session, dry)
    return places[-1].name if places else ""


def known_rows(
    session: Session | None, study: Study, why_not_asked: str = "", jobs: Sequence[Job] | None = None
) -> list[PlanRow]:
    """Return the plan of a study from what this lead has; nobody is asked. Without `jobs` a session must be open."""
    dry = dry_round(study)
    if session is None:
        return plan_rows(study, why_not_asked=why_not_asked)
    places = [] if dry is None else _places(session, dry)
    finished = {job.run for job in (session.jobs() if jobs is None else jobs) if job.code == "job-finished"}
    return plan_rows(study, places[-1] if places else None, session.studies_sent(), finished, why_not_asked)


def check_red(study: Study, rows: list[PlanRow]) -> None:
    """Refuse to send a study whose plan has red lines, unless the lead says why it is sent all the same.

    Raises
    ------
    StateError
        With the red lines.
    """
    red = red_rows(rows)
    if red and not study.despite:
        said = " ".join(f"[{row.about}] {row.sentence}" for row in red)
        raise StateError(
            f"the plan of the study {study.name!r} has red lines, so it was not sent. {said} To send it all the same, say "
            "why with --despite REASON; the owners will read it.",
            code="plan-red",
            red=[row.code for row in red],
        )


def _state(place: Path) -> str:
    try:
        return str(read_outcome(place).get("state", ""))
    except FileError:
        return ""
