import numpy as np
import pytest

from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.nongaussian import (
    ShapedScores,
    entropy_terms,
    node_residuals,
    residual_features,
    without_one_edge,
)
from feddbn.core.orders.search import Criterion, OrderSearch
from feddbn.core.statistics.moments import Moments

NETWORK = ((), (0,), (0, 1, 4))


def search_and_rows(kind):
    x = np.random.default_rng(0).exponential(size=(200, 6)) * [1, 2, 3, 1, 1, 1]
    moments = Moments.of_rows(x)
    search = OrderSearch(moments, 3, 1, EdgeConstraints.none(3, 1), Criterion(), kind)
    return search, moments, x


@pytest.mark.parametrize("kind", ["equal", "free"])
def test_the_score_is_criterion_entropies_and_tempered_inequality(kind):
    search, moments, x = search_and_rows(kind)
    scores = ShapedScores(search)
    jobs = scores.unknown([NETWORK, NETWORK])
    assert jobs == list(enumerate(NETWORK))
    residuals = node_residuals(moments, jobs)
    features = residual_features(x @ residuals.coefficients - residuals.offset)
    scores.learn(jobs, features, 200.0)
    assert scores.unknown([NETWORK]) == []
    rss = [
        np.linalg.lstsq(np.column_stack([np.ones(200), x[:, list(S)]]), x[:, j], rcond=None)[1][0]
        for j, S in enumerate(NETWORK)
    ]
    np.testing.assert_allclose(search.rss_of(NETWORK), rss)
    variance = np.array(rss) / 200
    free = 200 * np.log(variance).sum()
    equal = 200 * 3 * np.log(variance.mean())
    shape = entropy_terms(features, 200.0).sum()
    prices = search.criterion.total(200.0, 3, 1, 3, 1)
    for tails in (1.0, 4.0):
        scores.tails = tails
        fit = free if kind == "free" else free + (equal - free) / tails
        assert scores.of(NETWORK) == pytest.approx(fit + shape + prices)


def test_each_edge_is_left_out_once():
    shorter = without_one_edge(NETWORK)
    assert set(shorter) == {(0, 1), (0, 2), (1, 2), (4, 2)}
    assert shorter[1, 2] == ((), (0,), (0, 4))
    assert shorter[0, 1] == ((), (), (0, 1, 4))
