"""A server, or somebody between, that lies about keys, rosters, tasks and shares."""

import numpy as np
import pytest

from feddbn.errors import AggregationError, ProtocolError
from feddbn.privacy.register import Entry, member
from feddbn.privacy.secagg import Order
from feddbn.privacy.secagg_site import SecAggSite
from support.saying import refused
from support.secagg_wire import Wire, roster_request

pytestmark = pytest.mark.promise


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
        with refused(AggregationError, "s00", code="asked-otherwise"):
            wire.sites[name].handle(*requests[name], None)
    with refused(AggregationError, "s01", code="asked-otherwise"):
        wire.sites["s00"].handle(*requests["s00"], None)


def test_sites_told_different_participants_reveal_nothing():
    wire = Wire(n_sites=6).set_up()
    order = wire.server.open_slot("task")
    lie = Order(order.epoch, order.slot, "task", (*wire.names, "zz"))
    replies = {
        name: wire.sites[name].masked(lie if name == "s00" else order, lambda name=name: wire.vectors[name])
        for name in wire.names
    }
    wire.server.collect(replies)
    requests = wire.server.unmask_requests()
    with refused(AggregationError, "s00", code="asked-otherwise"):
        wire.sites["s05"].handle(*requests["s05"], None)


def test_tag_of_another_site_does_not_pass():
    wire = Wire().set_up()
    wire.mask()
    meta, arrays = wire.server.unmask_requests()["s00"]
    arrays["tags"][[1, 2]] = arrays["tags"][[2, 1]]
    with refused(AggregationError, "s01", code="asked-otherwise"):
        wire.sites["s00"].handle(meta, arrays, None)


def test_altered_share_is_noticed_by_its_receiver():
    wire = Wire()
    shares = wire.ask(wire.server.roster_request(wire.ask(wire.server.begin_epoch(2))))
    deliveries = wire.server.deliveries(shares)
    deliveries["s01"][1]["sealed"][0, 5] ^= 1
    with refused(AggregationError, code="altered-seal"):
        wire.sites["s01"].handle(*deliveries["s01"], None)


@pytest.mark.parametrize("rows", [[3], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("liar", ["s00", "s02", "s03", "s04"])
def test_altered_shares_are_found_out_by_those_that_can_be_spared(liar, rows):
    wire = Wire().set_up()
    wire.mask()
    replies = wire.ask_each(wire.server.unmask_requests())
    replies[liar][1]["shares"][rows, 0] ^= 1
    opened = wire.server.open(replies)
    np.testing.assert_allclose(opened.value, wire.sum(wire.names), rtol=1e-9)
    # Four shares open a sum of five: the fifth is not looked at.
    assert opened.altered == ("" if liar == "s04" else liar)


def test_altered_shares_that_cannot_be_spared_open_nothing_and_blame_nobody():
    wire = Wire().set_up()
    wire.mask()
    replies = wire.ask_each(wire.server.unmask_requests())
    replies["s02"][1]["shares"][3, 0] ^= 1
    del replies["s04"]
    with refused(AggregationError, "s03", code="altered-shares"):
        wire.server.open(replies)


def test_server_cannot_put_its_own_key_in_the_middle():
    wire = Wire()
    meta, arrays = roster_request(wire)
    arrays["publics"][1] = np.frombuffer(wire.rng.bytes(32), dtype=np.uint8)
    with refused(AggregationError, "s01", code="wrong-signature"):
        wire.sites["s00"].handle(meta, arrays, None)


def test_stranger_on_the_roster_is_refused():
    wire = Wire()
    meta, arrays = roster_request(wire)
    meta["names"][4] = "stranger"
    with refused(AggregationError, "stranger", code="not-pinned"):
        wire.sites["s00"].handle(meta, arrays, None)


def test_roster_with_a_site_twice_is_refused():
    wire = Wire()
    meta, arrays = roster_request(wire)
    meta["names"][4] = "s03"
    with refused(ProtocolError, code="bad-message"):
        wire.sites["s00"].handle(meta, arrays, None)
    meta["names"] = list(reversed(wire.names))
    with refused(ProtocolError, code="bad-roster"):
        wire.sites["s00"].handle(meta, arrays, None)


def test_roster_without_this_site_or_with_its_old_key_is_refused():
    wire = Wire()
    first = wire.ask(wire.server.begin_epoch(2))
    message = wire.server.roster_request({name: first[name] for name in wire.names[1:]})
    with refused(AggregationError, code="foreign-key"):
        wire.sites["s00"].handle(*message, None)


def test_low_threshold_and_small_roster_are_refused_by_the_site():
    wire = Wire(threshold=3)
    with refused(AggregationError, 3, 5, 4, code="low-threshold"):
        wire.sites["s00"].handle(*roster_request(wire), None)
    wire = Wire()
    wire.sites["s00"] = wire.site("s00", min_sites=6)
    with refused(AggregationError, 5, 6, code="small-roster"):
        wire.sites["s00"].handle(*roster_request(wire), None)


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
    with refused(AggregationError, code="altered-seal"):
        wire.sites["s00"].handle({**wire.server._meta("deliver")}, {"sealed": rows}, None)


def test_own_key_must_be_the_pinned_one():
    wire = Wire()
    with refused(AggregationError, "s00", code="foreign-key"):
        SecAggSite("s00", wire.identities["s01"], wire.pinned, "run", wire.rng.bytes)


def test_sites_that_answer_from_different_histories_reveal_nothing():
    wire = Wire().set_up()
    order = wire.server.open_slot("task")
    replies = {
        name: wire.sites[name].masked(
            order, lambda name=name: wire.vectors[name], lambda name=name: "odd" if name == "s02" else "usual"
        )
        for name in wire.names
    }
    wire.server.collect(replies)
    requests = wire.server.unmask_requests()
    for name in wire.names:
        with refused(AggregationError, code="asked-otherwise"):
            wire.sites[name].handle(*requests[name], None)


def test_sites_that_were_greeted_with_different_studies_share_no_roster():
    wire = Wire()
    wire.sites["s02"].study = "another"
    with refused(AggregationError, "s02", code="wrong-signature"):
        wire.sites["s00"].handle(*roster_request(wire), None)


def test_server_cannot_hide_or_invent_earlier_sums():
    wire = Wire().set_up()
    wire.mask()
    wire.open()
    for key, value in (("sets", []), ("data", "abc"), ("min_sites", 2)):
        meta, arrays = roster_request(wire)
        assert meta["sets"][1]
        meta[key][1] = value
        with refused(AggregationError, "s01", code="wrong-signature"):
            wire.sites["s00"].handle(meta, arrays, None)


def test_site_cannot_make_up_sums_of_others():
    wire = Wire()
    made_up = [f"{k:016x}:" for k in range(3)]
    signer = member(wire.pinned["s02"], "")[:-1]
    for members in (made_up, [*made_up, f"{signer}:"]):
        wire.sites["s01"]._register._shelf._entries[:] = [Entry(frozenset(members), signer, "00" * 64)]
        with refused(AggregationError, "s01", code="unsigned-sum"):
            wire.sites["s00"].handle(*roster_request(wire), None)
    # Of sites that nobody here knows nothing can be checked, and nothing is believed.
    wire.sites["s01"]._register._shelf._entries[:] = [Entry(frozenset(made_up), "0" * 16, "00" * 64)]
    wire.set_up()
    wire.mask()
    assert wire.open().contributors == tuple(wire.names)


def test_threshold_is_of_the_sites_of_the_study():
    wire = Wire(n_sites=4)
    for site in wire.sites.values():
        site.n_sites = 7
    with refused(AggregationError, 3, 4, 5, code="low-threshold"):
        wire.sites["s00"].handle(*roster_request(wire), None)


def test_fewest_sites_are_those_of_the_most_careful_site():
    wire = Wire(n_sites=5)
    wire.sites["s04"] = wire.site("s04", min_sites=6)
    with refused(AggregationError, 5, 6, code="small-roster"):
        wire.sites["s00"].handle(*roster_request(wire), None)


def test_an_incomplete_sum_is_opened_only_with_enough_signatures_on_one_list():
    wire = Wire(n_sites=7).set_up()
    wire.mask(wire.names[:6])
    unsigned = wire.server.unmask_requests()
    with refused(AggregationError, 0, 5, code="few-signatures"):
        wire.sites["s00"].handle(*unsigned["s00"], None)
    asked = wire.server.survivor_requests()
    signed = wire.ask_each(asked, wire.names[:4])
    with refused(AggregationError, 4, 5, code="few-signatures"):
        wire.sites["s00"].handle(*wire.server.unmask_requests(signed)["s00"], None)
    assert wire.open().contributors == tuple(wire.names[:6])


def test_a_site_signs_one_list_of_survivors_only_and_opens_no_other():
    wire = Wire(n_sites=8).set_up()
    wire.mask(wire.names[:7])
    meta, arrays = wire.server.survivor_requests()["s00"]
    wire.sites["s00"].handle(meta, arrays, None)
    shorter = ({**meta, "survivors": wire.names[:6]}, {"tags": arrays["tags"][:6]})
    for phase in ("survivors", "unmask"):
        with refused(AggregationError, code="other-survivors"):
            wire.sites["s00"].handle({**shorter[0], "phase": phase}, shorter[1], None)
