"""Secure aggregation between sites of one process: the courier, and the federation made of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Literal

from feddbn.errors import ProtocolError, StateError
from feddbn.federation.protocol.site import Site
from feddbn.privacy.keys import Identity, RandomBytes, pinned_keys
from feddbn.privacy.policy import DEFAULT_MIN_SITES
from feddbn.privacy.secagg import Message
from feddbn.privacy.secagg_site import SecAggSite
from feddbn.runtime.masked import SecureFederation, SecureSite

Fault = Literal["request lost", "reply lost"]


class InProcessCourier:
    """Messages between objects of this process, never encoded, with faults on request.

    `fault` is called with (site, phase of the message): None delivers;
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
        self._fault = fault

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return tuple(self._sites)

    def __call__(self, messages: Mapping[str, Message]) -> dict[str, Message]:
        """Return the replies of the sites that were reached."""
        replies = {}
        for name, (meta, arrays) in messages.items():
            fault = None if self._fault is None else self._fault(name, str(meta["phase"]))
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
    ends = {
        name: SecureSite(site, SecAggSite(name, identities[name], pinned, run, random_bytes, min_sites))
        for name, site in sites.items()
    }
    variables = tuple(dict.fromkeys(name for site in sites.values() for name in site.data.variables))
    courier = InProcessCourier(ends, sites, fault)
    return SecureFederation(courier, run, min_sites, threshold, variables)
