"""Sums with and without drop-outs, and when they stay closed."""

import numpy as np
import pytest

from feddbn.errors import AggregationError, ProtocolError
from feddbn.privacy.secagg import Order, default_threshold, lowest_threshold
from support.saying import refused
from support.secagg_wire import Wire, assert_sum


def test_sum_of_everybody():
    wire = Wire().set_up()
    wire.mask()
    opened = wire.open()
    assert_sum(opened, wire, wire.names)
    assert opened.dropped == ()


def test_drop_out_before_its_input_leaves_the_sum_of_the_others():
    wire = Wire().set_up()
    alive = [name for name in wire.names if name != "s01"]
    wire.mask(alive)
    opened = wire.open()
    assert_sum(opened, wire, alive)
    assert opened.dropped == ("s01",)


def test_drop_out_after_its_input_still_counts():
    wire = Wire().set_up()
    wire.mask()
    assert_sum(wire.open(helpers=wire.names[1:]), wire, wire.names)


def test_double_failure_one_before_and_one_after():
    wire = Wire(n_sites=7, threshold=5).set_up()
    wire.mask(wire.names[1:])
    assert_sum(wire.open(helpers=wire.names[2:]), wire, wire.names[1:])


def test_a_sum_over_some_of_the_roster_is_refused_at_both_ends():
    wire = Wire(n_sites=6).set_up()
    some = ("s00", "s02", "s05")
    with refused(ProtocolError, "s01", code="some-sites-only"):
        wire.server.open_slot("task", some)
    with refused(ProtocolError, "s01", code="some-sites-only"):
        wire.sites["s00"].masked(Order(0, 0, "task", some), lambda: wire.vectors["s00"])


def test_masked_input_tells_nothing_that_the_vector_determines():
    # The same vector twice under different slots: all 128 bits of every entry look fresh.
    wire = Wire(n=400).set_up()
    first, second = (
        wire.sites["s00"].masked(Order(0, slot, "task"), lambda: wire.vectors["s00"])[1]["y"]
        for slot in (0, 1)
    )
    bits = np.unpackbits((first ^ second).view(np.uint8))
    assert abs(bits.mean() - 0.5) < 0.01


def test_below_the_threshold_the_server_asks_nobody_to_reveal_anything():
    wire = Wire(n_sites=5, threshold=4).set_up()
    wire.mask(wire.names[:3])
    with refused(AggregationError, 3, 4, code="few-inputs"):
        wire.server.unmask_requests()


def test_below_the_threshold_the_sites_reveal_nothing_even_if_asked():
    wire = Wire(n_sites=5, threshold=4).set_up()
    order = wire.mask(wire.names[:3])
    request = {**wire.server._meta("unmask"), "slot": order.slot, "survivors": wire.names[:3]}
    for name in wire.names[:3]:
        with refused(AggregationError, 3, 4, code="few-inputs"):
            wire.sites[name].handle(request, {}, None)


def test_too_few_helpers_leave_the_sum_closed():
    wire = Wire(n_sites=5, threshold=4).set_up()
    wire.mask()
    with refused(AggregationError, 3, 4, code="few-helpers"):
        wire.open(helpers=wire.names[:3])


@pytest.mark.parametrize("length", [3, 6, 9])
def test_masks_computed_ahead_fit_shorter_equal_and_longer_vectors(length):
    wire = Wire(n_sites=7, threshold=5).set_up(length=length)
    wire.mask(wire.names[1:], digest="a")
    assert_sum(wire.open(helpers=wire.names[2:]), wire, wire.names[1:])
    wire.mask(wire.names[1:], digest="b")
    assert_sum(wire.open(), wire, wire.names[1:])
    state = wire.sites["s01"]._epoch
    assert len(state.masks) == 4
    # Used masks are gone, the ones to come are there.
    assert state.masks[:2] == [None, None]
    assert state.masks[3].shape == (2, length)


def test_too_many_masks_ahead_are_refused():
    with refused(ProtocolError, 4096, 1000, code="bad-slots"):
        Wire().sites["s00"].advertise(0, 4096, 1000)


def test_thresholds_leave_no_room_for_two_stories():
    for n in range(3, 60):
        n_colluding = (n - 1) // 3
        assert 2 * lowest_threshold(n, 2) > n + n_colluding
        assert lowest_threshold(n, 3) == default_threshold(n) <= n
