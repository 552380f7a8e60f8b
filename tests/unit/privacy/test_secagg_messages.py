"""Messages out of order or malformed, at the sites and at the server."""

import numpy as np
import pytest

from feddbn.errors import AggregationError, ParameterError, ProtocolError, StateError
from feddbn.privacy.secagg import (
    Order,
    Roster,
    read_integer,
    read_names,
    read_text,
    rows_of,
)
from feddbn.privacy.secagg_server import SecAggServer
from support.secagg_wire import N, Wire, assert_sum, roster_request


def test_phases_out_of_order_are_refused_and_change_nothing():
    wire = Wire()
    site = wire.sites["s00"]
    message = roster_request(wire)
    with pytest.raises(ProtocolError, match="this epoch is not ready"):
        site.masked(Order(0, 0, "task"), lambda: wire.vectors["s00"])
    with pytest.raises(ProtocolError, match="no open input in slot 0"):
        site.handle({**wire.server._meta("unmask"), "slot": 0, "survivors": wire.names}, {}, None)
    with pytest.raises(ProtocolError, match="shares can be delivered once, after"):
        site.handle(wire.server._meta("deliver"), {}, None)
    site.handle(*message, None)
    with pytest.raises(ProtocolError, match="shared its secrets of this epoch already"):
        site.handle(*message, None)
    wire.sites["s00"] = wire.site("s00")
    wire.server = SecAggServer("run")
    wire.sites = {name: wire.site(name) for name in wire.names}
    wire.set_up()
    wire.mask()
    assert_sum(wire.open(), wire, wire.names)


def test_epochs_only_go_up_and_the_old_one_is_forgotten():
    wire = Wire().set_up()
    with pytest.raises(ProtocolError, match="epoch 0 of run 'run' has been begun before; epochs only go up"):
        wire.sites["s00"].advertise(0, 4)
    wire.set_up()
    with pytest.raises(StateError, match="not in epoch 0 of run 'run'; it joins at the next epoch"):
        wire.sites["s00"].masked(Order(0, 1, "task"), lambda: wire.vectors["s00"])
    wire.mask()
    assert_sum(wire.open(), wire, wire.names)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": "task"}, "not a secure-aggregation message of run 'run'"),
        ({"run": "other"}, "not a secure-aggregation message of run 'run'"),
        ({"phase": "gossip"}, "secure aggregation has no phase 'gossip'"),
        ({"n_slots": True}, "lacks the whole number 'n_slots'"),
    ],
)
def test_message_that_is_not_understood_is_refused(change, sentence):
    wire = Wire()
    meta, arrays = wire.server.begin_epoch(2)
    with pytest.raises(ProtocolError, match=sentence):
        wire.sites["s00"].handle({**meta, **change}, arrays, None)


def test_min_sites_of_one_is_refused():
    with pytest.raises(ParameterError, match="min_sites must be at least 2"):
        SecAggServer("run", min_sites=1)


def test_server_refuses_replies_that_do_not_fit():
    wire = Wire()
    adverts = wire.ask(wire.server.begin_epoch(2))
    with pytest.raises(ProtocolError, match="'s00' did not answer the 'advert' phase"):
        wire.server.roster_request({"s00": ({**adverts["s00"][0], "phase": "ready"}, {})})
    with pytest.raises(ProtocolError, match="'s01' answered for another epoch, or for another site"):
        wire.server.roster_request({"s01": adverts["s00"]})
    with pytest.raises(ProtocolError, match="lacks the bytes 'public'"):
        wire.server.roster_request({"s00": (adverts["s00"][0], {})})


def test_server_needs_enough_sites_for_an_epoch():
    wire = Wire()
    adverts = wire.ask(wire.server.begin_epoch(2))
    with pytest.raises(AggregationError, match="too few sites answered the call for keys: 2 sites, but 3"):
        wire.server.roster_request({name: adverts[name] for name in wire.names[:2]})
    wire = Wire(threshold=5)
    adverts = wire.ask(wire.server.begin_epoch(2))
    with pytest.raises(AggregationError, match="too few sites answered the call for keys: 4 sites, but 5"):
        wire.server.roster_request({name: adverts[name] for name in wire.names[:4]})


def test_drop_out_during_the_set_up_is_named():
    wire = Wire()
    shares = wire.ask(wire.server.roster_request(wire.ask(wire.server.begin_epoch(2))))
    with pytest.raises(
        AggregationError, match="site 's04' dropped out of the set-up; begin a new epoch without it"
    ):
        wire.server.deliveries({name: shares[name] for name in wire.names[:4]})
    wire.server.deliveries(shares)
    with pytest.raises(AggregationError, match="site 's00' dropped out of the set-up"):
        wire.server.ready({})


def test_server_refuses_to_go_on_without_slot_or_set_up():
    wire = Wire()
    with pytest.raises(ProtocolError, match="no epoch is being set up"):
        wire.server.ready({})
    with pytest.raises(AggregationError, match="no slot is left in this epoch"):
        wire.server.open_slot("task")
    with pytest.raises(ProtocolError, match="no sum is under way"):
        wire.server.unmask_requests()
    wire.set_up(n_slots=1)
    assert wire.server.slots_left == 1
    wire.mask()
    with pytest.raises(AggregationError, match="no slot is left"):
        wire.server.open_slot("task")


def test_server_refuses_inputs_that_are_late_double_or_malformed():
    wire = Wire().set_up()
    order = wire.server.open_slot("task")
    reply = wire.sites["s00"].masked(order, lambda: wire.vectors["s00"])
    meta, arrays = reply
    with pytest.raises(ProtocolError, match="answered for another slot, or twice"):
        wire.server.collect({"s00": ({**meta, "slot": 3}, arrays)})
    with pytest.raises(ProtocolError, match="not a masked vector"):
        wire.server.collect({"s00": (meta, {"y": arrays["y"].astype(float)})})
    assert wire.server.collect({}) is None
    assert wire.server.collect({"s00": reply}) == N
    with pytest.raises(ProtocolError, match="answered for another slot, or twice"):
        wire.server.collect({"s00": reply})
    short = wire.sites["s01"].masked(order, lambda: wire.vectors["s01"][:2])
    with pytest.raises(ProtocolError, match="different lengths cannot be added up"):
        wire.server.collect({"s01": short})


def test_server_refuses_shares_of_another_slot():
    wire = Wire().set_up()
    wire.mask()
    replies = wire.ask_each(wire.server.unmask_requests())
    replies["s00"] = ({**replies["s00"][0], "slot": 2}, replies["s00"][1])
    with pytest.raises(ProtocolError, match="'s00' answered for another slot, or twice, or was not asked"):
        wire.server.open(replies)


def test_rosters_that_cannot_be():
    keys = (bytes(32),) * 3
    with pytest.raises(ProtocolError, match="names a site twice or is not sorted"):
        Roster("run", 0, 1, 0, ("a", "a", "b"), keys, 2)
    with pytest.raises(ProtocolError, match="one key each, got 1"):
        Roster("run", 0, 1, 0, ("a",), keys[:1], 1)
    with pytest.raises(ProtocolError, match="threshold 4 does not fit a roster of 3 sites"):
        Roster("run", 0, 1, 0, ("a", "b", "c"), keys, 4)


def test_fields_of_the_wrong_kind_are_named():
    with pytest.raises(ProtocolError, match="lacks the text 'x'"):
        read_text({"x": 3}, "x")
    with pytest.raises(ProtocolError, match="lacks the whole number 'x'"):
        read_integer({}, "x")
    with pytest.raises(ProtocolError, match="lacks the list of sites 'x'"):
        read_names({"x": ["a", 3]}, "x")
    with pytest.raises(ProtocolError, match="lacks the bytes 'x' of shape"):
        rows_of({"x": np.zeros((2, 3), dtype=np.uint8)}, "x", (2, 4))
