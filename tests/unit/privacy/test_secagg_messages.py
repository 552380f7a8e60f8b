"""Messages out of order or malformed, at the sites and at the server."""

import numpy as np
import pytest

from feddbn.errors import AggregationError, ParameterError, ProtocolError, StateError
from feddbn.privacy.secagg import Order, Roster, read_integer, read_names, read_text, rows_of
from feddbn.privacy.secagg_server import SecAggServer
from support.saying import refused
from support.secagg_wire import N, Wire, assert_sum, roster_request


def test_phases_out_of_order_are_refused_and_change_nothing():
    wire = Wire()
    site = wire.sites["s00"]
    message = roster_request(wire)
    with refused(ProtocolError, code="not-ready"):
        site.masked(Order(0, 0, "task"), lambda: wire.vectors["s00"])
    with refused(ProtocolError, 0, code="no-open-input"):
        site.handle({**wire.server._meta("unmask"), "slot": 0, "survivors": wire.names}, {}, None)
    with refused(ProtocolError, code="delivered-twice"):
        site.handle(wire.server._meta("deliver"), {}, None)
    site.handle(*message, None)
    with refused(ProtocolError, code="shared-twice"):
        site.handle(*message, None)
    wire.sites["s00"] = wire.site("s00")
    wire.server = SecAggServer("run")
    wire.sites = {name: wire.site(name) for name in wire.names}
    wire.set_up()
    wire.mask()
    assert_sum(wire.open(), wire, wire.names)


def test_epochs_only_go_up_and_the_old_one_is_forgotten():
    wire = Wire().set_up()
    with refused(ProtocolError, 0, "run", code="old-epoch"):
        wire.sites["s00"].advertise(0, 4)
    wire.set_up()
    with refused(StateError, 0, "run", code="no-epoch"):
        wire.sites["s00"].masked(Order(0, 1, "task"), lambda: wire.vectors["s00"])
    wire.mask()
    assert_sum(wire.open(), wire, wire.names)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"kind": "task"}, "other-run"),
        ({"run": "other"}, "other-run"),
        ({"phase": "gossip"}, "unknown-phase"),
        ({"n_slots": True}, "bad-message"),
    ],
)
def test_message_that_is_not_understood_is_refused(change, code):
    wire = Wire()
    meta, arrays = wire.server.begin_epoch(2)
    with refused(ProtocolError, code=code):
        wire.sites["s00"].handle({**meta, **change}, arrays, None)


def test_min_sites_of_one_is_refused():
    with refused(ParameterError, "min_sites", 2):
        SecAggServer("run", min_sites=1)


def test_server_refuses_replies_that_do_not_fit():
    wire = Wire()
    adverts = wire.ask(wire.server.begin_epoch(2))
    with refused(ProtocolError, "s00", "advert", code="other-phase"):
        wire.server.roster_request({"s00": ({**adverts["s00"][0], "phase": "ready"}, {})})
    with refused(ProtocolError, "s01", code="other-epoch"):
        wire.server.roster_request({"s01": adverts["s00"]})
    with refused(ProtocolError, "public", code="bad-reply"):
        wire.server.roster_request({"s00": (adverts["s00"][0], {})})


def test_server_needs_enough_sites_for_an_epoch():
    wire = Wire()
    adverts = wire.ask(wire.server.begin_epoch(2))
    with refused(AggregationError, 2, 3, code="few-keys"):
        wire.server.roster_request({name: adverts[name] for name in wire.names[:2]})
    wire = Wire(threshold=5)
    adverts = wire.ask(wire.server.begin_epoch(2))
    with refused(AggregationError, 4, 5, code="few-keys"):
        wire.server.roster_request({name: adverts[name] for name in wire.names[:4]})


def test_drop_out_during_the_set_up_is_named():
    wire = Wire()
    shares = wire.ask(wire.server.roster_request(wire.ask(wire.server.begin_epoch(2))))
    with refused(AggregationError, "s04", code="dropped-out"):
        wire.server.deliveries({name: shares[name] for name in wire.names[:4]})
    wire.server.deliveries(shares)
    with refused(AggregationError, "s00", code="dropped-out"):
        wire.server.ready({})


def test_server_refuses_to_go_on_without_slot_or_set_up():
    wire = Wire()
    with refused(ProtocolError, code="no-epoch"):
        wire.server.ready({})
    with refused(AggregationError, code="no-slot"):
        wire.server.open_slot("task")
    with refused(ProtocolError, code="no-sum"):
        wire.server.unmask_requests()
    wire.set_up(n_slots=1)
    assert wire.server.slots_left == 1
    wire.mask()
    with refused(AggregationError, code="no-slot"):
        wire.server.open_slot("task")


def test_server_refuses_inputs_that_are_late_double_or_malformed():
    wire = Wire().set_up()
    order = wire.server.open_slot("task")
    reply = wire.sites["s00"].masked(order, lambda: wire.vectors["s00"])
    meta, arrays = reply
    with refused(ProtocolError, code="other-slot"):
        wire.server.collect({"s00": ({**meta, "slot": 3}, arrays)})
    with refused(ProtocolError, code="bad-reply"):
        wire.server.collect({"s00": (meta, {"y": arrays["y"].astype(float)})})
    assert wire.server.collect({}) is None
    assert wire.server.collect({"s00": reply}) == N
    with refused(ProtocolError, code="other-slot"):
        wire.server.collect({"s00": reply})
    short = wire.sites["s01"].masked(order, lambda: wire.vectors["s01"][:2])
    with refused(ProtocolError, code="different-lengths"):
        wire.server.collect({"s01": short})


def test_server_refuses_shares_of_another_slot():
    wire = Wire().set_up()
    wire.mask()
    replies = wire.ask_each(wire.server.unmask_requests())
    replies["s00"] = ({**replies["s00"][0], "slot": 2}, replies["s00"][1])
    with refused(ProtocolError, "s00", code="other-slot"):
        wire.server.open(replies)


def test_rosters_that_cannot_be():
    keys = (bytes(32),) * 3
    with refused(ProtocolError, code="bad-roster"):
        Roster("run", 0, 1, 0, ("a", "a", "b"), keys, 2)
    with refused(ProtocolError, 1, code="bad-roster"):
        Roster("run", 0, 1, 0, ("a",), keys[:1], 1)
    with refused(ProtocolError, 4, 3, code="bad-roster"):
        Roster("run", 0, 1, 0, ("a", "b", "c"), keys, 4)


def test_fields_of_the_wrong_kind_are_named():
    with refused(ProtocolError, "x", code="bad-message"):
        read_text({"x": 3}, "x")
    with refused(ProtocolError, "x", code="bad-message"):
        read_integer({}, "x")
    with refused(ProtocolError, "x", code="bad-message"):
        read_names({"x": ["a", 3]}, "x")
    with refused(ProtocolError, "x", code="bad-message"):
        rows_of({"x": np.zeros((2, 3), dtype=np.uint8)}, "x", (2, 4))
