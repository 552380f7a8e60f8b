"""What a site keeps of an epoch is all it needs to go on, in the form that it has always had."""

import hashlib
import json

import numpy as np
import pytest

from feddbn.errors import StateError
from feddbn.federation.protocol.encoding import decode, encode
from feddbn.privacy.secagg import Order
from feddbn.privacy.secagg_site import epoch_from, kept_epoch
from support.saying import refused
from support.secagg_wire import Wire, assert_sum


def digest(message):
    """SHA-256 of plain values and arrays, whatever their order."""
    meta, arrays = message
    found = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode() + arrays[name].tobytes())
    return found.hexdigest()[:16]


def moments():
    """(what has happened, the wire then), from the first message of an epoch to the second sum after a drop-out."""
    wire = Wire(n_sites=5, threshold=4)
    adverts = wire.ask(wire.server.begin_epoch(3, 4))
    yield "advertised", wire
    shares = wire.ask(wire.server.roster_request(adverts))
    yield "shared", wire
    wire.server.ready(wire.ask_each(wire.server.deliveries(shares)))
    yield "ready", wire
    wire.mask(wire.names[:4])
    yield "masked", wire
    requests = wire.requests()
    yield "signed", wire
    wire.server.open(wire.ask_each(requests))
    yield "opened", wire


WRITTEN = {
    "advertised": "b744dfc5da28ce13",
    "shared": "5af6e808b8efa208",
    "ready": "f5b15ed17ef2ffc4",
    "masked": "9597f212b1d41a53",
    "signed": "c4633c05d8826645",
    "opened": "9224227ed4479520",
}


def test_the_form_is_what_it_was():
    assert {name: digest(kept_epoch(wire.sites["s00"].held)) for name, wire in moments()} == WRITTEN


def test_what_was_kept_is_read_back_whole():
    for _, wire in moments():
        for name in wire.names:
            kept = kept_epoch(wire.sites[name].held)
            read = epoch_from(decode(encode(*kept)), "run")
            assert digest(kept_epoch(read)) == digest(kept)
            assert read.roster == wire.sites[name].held.roster


def test_sites_that_were_restarted_before_every_message_open_the_same_sum():
    straight, restarted = Wire(), Wire()

    def restart():
        for site in restarted.sites.values():
            site.hold(epoch_from(decode(encode(*kept_epoch(site.held))), "run"))

    straight.set_up()
    adverts = restarted.ask(restarted.server.begin_epoch(4, 0))
    restart()
    shares = restarted.ask(restarted.server.roster_request(adverts))
    restart()
    restarted.server.ready(restarted.ask_each(restarted.server.deliveries(shares)))
    restart()
    for wire in (straight, restarted):
        wire.mask()
    restart()
    opened = [wire.open() for wire in (straight, restarted)]
    assert_sum(opened[1], restarted, restarted.names)
    np.testing.assert_array_equal(opened[0].value, opened[1].value)
    assert restarted.sites["s00"].held.masked is None
    with pytest.raises(Exception, match="slot 0 is spent"):
        restarted.sites["s00"].masked(Order(0, 0, "task"), lambda: restarted.vectors["s00"])


def damaged():
    whole = None
    for name, wire in moments():
        if name == "masked":
            whole = decode(encode(*kept_epoch(wire.sites["s00"].held)))
    meta, arrays = whole
    roster = meta["roster"]
    yield {}, {}
    yield {"site": "a"}, {"key": np.zeros(32, dtype=np.uint8)}
    for key in ("site", "number", "own_share", "signed", "next_slot"):
        yield {name: value for name, value in meta.items() if name != key}, arrays
    yield meta, {name: value for name, value in arrays.items() if name != "secrets"}
    yield {**meta, "own_share": "no hex"}, arrays
    yield {**meta, "masked": [0, "task"]}, arrays
    yield {**meta, "roster": {**roster, "publics": ["zz"]}}, arrays
    yield {**meta, "roster": {name: value for name, value in roster.items() if name != "min_sites"}}, arrays


@pytest.mark.parametrize("wrong", list(damaged()))
def test_what_cannot_be_read_is_refused(wrong):
    with refused(StateError, "run-1", code="damaged-state"):
        epoch_from(wrong, "run-1")
