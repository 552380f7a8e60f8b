"""`sim.differential`: what its levels are like, and that slow levels are ranked at least as well as by signed VAR weights."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from feddbn import OneShotDBN
from feddbn.core.statistics.diagnostics import slow_levels
from feddbn.core.statistics.moments import Moments
from feddbn.methods.edge_table import pair_ranking
from feddbn.metrics import ranking_scores
from feddbn.sim import river_levels
from support.saying import only


def lagged(x: np.ndarray) -> np.ndarray:
    return np.hstack([x[1:], x[:-1]])


def test_every_gauge_but_one_flows_into_one_other_and_no_water_flows_in_circles():
    levels, truth = river_levels(8, 50, rng=np.random.default_rng(0))
    assert levels.shape == (50, 8)
    assert sorted(truth.sum(axis=1)) == [0] + [1] * 7
    assert not np.linalg.matrix_power(truth, 8).any()
    again, _ = river_levels(8, 50, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(levels, again)


def test_levels_are_slow_and_a_gauge_below_follows_the_one_above():
    levels, truth = river_levels(6, 4000, shared=0.0, max_delay=4, rng=np.random.default_rng(1))
    slow = slow_levels(Moments.of_rows(lagged(levels)), 6)
    assert len(slow.slow) == 6
    x = (levels - levels.mean(axis=0)) / levels.std(axis=0)
    forward = np.array([x[:-6, i] @ x[6:, j] for i, j in np.argwhere(truth)])
    backward = np.array([x[:-6, j] @ x[6:, i] for i, j in np.argwhere(truth)])
    assert (forward > 0).all(), "all effects are positive"
    assert (forward > backward).all(), "water takes its time"


@pytest.mark.slow
@pytest.mark.parametrize("shared", [0.2, 0.6])
@pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning")
def test_slow_levels_are_ranked_at_least_as_well_as_by_signed_weights_and_with_a_warning(shared):
    ours, signed = [], []
    for seed in range(300, 306):
        levels, truth = river_levels(10, 3000, shared=shared, rng=np.random.default_rng(seed))
        names = [f"g{k}" for k in range(10)]
        model = OneShotDBN(check_residuals=False).fit({"a": pd.DataFrame(levels, columns=names)})
        assert only(model.findings_, "slow-levels").about
        ours.append(ranking_scores(truth, pair_ranking(model.edge_probabilities_, names)))
        rows = lagged((levels - levels.mean(axis=0)) / levels.std(axis=0))
        rows = rows - rows.mean(axis=0)
        weights = np.linalg.lstsq(rows[:, 10:], rows[:, :10], rcond=None)[0]
        signed.append(ranking_scores(truth, weights))
    precision = np.array([[one.average_precision for one in found] for found in (ours, signed)])
    assert precision[0].mean() >= precision[1].mean()
    gain = np.array([a.auroc - b.auroc for a, b in zip(ours, signed, strict=True)])
    assert gain.mean() >= -gain.std(ddof=1) / np.sqrt(len(gain)), "up to a standard error"
