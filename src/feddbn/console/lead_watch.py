"""One session with the server, held by one thread that looks at the federation again and again.

An engine's session is not made for several threads, so whatever else a page wants of it is done by this thread, too. While
nobody has a page open it asks rarely: the server writes every question down.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from feddbn.console.lead_results import LeadResults
from feddbn.errors import FeddbnError, FederationError
from feddbn.runtime.engines.interface import Job, Session

T = TypeVar("T")
LOOKED_AT_S = 30.0
RARELY_S = 15.0
LONGEST_PAUSE_S = 30.0
MOST_POINTS = 2000
MOST_RUNS = 50
"""So many runs are listed, and fetched when they have ended."""


@dataclass(frozen=True)
class Point:
    """How a run stood: so many sums, when, and what its program said about itself."""

    sums: int
    time: float
    note: Mapping[str, float]


@dataclass(frozen=True)
class Sight:
    """What was seen last; times are in seconds since 1970.

    Attributes
    ----------
    opened, taken
        When watching began, and when this was seen; None before the first look.
    trouble, trouble_since
        Why the server cannot be asked, in words, and since when; empty if it can.
    connected, seen
        The sites that are connected, and when each site was last heard of, also before this console was opened.
    sites
        The names of all sites that the server, the kit or an earlier look knows.
    jobs
        All jobs, the newest first.
    progress, points
        Of each run: what it says about itself, and its course as far as it was watched.
    """

    opened: float
    taken: float | None = None
    trouble: str = ""
    trouble_since: float = 0.0
    connected: tuple[str, ...] = ()
    seen: Mapping[str, float] = field(default_factory=dict)
    sites: tuple[str, ...] = ()
    jobs: tuple[Job, ...] = ()
    progress: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    points: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)

    def job_of(self, run: str) -> Job | None:
        """The newest job of a run."""
        return next((job for job in self.jobs if job.run == run), None)

    def newest(self, most: int = MOST_RUNS) -> list[Job]:
        """The newest job of each run, the newest first."""
        first = {job.run: job for job in reversed(self.jobs)}
        return sorted(first.values(), key=lambda job: job.submitted, reverse=True)[:most]


def is_own(session: Session, run: str) -> bool:
    """Whether a run was sent with this kit."""
    try:
        session.study_of(run)
    except (FeddbnError, OSError):
        return False
    return True


class LeadWatch:
    """Looks at a federation through a lead's session until it is stopped: every `poll_s` while a page is open.

    What has ended is fetched to `results`, one run at a look, if it was sent with this kit.
    """

    def __init__(
        self,
        session: Session,
        results: LeadResults,
        poll_s: float = 2.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._results = results
        self._poll_s = poll_s
        self._clock = clock
        self._work: SimpleQueue[tuple[Callable[[Session], Any], Future[Any]]] = SimpleQueue()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._looked = clock()
        self._sight = Sight(opened=clock())
        self._thread = threading.Thread(target=self._run, name="console-watch", daemon=True)

    def start(self) -> LeadWatch:
        """Begin; return itself."""
        self._thread.start()
        return self

    def stop(self, timeout_s: float = 10.0) -> None:
        """End, and log out of the server if it answers in time."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def look(self) -> Sight:
        """Return what was seen last; somebody looks, so it is seen again soon."""
        now = self._clock()
        if now - self._looked > self._poll_s:
            self._wake.set()
        self._looked = now
        return self._sight

    def do(self, work: Callable[[Session], T], timeout_s: float = 120.0) -> T:
        """Return what `work` makes of the session, done between two looks."""
        future: Future[T] = Future()
        self._work.put((work, future))
        self._wake.set()
        try:
            return future.result(timeout_s)
        except TimeoutError:
            raise FederationError(
                f"the server has not answered within {timeout_s:.0f} s; try again.", code="no-answer"
            ) from None

    def _run(self) -> None:
        pause = self._poll_s
        while not self._stopped.is_set():
            try:
                with self._session as session:
                    while not self._stopped.is_set():
                        self._sight = self._taken(session)
                        pause = self._poll_s
                        self._do_all(session)
                        self._fetch_one(session)
                        self._rest(self._poll_s if self._is_looked_at() else RARELY_S)
            except Exception as error:
                since = self._sight.trouble_since if self._sight.trouble else self._clock()
                words = (
                    str(error)
                    if isinstance(error, FederationError)
                    else f"unexpected {type(error).__name__}: {error}"
                )
                self._sight = replace(self._sight, trouble=words, trouble_since=since, connected=())
                self._do_all(None)
                self._rest(pause)
                pause = min(1.5 * pause, LONGEST_PAUSE_S)

    def _is_looked_at(self) -> bool:
        return self._clock() - self._looked < LOOKED_AT_S

    def _rest(self, seconds: float) -> None:
        if self._work.empty():
            self._wake.wait(seconds)
        self._wake.clear()

    def _do_all(self, session: Session | None) -> None:
        with contextlib.suppress(Empty):
            while True:
                work, future = self._work.get_nowait()
                try:
                    if session is None:
                        raise FederationError(
                            f"the server does not answer: {self._sight.trouble}", code="no-server"
                        )
                    found = work(session)
                    # The next page shows what the button did.
                    self._sight = self._taken(session)
                    future.set_result(found)
                except Exception as error:
                    future.set_exception(error)

    def _taken(self, session: Session) -> Sight:
        before = self._sight
        known, jobs = session.known_sites(), tuple(session.jobs())
        now = self._clock()
        connected = tuple(one.site for one in known if one.is_here)
        heard = {one.site: one.heard for one in known if one.heard is not None}
        progress = dict(before.progress)
        points = dict(before.points)
        for job in jobs:
            if not job.is_running:
                continue
            found = session.progress(job.job)
            if found:
                progress[job.run] = found
                points[job.run] = _longer(points.get(job.run, ()), found, now)
        seen = {**before.seen, **heard, **dict.fromkeys(connected, now)}
        sites = tuple(one.site for one in known)
        return Sight(before.opened, now, "", 0.0, connected, seen, sites, jobs, progress, points)

    def _fetch_one(self, session: Session) -> None:
        for job in self._sight.newest():
            if job.has_ended and self._results.note(job) is None and is_own(session, job.run):
                with contextlib.suppress(FeddbnError, OSError):
                    # Why it could not be fetched is noted, and shown with the run.
                    self._results.fetch(session, job)
                return


def _longer(points: tuple[Point, ...], progress: Mapping[str, Any], now: float) -> tuple[Point, ...]:
    """Return the course with how the run stands now, if it has come further; a long course loses every other point."""
    sums = int(progress.get("sums") or 0)
    if points and points[-1].sums == sums:
        return points
    note = {str(key): float(value) for key, value in (progress.get("note") or {}).items()}
    course = (*points, Point(sums, now, note))
    return course if len(course) <= MOST_POINTS else course[::2]
