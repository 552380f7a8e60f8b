"""An exchange that waits: each message stays open until all its sites have come and answered it, or its window closes.

Theory of operation
-------------------
`Collecting` stands between a run and the engine's exchange, so that nothing above it knows whether sites are there
together. It hands each site exactly the message it was given, whenever the site comes, and keeps the replies in a book.
A refusal or a damaged reply is not a reply: the site is asked again, with the same bytes. A message that is in the book
already is answered from it. The server's half of secure aggregation has no randomness, so a server that is restarted
inside a window makes the same messages again, finds the replies to them, and goes on where it was; what is missing is
asked for, and nothing else.

A window is counted from the first time a message could have been answered, by the clock on the wall. When it closes the
run stops with the names of who is missing, or goes on without them if the study says how many are enough; these sites
are then out of the run. Going on after such a stop (`feddbn resume`) opens the window of the same message again.

Heads of audit logs and the result are for who is there; nobody is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from feddbn.core.encoding import decode
from feddbn.errors import FeddbnError, NotEnoughSites, StateError, StillCollecting
from feddbn.federation.protocol.messages import Exchange, read_reply, read_request
from feddbn.federation.protocol.secure_site import read_secure_reply
from feddbn.federation.protocol.study import Attendance
from feddbn.runtime.deployed.asking import ServerEvent, Tell
from feddbn.runtime.deployed.store import iso_time
from feddbn.runtime.deployed.visit_book import Visit, VisitBook, visit_name

__all__ = ["Collecting"]

_COLLECTED = ("hello", "task", "secagg")
_WORDS = {
    "hello": "the greeting",
    "task": "answers",
    "advertise": "keys",
    "share": "shares of secrets",
    "deliver": "receipts of shares",
    "masked": "masked answers",
    "survivors": "the list of who answered",
    "unmask": "help to open the sum",
}
LONGEST_PAUSE_S = 60.0


class Collecting:
    """Collects the replies to each message.

    Parameters
    ----------
    exchange
        Reaches the sites that are there.
    rules
        The study's attendance: `window_h` and `enough`.
    book
        Where replies are kept.
    tell
        Told who has come and who is awaited.
    here
        The sites that `exchange` can reach at all as long as it lives; None is any.
    stay_s
        How long after the last reply the sites that are not there are waited for; then `StillCollecting` is raised, and
        a later attempt goes on.
    clock, wait
        The time in seconds, and what passes it.
    """

    def __init__(
        self,
        exchange: Exchange,
        rules: Attendance,
        book: VisitBook,
        tell: Tell = lambda event: None,
        here: Collection[str] | None = None,
        stay_s: float = float("inf"),
        pause_s: float = 0.5,
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._exchange = exchange
        self._rules = rules
        self._book = book
        self._tell = tell
        self._here = here
        self._stay_s = stay_s
        self._pause_s = pause_s
        self._clock = clock
        self._wait = wait
        self._out: set[str] = set()
        self.n_recorded = 0

    def __call__(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the replies to these messages, when all have come."""
        asked = {site: message for site, message in messages.items() if site not in self._out}
        if not asked:
            return {}
        request = read_request(next(iter(asked.values())))
        if request.kind not in _COLLECTED:
            return self._exchange(asked)
        name = visit_name(asked)
        visit = self._book.find(name)
        if visit is None and 0 <= request.seq < self.n_recorded:
            raise StateError(
                f"what the sites of run {request.run_id!r} have sent for sum {request.seq} is not on record any more; begin "
                "a new run."
            )
        if visit is None or (visit.missing == () and len(visit.replies) < len(asked)):
            # New, or stopped when its window closed and taken up again.
            visit = self._book.open(name, self._clock())
        if visit.missing is None:
            self._collect(name, visit, asked, _what(asked))
        self._out |= set(visit.missing or ())
        return {site: visit.replies[site] for site in asked if site in visit.replies}

    def _collect(self, name: str, visit: Visit, asked: Mapping[str, bytes], what: str) -> None:
        """Ask until every reply is on record or the window closes."""
        until = visit.opened + 3600.0 * self._rules.window_h
        said: dict[str, str] = {}
        heard, pause, told = self._clock(), self._pause_s, ""
        while True:
            pending = tuple(site for site in sorted(asked) if site not in visit.replies)
            if not pending:
                return
            if self._clock() >= until:
                self._close(name, visit, pending, what, until, said)
                return
            sentence = _awaiting(what, visit, pending, until, said)
            if sentence != told:
                self._tell(
                    ServerEvent(
                        "collecting", task=what, sites=tuple(sorted(visit.replies)), sentence=sentence
                    )
                )
                told = sentence
            near = {site: asked[site] for site in pending if self._here is None or site in self._here}
            came = self._ask(name, near, said) if near else False
            if came:
                heard, pause = self._clock(), self._pause_s
            elif not near or self._clock() - heard >= self._stay_s:
                raise StillCollecting(_awaiting(what, visit, pending, until, said), pending, until)
            else:
                self._wait(min(pause, max(until - self._clock(), 0.0)))
                pause = min(1.5 * pause, LONGEST_PAUSE_S)

    def _ask(self, name: str, messages: Mapping[str, bytes], said: dict[str, str]) -> bool:
        """Ask sites and take down what they reply; return whether one has."""
        came = False
        for site, reply in sorted(self._exchange(messages).items()):
            why = _refused(site, messages.get(site, b""), reply)
            if why:
                said[site] = why
            elif site in messages:
                self._book.add(name, site, reply)
                said.pop(site, None)
                came = True
        return came

    def _close(
        self,
        name: str,
        visit: Visit,
        missing: tuple[str, ...],
        what: str,
        until: float,
        said: Mapping[str, str],
    ) -> None:
        """Close a window: without those who are missing if the others are enough, else by stopping."""
        n = len(visit.replies)
        if self._rules.enough is not None and n >= self._rules.enough:
            self._book.close(name, missing)
            return
        self._book.close(name, ())
        reasons = " ".join(said[site] for site in missing if site in said)
        raise NotEnoughSites(
            f"the collection of {what} closed at {iso_time(until)} without {', '.join(missing)}; nothing was opened. "
            f"`feddbn resume` opens it again for {self._rules.window_h:g} hours. {reasons}".rstrip()
        )


def _what(messages: Mapping[str, bytes]) -> str:
    """What is collected, in words."""
    request = read_request(next(iter(messages.values())))
    kind = request.kind
    if kind == "secagg":
        kind = str(decode(request.arrays["message"].tobytes())[0].get("phase"))
    words = _WORDS.get(kind, kind)
    return words if request.seq < 0 else f"{words} (sum {request.seq})"


def _awaiting(
    what: str, visit: Visit, pending: tuple[str, ...], until: float, said: Mapping[str, str]
) -> str:
    names = sorted(visit.replies)
    came = (
        f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} come" if names else "nobody has come yet"
    )
    reasons = " ".join(said[site] for site in pending if site in said)
    sentence = f"collecting {what}: {came}; awaited until {iso_time(until)}: {', '.join(pending)}."
    return f"{sentence} {reasons}".rstrip()


def _refused(site: str, message: bytes, reply: bytes) -> str:
    """Why a reply is none: a refusal, damage, or an answer to something else; empty if it is one."""
    try:
        request, found = read_request(message), read_reply(reply)
        if (found.site, found.kind, found.run_id, found.seq) != (
            site,
            request.kind,
            request.run_id,
            request.seq,
        ):
            return f"site {site!r} answered another question."
        if request.kind == "secagg":
            read_secure_reply(found.arrays["message"].tobytes())
    except KeyError:
        return f"site {site!r} sent an empty answer."
    except FeddbnError as error:
        return str(error)
    return ""
