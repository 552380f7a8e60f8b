"""Moments of blocks of rows: against rows cut by hand, over sites, and added up."""

import numpy as np
import pytest

from feddbn.core.statistics.moments import Moments
from feddbn.data import read_sites
from feddbn.errors import ProtocolError
from feddbn.federation.programs.block_moments import BlockMomentsQuestion, block_moments_program
from feddbn.federation.programs.statistics import MomentsQuestion
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Task, run_program
from feddbn.runtime.simulated.in_process import InProcessFederation

NAMES = ("a", "b", "c")


def federation(data, missing="keep"):
    sites = read_sites(data, variables=list(NAMES), missing=missing)
    return InProcessFederation({name: Site(name, site) for name, site in sites.items()})


def recordings(seed, lengths=(103, 97), d=3):
    import pandas as pd

    rng = np.random.default_rng(seed)
    return {
        f"s{k}": pd.DataFrame(rng.normal(size=(n, d)).cumsum(axis=0) + 10 * k, columns=list(NAMES))
        for k, n in enumerate(lengths)
    }


def asked(data, **more):
    question = BlockMomentsQuestion(n_lags=2, variables=NAMES, block_rows=16, n_blocks=5, **more)
    return run_program(block_moments_program(question), federation(data))


def same(one, other):
    assert one.n == other.n
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-9)
    np.testing.assert_allclose(one.scatter, other.scatter, rtol=1e-8, atol=1e-7)


def test_blocks_are_rows_cut_by_hand_and_lags_reach_back():
    data = recordings(0)
    blocks = asked(data)
    for b, (start, stop) in enumerate([(0, 16), (16, 32), (32, 48), (48, 64), (64, 200)]):
        total = Moments.empty(9)
        for frame in data.values():
            x = frame.to_numpy()
            rows = [
                np.concatenate([x[t], x[t - 1], x[t - 2]]) for t in range(max(start, 2), min(stop, len(x)))
            ]
            total = total.merge(Moments.of_rows(np.array(rows)))
        same(blocks[b], total)


@pytest.mark.parametrize(
    "treatment",
    [
        {},
        {"center": "recording"},
        {"center": "recording", "degree": 2, "periods": (12.0,)},
        {"origin": np.full(9, 7.0)},
    ],
)
def test_blocks_add_up_to_the_moments_of_all_rows(treatment):
    data = recordings(1)
    data["s0"].iloc[50, 1] = np.nan
    blocks = asked(data, **treatment)
    total = blocks[0]
    for one in blocks[1:]:
        total = total.merge(one)
    question = MomentsQuestion(n_lags=2, variables=NAMES, **treatment)
    answer = federation(data).sum(Task(question)).value
    expected = Moments.from_sums(answer, 9, treatment.get("origin"))
    same(total, expected)
    assert total.n == 103 + 97 - 4 - 3


def test_the_sum_of_sites_is_that_of_one_site_with_all_recordings():
    data = recordings(2)
    pooled = {"all": list(data.values())}
    for one, other in zip(asked(data), asked(pooled), strict=True):
        same(one, other)


def test_a_short_recording_has_no_rows_in_late_blocks():
    blocks = asked(recordings(3, (100, 45)))
    assert [block.n for block in blocks] == [14 + 14, 32, 16 + 13, 16, 36]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"fold": (0, 2, 500)}, "'fold' has no meaning"),
        ({"row_model": np.zeros((10, 9))}, "'row_model' has no meaning"),
        ({"n_blocks": 61}, "n_blocks"),
        ({"block_rows": -1}, "block_rows"),
        ({"unit": "M"}, "have no meaning: blocks are by 'block_rows'"),
        ({"first": 3}, "have no meaning"),
        ({"block_rows": 20}, "must be a power of two"),
    ],
)
def test_a_question_that_cannot_be_is_none(wrong, why):
    with pytest.raises(ProtocolError, match=why):
        BlockMomentsQuestion(**{"n_lags": 2, "variables": NAMES, "block_rows": 16, "n_blocks": 5, **wrong})
