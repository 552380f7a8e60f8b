"""Sums through secure aggregation, over any exchange of messages.

`SecureFederation` is a `Federation`: server programs cannot tell it from a plain one, except that nobody can
open anything but the sum. A silent site is a drop-out; its numbers are missing from the sum and its name
from the contributors. Below the threshold the sum fails closed with `AggregationError`.

The first epoch hides few sums and later ones more, because most runs need two or three sums and some need
hundreds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.encoding import encode
from feddbn.errors import AggregationError, NotEnoughSites, ProtocolError, StateError
from feddbn.federation.protocol.exchange import Exchange
from feddbn.federation.protocol.secure_site import (
    Digest,
    DigestOnce,
    SecureSite,
    read_secure_reply,
)
from feddbn.federation.protocol.site import Memo, Site, answer_together
from feddbn.federation.protocol.task import Sum, Task, task_digest
from feddbn.privacy.keys import Identity, RandomBytes, keystream, pinned_keys
from feddbn.privacy.secagg import DEFAULT_MIN_SITES, Message, order_of
from feddbn.privacy.secagg_batch import mask_together
from feddbn.privacy.secagg_server import OpenedSum, SecAggServer
from feddbn.privacy.secagg_site import MOST_AHEAD, SecAggSite

__all__ = ["Courier", "ExchangeCourier", "Fault", "InProcessCourier", "SecureFederation", "secure_federation"]

Fault = Literal["request lost", "reply lost"]
FIRST_BATCH, BATCH_GROWTH, LARGEST_BATCH = 8, 4, 128
SETUP_ATTEMPTS = 3
MOST_STREAMS_KEPT = 4096


class Courier(Protocol):
    """Carries decoded messages; who is missing from the answers has dropped out, a refusal is raised."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        ...

    def __call__(self, messages: Mapping[str, Message]) -> dict[str, Message]:
        """Send and wait."""
        ...


class ExchangeCourier:
    """Messages as bytes over any `Exchange`."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return self.exchange.sites

    def __call__(self, messages: Mapping[str, Message]) -> dict[str, Message]:
        """Encode, send and decode; a site that lost its state counts as a drop-out."""
        encoded: dict[int, bytes] = {}
        outgoing = {}
        for name, message in messages.items():
            # One object for all sites is encoded once.
            if id(message) not in encoded:
                encoded[id(message)] = encode(*message)
            outgoing[name] = encoded[id(message)]
        replies = {}
        for name, reply in self.exchange(outgoing).items():
            try:
                replies[name] = read_secure_reply(reply)
            except StateError:
                continue
        return replies


class InProcessCourier:
    """Messages between objects of this process, never encoded, with faults on request.

    Parameters
    ----------
    sites
        The sites.
    fault
        Called with (site, phase of the message): None delivers; "request lost" never reaches the site; "reply
        lost" reaches the site, but not back. For tests and demonstrations.
    """

    def __init__(
        self,
        sites: Mapping[str, SecureSite],
        fault: Callable[[str, str], Fault | None] | None = None,
    ) -> None:
        self._sites = {name: sites[name] for name in sorted(sites)}
        self.fault = fault
        self._memo: Memo = {}

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return tuple(self._sites)

    def __call__(self, messages: Mapping[str, Message]) -> dict[str, Message]:
        """Return the replies of the sites that were reached."""
        if self.fault is None and len(messages) == len(self._sites):
            first, *others = messages.values()
            if first[0]["phase"] == "masked" and all(other is first for other in others):
                return self._masked_together(*first)
        replies = {}
        for name, (meta, arrays) in messages.items():
            fault = None if self.fault is None else self.fault(name, str(meta["phase"]))
            if fault == "request lost":
                continue
            try:
                reply = self._sites[name].respond(meta, arrays)
            except StateError:
                continue
            if fault is None:
                replies[name] = reply
        return replies

    def _masked_together(self, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Message]:
        """Return every site's masked vector, computed together while no site is missing."""
        order = order_of(meta)
        present: dict[str, SecureSite] = {}
        for name, site in self._sites.items():
            try:
                site.secagg.spend(order)
            except StateError:
                continue
            present[name] = site
        vectors: dict[str, FloatArray] = {}
        if len(present) == len(self._sites):
            first = next(iter(present.values()))
            task = first.task(meta, arrays)
            sites = [site.site for site in present.values()]
            if not any(site.guards for site in sites):
                together = answer_together(sites, task, self._memo)
                return mask_together([site.secagg for site in present.values()], order, together)
        for name, site in present.items():
            try:
                vectors[name] = site.answer(meta, arrays)
            except StateError:
                continue
        if len(vectors) == len(self._sites) and len({len(vector) for vector in vectors.values()}) == 1:
            return mask_together(
                [present[name].secagg for name in vectors], order, np.stack(list(vectors.values()))
            )
        return {name: present[name].secagg.mask_spent(order, vector) for name, vector in vectors.items()}


class SecureFederation:
    """A federation whose server sees only sums.

    Parameters
    ----------
    courier
        Carries the messages: `ExchangeCourier` around an engine's exchange, or `InProcessCourier`.
    run
        Name of the run, the one the sites were set up with.
    min_sites, threshold
        See `SecAggServer`.
    variables
        Names of what the sites measure; estimators need them.
    digest
        Digest of a task; in one process the one the sites use, too.
    """

    def __init__(
        self,
        courier: Courier,
        run: str = "run",
        min_sites: int = DEFAULT_MIN_SITES,
        threshold: int | None = None,
        variables: tuple[str, ...] = (),
        digest: Digest = task_digest,
    ) -> None:
        if len(courier.sites) < min_sites:
            raise NotEnoughSites(
                f"secure aggregation needs at least min_sites={min_sites} sites, this federation has "
                f"{len(courier.sites)}."
            )
        self._courier = courier
        self._server = SecAggServer(run, min_sites, threshold)
        self._batch = FIRST_BATCH
        self._length = 0
        self.variables = variables
        self._digest = digest
        self.last_dropped: tuple[str, ...] = ()
        self.answered_tasks: frozenset[str] | None = None

    def state_of(self, site: str) -> None:
        """Return None: behind masks, a state is the site's own business."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return self._courier.sites

    def sum(self, task: Task) -> Sum:
        """Return the sum over the sites that answered; fail closed if too few did."""
        unknown = [name for name in task.participants or () if name not in self.sites]
        if unknown:
            raise ProtocolError(
                f"task {task.name!r} names the site {unknown[0]!r}, which is not in this federation."
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
            adverts = self._courier(dict.fromkeys(sorted(asked), server.begin_epoch(n_slots, length)))
            request = server.roster_request(adverts)
            shares = self._courier(dict.fromkeys(adverts, request))
            if shares.keys() == adverts.keys():
                ready = self._courier(server.deliveries(shares))
                if ready.keys() == adverts.keys():
                    server.ready(ready)
                    self._batch = min(self._batch * BATCH_GROWTH, LARGEST_BATCH)
                    return
                shares = ready
            asked = set(shares)
        raise AggregationError(
            f"sites dropped out of the key agreement {SETUP_ATTEMPTS} times in a row; "
            "try again when they are stable."
        )

    def _open(self, task: Task) -> OpenedSum:
        server = self._server
        fields, arrays = task.fields(), dict(task.arrays)
        order = server.open_slot(self._digest(fields, arrays), task.participants)
        taking_part = order.contributors(server.roster)
        meta = {**server.masked_request(order), "task": fields}
        length = server.collect(self._courier(dict.fromkeys(sorted(taking_part), (meta, arrays))))
        others = [name for name in server.roster if name not in taking_part]
        if others and length is not None:
            zeros = {**server.masked_request(order, length), "task": fields}
            server.collect(self._courier(dict.fromkeys(others, (zeros, {}))))
        self._length = max(self._length, length or 0)
        return server.open(self._courier(server.unmask_requests()))


class _SharedStreams:
    """In a simulation both ends of a pair are here: the second takes the complement of what the first
    computed.
    """

    def __init__(self) -> None:
        self._waiting: dict[bytes, tuple[bytes, bool]] = {}

    def __call__(self, key: bytes, n_bytes: int, complement: bool) -> bytes:
        made = self._waiting.pop(key, None)
        if made is not None and len(made[0]) == n_bytes:
            same = made[1] == complement
            return made[0] if same else np.invert(np.frombuffer(made[0], dtype=np.uint64)).tobytes()
        if len(self._waiting) > MOST_STREAMS_KEPT:
            # Streams whose other end dropped out are never fetched.
            self._waiting.clear()
        stream = keystream(key, n_bytes, complement)
        self._waiting[key] = (stream, complement)
        return stream


def secure_federation(
    sites: Mapping[str, Site],
    min_sites: int = DEFAULT_MIN_SITES,
    threshold: int | None = None,
    run: str = "run",
    random_bytes: RandomBytes = os.urandom,
    fault: Callable[[str, str], Fault | None] | None = None,
) -> SecureFederation:
    """Return a federation of sites in this process that talk through secure aggregation.

    Identity keys are made and pinned here; in a deployment people exchange them before the first run.
    """
    identities = {name: Identity.from_seed(random_bytes(32)) for name in sorted(sites)}
    pinned = pinned_keys(identities)
    streams, digest = _SharedStreams(), DigestOnce()
    ends = {
        name: SecureSite(
            site,
            SecAggSite(name, identities[name], pinned, run, random_bytes, min_sites, stream=streams),
            digest,
        )
        for name, site in sites.items()
    }
    variables = tuple(dict.fromkeys(name for site in sites.values() for name in site.data.variables))
    courier = InProcessCourier(ends, fault)
    return SecureFederation(courier, run, min_sites, threshold, variables, digest)
