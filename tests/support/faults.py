"""Sites in this process behind the real message path, and an exchange that breaks what networks break.

`LocalExchange` runs the same endpoints, encodings, fence and stores as a deployed federation, without an engine.
`FaultyExchange` wraps it and drops, delays, repeats, reorders, corrupts and replays messages by a seeded generator.
`MemoryStore` and `MemoryJournal` are what survives when a test restarts a site or the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.messages import decode_record, encode_record, read_journal
from feddbn.runtime.store import DAYS

__all__ = ["Fault", "FaultyExchange", "LocalExchange", "MemoryJournal", "MemoryStore", "looked_before"]

MakeEndpoint = Callable[[str], SiteEndpoint]


class LocalExchange:
    """Endpoints in this process; `restart` makes a new one, which keeps only what its store kept."""

    def __init__(self, names: tuple[str, ...], make: MakeEndpoint) -> None:
        self._make = make
        self.endpoints = {name: make(name) for name in sorted(names)}

    def restart(self, name: str) -> None:
        """Throw a site's process away and start another."""
        self.endpoints[name] = self._make(name)

    def __call__(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Deliver each message and return the replies."""
        return {name: self.endpoints[name].handle(message) for name, message in messages.items()}


@dataclass(frozen=True)
class Fault:
    """Probabilities, per message, of what goes wrong."""

    drop_request: float = 0.0
    drop_reply: float = 0.0
    duplicate: float = 0.0
    stale: float = 0.0
    corrupt: float = 0.0
    restart: float = 0.0


@dataclass
class FaultyExchange:
    """An exchange with faults.

    A dropped reply is a straggler: the site did the work, the server did not see it in time. The straggling
    reply is delivered in place of a later one when `stale` strikes, and an old request is delivered again
    before a new one.
    """

    inner: LocalExchange
    fault: Fault
    rng: np.random.Generator
    away: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    _requests: dict[str, list[bytes]] = field(default_factory=dict)
    _replies: dict[str, list[bytes]] = field(default_factory=dict)

    def __call__(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Deliver what the faults leave, sites in random order."""
        replies: dict[str, bytes] = {}
        names = list(messages)
        self.rng.shuffle(names)
        for name in names:
            reply = self._deliver(name, messages[name])
            if reply is not None:
                replies[name] = reply
        return replies

    def _strikes(self, what: str) -> bool:
        hit = bool(self.rng.random() < getattr(self.fault, what))
        if hit:
            self.counts[what] = self.counts.get(what, 0) + 1
        return hit

    def _deliver(self, name: str, message: bytes) -> bytes | None:
        if name in self.away or self._strikes("drop_request"):
            return None
        endpoint = self.inner.endpoints
        sent = self._requests.setdefault(name, [])
        if sent and self._strikes("stale"):
            endpoint[name].handle(sent[self.rng.integers(len(sent))])
        if self._strikes("corrupt"):
            damaged = bytearray(message)
            damaged[self.rng.integers(len(damaged))] ^= 0xFF
            endpoint[name].handle(bytes(damaged))
        reply = endpoint[name].handle(message)
        sent.append(message)
        if self._strikes("duplicate"):
            reply = endpoint[name].handle(message)
        if self._strikes("restart"):
            self.inner.restart(name)
        kept = self._replies.setdefault(name, [])
        kept.append(reply)
        if self._strikes("drop_reply"):
            return None
        if len(kept) > 1 and self._strikes("stale"):
            return kept[self.rng.integers(len(kept) - 1)]
        if self._strikes("corrupt"):
            return reply[: len(reply) // 2]
        return reply


class MemoryStore:
    """A site's records as bytes in memory."""

    def __init__(self, site):
        self.site = site
        self.files = {}

    def load(self, run_id):
        stored = self.files.get(run_id)
        return None if stored is None else decode_record(stored, run_id, self.site)

    def save(self, record):
        self.files[record.run_id] = encode_record(record)


class MemoryJournal:
    """A server's journal that lives as long as this object."""

    def __init__(self):
        self.stored = []

    def read(self):
        return read_journal(self.stored)

    def write(self, record):
        self.stored.append(record)


def looked_before(root, now):
    """As if somebody had looked for old directories below `root` on the two days before."""
    today = int(now // 86400)
    (root / DAYS).write_text(f"{today - 2} {today - 1}")
