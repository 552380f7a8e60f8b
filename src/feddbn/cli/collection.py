"""A collection as its lead sees it: who is awaited, and when it is worth sending the study again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from feddbn.errors import FederationError, StateError

if TYPE_CHECKING:
    from feddbn.runtime.engines.interface import Session

__all__ = ["MOST_CUT_OFF", "Awaited", "still_awaited", "wait_for_one"]

MOST_CUT_OFF = 5
"""Jobs of a collection in a row that the engine may cut off before it is left alone."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0


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
    "the engine has cut a job of this collection off; it goes on.",
    was_cut_off=True,
)


def still_awaited(session: Session, run_id: str, job: str, out: Path) -> Awaited | None:
    """Return who is awaited when a job has ended; None if the run has ended with it, or was stopped."""
    from feddbn.runtime.deployed.results import read_outcome

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
                    f"run {run_id!r}: {awaited.sentence} That time has passed, and no site is connected; `feddbn resume "
                    f"{run_id}` goes on when one is."
                )
            return
        if here & (awaited.sites or here):
            return
        pause = min(1.5 * pause, LONGEST_PAUSE_S)
