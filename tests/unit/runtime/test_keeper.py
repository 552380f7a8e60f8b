"""A study with two keepers, from the sites' files to the result, and what a keeper remembers."""

import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from feddbn.engine import open_keeper
from feddbn.errors import FileError, NotEnoughSites
from feddbn.federation.protocol import batches
from feddbn.federation.protocol.messages import known_in, read_reply, read_request
from feddbn.privacy.keys import SealingKey
from feddbn.runtime.site import keeping
from feddbn.runtime.store import Store
from support.crash import in_child
from support.keeping import KEEPERS, Kept, additive

pytestmark = pytest.mark.usefixtures("light")

EXACT = {"protection": "exact", "min_sites": 3}
QUICK = {"method": "summary", "parameters": {"n_lags": 1}}


REAL = batches.vdaf_of


@pytest.fixture(autouse=True)
def cheap_shares(monkeypatch):
    monkeypatch.setattr(batches, "vdaf_of", additive)


def kinds(kept):
    return Counter((name, read_request(message).kind) for name, message, _ in kept.sent)


def outcome(kept, run="run-1"):
    return json.loads((kept.place / "server" / run / "outcome.json").read_text())


def test_masks_and_keepers_give_the_same_network(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "vdaf_of", REAL)
    by_keepers, by_masks = Kept(tmp_path / "a"), Kept(tmp_path / "b")
    found = by_keepers.run(by_keepers.study(privacy={"keepers": KEEPERS, **EXACT}))
    expected = by_masks.run(by_masks.study(privacy={"secure_aggregation": True, **EXACT}))
    assert set(found.arrays) == set(expected.arrays)
    assert np.any(expected.arrays["W"] != 0)
    for name, array in expected.arrays.items():
        np.testing.assert_allclose(found.arrays[name], array, rtol=0, atol=1e-6, err_msg=name)
    # Fewer messages for a site, and no vector in any of them.
    assert sum(n for (name, _), n in kinds(by_keepers).items() if name == "s0") < sum(
        n for (name, _), n in kinds(by_masks).items() if name == "s0"
    )
    replies = [
        read_reply(reply) for name, message, reply in by_keepers.sent if read_request(message).kind == "batch"
    ]
    assert {key for reply in replies for key in reply.arrays} == {f"part/{keeper}" for keeper in KEEPERS}


def test_parties_may_be_opened_anew_for_each_message(tmp_path):
    kept = Kept(tmp_path, n_sites=3, n_rows=60)
    study = kept.study(**QUICK)
    expected = kept.run(study)
    again = Kept(tmp_path / "again", n_sites=3, n_rows=60)
    again.handle = lambda name, message: again.end(name).handle(message)
    # Another federation has other keys, and so other noise.
    found = again.run(again.study(**QUICK, privacy={"keepers": KEEPERS, **EXACT}), run="exact")
    exact = kept.run(kept.study(name="exact", **QUICK, privacy={"keepers": KEEPERS, **EXACT}), run="exact")
    np.testing.assert_allclose(
        found.arrays["noise_variances"], exact.arrays["noise_variances"], rtol=0, atol=1e-9
    )
    assert np.abs(expected.arrays["noise_variances"] - exact.arrays["noise_variances"]).max() > 1e-6


def test_a_site_with_a_wrong_proof_is_left_out_and_named(tmp_path, monkeypatch):
    kept = Kept(tmp_path, n_sites=5, n_rows=60)
    study = kept.study(**QUICK, attendance={"when_missing": "abort"})
    honest, wrong = kept.end("s2"), batches.laid_out

    def poisoned(name, message):
        monkeypatch.setattr(
            batches, "laid_out", lambda tasks, vectors: wrong(tasks, [1e12 * one for one in vectors])
        )
        reply = honest.handle(message)
        monkeypatch.setattr(batches, "laid_out", wrong)
        return reply

    usual = kept.handle
    kept.handle = lambda name, message: poisoned(name, message) if name == "s2" else usual(name, message)
    result = kept.run(study)
    assert np.isfinite(result.arrays["noise_variances"]).all()
    (absent,) = outcome(kept)["absent"]
    assert (absent["site"], absent["code"]) == ("s2", "bad-proof")
    events = [
        json.loads(line)
        for line in (kept.place / "server" / "run-1" / "events.jsonl").read_text().splitlines()
    ]
    assert {tuple(one["sites"]) for one in events if one["what"] == "sum"} == {("s0", "s1", "s3", "s4")}
    opened = open_keeper(kept.folders["keeper-a"]).openings
    assert all(one["sites"] == ["s0", "s1", "s3", "s4"] for one in opened)


def test_who_does_not_send_is_not_in_the_sum(tmp_path):
    kept = Kept(tmp_path, n_sites=5, n_rows=60)
    kept.away = {"s4"}
    study = kept.study(**QUICK, attendance={"when_missing": "continue", "min_sites": 3})
    kept.run(study)
    assert [one["site"] for one in outcome(kept)["absent"]] == ["s4"]
    with pytest.raises(NotEnoughSites) as caught:
        kept.run(kept.study(name="all", **QUICK), run="run-2")
    assert caught.value.code == "too-few-sites"


def test_a_site_that_is_lost_later_is_not_shown(tmp_path):
    kept = Kept(tmp_path, n_sites=5, n_rows=60)
    n_batches = Counter()

    def losing(messages):
        first = next(iter(messages.values()))
        if read_request(first).kind == "batch":
            n_batches["all"] += 1
            kept.away = {"s4"} if n_batches["all"] > 1 else set()
        return kept.exchange(messages)

    study = kept.study(**QUICK, attendance={"when_missing": "continue", "min_sites": 3})
    with pytest.raises(NotEnoughSites) as caught:
        kept.run(study, exchange=losing)
    assert caught.value.code == "lost-later"
    kept.away = set()
    assert kept.run(study).arrays["noise_variances"].shape == (3,)


def test_in_large_studies_others_leave_with_those_that_are_lost(tmp_path):
    kept = Kept(tmp_path, n_sites=8, n_rows=60)
    n_batches = Counter()

    def losing(messages):
        if read_request(next(iter(messages.values()))).kind == "batch":
            n_batches["all"] += 1
            kept.away = {"s0"} if n_batches["all"] > 1 else set()
        return kept.exchange(messages)

    kept.run(kept.study(**QUICK, attendance={"when_missing": "continue", "min_sites": 3}), exchange=losing)
    first, *later = [frozenset(one["sites"]) for one in open_keeper(kept.folders["keeper-b"]).openings]
    assert len(first) == 8
    assert set(later) == {frozenset({"s1", "s2", "s3", "s4", "s5"})}


def test_a_killed_server_goes_on_where_keepers_have_opened(tmp_path):
    kept = Kept(tmp_path, n_sites=3, n_rows=60)
    study, n_opened = kept.study(**QUICK), Counter()

    def dying(messages):
        replies = kept.exchange(messages)
        request = read_request(next(iter(messages.values())))
        if request.kind == "open" and "sites" in request.meta:
            n_opened["all"] += 1
            if n_opened["all"] == 1:
                raise KeyboardInterrupt
            if n_opened["all"] == 2:
                # One keeper has opened, and nobody knows.
                raise KeyboardInterrupt
        return replies

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            kept.run(study, exchange=dying)
        kept.ends.clear()
    result = kept.run(study)
    whole = Kept(tmp_path / "whole", n_sites=3, n_rows=60)
    assert (
        result.arrays["noise_variances"].shape
        == whole.run(whole.study(**QUICK)).arrays["noise_variances"].shape
    )
    openings = open_keeper(kept.folders["keeper-a"]).openings
    assert len({one["seq"] for one in openings}) == len(openings)


def test_one_keeper_opens_after_the_other(tmp_path):
    kept = Kept(tmp_path, n_sites=3, n_rows=60)
    study, lost = kept.study(**QUICK), Counter()

    def losing(messages):
        request = read_request(next(iter(messages.values())))
        if request.kind == "open" and "sites" in request.meta and not lost["b"]:
            lost["b"] += 1
            messages = {name: message for name, message in messages.items() if name != "keeper-b"}
        return kept.exchange(messages)

    with pytest.raises(NotEnoughSites) as caught:
        kept.run(study, exchange=losing)
    assert caught.value.code == "no-keeper"
    kept.run(study)
    assert outcome(kept)["state"] == "finished"


def test_the_same_question_gets_the_same_parts(tmp_path):
    kept = Kept(tmp_path, n_sites=3, n_rows=60)
    kept.run(kept.study(**QUICK))
    last = [(name, m, r) for name, m, r in kept.sent if read_request(m).kind == "batch"][-1]
    kept.ends.clear()
    assert kept.handle(last[0], last[1]) == last[2]
    for name, message, reply in [one for one in kept.sent if one[0] in KEEPERS]:
        again, before = read_reply(kept.handle(name, message)), read_reply(reply)
        assert {key: array.tobytes() for key, array in again.arrays.items()} == {
            key: array.tobytes() for key, array in before.arrays.items()
        }


def test_a_keeper_needs_the_keys_of_its_identity(tmp_path):
    kept = Kept(tmp_path, n_sites=3, n_rows=30)
    (kept.folders["keeper-a"] / "identity.key").write_bytes(bytes(32))
    with pytest.raises(FileError) as caught:
        open_keeper(kept.folders["keeper-a"])
    assert caught.value.code == "other-keys"
    with pytest.raises(FileError) as caught:
        open_keeper(tmp_path / "nobody")
    assert caught.value.code == "no-keeper"


def test_a_site_refuses_a_keeper_that_it_does_not_know(tmp_path):
    kept = Kept(tmp_path, n_sites=3, n_rows=30)
    with pytest.raises(NotEnoughSites) as caught:
        kept.run(kept.study(privacy={"keepers": ("keeper-a", "keeper-z"), "min_sites": 3}))
    assert set(caught.value.values["reasons"].values()) == {"unknown-keeper"}
    for name in kept.names:
        path = kept.folders[name] / "feddbn_site.toml"
        path.write_text(path.read_text().replace('keepers = "keepers.toml"\n', ""))
    kept.ends.clear()
    with pytest.raises(NotEnoughSites) as caught:
        kept.run(run="run-2")
    assert set(caught.value.values["reasons"].values()) == {"no-keepers"}


def test_a_keeper_writes_down_what_it_opens_and_refuses(tmp_path):
    kept = Kept(tmp_path, n_sites=3, n_rows=60)
    kept.run(kept.study(**QUICK))
    keeper = open_keeper(kept.folders["keeper-b"])
    keeper.handle(b"nonsense")
    events = Counter(entry.event for entry in keeper.audit.entries())
    assert events["sent"] == len(keeper.openings) > 0
    assert events["refused"] == 1
    assert keeper.openings[0]["sites"] == list(kept.names)
    # The shares are gone, and what is left is not a share of any site.
    names = Store(kept.folders["keeper-b"] / "state").names("run-1")
    assert not [name for name in names if " part " in name or " valid " in name]
    assert [name for name in names if name.endswith("opened")]


def test_no_third_party_knows_the_key_of_proofs():
    a, b, c = (SealingKey.from_seed(bytes([k]) * 32) for k in range(3))
    assert a.shared(b.public, b"x") == b.shared(a.public, b"x") != a.shared(b.public, b"y")
    assert a.shared(b.public, b"x") != c.shared(b.public, b"x")


def run_cheaply(say, kept, study):
    batches.vdaf_of = additive
    kept.run(study)


@pytest.mark.slow
def test_killed_parties_lose_nothing(tmp_path):
    """Sites, keepers and lead in a process that is killed at commits; the rest goes on from their disks."""
    kept = Kept(tmp_path, n_sites=3, n_rows=60)
    study = kept.study(**QUICK, privacy={"keepers": KEEPERS, **EXACT})
    n_points = 0
    for point in (0, 9, 20, 33, 48):
        n_points += in_child(run_cheaply, kept, study, at=point).is_killed
    assert n_points == 5
    result = kept.run(study)
    whole = Kept(tmp_path / "whole", n_sites=3, n_rows=60)
    expected = whole.run(whole.study(**QUICK, privacy={"keepers": KEEPERS, **EXACT}))
    np.testing.assert_allclose(
        result.arrays["noise_variances"], expected.arrays["noise_variances"], atol=1e-9
    )
    for name in KEEPERS:
        opened = [(one["run"], one["seq"]) for one in open_keeper(kept.folders[name]).openings]
        assert len(opened) == len(set(opened)) == 3


def findings(result):
    return {one["code"]: one for one in result.summary["result"]["findings"]}


def test_sites_show_that_they_weigh_no_more_than_their_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "vdaf_of", REAL)
    kept = Kept(tmp_path, n_sites=4, n_rows=200)
    study = kept.study(**QUICK)
    found = findings(kept.run(study))
    q, n = 6, 4 * 199
    most = found["weights-shown"]["values"]["most"]
    # Up to the noise in the number of rows.
    assert most == pytest.approx(1.1 * (1 + np.sqrt(4 * q / n)) ** 2, rel=0.01)
    n_sent = len(kept.sent)
    # Nobody is asked again when the run is taken up; the result is sent again.
    assert "weights-shown" in findings(kept.run(study))
    assert {read_request(message).kind for _, message, _ in kept.sent[n_sent:]} == {"hello", "finish"}


def test_a_site_that_weighs_more_than_its_rows_is_named_and_nothing_more_is_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "vdaf_of", REAL)
    kept = Kept(tmp_path, n_sites=4, n_rows=200)
    rows = kept.folders["s1"] / "data" / "one.csv"
    table = pd.read_csv(rows)
    # A hundred times as large as those of others in every direction, and sites are not rescaled: no direction is left to the
    # others alone, in which one of them would come near the bound.
    table["x1"] += 10 * table["x0"]
    (100 * table).to_csv(rows, index=False)
    as_they_are = {"n_lags": 1, "prepare": {"gains": "none", "robust": "off"}}
    found = findings(kept.run(kept.study(method="summary", parameters=as_they_are)))
    assert found["weight-not-shown"]["about"] == ["s1"]
    assert not {"weights-shown", "sums-differ"} & set(found)
    # The last question was asked, and its sum is the only one that was not opened.
    asked = [read_request(message) for name, message, _ in kept.sent if name == "keeper-a"]
    assert max(one.seq for one in asked if one.kind == "open" and "sites" in one.meta) < max(
        one.seq for one in asked
    )


def test_other_moments_than_before_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "vdaf_of", REAL)
    kept = Kept(tmp_path, n_sites=4, n_rows=200)
    honest = keeping.KeeperWay.__call__

    def smaller(self, request, tasks, vectors):
        if self.site == "s1" and known_in(request) is not None:
            vectors = [0.5 * vector for vector in vectors]
        return honest(self, request, tasks, vectors)

    monkeypatch.setattr(keeping.KeeperWay, "__call__", smaller)
    assert "sums-differ" in findings(kept.run(kept.study(**QUICK)))
