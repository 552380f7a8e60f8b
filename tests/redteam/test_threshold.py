"""A server and one colluding site that tell two groups of honest sites different stories about who has dropped out."""

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.errors import AggregationError, ProtocolError
from feddbn.privacy.policy import default_threshold
from feddbn.privacy.secagg import survivors_statement
from support.saying import refused
from support.secagg_wire import Wire, roster_request


@pytest.mark.parametrize("k", [5, 7, 9])
def test_a_threshold_of_half_the_sites_is_refused_by_every_site(k):
    wire = Wire(n_sites=k, threshold=k // 2 + 1)
    request = roster_request(wire)
    for name in wire.names:
        with refused(AggregationError, k, default_threshold(k), code="low-threshold"):
            wire.sites[name].handle(*request, None)


@pytest.mark.parametrize("k", [7, 9, 12])
def test_with_two_stories_no_site_reveals_both_secrets_of_another(k):
    wire = Wire(n_sites=k).set_up()
    wire.mask()
    server, roster = wire.server, wire.server._roster
    threshold = roster.threshold
    *honest, evil = wire.names
    half = len(honest) // 2
    groups = honest[:half], honest[half:]
    revealed: dict[tuple[str, int], set[str]] = {}
    for group, other in (groups, groups[::-1]):
        # As few of the other group survive as the threshold allows.
        n_needed = max(threshold - len(group) - 1, 0)
        alive = sorted([*group, *other[:n_needed], evil])
        tags = np.stack([server._slot.tags[name] for name in alive], axis=1)
        meta = {**server._meta("survivors"), "slot": 0, "survivors": alive}
        signatures = np.zeros((len(alive), 64), dtype=np.uint8)
        statement = survivors_statement(server._slot.order, roster, alive)
        signatures[alive.index(evil)] = np.frombuffer(wire.identities[evil].sign(statement), dtype=np.uint8)
        for name in alive[:-1]:
            try:
                reply = wire.sites[name].handle(meta, {"tags": tags[roster.positions[name]]}, None)
                signatures[alive.index(name)] = reply[1]["signature"]
            except (AggregationError, ProtocolError):
                continue
        for name in group:
            arrays = {"tags": tags[roster.positions[name]], "signatures": signatures}
            try:
                wire.sites[name].handle({**meta, "phase": "unmask"}, arrays, None)
            except (AggregationError, ProtocolError):
                continue
            for site in wire.names:
                revealed.setdefault((site, 0 if site in alive else 1), {evil}).add(name)
    opened = {key for key, holders in revealed.items() if len(holders) >= threshold}
    for site in wire.names:
        assert not {(site, 0), (site, 1)} <= opened
