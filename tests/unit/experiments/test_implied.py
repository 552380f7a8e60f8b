import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddbn.experiments.cells import expand
from feddbn.experiments.config import Point, Quoted
from feddbn.experiments.fits import draw
from feddbn.experiments.tables import implied_edges, implied_of, stated_edges
from feddbn.metrics import edge_scores


@given(seed=st.integers(0, 10_000), share=st.floats(0.1, 0.9))
def test_scores_of_a_network_imply_its_number_of_edges(seed, share):
    rng = np.random.default_rng(seed)
    truth = np.tril(rng.random((7, 7)) < share, -1)
    estimate = np.where(rng.random((7, 7)) < 0.5, truth, truth.T)
    estimate = np.where(rng.random((7, 7)) < 0.7, estimate, np.triu(rng.random((7, 7)) < 0.3, 1))
    scores = edge_scores(truth, estimate)
    n = truth.sum()
    if not (scores.tpr > 0 and scores.shd > 0):
        return
    # With reversals counted twice the number is exact, with reversals counted once it is within the interval.
    assert implied_edges(scores.shd_paper, scores.tpr, scores.fdr)[0] == pytest.approx(n)
    low, high = implied_edges(scores.shd, scores.tpr, scores.fdr)
    assert low - 1e-9 <= n <= high + 1e-9


def test_a_perfect_score_implies_nothing():
    assert implied_edges(0.0, 1.0, 0.0) == (math.inf, math.inf)
    assert implied_edges(4.0, 0.5, 1.0) == (0.0, 0.0)


@pytest.mark.parametrize("changes", [{}, {"connectivity": "low"}, {"connectivity": "high"}, {"n_lags": 2}])
def test_stated_edges_are_those_the_simulator_draws(tiny, changes):
    point = Point(d=10, n_sites=20, n_samples=200, heterogeneity="independent", **changes)
    cell = expand(tiny.model_copy(update={"points": (point,)}))[0]
    truths = draw(cell).truths.values()
    for part in ("W", "A"):
        counts = [np.count_nonzero(getattr(truth, part)) for truth in truths]
        error = np.std(counts) / np.sqrt(len(counts))
        assert abs(np.mean(counts) - stated_edges(point, part)) < 4 * error + 0.2


def test_an_experiment_implies_edges_where_all_three_numbers_are_quoted(tiny):
    def quoted(measure, values):
        return Quoted(
            measure=measure, at=(2, 4), values=values, column="Ave", ours="Alldata", source="Table 0"
        )

    both = (quoted("W.shd_paper", (5.0, 6.0)), quoted("W.fdr", (0.5, 0.5)))
    assert list(implied_of(tiny.model_copy(update={"quoted": both}))) == []
    three = (*both, quoted("W.tpr", (0.5, 0.6)))
    found = list(implied_of(tiny.model_copy(update={"quoted": three})))
    assert [(one.column, one.part, one.at) for one in found] == [("Ave", "W", 2.0), ("Ave", "W", 4.0)]
    # Half of E missed and as many false: between half of E and E.
    assert (found[0].low, found[0].high) == pytest.approx((5.0, 10.0))
    assert found[0].stated == stated_edges(tiny.points[0], "W")
