"""Sums with and without drop-outs, and when they stay closed."""

import numpy as np
import pytest

from feddbn.errors import AggregationError, ProtocolError
from feddbn.privacy.policy import default_threshold, lowest_threshold
from feddbn.privacy.secagg import Order, odd_ones
from support.saying import refused
from support.secagg_wire import Wire, assert_sum


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


def test_below_the_threshold_the_sites_reveal_nothing_even_if_asked():
    wire = Wire(n_sites=5, threshold=4).set_up()
    order = wire.mask(wire.names[:3])
    request = {**wire.server._meta("unmask"), "slot": order.slot, "survivors": wire.names[:3]}
    for name in wire.names[:3]:
        with refused(AggregationError, 3, 4, code="few-inputs"):
            wire.sites[name].handle(request, {}, None)


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


@pytest.mark.parametrize(
    ("found", "odd"),
    [
        ({}, []),
        ({"a": 3}, []),
        ({"a": 3, "b": 3}, []),
        ({"a": 2, "b": 3, "c": 3}, [("a", 2, 3)]),
        ({"a": 3, "b": 2, "c": 3, "d": 4, "e": 3}, [("b", 2, 3), ("d", 4, 3)]),
    ],
)
def test_who_differs_from_more_than_half_is_odd_wherever_it_stands(found, odd):
    assert odd_ones(found, "length") == odd


@pytest.mark.parametrize(
    "found", [{"a": 2, "b": 3}, {"a": 2, "b": 2, "c": 3, "d": 3}, {"a": 2, "b": 2, "c": 3, "d": 4}]
)
def test_without_a_majority_nobody_is_named_alone(found):
    with refused(ProtocolError, code="no-majority") as caught:
        odd_ones(found, "length")
    assert all(f"{site}" in str(caught.value) for site in found)
