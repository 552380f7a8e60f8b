"""An exchange that waits: each message stays open until all its sites have come and answered it, or its window closes.

Theory of operation
-------------------
`Collecting` stands between a run and the engine's exchange, so that nothing above it knows whether sites are there
together. It hands each site exactly the message it was given, whenever the site comes, and keeps the replies in a book.
A refusal or a damaged reply is not a reply: the site is asked again, with the same bytes. A message that is in the book
already is answered from it. The server's half of secure aggregation has no randomness, so a server that is restarted
inside a window makes the same messages again, finds the replies to them, and goes on where it was; what is missing is
asked for, and nothing else.

The book is in the server's store. A *visit* is one message to each of some sites: when it was opened, which
replies have come, and whether it was closed without some sites. A reply is on disk before anything is made of it.

A window is counted from the first time a message could have been answered, by the clock on the wall. When it closes the
run stops with the names of who is missing, or goes on without them if the study says how many are enough; these sites
are then out of the run. Going on after such a stop opens the window of the same message again.

Heads of audit logs and the result are for who is there; nobody is waited for.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from feddbn.errors import FeddbnError, ProtocolError, StateError, StillCollecting
from feddbn.federation.protocol.encoding import decode, encode
from feddbn.federation.protocol.messages import Exchange, read_request
from feddbn.federation.protocol.study import Attendance
from feddbn.runtime.masked import refusal_in
from feddbn.runtime.server.asking import ServerEvent, Tell, too_few
from feddbn.runtime.store import Store
from feddbn.words.studies import when


def visit_name(messages: Mapping[str, bytes]) -> str:
    """Return the name of the visit with these messages: the same messages to the same sites have the same."""
    parts = [f"{site} {hashlib.sha256(messages[site]).hexdigest()}" for site in sorted(messages)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@dataclass
class Visit:
    """One message to each of some sites: when its window was opened, in seconds, and which replies have come.

    `missing` is who was left out when it was closed; None while it is open.
    """

    opened: float
    replies: dict[str, bytes] = field(default_factory=dict)
    missing: tuple[str, ...] | None = None


class VisitBook:
    """The visits of a run in the server's store; without one they are forgotten with the object.

    The journal's claim keeps two servers from writing it at the same time.
    """

    def __init__(self, runs: Path | None = None, run_id: str = "") -> None:
        self._store = None if runs is None else Store(runs)
        self._run_id = run_id
        self._visits: dict[str, Visit] = {}
        for number, record in enumerate(() if self._store is None else self._store.records(run_id, "visits")):
            try:
                meta, arrays = decode(record)
                self._take(meta, arrays["reply"].tobytes())
            except (ProtocolError, KeyError) as error:
                raise StateError(
                    f"what sites have sent in run {run_id!r} is damaged (record {number}): {error}; begin a new run.",
                    code="damaged-visits",
                ) from None

    def find(self, name: str) -> Visit | None:
        """Return a visit that was opened before."""
        return self._visits.get(name)

    def open(self, name: str, now: float) -> Visit:
        """Open a visit, or open it again after its window has closed."""
        self._write({"what": "opened", "visit": name, "time": now})
        return self._opened(name, now)

    def add(self, name: str, site: str, reply: bytes) -> None:
        """Take down what a site replied."""
        self._write({"what": "reply", "visit": name, "site": site}, reply)
        self._visits[name].replies[site] = reply

    def close(self, name: str, missing: tuple[str, ...]) -> None:
        """Take down that a visit has ended without some sites."""
        self._write({"what": "closed", "visit": name, "missing": list(missing)})
        self._visits[name].missing = missing

    def _opened(self, name: str, now: float) -> Visit:
        before = self._visits.get(name)
        self._visits[name] = Visit(now, {} if before is None else before.replies)
        return self._visits[name]

    def _write(self, values: dict[str, Any], reply: bytes = b"") -> None:
        if self._store is not None:
            record = encode({"type": "visit", **values}, {"reply": np.frombuffer(reply, dtype=np.uint8)})
            self._store.append(self._run_id, "visits", record)

    def _take(self, meta: Mapping[str, Any], reply: bytes) -> None:
        what, name = meta["what"], str(meta["visit"])
        if what == "opened":
            self._opened(name, float(meta["time"]))
        elif what == "reply":
            self._visits[name].replies[str(meta["site"])] = reply
        else:
            self._visits[name].missing = tuple(meta["missing"])


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

    `exchange` reaches the sites that are there, at most those in `here` (None is any). Sites that are not there are waited
    for `stay_s` seconds after the last reply; then `StillCollecting` is raised, and a later attempt goes on. `wait` passes
    the time that `clock` tells. With `accepts_refusals`, who refuses is not asked again: where nobody else is awaited, the
    question fails, and the program goes on without it if it can.
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
        accepts_refusals: bool = False,
    ) -> None:
        self._exchange = exchange
        self._rules = rules
        self._accepts_refusals = accepts_refusals
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
                "a new run.",
                code="lost-visits",
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
        said: dict[str, FeddbnError] = {}
        heard, pause, told = self._clock(), self._pause_s, ""
        while True:
            pending = tuple(site for site in sorted(asked) if site not in visit.replies)
            if not pending:
                return
            if self._clock() >= until:
                self._close(name, visit, pending, what, until, said)
                return
            told = self._say(_awaiting(what, visit, pending, until, said), told, what, visit)
            near = {site: asked[site] for site in pending if self._here is None or site in self._here}
            came = self._ask(name, near, said) if near else False
            refuse = {site for site in pending if site in said and "site" in said[site].values}
            if self._accepts_refusals and not came and refuse == set(pending):
                raise too_few(
                    f"{what} was not answered: {', '.join(pending)} refused, or did not approve the study.",
                    pending,
                    said,
                    "refused",
                )
            if came:
                heard, pause = self._clock(), self._pause_s
            elif not near or self._clock() - heard >= self._stay_s:
                # What a site has just said no with is told, too.
                told = self._say(_awaiting(what, visit, pending, until, said), told, what, visit)
                raise StillCollecting(told, pending, until)
            else:
                self._wait(min(pause, max(until - self._clock(), 0.0)))
                pause = min(1.5 * pause, LONGEST_PAUSE_S)

    def _say(self, sentence: str, told: str, what: str, visit: Visit) -> str:
        """Tell how a collection stands if that was not told already; return it."""
        if sentence != told:
            here = tuple(sorted(visit.replies))
            self._tell(ServerEvent("collecting", task=what, sites=here, sentence=sentence))
        return sentence

    def _ask(self, name: str, messages: Mapping[str, bytes], said: dict[str, FeddbnError]) -> bool:
        """Ask sites and take down what they reply; return whether one has."""
        came = False
        for site, reply in sorted(self._exchange(messages).items()):
            why = refusal_in(messages.get(site, b""), reply, site)
            if why is not None:
                if str(why) != str(said.get(site)):
                    self._tell(ServerEvent("refused", site=site, sentence=str(why), code=why.code))
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
        said: Mapping[str, FeddbnError],
    ) -> None:
        """Close a window: without those who are missing if the others are enough, else by stopping."""
        n = len(visit.replies)
        if self._rules.enough is not None and n >= self._rules.enough:
            self._book.close(name, missing)
            return
        self._book.close(name, ())
        sentence = (
            f"the collection of {what} closed at {when(until)} without {', '.join(missing)}; nothing was opened. "
            f"going on with the run opens it again for {self._rules.window_h:g} hours."
        )
        raise too_few(sentence, missing, said, "window-closed")


def _what(messages: Mapping[str, bytes]) -> str:
    """What is collected, in words."""
    request = read_request(next(iter(messages.values())))
    kind = request.kind
    if kind == "secagg":
        kind = str(decode(request.arrays["message"].tobytes())[0].get("phase"))
    words = _WORDS.get(kind, kind)
    return words if request.seq < 0 else f"{words} (sum {request.seq})"


def _awaiting(
    what: str, visit: Visit, pending: tuple[str, ...], until: float, said: Mapping[str, FeddbnError]
) -> str:
    names = sorted(visit.replies)
    came = (
        f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} come" if names else "nobody has come yet"
    )
    reasons = " ".join(str(said[site]) for site in pending if site in said)
    sentence = f"collecting {what}: {came}; awaited until {when(until)}: {', '.join(pending)}."
    return f"{sentence} {reasons}".rstrip()
