"""Blocks of rows: a server cannot cut them so that few rows are alone, ask for others after them, or for any unlisted."""

import numpy as np
import pytest

from feddbn.errors import SiteRefused
from support.rig import Rig, Server, listing, raw
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")

D, N = 2, 400


def make_rig(place, listed=True, n_last=N):
    rng = np.random.default_rng(0)
    data = {f"s{i}": [rng.normal(size=(n_last if i == 0 else N, D))] for i in range(3)}
    return Rig(place, data, listing(*(("gram.blocks", "residuals.blocks") if listed else ())))


def blocks(rig, block_rows=32, n_blocks=12, arrays=None, **more):
    params = {"n_lags": 1, "variables": rig.variables, "block_rows": block_rows, "n_blocks": n_blocks, **more}
    return raw("gram.blocks", params, arrays or {})


def test_an_honest_question_is_answered_and_no_other_blocks_after_it(tmp_path):
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("changing"))
    q = 2 * D
    assert server.sum(blocks(rig)).value.size == 12 * (1 + q + q * (q + 1) // 2)
    # Cut, treated or shifted in another way they are not told again.
    others = (
        {"block_rows": 64},
        {"n_blocks": 11},
        {"center": "recording"},
        {"arrays": {"origin": np.ones(q)}},
    )
    for other in others:
        server.refused(blocks(rig, **other), "changed-in-run", "blocks")
    server.sum(blocks(rig))


@pytest.mark.parametrize(
    ("asked", "code", "numbers"),
    [
        ({"block_rows": 8, "n_blocks": 50}, "few-rows", ("7 rows",)),
        # Three rows for each of four columns; the first row has none before it.
        ({"block_rows": 16, "n_blocks": 24, "n_lags": 5}, "few-rows-per-parameter", ("11 rows", 12)),
        # The first rows alone, and all others.
        ({"block_rows": 4, "n_blocks": 2}, "few-rows", ("3 rows",)),
        # All but the last rows, and these alone.
        ({"block_rows": 256, "n_blocks": 2}, "few-rows", ("4 rows",)),
    ],
)
def test_a_block_of_few_rows_is_not_told(tmp_path, asked, code, numbers):
    rig = make_rig(tmp_path, n_last=260 if asked["block_rows"] == 256 else N)
    server = Server(rig, rig.study("changing", {"n_lags": asked.get("n_lags", 1)}))
    server.refused(blocks(rig, **asked), code, *numbers)


def test_lengths_that_differ_from_another_studys_by_a_row_are_none(tmp_path):
    rig = make_rig(tmp_path)
    Server(rig, rig.study("changing")).malformed(blocks(rig, block_rows=33), "'block_rows' is 33")


def test_a_site_without_rows_in_late_blocks_answers_and_one_with_few_there_does_not(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    rig = make_rig(tmp_path / "a", n_last=320)
    counts = Server(rig, rig.study("changing")).sum(blocks(rig)).value.reshape(12, -1)[:, 0]
    np.testing.assert_allclose(counts, [93, *[96] * 9, 64, 96], atol=1e-3)
    rig = make_rig(tmp_path / "b", n_last=325)
    Server(rig, rig.study("changing")).refused(blocks(rig), "few-rows", "5 rows")


def test_the_length_of_blocks_is_the_studys(tmp_path):
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("changing", {"blocks": 64}))
    server.refused(blocks(rig), "not-in-study", "'block_rows' is 32")


def test_only_a_study_of_changes_asks_for_blocks_and_only_where_an_owner_lists_them(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    rig = make_rig(tmp_path / "a")
    Server(rig, rig.study("oneshot")).refused(blocks(rig), "task-not-in-study", "gram.blocks")
    rig = make_rig(tmp_path / "b", listed=False)
    with refused(SiteRefused, code="tasks-not-allowed"):
        Server(rig, rig.study("changing"))
