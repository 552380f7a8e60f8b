"""Questions to the sites of a run: sent, read, and asked again while that may help."""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from feddbn.errors import (
    FeddbnError,
    FederationError,
    NotEnoughSites,
    PrivacyError,
    ProtocolError,
    SiteRefused,
    StateError,
)
from feddbn.federation.protocol.messages import NEVER, Exchange, Reply, read_reply
from feddbn.federation.protocol.task import Task


@dataclass(frozen=True)
class Turn:
    """One task on its way: its digest and number, whom it asks, and which answers were counted before."""

    task: Task
    digest: str
    seq: int
    participants: tuple[str, ...]
    counted: Mapping[str, int]

    def after(self, site: str) -> int:
        """Return the number of the last task whose answer by `site` was counted."""
        return self.counted.get(site, NEVER)


SAME_ANSWER = 5
LONGEST_PAUSE_S = 10.0
_HASH = re.compile("[0-9a-f]{64}")
PASSING = frozenset({"not-approved", "not-stored", "budget-in-use", "gone-on"})
"""Codes of refusals that time may cure: an owner has not decided yet, a disk is full, another process is busy."""


@dataclass(frozen=True)
class ServerEvent:
    """What happened at the server, for its log and for progress."""

    what: str
    seq: int = -1
    task: str = ""
    site: str = ""
    sentence: str = ""
    code: str = ""
    sites: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    note: Mapping[str, float] | None = None
    seconds: float = 0.0


Tell = Callable[[ServerEvent], None]


class Line:
    """The server's line to the sites of one run.

    `refused` has the last word of sites that refuse by policy, state or privacy, `said` what sites said no with in the
    attempt under way, `logs` the hash of the last line of each site's log, as its last answer said.
    """

    def __init__(self, exchange: Exchange, run_id: str, tell: Tell, pause_s: float) -> None:
        self._exchange = exchange
        self.run_id = run_id
        self.tell = tell
        self._pause_s = pause_s
        self.refused: dict[str, FeddbnError] = {}
        self.said: dict[str, FeddbnError] = {}
        self.logs: dict[str, str] = {}
        self._odd: set[str] = set()
        self._told: dict[str, str] = {}

    @property
    def reasons(self) -> Mapping[str, FeddbnError]:
        """Site -> why it is missing, as far as it told."""
        return {**self.refused, **self.said}

    @property
    def passing(self) -> frozenset[str]:
        """The sites whose refusal time may cure."""
        return frozenset(site for site, error in self.refused.items() if error.code in PASSING)

    def attempts(self, patience_s: float) -> Iterator[int]:
        """Yield 0, 1, 2, ... with pauses, until `patience_s` have passed or asking is in vain.

        It is in vain when a site refuses with the same sentence, or sends the same nonsense, again and again: no accident
        of the network. A refusal that time may cure is waited for, ever more rarely.
        """
        end, pause_s = time.monotonic() + patience_s, self._pause_s
        heard: Counter[tuple[str, str]] = Counter()
        for attempt in itertools.count():
            self.said, self._odd = {}, set()
            yield attempt
            passing = {site for site, error in self.said.items() if error.code in PASSING}
            meant = {
                site for site, error in self.said.items() if "site" in error.values
            } - passing | self._odd
            heard.update((site, str(self.said[site])) for site in meant)
            if max(heard.values(), default=0) >= SAME_ANSWER or time.monotonic() >= end:
                return
            time.sleep(min(pause_s, max(end - time.monotonic(), 0.0)))
            pause_s = min(1.5 * pause_s, LONGEST_PAUSE_S) if passing else self._pause_s

    def ask(self, messages: Mapping[str, bytes], what: str, seq: int) -> dict[str, Reply]:
        """Send and return the replies; a damaged, stale or foreign reply counts as none, like a refusal."""
        answers: dict[str, Reply] = {}
        raw = self._exchange(messages)
        for site in sorted(raw):
            try:
                reply = read_reply(raw[site])
                if site not in messages or (reply.site, reply.run_id, reply.seq) != (site, self.run_id, seq):
                    raise ProtocolError(
                        f"the reply that arrived for site {site!r} answers another question.",
                        code="other-question",
                    )
                answers[site] = reply
                if _HASH.fullmatch(str(reply.meta.get("log"))):
                    self.logs[site] = str(reply.meta["log"])
                self.refused.pop(site, None)
                self._told.pop(site, None)
            except (FederationError, PrivacyError) as error:
                self.note_refusal(site, error, what, seq)
                if isinstance(error, SiteRefused | StateError | PrivacyError):
                    self.refused[site] = error
        for site in sorted(set(messages) - set(raw)):
            self.tell(ServerEvent("silent", seq, what, site, f"site {site!r} did not answer in time."))
        return answers

    def note_refusal(self, site: str, error: FeddbnError, what: str, seq: int) -> None:
        """Take down why a site's reply is not counted; what it says again while it is waited for is told once."""
        self.said[site] = error
        if error.code in PASSING and self._told.get(site) == str(error):
            return
        self._told[site] = str(error)
        self.tell(ServerEvent("refused", seq, what, site, str(error), error.code))

    def note_odd(self, site: str, sentence: str, what: str, seq: int, code: str = "odd-reply") -> None:
        """Take down that a site's reply arrived and cannot be used."""
        self._odd.add(site)
        self.note_refusal(site, ProtocolError(sentence, code=code), what, seq)


def too_few(
    sentence: str, missing: Sequence[str], reasons: Mapping[str, FeddbnError], code: str
) -> NotEnoughSites:
    """Return the error that says which sites are missing, with their own reasons and, by site, the codes of these."""
    told = {site: reasons[site] for site in missing if site in reasons}
    text = " ".join([sentence, *map(str, told.values())])
    return NotEnoughSites(
        text, code=code, missing=tuple(missing), reasons={site: error.code for site, error in told.items()}
    )
