"""Server and sites wired in memory; every rule of the protocol is broken once."""

import numpy as np
import pytest

from feddbn.errors import AggregationError, ParameterError, ProtocolError, StateError
from feddbn.privacy.keys import Identity, pinned_keys
from feddbn.privacy.secagg import (
    Order,
    Roster,
    default_threshold,
    lowest_threshold,
    read_integer,
    read_names,
    read_text,
    rows_of,
)
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
        alive = self.names if alive is None else alive
        taking_part = [name for name in alive if participants is None or name in participants]
        length = self.server.collect(self.ask((self.server.masked_request(order), {}), taking_part))
        others = [name for name in alive if name not in taking_part]
        self.server.collect(
            self.ask((self.server.masked_request(order, length), {}), others) if others else {}
        )
        return order

    def open(self, helpers=None):
        return self.server.open(self.ask_each(self.server.unmask_requests(), helpers))

    def sum(self, names):
        return np.sum([self.vectors[name] for name in names], axis=0)


def assert_sum(opened, wire, names):
    assert opened.contributors == tuple(names)
    np.testing.assert_allclose(opened.value, wire.sum(names), rtol=1e-9, atol=1e-15)


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


def test_sites_that_do_not_take_part_add_nothing():
    wire = Wire(n_sites=6).set_up()
    some = ("s00", "s02", "s05")
    wire.mask(participants=some)
    assert_sum(wire.open(), wire, some)


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
    with pytest.raises(
        AggregationError, match="too few sites sent their input: 3 sites, but 4 are needed; nothing was"
    ):
        wire.server.unmask_requests()


def test_below_the_threshold_the_sites_reveal_nothing_even_if_asked():
    wire = Wire(n_sites=5, threshold=4).set_up()
    order = wire.mask(wire.names[:3])
    request = {**wire.server._meta("unmask"), "slot": order.slot, "survivors": wire.names[:3]}
    for name in wire.names[:3]:
        with pytest.raises(AggregationError, match="too few sites sent their input: 3 sites, but 4"):
            wire.sites[name].handle(request, {}, None)


def test_too_few_helpers_leave_the_sum_closed():
    wire = Wire(n_sites=5, threshold=4).set_up()
    wire.mask()
    with pytest.raises(
        AggregationError, match="too few sites helped to open the sum: 3 sites, but 4 are needed"
    ):
        wire.open(helpers=wire.names[:3])


def test_too_few_participants_among_the_survivors_are_refused_at_both_ends():
    wire = Wire(n_sites=6, threshold=4).set_up()
    order = wire.mask(wire.names[1:], participants=("s00", "s01", "s02"))
    with pytest.raises(
        AggregationError, match="too few of the sites that take part sent their input: 2 sites, but 3"
    ):
        wire.server.unmask_requests()
    request = {**wire.server._meta("unmask"), "slot": order.slot, "survivors": wire.names[1:]}
    with pytest.raises(AggregationError, match="too few of the sites that take part"):
        wire.sites["s03"].handle(request, {}, None)


def test_task_for_fewer_than_min_sites_is_refused_at_both_ends():
    wire = Wire().set_up()
    with pytest.raises(AggregationError, match="too few sites of the roster take part in this task: 2"):
        wire.server.open_slot("task", ("s00", "s01"))
    with pytest.raises(AggregationError, match="does not join so small a sum: 2 sites, but 3 are needed"):
        wire.sites["s00"].masked(Order(0, 0, "task", ("s00", "s01")), lambda: wire.vectors["s00"])


def test_one_slot_never_masks_two_inputs():
    wire = Wire().set_up()
    order = wire.mask()
    with pytest.raises(
        ProtocolError, match="slot 0 is spent or does not exist; the next of this epoch is 1 of 4"
    ):
        wire.sites["s00"].masked(order, lambda: wire.vectors["s00"])
    with pytest.raises(ProtocolError, match="slot 4 is spent or does not exist"):
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
    with pytest.raises(ProtocolError, match="no open input in slot 0; it unmasks each slot at most once"):
        wire.ask_each(requests)


def test_second_unmask_with_the_other_secret_of_a_site_is_refused():
    wire = Wire(n_sites=7, threshold=5).set_up()
    wire.mask()
    meta, arrays = wire.server.unmask_requests()["s00"]
    wire.sites["s00"].handle(meta, arrays, None)
    with pytest.raises(ProtocolError, match="at most once"):
        wire.sites["s00"].handle({**meta, "survivors": wire.names[:6]}, arrays, None)


def test_revealed_share_is_of_one_secret_only():
    wire = Wire(n_sites=7, threshold=5).set_up()
    held = wire.sites["s00"]._epoch.shares[:, 0].copy()
    wire.mask(wire.names[:6])
    _, arrays = wire.sites["s00"].handle(*wire.server.unmask_requests()["s00"], None)
    np.testing.assert_array_equal(arrays["shares"][:6], held[:6, 0])
    np.testing.assert_array_equal(arrays["shares"][6], held[6, 1])


def test_site_called_a_drop_out_although_it_sent_reveals_nothing():
    wire = Wire(n_sites=7, threshold=5).set_up()
    wire.mask()
    meta, arrays = wire.server.unmask_requests()["s00"]
    with pytest.raises(ProtocolError, match="calls this site a drop-out, although it has sent its input"):
        wire.sites["s06"].handle({**meta, "survivors": wire.names[:6]}, arrays, None)


def test_unmask_request_with_strangers_or_doubles_is_refused():
    wire = Wire().set_up()
    wire.mask()
    meta, _ = wire.server.unmask_requests()["s00"]
    with pytest.raises(ProtocolError, match="names a site that is not on the roster"):
        wire.sites["s00"].handle({**meta, "survivors": [*wire.names, "zz"]}, {}, None)
    with pytest.raises(ProtocolError, match="names a site twice"):
        wire.sites["s00"].handle({**meta, "survivors": [*wire.names, "s00"]}, {}, None)


def test_task_that_was_opened_is_not_opened_for_another_set():
    # The difference of the two sums would be the vector of s04.
    wire = Wire(n_sites=5, threshold=4).set_up()
    wire.mask(digest="same")
    wire.open()
    wire.mask(wire.names[:4], digest="same")
    with pytest.raises(
        AggregationError, match="opened for another set of sites; the difference would show a few"
    ):
        wire.open()


def test_task_that_was_opened_may_be_opened_again_for_the_same_set():
    wire = Wire().set_up()
    for _ in range(2):
        wire.mask(digest="same")
        assert_sum(wire.open(), wire, wire.names)


def test_sites_told_different_tasks_reveal_nothing():
    wire = Wire().set_up()
    order = wire.server.open_slot("honest")
    lie = Order(order.epoch, order.slot, "only for s00")
    replies = {
        name: wire.sites[name].masked(lie if name == "s00" else order, lambda name=name: wire.vectors[name])
        for name in wire.names
    }
    wire.server.collect(replies)
    requests = wire.server.unmask_requests()
    for name in wire.names[1:]:
        with pytest.raises(
            AggregationError, match="site 's00' was asked something else than this site; nothing"
        ):
            wire.sites[name].handle(*requests[name], None)
    with pytest.raises(AggregationError, match="site 's01' was asked something else than this site"):
        wire.sites["s00"].handle(*requests["s00"], None)


def test_sites_told_different_participants_reveal_nothing():
    wire = Wire(n_sites=6).set_up()
    order = wire.server.open_slot("task")
    lie = Order(order.epoch, order.slot, "task", ("s00", "s01", "s02"))
    replies = {
        name: wire.sites[name].masked(lie if name == "s00" else order, lambda name=name: wire.vectors[name])
        for name in wire.names
    }
    wire.server.collect(replies)
    requests = wire.server.unmask_requests()
    with pytest.raises(AggregationError, match="'s00' was asked something else"):
        wire.sites["s05"].handle(*requests["s05"], None)


def test_tag_of_another_site_does_not_pass():
    wire = Wire().set_up()
    wire.mask()
    meta, arrays = wire.server.unmask_requests()["s00"]
    arrays["tags"][[1, 2]] = arrays["tags"][[2, 1]]
    with pytest.raises(AggregationError, match="'s01' was asked something else"):
        wire.sites["s00"].handle(meta, arrays, None)


@pytest.mark.parametrize("length", [3, 6, 9])
def test_masks_computed_ahead_fit_shorter_equal_and_longer_vectors(length):
    wire = Wire(n_sites=6, threshold=4).set_up(length=length)
    wire.mask(digest="a")
    assert_sum(wire.open(), wire, wire.names)
    wire.mask(wire.names[1:], digest="b")
    assert_sum(wire.open(helpers=wire.names[2:]), wire, wire.names[1:])
    state = wire.sites["s00"]._epoch
    assert len(state.masks) == 4
    # s00 took part in slot 0 only; its used mask is gone, the ones to come are there.
    assert state.masks[0] is None
    assert state.masks[3].shape == (2, length)


def test_too_many_masks_ahead_are_refused():
    with pytest.raises(ProtocolError, match="masks for 4096 vectors of length 1000 cannot be computed ahead"):
        Wire().sites["s00"].advertise(0, 4096, 1000)


def test_secrets_of_past_slots_are_erased():
    wire = Wire().set_up()
    wire.mask()
    wire.mask()
    wire.open()
    state = wire.sites["s00"]._epoch
    assert not state.shares[:, :2].any()
    assert not any(state.own[: 2 * 64])
    assert not any(state.seeds[: 2 * 5 * 32])
    assert not any(state.tag_keys[: 2 * 5 * 32])
    assert any(state.seeds[2 * 5 * 32 :])
    assert state.shares[:, 2:].any()


def test_what_a_drop_out_reveals_does_not_open_its_earlier_input():
    # s00 answers slot 0 (its self mask is opened) and drops out of slot 1 (its pair seeds of slot 1 are
    # opened). With everything revealed so far the server still misses the pair masks of slot 0.
    wire = Wire(n_sites=5, threshold=4).set_up()
    seeds_before = np.frombuffer(bytes(wire.sites["s00"]._epoch.seeds), dtype=np.uint8).reshape(4, 5, 32)
    wire.mask(digest="first")
    wire.open()
    wire.mask(wire.names[1:], digest="second")
    replies = wire.ask_each(wire.server.unmask_requests())
    revealed = []
    original = wire.server._left_over_masks

    def spy(slot, roster, secrets):
        revealed.append(secrets)
        return original(slot, roster, secrets)

    wire.server._left_over_masks = spy
    wire.server.open(replies)
    from feddbn.privacy.keys import open_sealed

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


def test_altered_share_is_noticed_by_its_receiver():
    wire = Wire()
    shares = wire.ask(wire.server.roster_request(wire.ask(wire.server.begin_epoch(2))))
    deliveries = wire.server.deliveries(shares)
    deliveries["s01"][1]["sealed"][0, 5] ^= 1
    with pytest.raises(AggregationError, match="a sealed message was altered"):
        wire.sites["s01"].handle(*deliveries["s01"], None)


def test_altered_share_is_noticed_when_the_sum_is_opened():
    wire = Wire().set_up()
    wire.mask()
    replies = wire.ask_each(wire.server.unmask_requests())
    replies["s02"][1]["shares"][3, 0] ^= 1
    with pytest.raises(
        AggregationError, match="shares of site 's03' do not open what it committed to; some were altered"
    ):
        wire.server.open(replies)


def _roster(wire):
    return wire.server.roster_request(wire.ask(wire.server.begin_epoch(2)))


def test_server_cannot_put_its_own_key_in_the_middle():
    wire = Wire()
    meta, arrays = _roster(wire)
    arrays["publics"][1] = np.frombuffer(wire.rng.bytes(32), dtype=np.uint8)
    with pytest.raises(
        AggregationError, match="key advertised for site 's01' is not signed by its pinned identity"
    ):
        wire.sites["s00"].handle(meta, arrays, None)


def test_stranger_on_the_roster_is_refused():
    wire = Wire()
    meta, arrays = _roster(wire)
    meta["names"][4] = "stranger"
    with pytest.raises(
        AggregationError, match="'stranger' is on the roster, but no identity key is pinned for it"
    ):
        wire.sites["s00"].handle(meta, arrays, None)


def test_roster_with_a_site_twice_is_refused():
    wire = Wire()
    meta, arrays = _roster(wire)
    meta["names"][4] = "s03"
    with pytest.raises(ProtocolError, match="names a site twice"):
        wire.sites["s00"].handle(meta, arrays, None)
    meta["names"] = list(reversed(wire.names))
    with pytest.raises(ProtocolError, match="roster is not sorted by name"):
        wire.sites["s00"].handle(meta, arrays, None)


def test_roster_without_this_site_or_with_its_old_key_is_refused():
    wire = Wire()
    first = wire.ask(wire.server.begin_epoch(2))
    message = wire.server.roster_request({name: first[name] for name in wire.names[1:]})
    with pytest.raises(AggregationError, match="roster does not carry the key this site has advertised"):
        wire.sites["s00"].handle(*message, None)


def test_low_threshold_and_small_roster_are_refused_by_the_site():
    wire = Wire(threshold=2)
    with pytest.raises(AggregationError, match="threshold 2 is too low for 5 sites; it must be 3"):
        wire.sites["s00"].handle(*_roster(wire), None)
    wire = Wire()
    wire.sites["s00"] = wire.site("s00", min_sites=6)
    with pytest.raises(AggregationError, match="does not join so small a roster: 5 sites, but 6 are needed"):
        wire.sites["s00"].handle(*_roster(wire), None)


def test_sites_that_saw_different_rosters_cannot_open_each_others_shares():
    wire = Wire(n_sites=6)
    adverts = wire.ask(wire.server.begin_epoch(2))
    whole = wire.server.roster_request(adverts)
    without_last = {name: adverts[name] for name in wire.names[:5]}
    wire.server._adverts.clear()
    short = wire.server.roster_request(without_last)
    from_whole = wire.sites["s01"].handle(*whole, None)[1]["sealed"][0]
    wire.sites["s00"].handle(*short, None)
    rows = np.stack([from_whole] * 5)
    with pytest.raises(AggregationError, match="sealed for another site, run or roster"):
        wire.sites["s00"].handle({**wire.server._meta("deliver")}, {"sealed": rows}, None)


def test_phases_out_of_order_are_refused_and_change_nothing():
    wire = Wire()
    site = wire.sites["s00"]
    message = _roster(wire)
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


def test_number_of_slots_is_bounded():
    with pytest.raises(ProtocolError, match="an epoch has 1 to 4096 slots, got 0"):
        Wire().sites["s00"].advertise(0, 0)


def test_site_that_does_not_take_part_must_be_told_the_length():
    wire = Wire(n_sites=6).set_up()
    with pytest.raises(ProtocolError, match="must be told the length of the vector"):
        wire.sites["s05"].masked(Order(0, 0, "task", ("s00", "s01", "s02")), lambda: wire.vectors["s05"])


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


def test_own_key_must_be_the_pinned_one():
    wire = Wire()
    with pytest.raises(AggregationError, match="identity pinned for site 's00' is not this site's own key"):
        SecAggSite("s00", wire.identities["s01"], wire.pinned, "run", wire.rng.bytes)


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
    with pytest.raises(ProtocolError, match="input for another slot, or twice"):
        wire.server.collect({"s00": ({**meta, "slot": 3}, arrays)})
    with pytest.raises(ProtocolError, match="not a masked vector"):
        wire.server.collect({"s00": (meta, {"y": arrays["y"].astype(float)})})
    assert wire.server.collect({}) is None
    assert wire.server.collect({"s00": reply}) == N
    with pytest.raises(ProtocolError, match="input for another slot, or twice"):
        wire.server.collect({"s00": reply})
    short = wire.sites["s01"].masked(order, lambda: wire.vectors["s01"][:2])
    with pytest.raises(ProtocolError, match="site 's01' answered with length 2, others with 6"):
        wire.server.collect({"s01": short})


def test_server_refuses_shares_of_another_slot():
    wire = Wire().set_up()
    wire.mask()
    replies = wire.ask_each(wire.server.unmask_requests())
    replies["s00"] = ({**replies["s00"][0], "slot": 2}, replies["s00"][1])
    with pytest.raises(ProtocolError, match="'s00' revealed shares of another slot, or was not asked"):
        wire.server.open(replies)


def test_rosters_that_cannot_be():
    keys = (bytes(32),) * 3
    with pytest.raises(ProtocolError, match="names a site twice or is not sorted"):
        Roster("run", 0, 1, 0, ("a", "a", "b"), keys, 2)
    with pytest.raises(ProtocolError, match="one key each, got 1"):
        Roster("run", 0, 1, 0, ("a",), keys[:1], 1)
    with pytest.raises(ProtocolError, match="threshold 4 does not fit a roster of 3 sites"):
        Roster("run", 0, 1, 0, ("a", "b", "c"), keys, 4)


def test_thresholds_leave_no_room_for_two_stories():
    for n in range(3, 60):
        assert 2 * lowest_threshold(n, 2) > n
        assert lowest_threshold(n, 3) <= default_threshold(n) <= n


def test_fields_of_the_wrong_kind_are_named():
    with pytest.raises(ProtocolError, match="lacks the text 'x'"):
        read_text({"x": 3}, "x")
    with pytest.raises(ProtocolError, match="lacks the whole number 'x'"):
        read_integer({}, "x")
    with pytest.raises(ProtocolError, match="lacks the list of sites 'x'"):
        read_names({"x": ["a", 3]}, "x")
    with pytest.raises(ProtocolError, match="lacks the bytes 'x' of shape"):
        rows_of({"x": np.zeros((2, 3), dtype=np.uint8)}, "x", (2, 4))
