"""Server and sites of secure aggregation wired in memory."""

import numpy as np

from feddbn.privacy.keys import Identity, pinned_keys
from feddbn.privacy.secagg_server import SecAggServer
from feddbn.privacy.secagg_site import SecAggSite

N = 6


class Wire:
    """A federation in memory: `sites[name]` holds `vectors[name]`."""

    def __init__(self, n_sites=5, threshold=None, min_sites=3, seed=0, n=N):
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.names = [f"s{i:02d}" for i in range(n_sites)]
        self.identities = {name: Identity.from_seed(rng.bytes(32)) for name in self.names}
        self.pinned = pinned_keys(self.identities)
        self.vectors = {name: rng.normal(size=n) * 10.0 ** rng.integers(-3, 6, n) for name in self.names}
        self.sites = {name: self.site(name, min_sites) for name in self.names}
        self.server = SecAggServer("run", min_sites, threshold)

    def site(self, name, min_sites=3):
        return SecAggSite(name, self.identities[name], self.pinned, "run", self.rng.bytes, min_sites)

    def ask(self, message, names=None):
        meta, arrays = message
        return {
            name: self.sites[name].handle(meta, arrays, lambda name=name: self.vectors[name])
            for name in names or self.names
        }

    def ask_each(self, messages, names=None):
        return {name: self.sites[name].handle(*messages[name], None) for name in names or messages}

    def set_up(self, n_slots=4, length=0):
        adverts = self.ask(self.server.begin_epoch(n_slots, length))
        shares = self.ask(self.server.roster_request(adverts))
        deliveries = self.server.deliveries(shares)
        self.server.ready(self.ask_each(deliveries))
        return self

    def mask(self, alive=None, digest="task", participants=None):
        order = self.server.open_slot(digest, participants)
        self.server.collect(self.ask((self.server.masked_request(order), {}), alive))
        return order

    def requests(self):
        """What opens the sum under way, with the survivors' signatures if a site is missing."""
        signed = self.ask_each(self.server.survivor_requests()) if self.server.lacks_sites else None
        return self.server.unmask_requests(signed)

    def open(self, helpers=None):
        return self.server.open(self.ask_each(self.requests(), helpers))

    def sum(self, names):
        return np.sum([self.vectors[name] for name in names], axis=0)


def assert_sum(opened, wire, names):
    assert opened.contributors == tuple(names)
    np.testing.assert_allclose(opened.value, wire.sum(names), rtol=1e-9, atol=1e-15)


def roster_request(wire):
    """A new epoch up to the request that carries everybody's keys."""
    return wire.server.roster_request(wire.ask(wire.server.begin_epoch(2)))
