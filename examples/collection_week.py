"""A study of four clinics that are never online together: each comes for an hour a day, answers what waits, and goes.

Real sites with their keys, approvals and files, real messages of secure aggregation, and a clock that jumps from visit
to visit. One clinic is killed before its answer has left, the server dies in the middle of the week. The sum has the
bits of all clinics together.

Run: python examples/collection_week.py [folder]
"""

from __future__ import annotations

import logging
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import feddbn
from feddbn import AS_THEY_ARE
from feddbn.analysis import studies  # noqa: F401 (the methods that a study can name)
from feddbn.federation.protocol.messages import Exchange
from feddbn.federation.protocol.study import Study
from feddbn.runtime.server.asking import ServerEvent
from feddbn.runtime.server.collecting import Collecting, VisitBook
from feddbn.runtime.server.conduct import run_study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.kit_files import write_site_files
from feddbn.runtime.site.open_site import open_site
from feddbn.runtime.site.owner import Owner
from feddbn.runtime.store import RunJournal

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
COMES_AT = {"east": 3, "north": 9, "south": 15, "west": 21}
KILLED = ("south", 2)  # who is killed on which day, before its answer has left
SERVER_DIES_AT = 80.0


HOUR_S = 3600.0


class VisitingSites:
    """An exchange with sites each of which is there at some hours only.

    A site is opened anew for every message and thrown away after it: all that it knows is on its disk.

    Parameters
    ----------
    open_site
        Starts a site.
    hours
        Site -> (from, to) of each of its visits, in hours from the beginning, in order.
    on_visit
        Told (hour, site) when a site answers a message.
    loses
        ``(hour, site)``: whether the site is killed before its reply has left.
    """

    def __init__(
        self,
        open_site: Callable[[str], Any],
        hours: Mapping[str, Sequence[tuple[float, float]]],
        on_visit: Callable[[float, str], None] = lambda hour, site: None,
        loses: Callable[[float, str], bool] = lambda hour, site: False,
    ) -> None:
        self._open = open_site
        self._hours = {site: tuple(visits) for site, visits in hours.items()}
        self._on_visit = on_visit
        self._loses = loses
        self.hour = 0.0

    def clock(self) -> float:
        """Return the time in seconds."""
        return HOUR_S * self.hour

    def wait(self, seconds: float) -> None:
        """Let time pass: at least so long, and then until somebody is there."""
        least = self.hour + seconds / HOUR_S
        starts = [
            max(start, least) for visits in self._hours.values() for start, end in visits if end > least
        ]
        self.hour = min(starts, default=least + 1.0)

    def is_here(self, site: str) -> bool:
        """Whether a site is there now."""
        return any(start <= self.hour < end for start, end in self._hours.get(site, ()))

    def __call__(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the replies of those who are there."""
        replies = {}
        for site, message in messages.items():
            if self.is_here(site):
                reply = self._open(site).handle(message)
                if self._loses(self.hour, site):
                    continue
                self._on_visit(self.hour, site)
                replies[site] = reply
        return replies


class ServerDied(Exception):
    """What a machine without power does to a process."""


def make_clinics(folder: Path) -> tuple[str, ...]:
    """Write the files of each clinic: data, settings, keys; return the variables."""
    made = feddbn.simulate(
        d=4, n_lags=1, n_sites=len(COMES_AT), n_samples=800, mean_degree=2, random_state=11
    )
    for name, recordings in zip(COMES_AT, made.sites.values(), strict=True):
        (folder / name / "data").mkdir(parents=True)
        recordings[0].to_csv(folder / name / "data" / "ward.csv", index=False)
    write_site_files({name: folder / name for name in COMES_AT})
    return tuple(str(name) for name in next(iter(made.sites.values()))[0].columns)


def make_study(variables: tuple[str, ...], when_missing: str) -> Study:
    """One masked sum of moments, and the network that follows from it."""
    attendance = {"when_missing": when_missing} | ({"window_h": 36.0} if when_missing == "collect" else {})
    return Study.model_validate(
        {
            "name": "week",
            "about": {
                "purpose": "to show a study of clinics that are never online together",
                "contact": "lead@example.org",
                "retention": "until this example has ended",
            },
            "method": "oneshot",
            "variables": variables,
            "sites": tuple(COMES_AT),
            "parameters": {
                "n_lags": 1,
                "noise_variance": "free",
                "use_nongaussian": False,
                "check_residuals": False,
                "prepare": dict(AS_THEY_ARE),
            },
            "privacy": {"secure_aggregation": True},
            "attendance": attendance,
        }
    )


def run(folder: Path, study: Study, exchange: Exchange) -> np.ndarray:
    """Run or resume the study as a server does; return the sum that was opened."""
    journal = RunJournal(folder / "server", study.attendance.when_missing)
    try:
        run_study(Coordinator(exchange, study, study.attendance.when_missing, journal), study)
        stored = journal.read()
        assert stored is not None
        return np.asarray(stored.entries[0].answer.value)
    finally:
        journal.close()


def _in_days(sentence: str) -> str:
    """The week begins on a Monday at the beginning of all clocks."""
    return re.sub(r"1970-01-0(\d)T(\d\d:\d\d):\d\dZ", lambda m: f"{DAYS[int(m[1]) - 1]} {m[2]}", sentence)


def main(folder: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the sum of the week, the sum of all clinics together, and what is printed."""
    lines: list[str] = []

    def say(hour: float, what: str) -> None:
        lines.append(f"{DAYS[int(hour // 24) % 7]} {int(hour % 24):02d}:00  {what}")

    variables = make_clinics(folder)
    study, at_once = make_study(variables, "collect"), make_study(variables, "abort")

    def opened(name: str):  # type: ignore[no-untyped-def]
        settings = read_site_settings(folder / name / "feddbn_site.toml")
        return open_site(settings, name, logging.getLogger("clinic"))

    for name in COMES_AT:
        owner = Owner(read_site_settings(folder / name / "feddbn_site.toml"), print)
        owner.approve(study, days=30, runs=1, epsilon=None)
        owner.approve(at_once, days=30, runs=1, epsilon=None)
    killed: list[str] = []

    def is_killed(hour: float, name: str) -> bool:
        if (name, int(hour // 24)) != KILLED or killed:
            return False
        killed.append(name)
        say(hour, f"{name} was killed before its answer had left")
        return True

    hours = {
        name: [(24.0 * day + at, 24.0 * day + at + 1.0) for day in range(7)] for name, at in COMES_AT.items()
    }
    week = VisitingSites(opened, hours, lambda hour, name: say(hour, f"{name} answered"), is_killed)

    def tell(event: ServerEvent) -> None:
        say(week.hour, f"server: {_in_days(event.sentence)}")

    died: list[float] = []

    def wait(seconds: float) -> None:
        week.wait(seconds)
        if week.hour > SERVER_DIES_AT and not died:
            died.append(week.hour)
            raise ServerDied

    def server() -> np.ndarray:
        book = VisitBook(folder / "server", "collect")
        return run(folder, study, Collecting(week, study.attendance, book, tell, clock=week.clock, wait=wait))

    try:
        found = server()
    except ServerDied:
        say(week.hour, "the server died, and was started again")
        found = server()
    say(week.hour, "the sum is open")

    endpoints = {name: opened(name) for name in COMES_AT}
    together = run(folder, at_once, lambda messages: {n: endpoints[n].handle(m) for n, m in messages.items()})
    lines.append(f"the same bits as all clinics together: {np.array_equal(found, together)}")
    return found, together, lines


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    print("\n".join(main(place)[2]))
