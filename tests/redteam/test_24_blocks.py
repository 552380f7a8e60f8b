"""Blocks of rows: a server cannot cut them so that few rows are alone, ask for others after them, or for any unlisted."""

import numpy as np
import pytest

from feddbn.errors import SiteRefused
from feddbn.federation.protocol.messages import WITHHELD
from feddbn.runtime.deployed.kit_files import default_policy_text
from support.rig import Refused, Rig, Server, raw
from support.saying import refused as says_no

D, N = 2, 400


def make_rig(place, listed=True, n_last=N):
    rng = np.random.default_rng(0)
    data = {f"s{i}": [rng.normal(size=(n_last if i == 0 else N, D))] for i in range(3)}
    text = default_policy_text()
    if listed:
        text = text.replace('"residual-checks"', '"residual-checks", "block-moments", "block-checks"')
    return Rig(place, data, text)


def blocks(rig, block_rows=32, n_blocks=12, arrays=None, **more):
    params = {"n_lags": 1, "variables": rig.variables, "block_rows": block_rows, "n_blocks": n_blocks, **more}
    return raw("block-moments", params, arrays or {})


def refused(server, task, why):
    """Refused for what data or rules say: the server hears one sentence, the owner reads why."""
    with pytest.raises(Refused) as caught:
        server.sum(task)
    assert {one.partition("refused: ")[2] for one in caught.value.told.values()} == {WITHHELD}
    assert why in server.rig.notes("s0", server.run)[-1]


def test_an_honest_question_is_answered_and_no_other_blocks_after_it(tmp_path):
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("changing"))
    q = 2 * D
    assert server.sum(blocks(rig)).value.size == 12 * (1 + q + q * (q + 1) // 2)
    refused(server, blocks(rig, block_rows=64), "blocks of rows")


@pytest.mark.parametrize(
    "other",
    [{"n_blocks": 11}, {"center": "recording"}, {"arrays": {"origin": np.ones(2 * D)}}],
    ids=["number", "means", "origin"],
)
def test_cut_treated_or_shifted_in_another_way_they_are_not_told_again(tmp_path, other):
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("changing"))
    server.sum(blocks(rig))
    refused(server, blocks(rig, **other), "blocks of rows")


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"block_rows": 8, "n_blocks": 50}, "7 rows of this site would be in this sum"),
        # Three rows for each of four columns; the first row has none before it.
        (
            {"block_rows": 16, "n_blocks": 24, "n_lags": 5},
            "11 rows of this site would stand for 12 parameters",
        ),
        # The first rows alone, and all others.
        ({"block_rows": 4, "n_blocks": 2}, "3 rows of this site would be in this sum"),
        # All but the last rows, and these alone.
        ({"block_rows": 256, "n_blocks": 2}, "4 rows of this site would be in this sum"),
    ],
)
def test_a_block_of_few_rows_is_not_told(tmp_path, asked, why):
    rig = make_rig(tmp_path, n_last=260 if asked["block_rows"] == 256 else N)
    server = Server(rig, rig.study("changing", {"n_lags": asked.get("n_lags", 1)}))
    with pytest.raises(Refused):
        server.sum(blocks(rig, **asked))
    assert why in rig.notes("s0", server.run)[-1]


def test_lengths_that_differ_from_another_studys_by_a_row_are_none(tmp_path):
    rig = make_rig(tmp_path)
    with pytest.raises(Refused) as caught:
        Server(rig, rig.study("changing")).sum(blocks(rig, block_rows=33))
    assert all("must be a power of two" in one for one in caught.value.told.values())


def test_a_site_without_rows_in_late_blocks_answers_and_one_with_few_there_does_not(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    rig = make_rig(tmp_path / "a", n_last=320)
    counts = Server(rig, rig.study("changing")).sum(blocks(rig)).value.reshape(12, -1)[:, 0]
    np.testing.assert_allclose(counts, [93, *[96] * 9, 64, 96], atol=1e-3)
    rig = make_rig(tmp_path / "b", n_last=325)
    server = Server(rig, rig.study("changing"))
    with pytest.raises(Refused):
        server.sum(blocks(rig))
    assert "5 rows of this site would be in this sum" in rig.notes("s0", server.run)[-1]


def test_the_length_of_blocks_is_the_studys(tmp_path):
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("changing", {"blocks": 64}))
    refused(server, blocks(rig), "'block_rows' is 32")


def test_only_a_study_of_changes_asks_for_blocks_and_only_where_an_owner_lists_them(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    rig = make_rig(tmp_path / "a")
    refused(
        Server(rig, rig.study("oneshot")), blocks(rig), "the study does not ask for the task 'block-moments'"
    )
    rig = make_rig(tmp_path / "b", listed=False)
    with says_no(SiteRefused, code="tasks-not-allowed"):
        Server(rig, rig.study("changing"))
