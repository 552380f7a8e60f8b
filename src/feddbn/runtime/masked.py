"""Sums through secure aggregation, whoever carries the messages: the server's end and a site's.

`SecureFederation` is a `Federation`: server programs cannot tell it from a plain one, except that nobody can
open anything but the sum, and that every site is asked. A silent site is a drop-out of the first sum; its numbers
are missing from the sum and its name from the contributors. Once a sum was opened its sites are those of all later
ones: the difference of sums with and without a site would be that site's numbers. Below the threshold, or after a
later drop-out, the sum fails closed with `AggregationError`.

`SecureSite` is a site behind it: bytes in, bytes out, and no vector leaves unmasked. The task a site answers is part of what
its masks are bound to: the digest is computed here from the task itself, so a server that sends two sites different tasks
under one digest is refused.

The first epoch hides few sums and later ones more, because most runs need two or three sums and some need
hundreds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import AggregationError, FeddbnError, NotEnoughSites, ProtocolError
from feddbn.federation.protocol.encoding import decode, encode
from feddbn.federation.protocol.messages import (
    MOST_WORDS,
    raise_refusal,
    read_reply,
    read_request,
    refusal_fields,
)
from feddbn.federation.protocol.site import Channel, task_from_fields
from feddbn.federation.protocol.task import Sum, Task, task_digest
from feddbn.privacy.policy import DEFAULT_MIN_SITES
from feddbn.privacy.secagg import Message
from feddbn.privacy.secagg_server import OpenedSum, SecAggServer
from feddbn.privacy.secagg_site import MOST_AHEAD, SecAggSite

FIRST_BATCH, BATCH_GROWTH, LARGEST_BATCH = 8, 4, 128
SETUP_ATTEMPTS = 3


class Courier(Protocol):
    """Carries decoded messages; who is missing from the answers has dropped out, a refusal is raised."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        ...

    def __call__(self, messages: Mapping[str, Message]) -> dict[str, Message]:
        """Send and wait."""
        ...

    def reject(self, site: str, sentence: str) -> None:
        """Take down that a site's last reply cannot be used, and why; it counts as a drop-out."""
        ...


class SecureFederation:
    """A federation whose server sees only sums.

    `courier` carries the messages: within this process, or inside the requests of a deployed run. `run` is the one the sites
    were set up with; `min_sites` and `threshold` are those of `SecAggServer`.
    """

    answered_tasks: frozenset[str] | None = None

    def __init__(
        self,
        courier: Courier,
        run: str = "run",
        min_sites: int = DEFAULT_MIN_SITES,
        threshold: int | None = None,
        variables: tuple[str, ...] = (),
    ) -> None:
        if len(courier.sites) < min_sites:
            raise NotEnoughSites(
                f"secure aggregation needs at least min_sites={min_sites} sites, this federation has "
                f"{len(courier.sites)}.",
                code="few-sites",
            )
        self._courier = courier
        self._server = SecAggServer(run, min_sites, threshold)
        self._batch = FIRST_BATCH
        self._length = 0
        self.variables = variables
        self.last_dropped: tuple[str, ...] = ()

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return self._courier.sites

    def state_of(self, site: str) -> None:
        """Return None: the state behind a masked answer is the site's own business."""

    def sum(self, task: Task) -> Sum:
        """Return the sum over the sites that answered; fail closed if too few did."""
        unknown = [name for name in task.participants or () if name not in self.sites]
        if unknown:
            raise ProtocolError(
                f"task {task.name!r} names the site {unknown[0]!r}, which is not in this federation.",
                code="unknown-site",
            )
        if self._server.slots_left == 0:
            self.agree_on_keys()
        opened = self._open(task)
        self.last_dropped = opened.dropped
        return Sum(opened.value, opened.contributors)

    def agree_on_keys(self, n_slots: int | None = None, length: int | None = None) -> None:
        """Set up an epoch for the next `n_slots` sums with every site that answers; `sum` does so when needed.

        Masks are computed ahead for vectors up to `length`, by default the longest seen so far.
        """
        n_slots = self._batch if n_slots is None else n_slots
        length = self._length if length is None else length
        length = length if length * n_slots <= MOST_AHEAD else 0
        asked = set(self.sites)
        for _ in range(SETUP_ATTEMPTS):
            server = self._server
            adverts = self._ask(
                "advertise", dict.fromkeys(sorted(asked), server.begin_epoch(n_slots, length))
            )
            request = server.roster_request(adverts)
            shares = self._ask("share", dict.fromkeys(adverts, request))
            if shares.keys() == adverts.keys():
                ready = self._ask("deliver", server.deliveries(shares))
                if ready.keys() == adverts.keys():
                    server.ready(ready)
                    self._batch = min(self._batch * BATCH_GROWTH, LARGEST_BATCH)
                    return
                shares = ready
            asked = set(shares)
        raise AggregationError(
            f"sites dropped out of the key agreement {SETUP_ATTEMPTS} times in a row; "
            "try again when they are stable.",
            code="dropped-out",
        )

    def _open(self, task: Task) -> OpenedSum:
        server = self._server
        fields, arrays = task.fields(), dict(task.arrays)
        order = server.open_slot(task_digest(fields, arrays), task.participants)
        meta = {**server.masked_request(order), "task": fields}
        length = server.collect(self._ask("masked", dict.fromkeys(server.roster, (meta, arrays))))
        self._length = max(self._length, length or 0)
        signed = self._ask("survivors", server.survivor_requests()) if server.lacks_sites else None
        opened = server.open(self._ask("unmask", server.unmask_requests(signed)))
        if opened.altered:
            self._courier.reject(
                opened.altered, f"site {opened.altered!r} has altered its shares, which were not needed."
            )
        return opened

    def _ask(self, phase: str, messages: Mapping[str, Message]) -> dict[str, Message]:
        """Send and return the replies that can be used; a site that sends something else is a drop-out."""
        replies, odd = self._server.sift(phase, self._courier(messages))
        for site, sentence in odd.items():
            self._courier.reject(site, sentence)
        return replies


class Answering(Protocol):
    """What masking may call: a site of this process, or one behind its fence."""

    @property
    def name(self) -> str:
        """Name of the site."""
        ...

    @property
    def answer(self) -> Callable[..., FloatArray]:
        """Return the vector for a task and a channel."""
        ...


class SecureSite:
    """Answers secure-aggregation messages for one site.

    `history` tells what the state behind the last answer was asked before: a site of this process has no fence, and
    none.
    """

    def __init__(
        self,
        site: Answering,
        secagg: SecAggSite,
        history: Callable[[], str] = str,
    ) -> None:
        self.site = site
        self.secagg = secagg
        self._history = history

    def respond(self, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Message:
        """Return the reply to one decoded message, or raise the refusal."""
        return self.secagg.handle(meta, arrays, lambda: self.answer(meta, arrays), self._history)

    def handle(self, message: bytes) -> bytes:
        """Return the reply to one message as bytes; a refusal is a reply too."""
        try:
            return encode(*self.respond(*decode(message, MOST_WORDS)))
        except FeddbnError as error:
            return encode({"kind": "refusal", "site": self.site.name, **refusal_fields(error)})

    def answer(self, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> FloatArray:
        """Return this site's vector for a task, unmasked: for the protocol only."""
        task = self.task(meta, arrays)
        n_guaranteed = self.secagg.guaranteed_contributors
        channel = Channel(masked=True, n_guaranteed=n_guaranteed)
        return self.site.answer(task, channel)

    def task(self, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Task:
        """Return the task of a request to mask, which its digest must fit."""
        fields = meta.get("task")
        if not isinstance(fields, dict) or task_digest(fields, arrays) != meta.get("task_digest"):
            raise ProtocolError("the digest of this task does not fit its content.", code="wrong-digest")
        return task_from_fields(fields, arrays, meta.get("participants"))


def read_secure_reply(message: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a decoded reply; a refusal raises the error the site named, with its sentence."""
    meta, arrays = decode(message, MOST_WORDS)
    if meta.get("kind") == "refusal":
        raise_refusal(str(meta.get("site")), meta)
    return meta, arrays


def refusal_in(message: bytes, reply: bytes, site: str | None = None) -> FeddbnError | None:
    """Return what a site said no with, None if it did not; a reply of another, or to another message, is a refusal, too."""
    who = "a site" if site is None else f"site {site!r}"
    try:
        asked, found = read_request(message), read_reply(reply)
        is_other = site is not None and found.site != site
        if is_other or (found.kind, found.run_id, found.seq) != (asked.kind, asked.run_id, asked.seq):
            return ProtocolError(f"{who} answered another question.", code="other-question")
        if asked.kind == "secagg":
            read_secure_reply(found.arrays["message"].tobytes())
    except KeyError:
        return ProtocolError(f"{who} sent an empty answer.", code="empty-reply")
    except FeddbnError as error:
        return error
    return None
