"""Two keepers against a hostile lead: parts used elsewhere, forged verifiers, two sets, one site fewer in a second run."""

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from feddbn.core.encoding import decode, encode
from feddbn.errors import FeddbnError, NotEnoughSites
from feddbn.federation.protocol import batches
from feddbn.federation.protocol.messages import encode_request, read_reply, read_request
from feddbn.privacy.keepers import read_signed, signed
from feddbn.privacy.keys import Identity
from feddbn.privacy.prio3.moments import MomentsVdaf
from feddbn.runtime.store import Store
from support.keeping import KEEPERS, Kept, additive

pytestmark = pytest.mark.usefixtures("light")

QUICK = {"method": "summary", "parameters": {"n_lags": 1}}
A, B = KEEPERS
REAL = batches.vdaf_of


@pytest.fixture(autouse=True)
def cheap_shares(monkeypatch):
    monkeypatch.setattr(batches, "vdaf_of", additive)


class Stopped(Exception):
    """The lead takes over."""


@pytest.fixture
def begun(tmp_path):
    """Five sites that have sent their parts for the first batch, which no keeper has seen; and the messages to keepers."""
    kept = Kept(tmp_path, n_sites=5, n_rows=60)

    def taking(messages):
        if set(messages) <= set(KEEPERS):
            kept.first = {name: read_request(message) for name, message in messages.items()}
            raise Stopped
        return kept.exchange(messages)

    with pytest.raises(Stopped):
        kept.run(kept.study(**QUICK), exchange=taking)
    return kept


def ask(kept, keeper, request, arrays=None, **meta):
    """What a keeper says to a message with other contents; a refusal raises."""
    changed = replace(
        request, meta={**request.meta, **meta}, arrays=request.arrays if arrays is None else arrays
    )
    return read_reply(kept.handle(keeper, encode_request(changed)))


def some(request, sites):
    """The message with the parts of some sites."""
    return {key: array for key, array in request.arrays.items() if key == "batch" or key[5:] in sites}


def to_open(kept, keeper, verifiers=(), **meta):
    first = kept.first[keeper]
    arrays = {"batch": first.arrays["batch"], **{f"verifiers{k}": one for k, one in enumerate(verifiers)}}
    return ask(kept, keeper, replace(first, kind="open"), arrays, **meta)


def refused(code, *args, **more):
    with pytest.raises(FeddbnError) as caught:
        to_open(*args, **more)
    assert caught.value.code == code


def verified(kept, sites):
    """Have these sites' parts verified by both."""
    told = {
        one: ask(kept, one, kept.first[one], some(kept.first[one], sites)).arrays["verifiers"]
        for one in KEEPERS
    }
    to_open(kept, A, [told[B]])
    to_open(kept, B, [told[A]])
    return told


def test_parts_of_one_run_are_of_no_use_in_another(begun):
    kept, first = begun, begun.first[A]
    other = read_request(first.arrays["batch"].tobytes())
    batch = np.frombuffer(encode_request(replace(other, run_id="run-2")), np.uint8)
    reply = ask(kept, A, replace(first, run_id="run-2"), {**first.arrays, "batch": batch})
    assert set(reply.meta["refused"].values()) == {"other-part"}


def test_parts_of_one_site_are_of_no_use_for_another(begun):
    first = begun.first[A]
    arrays = {**first.arrays, "part/s0": first.arrays["part/s1"], "part/s9": first.arrays["part/s1"]}
    reply = ask(begun, A, first, arrays)
    assert reply.meta["refused"] == {"s0": "not-signed", "s9": "unknown-site"}


def test_the_part_of_one_keeper_is_of_no_use_at_the_other(begun):
    first = begun.first[A]
    reply = ask(begun, A, first, {**first.arrays, "part/s0": begun.first[B].arrays["part/s0"]})
    assert reply.meta["refused"] == {"s0": "other-part"}


def test_a_changed_byte_is_noticed(begun):
    first = begun.first[A]
    meta, arrays = decode(first.arrays["part/s2"].tobytes())
    inner = arrays["message"].copy()
    inner[-1] ^= 1
    message = np.frombuffer(encode(meta, {"message": inner}), np.uint8)
    reply = ask(begun, A, first, {**first.arrays, "part/s2": message})
    assert reply.meta["refused"] == {"s2": "not-signed"}


def test_a_batch_is_opened_for_one_set_of_sites(begun):
    verified(begun, begun.names)
    to_open(begun, A, sites=["s0", "s1", "s2", "s3", "s4"])
    refused("already-opened", begun, A, sites=["s0", "s1", "s2", "s3"])
    refused("already-opened", begun, A, sites=["s0", "s1"])
    # The other one, whom the lead asks for another set, gives a share that fits nothing, and only once.
    to_open(begun, B, sites=["s0", "s1", "s2", "s3"])
    refused("already-opened", begun, B, sites=["s0", "s1", "s2", "s3", "s4"])


def test_few_sites_are_not_opened(begun):
    verified(begun, begun.names)
    refused("few-sites", begun, A, sites=["s0", "s1"])
    refused("not-verified", begun, A, sites=["s0", "s1", "s2", "nobody"])


def test_a_report_that_was_not_verified_is_not_opened(begun):
    ask(begun, A, begun.first[A])
    refused("not-verified", begun, A, sites=list(begun.names))


def test_verifiers_cannot_be_forged(begun):
    told = {one: ask(begun, one, begun.first[one]).arrays["verifiers"] for one in KEEPERS}
    # The lead's own key; the keeper's own words back to it; another batch.
    lead = Identity.from_seed(bytes(32))
    keys = begun.end(A)._keepers
    meta, shares = read_signed(told[B].tobytes(), B, "verifiers", keys[B].sign)
    forged = np.frombuffer(signed(lead, B, "verifiers", meta, shares), np.uint8)
    refused("not-signed", begun, A, [forged])
    refused("not-signed", begun, A, [told[A]])
    seed = (begun.folders[B] / "identity.key").read_bytes()
    other = signed(Identity.from_seed(seed), B, "verifiers", {**meta, "batch": "00"}, shares)
    refused("other-batch", begun, A, [np.frombuffer(other, np.uint8)])


def test_parts_of_two_reports_are_not_put_together(begun):
    """A site that sends each keeper the part of another report is out."""
    told = {one: ask(begun, one, begun.first[one]).arrays["verifiers"] for one in KEEPERS}
    seed = (begun.folders[B] / "identity.key").read_bytes()
    meta, shares = read_signed(told[B].tobytes(), B, "verifiers", Identity.from_seed(seed).public)
    meta["reports"] = {**meta["reports"], "s3": "0" * 64}
    changed = signed(Identity.from_seed(seed), B, "verifiers", meta, shares)
    assert to_open(begun, A, [np.frombuffer(changed, np.uint8)]).meta["invalid"] == {"s3": "different-parts"}
    refused("not-verified", begun, A, sites=list(begun.names))


def test_the_first_part_of_a_site_counts(begun, monkeypatch):
    ask(begun, A, begun.first[A])
    # A site that sends another report for the same batch.
    twin = begun.end("s0")
    laid_out = batches.laid_out
    monkeypatch.setattr(batches, "laid_out", lambda tasks, vectors: laid_out(tasks, [v + 1 for v in vectors]))
    hello = next(
        message for name, message, _ in begun.sent if name == "s0" and read_request(message).kind == "hello"
    )
    batch = next(
        message for name, message, _ in begun.sent if name == "s0" and read_request(message).kind == "batch"
    )
    Store(begun.folders["s0"] / "state").forget("run-1")
    twin.handle(hello)
    part = read_reply(twin.handle(batch)).arrays[f"part/{A}"]
    reply = ask(begun, A, begun.first[A], {**begun.first[A].arrays, "part/s0": part})
    assert reply.meta["refused"] == {"s0": "second-part"}


def test_one_site_fewer_in_a_second_run_is_refused(tmp_path):
    kept = Kept(tmp_path, n_sites=5, n_rows=60)
    kept.run(kept.study(**QUICK))
    kept.away = {"s4"}
    rules = {"when_missing": "continue", "min_sites": 3}
    with pytest.raises(NotEnoughSites) as caught:
        kept.run(kept.study(name="again", **QUICK, attendance=rules), run="run-2")
    assert caught.value.code == "shows-few-sites"
    # Nor do sites join a study that names one site fewer, by keepers or by masks.
    kept.away = set()
    for how in ({"keepers": KEEPERS}, {"secure_aggregation": True}):
        kept.ends.clear()
        fewer = kept.study(name="fewer", **QUICK, sites=kept.names[:4], privacy={**how, "min_sites": 3})
        with pytest.raises(FeddbnError) as caught:
            kept.run(fewer, run=f"fewer-{min(how)[:4]}")
        assert {caught.value.code, *caught.value.values["reasons"].values()} >= {"shows-few-sites"}


def test_a_run_that_was_pruned_is_not_opened_again(begun):
    verified(begun, begun.names)
    to_open(begun, A, sites=list(begun.names))
    Store(begun.folders[A] / "state").forget("run-1")
    begun.ends.clear()
    told = {one: ask(begun, one, begun.first[one]).arrays["verifiers"] for one in KEEPERS}
    to_open(begun, A, [told[B]])
    refused("already-opened", begun, A, sites=list(begun.names))


def test_keepers_hold_parts_of_one_batch_only(begun):
    first = begun.first[A]
    ask(begun, A, first)
    # Another question under the same number, another lead, another study.
    for change in (
        {"to": "00" * 32},
        {"lengths": [1, 2]},
        {"study": begun.study(**QUICK, lead="x").to_json()},
    ):
        with pytest.raises(FeddbnError) as caught:
            ask(begun, A, first, **change)
        assert caught.value.code in ("other-batch", "different-lengths", "other-part")


def test_sums_that_a_site_did_not_answer_are_not_opened(tmp_path):
    """Others could be few: where one site has a variable that is rare, what is asked along with the count stays closed."""
    kept = Kept(tmp_path, n_sites=4, n_rows=60)
    path = kept.folders["s1"] / "data" / "one.csv"
    frame = pd.read_csv(path)
    frame.loc[3:, frame.columns[0]] = 0.0
    frame.to_csv(path, index=False)
    opened = []

    def noting(messages):
        replies = kept.exchange(messages)
        for name, message in messages.items():
            request = read_request(message)
            if name == A and request.kind == "open" and "sites" in request.meta:
                inner = decode(
                    decode(read_reply(replies[name]).arrays["sum"].tobytes())[1]["message"].tobytes()
                )[0]
                opened.append((request.seq, request.meta["n_tasks"], inner["n_tasks"]))
        return replies

    with suppress(FeddbnError):
        kept.run(kept.study(**QUICK), exchange=noting)
    # Two were asked together, and one was opened, whatever is asked for.
    assert opened[0] == (0, 1, 1)
    first = next(read_request(m) for n, m, _ in kept.sent if n == A and read_request(m).kind == "open")
    reply = ask(kept, A, first, {"batch": first.arrays["batch"]}, sites=list(kept.names), n_tasks=2)
    inner = decode(decode(reply.arrays["sum"].tobytes())[1]["message"].tobytes())[0]
    assert inner["n_tasks"] == 1


def test_one_keeper_and_the_lead_hold_nothing_but_the_sum():
    """One share of a site's answer is uniform whatever the answer is, and so is what it tells in verifying."""
    vdaf, rng = MomentsVdaf([("gram", 1), ("numbers", 1)], 3, b"x"), np.random.default_rng(700)
    key, answers = bytes(32), (np.array([10.0, 0.0, 5.0, 0.0]), np.array([90.0, 30.0, 80.0, 1e6]))
    low = {0: [], 1: []}
    for which, answer in enumerate(answers):
        for _ in range(64):
            nonce, rand = rng.bytes(16), rng.bytes(vdaf.rand_size)
            public, shares = vdaf.shard(answer, nonce, rand)
            # The share that is written out; the other one is a seed.
            _, told = vdaf.verify_init(key, 0, nonce, public, shares[0])
            low[which].append([*shares[0][:48:4], *told[:24:3]])
    for values in low.values():
        bytes_seen = np.array(values)
        # 64 bytes in 8 classes: chi-squared with 7 degrees of freedom is above 29.9 once in 10,000.
        for column in bytes_seen.T:
            counts = np.bincount(column // 32, minlength=8)
            assert ((counts - 8) ** 2 / 8).sum() < 29.9
    means = [np.mean(values, axis=0) for values in low.values()]
    assert np.abs(means[0] - means[1]).max() < 5 * 74 * np.sqrt(2 / 64)


def test_why_an_answer_cannot_be_proved_stays_at_the_site(tmp_path, monkeypatch):
    """It depends on data: here the first look cannot hold numbers so large."""
    monkeypatch.setattr(batches, "vdaf_of", REAL)
    kept, laid_out = Kept(tmp_path, n_sites=3, n_rows=60), batches.laid_out
    monkeypatch.setattr(
        batches, "laid_out", lambda tasks, vectors: laid_out(tasks, [1e30 * one for one in vectors])
    )
    with pytest.raises(NotEnoughSites) as caught:
        kept.run(kept.study(**QUICK))
    assert set(caught.value.values["reasons"].values()) == {"withheld"}


def test_a_keeper_answers_nobody_but_the_server_and_no_garbage(begun):
    keeper = begun.end(A)
    message = encode_request(begun.first[A])
    for bad in (b"", b"garbage", message[:-1], message[:40] + b"\xff" + message[41:]):
        with pytest.raises(FeddbnError):
            read_reply(keeper.handle(bad))
    with pytest.raises(FeddbnError) as caught:
        read_reply(keeper.handle(message, "s0"))
    assert caught.value.code == "not-the-server"
    with pytest.raises(FeddbnError) as caught:
        read_reply(keeper.handle(encode_request(replace(begun.first[A], kind="task"))))
    assert caught.value.code == "unknown-message"
    assert json.dumps(keeper.openings) == "[]"
