"""Secure aggregation between sites of one process: the courier, shared masks and the federation made of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import ProtocolError, StateError
from feddbn.federation.protocol.site import Memo, Site, answer_together
from feddbn.privacy.keys import Identity, RandomBytes, keystream, pinned_keys
from feddbn.privacy.policy import DEFAULT_MIN_SITES
from feddbn.privacy.secagg import Message, order_of
from feddbn.privacy.secagg_site import SecAggSite, mask_together
from feddbn.runtime.masked import DigestOnce, SecureFederation, SecureSite

Fault = Literal["request lost", "reply lost"]
MOST_STREAMS_KEPT = 4096


class InProcessCourier:
    """Messages between objects of this process, never encoded, with faults on request.

    What sites answer to a task is computed together. `fault` is called with (site, phase of the message): None delivers;
    "request lost" never reaches the site; "reply lost" reaches the site, but not back. For tests and demonstrations.
    """

    def __init__(
        self,
        ends: Mapping[str, SecureSite],
        sites: Mapping[str, Site],
        fault: Callable[[str, str], Fault | None] | None = None,
    ) -> None:
        self._sites = {name: ends[name] for name in sorted(ends)}
        self._behind = {name: sites[name] for name in self._sites}
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
            site = self._behind[name]
            before = site.state
            try:
                reply = self._sites[name].respond(meta, arrays)
            except StateError:
                continue
            if fault is None:
                replies[name] = reply
            else:
                # A site goes on from the last answer that counted.
                site.state = before
        return replies

    def reject(self, site: str, sentence: str) -> None:
        """Raise: sites of this process run this program, so what they send is wrong for all of them."""
        raise ProtocolError(sentence)

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
        if len(present) == len(self._sites) and not any(site.guards for site in self._behind.values()):
            task = next(iter(present.values())).task(meta, arrays)
            together = answer_together(list(self._behind.values()), task, self._memo)
            return mask_together([site.secagg for site in present.values()], order, together)
        vectors: dict[str, FloatArray] = {}
        for name, site in present.items():
            try:
                vectors[name] = site.answer(meta, arrays)
            except StateError:
                continue
        if len(vectors) == len(self._sites) and len({len(vector) for vector in vectors.values()}) == 1:
            sites = [present[name].secagg for name in vectors]
            return mask_together(sites, order, np.stack(list(vectors.values())))
        return {name: present[name].secagg.mask_spent(order, vector) for name, vector in vectors.items()}


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
    courier = InProcessCourier(ends, sites, fault)
    return SecureFederation(courier, run, min_sites, threshold, variables, digest)
