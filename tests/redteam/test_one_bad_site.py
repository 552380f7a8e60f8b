"""One site that sends nonsense: it is dropped or named, never an honest one, and it cannot blow up a sum unseen."""

import hashlib
import json
import struct

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.errors import NotEnoughSites, ProtocolError
from feddbn.federation.protocol.encoding import decode, encode
from feddbn.federation.protocol.messages import Reply, encode_reply, read_reply
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from support.consortium import Consortium, by_rule, spread
from support.saying import refused

pytestmark = pytest.mark.promise

BAD = "s0"


@pytest.fixture
def sites(tmp_path):
    return Consortium(tmp_path, spread(5, 3, 40), by_rule())


def patient(sites, when_missing="continue", **privacy):
    rules = {"when_missing": when_missing, "min_sites": 3, "max_wait_s": 60.0}
    return sites.study(privacy=privacy, attendance=rules)


def rigged(sites, phase, spoil, after=0, bad=(BAD,)):
    """An exchange in which the bad site's answer to a phase is spoilt, from the `after`-th on."""
    seen = []

    def one(name, message):
        raw = sites.endpoints[name].handle(message)
        if name not in bad:
            return raw
        reply = read_reply(raw)
        if "message" not in reply.arrays:
            return raw
        meta, arrays = decode(reply.arrays["message"].tobytes())
        if meta.get("phase") != phase:
            return raw
        seen.append(phase)
        if len(seen) <= after:
            return raw
        inner = np.frombuffer(encode(*spoil(meta, arrays)), dtype=np.uint8)
        return encode_reply(
            Reply(reply.site, reply.kind, reply.run_id, reply.seq, reply.meta, {"message": inner})
        )

    return lambda messages: {name: one(name, message) for name, message in messages.items()}


def conduct(sites, exchange, study, n_sums=1):
    """Ask for moments `n_sums` times; return the sums and what the server was told about sites."""
    events = []
    run = sites.coordinator(study, "run", exchange, tell=events.append)
    run.hello()
    sums = [run.sum(Task(GramQuestion(n_lags=1, variables=sites.variables))) for _ in range(n_sums)]
    return sums, {event.site: event.sentence for event in events if event.what == "refused"}


def shorter(meta, arrays):
    return meta, {**arrays, "y": arrays["y"][:, :-1].copy()}


WAYS = {
    "a shorter vector": ("masked", shorter),
    "a longer vector": ("masked", lambda m, a: (m, {**a, "y": np.hstack([a["y"], a["y"]])})),
    "no vector": ("masked", lambda m, a: (m, {})),
    "NaN in the clear": ("masked", lambda m, a: (m, {**a, "y": np.full(a["y"].shape, np.nan)})),
    "no tags": ("masked", lambda m, a: (m, {"y": a["y"]})),
    "another's name": ("masked", lambda m, a: ({**m, "site": "s1"}, a)),
    "no key": ("advert", lambda m, a: (m, {})),
    "no register": ("advert", lambda m, a: ({**m, "sets": "none"}, a)),
    "too few shares": ("shares", lambda m, a: (m, {**a, "sealed": a["sealed"][:-1].copy()})),
    "never ready": ("ready", lambda m, a: ({**m, "epoch": 77}, a)),
}


@pytest.mark.parametrize("way", WAYS)
def test_under_continue_the_bad_site_is_left_out_and_named_and_stays_out(sites, way):
    phase, spoil = WAYS[way]
    sums, told = conduct(sites, rigged(sites, phase, spoil), patient(sites), n_sums=2)
    honest = sites.names[1:]
    for one in sums:
        assert one.contributors == honest
        expected = sum(sites.moments(name) for name in honest)
        np.testing.assert_allclose(one.value[: len(expected)], expected, rtol=1e-9)
    assert told.keys() == {BAD}
    assert BAD in told[BAD]


def test_a_site_that_turns_bad_later_ends_the_run_and_is_named(sites):
    with pytest.raises(NotEnoughSites) as caught:
        conduct(sites, rigged(sites, "masked", shorter, after=1), patient(sites), n_sums=2)
    said = str(caught.value)
    assert f"'{BAD}'" in said
    assert not [name for name in sites.names[1:] if name in said]


def test_a_study_that_waits_gives_up_on_the_same_nonsense_and_names_the_site(sites):
    with refused(NotEnoughSites, f"'{BAD}'"):
        conduct(sites, rigged(sites, "masked", shorter), patient(sites, when_missing="wait"))


def test_where_no_length_has_a_majority_nobody_is_blamed(tmp_path):
    sites = Consortium(tmp_path, spread(4, 3, 40), by_rule())
    two_liars = rigged(sites, "masked", shorter, bad=("s0", "s1"))
    with refused(ProtocolError, code="no-majority"):
        conduct(sites, two_liars, patient(sites))


def test_altered_shares_of_one_site_do_not_stop_a_sum(sites):

    def altered(meta, arrays):
        return meta, {**arrays, "shares": arrays["shares"] ^ 1}

    (one,), told = conduct(sites, rigged(sites, "unmask", altered), patient(sites))
    assert one.contributors == sites.names
    np.testing.assert_allclose(one.value[0], sum(sites.moments(name)[0] for name in sites.names))
    assert told.keys() == {BAD}


# Production code does not turn numpy's warnings into errors.
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
def test_numbers_that_are_not_finite_stay_at_home_and_leave_no_trace_of_having_been_sent(sites):
    # Their squares overflow.
    sites.offer(BAD, sites.data[BAD][0] * [1e200, 1.0, 1.0])
    (one,), told = conduct(sites, None, patient(sites))
    assert one.contributors == sites.names[1:]
    assert told.keys() == {BAD}
    entries = sites.log(BAD, "run")
    assert {entry.event for entry in entries} == {"refused"}
    assert entries[0].code == "not-finite"


def test_a_site_beyond_the_declared_norm_keeps_its_answer_and_is_left_out(sites):
    norms = {name: np.linalg.norm(sites.moments(name)) for name in sites.names}
    sites.offer(BAD, 1e3 * sites.data[BAD][0])
    bound = 10 * max(norms.values())
    (one,), told = conduct(sites, None, patient(sites, max_norm=bound))
    assert one.contributors == sites.names[1:]
    assert told.keys() == {BAD}
    assert "too-long" in {entry.code for entry in sites.log(BAD, "run")}


def test_a_site_that_masks_random_numbers_is_noticed_by_the_norm_of_the_sum(sites):
    rng = np.random.default_rng(0)

    def random(meta, arrays):
        return meta, {**arrays, "y": rng.integers(0, 2**64, arrays["y"].shape, dtype=np.uint64)}

    with refused(ProtocolError, 5, "max_norm", "1e+06") as caught:
        conduct(sites, rigged(sites, "masked", random), patient(sites, max_norm=1e6))
    assert not [name for name in sites.names if name in str(caught.value)]


@pytest.mark.parametrize("shape", [[0, 2**70], [0, 2**63 - 1, 2**62], [1] * 65 + [0]])
def test_a_reply_whose_header_no_array_can_have_is_one_bad_reply(sites, shape):
    header = json.dumps({"meta": {"type": "reply"}, "arrays": [["a", "<f8", shape]]}).encode()
    body = struct.pack("<I", len(header)) + header
    crafted = b"FEDDBN" + struct.pack("<H", 1) + hashlib.sha256(body).digest() + body
    with pytest.raises(ProtocolError, match="malformed header"):
        decode(crafted)

    def exchange(messages):
        return {
            name: crafted if name == BAD else sites.endpoints[name].handle(m) for name, m in messages.items()
        }

    (one,), told = conduct(sites, exchange, patient(sites))
    assert one.contributors == sites.names[1:]
    assert told.keys() == {BAD}
