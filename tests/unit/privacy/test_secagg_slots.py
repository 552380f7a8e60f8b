"""One slot, one input, one opening: what a site does only once, and what it forgets."""

import numpy as np
import pytest

from feddbn.errors import AggregationError, ProtocolError
from feddbn.privacy.integers import encode_fixed, sum_residues
from feddbn.privacy.keys import keystream, open_sealed
from feddbn.privacy.secagg import Order
from support.saying import refused
from support.secagg_wire import N, Wire, assert_sum

pytestmark = pytest.mark.promise


def test_one_slot_never_masks_two_inputs():
    wire = Wire().set_up()
    order = wire.mask()
    with refused(ProtocolError, 0, 1, 4, code="spent-slot"):
        wire.sites["s00"].masked(order, lambda: wire.vectors["s00"])
    with refused(ProtocolError, 4, code="spent-slot"):
        wire.sites["s00"].masked(Order(0, 4, "task"), lambda: wire.vectors["s00"])


def test_slot_stays_spent_when_the_answer_fails():
    wire = Wire().set_up()

    def fails():
        raise RuntimeError("disk")

    with pytest.raises(RuntimeError):
        wire.sites["s00"].masked(Order(0, 0, "task"), fails)
    with pytest.raises(ProtocolError, match="slot 0 is spent"):
        wire.sites["s00"].masked(Order(0, 0, "task"), lambda: wire.vectors["s00"])


def test_new_attempt_of_a_failed_sum_uses_fresh_masks():
    wire = Wire(n_sites=5, threshold=4).set_up()
    first = wire.mask(wire.names[:3])
    second = wire.mask()
    assert second.slot == first.slot + 1
    assert_sum(wire.open(), wire, wire.names)


def test_replayed_unmask_request_is_refused():
    wire = Wire().set_up()
    wire.mask()
    requests = wire.server.unmask_requests()
    wire.ask_each(requests)
    with refused(ProtocolError, 0, code="no-open-input"):
        wire.ask_each(requests)


def test_second_unmask_with_the_other_secret_of_a_site_is_refused():
    wire = Wire(n_sites=7, threshold=5).set_up()
    wire.mask()
    meta, arrays = wire.server.unmask_requests()["s00"]
    wire.sites["s00"].handle(meta, arrays, None)
    with refused(ProtocolError, code="no-open-input"):
        wire.sites["s00"].handle({**meta, "survivors": wire.names[:6]}, arrays, None)


def test_revealed_share_is_of_one_secret_only():
    wire = Wire(n_sites=7, threshold=5).set_up()
    held = wire.sites["s00"]._epoch.shares[0].copy()
    wire.mask(wire.names[:6])
    _, arrays = wire.sites["s00"].handle(*wire.requests()["s00"], None)
    np.testing.assert_array_equal(arrays["shares"][:6], held[0, :6])
    np.testing.assert_array_equal(arrays["shares"][6], held[1, 6])


def test_site_called_a_drop_out_although_it_sent_reveals_nothing():
    wire = Wire(n_sites=7, threshold=5).set_up()
    wire.mask()
    meta, arrays = wire.server.unmask_requests()["s00"]
    with refused(ProtocolError, code="bad-survivors"):
        wire.sites["s06"].handle({**meta, "survivors": wire.names[:6]}, arrays, None)


def test_unmask_request_with_strangers_or_doubles_is_refused():
    wire = Wire().set_up()
    wire.mask()
    meta, _ = wire.server.unmask_requests()["s00"]
    with refused(ProtocolError, code="bad-survivors"):
        wire.sites["s00"].handle({**meta, "survivors": [*wire.names, "zz"]}, {}, None)
    with refused(ProtocolError, code="bad-message"):
        wire.sites["s00"].handle({**meta, "survivors": [*wire.names, "s00"]}, {}, None)


@pytest.mark.parametrize("digest", ["same", "another"])
def test_after_a_sum_none_is_opened_that_together_with_it_shows_a_site(digest):
    # The difference of the two sums would be the vector of s04, whatever the tasks are called.
    wire = Wire(n_sites=5).set_up()
    wire.mask(digest="same")
    wire.open()
    wire.mask(wire.names[:4], digest=digest)
    with refused(AggregationError, 3, code="shows-few-sites"):
        wire.open()


def test_task_that_was_opened_may_be_opened_again_for_the_same_set():
    wire = Wire().set_up()
    for _ in range(2):
        wire.mask(digest="same")
        assert_sum(wire.open(), wire, wire.names)


def test_secrets_of_past_slots_are_erased():
    wire = Wire().set_up()
    wire.mask()
    wire.mask()
    wire.open()
    state = wire.sites["s00"]._epoch
    assert not state.shares[:2].any()
    assert not state.secrets[:2].any()
    # What the slots to come need is there: own secrets, seeds and tag keys with the four peers, all shares.
    assert state.shares[2:].any(axis=-1).all()
    assert state.secrets[2:].any(axis=-1).sum() == 2 * (2 + 4 + 4)


def test_what_a_drop_out_reveals_does_not_open_its_input_in_another_slot():
    # s00 has answered slot 0, which was given up; it drops out of slot 1, and its pair seeds of slot 1 are opened. With
    # everything revealed so far the server still misses the pair masks of slot 0.
    wire = Wire(n_sites=5).set_up()
    seeds_before = wire.sites["s00"]._epoch.secrets[:, 2:7].copy()
    wire.mask(digest="first")
    wire.mask(wire.names[1:], digest="second")
    replies = wire.ask_each(wire.requests())
    revealed = []
    original = wire.server._left_over_masks

    def spy(slot, roster, secrets):
        revealed.append(secrets)
        return original(slot, roster, secrets)

    wire.server._left_over_masks = spy
    wire.server.open(replies)
    table = open_sealed(
        revealed[0][:32], wire.server._seed_lists["s00"][1].tobytes(), wire.server._roster.context
    )
    for position in range(1, 5):
        assert table[32 * position : 32 * position + 32] == seeds_before[1, position].tobytes()
        assert seeds_before[0, position].tobytes() not in table
    with pytest.raises(AggregationError):
        open_sealed(
            revealed[0][:32], wire.server._seed_lists["s00"][0].tobytes(), wire.server._roster.context
        )


def test_number_of_slots_is_bounded():
    with refused(ProtocolError, 1, 4096, 0, code="bad-slots"):
        Wire().sites["s00"].advertise(0, 0)


def test_late_input_stays_hidden_although_the_pair_masks_of_its_site_were_opened():
    # The server holds the input of s00, calls it a drop-out and so learns its pair seeds: the self mask is left.
    wire = Wire(n_sites=5, threshold=4).set_up()
    epoch = wire.sites["s00"]._epoch
    seeds, b = epoch.secrets[0, 2:7].copy(), epoch.secrets[0, 0].tobytes()
    order = wire.server.open_slot("task")
    replies = wire.ask((wire.server.masked_request(order), {}))
    wire.server.collect({name: replies[name] for name in wire.names[1:]})
    assert_sum(wire.open(), wire, wire.names[1:])
    # s00 comes first, so it has added every pair mask.
    pair_masks = [keystream(seeds[k].tobytes(), N * 16, complement=True) for k in range(1, 5)]
    left = sum_residues([replies["s00"][1]["y"], *pair_masks], N, plus=4)
    own = encode_fixed(wire.vectors["s00"], 5)
    assert not np.any(left == own)
    np.testing.assert_array_equal(left, sum_residues([own, keystream(b, N * 16)], N))
