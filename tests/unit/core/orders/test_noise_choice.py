"""Equal or free noise variances: scores decide where Bartlett's statistic alone is in doubt."""

import numpy as np
import pytest
from scipy import stats

import feddbn
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.learn import (
    CLEAR_ADVANTAGE,
    choose_noise,
    needed_advantage,
    price_of_free,
    variance_difference,
)
from feddbn.core.orders.search import Criterion, OrderResult
from feddbn.core.statistics.moments import Moments


def network_of(variances, n):
    d = len(variances)
    rss = np.asarray(variances, dtype=float) * (n - 1)
    return OrderResult(tuple(range(d)), ((),) * d, rss, 0.0, "equal", np.zeros((d, d), dtype=bool))


def test_bartletts_statistic_agrees_with_scipy_and_ignores_equal_scales():
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((40, 4)) * np.array([1.0, 1.0, 1.5, 0.7])
    rss = ((samples - samples.mean(axis=0)) ** 2).sum(axis=0)
    network = OrderResult((0, 1, 2, 3), ((), (), (), ()), rss, 0.0, "equal", np.zeros((4, 4), dtype=bool))
    expected = stats.bartlett(*samples.T).statistic
    assert variance_difference(network, 40.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("largest", "expected"), [(1.0, np.inf), (1.1, np.inf), (1.4, CLEAR_ADVANTAGE), (2.0, 0.0)]
)
def test_the_more_variances_differ_the_less_free_ones_must_gain(largest, expected):
    assert needed_advantage(network_of([1.0, 1.0, 1.0, 1.0, largest], 500), 500.0) == expected


def unit_variance_moments(seed):
    fed = feddbn.simulate(
        d=10,
        n_sites=64,
        n_samples=512,
        mean_degree=2.5,
        lag_degree=1,
        w_range=(0.3, 0.6),
        mess={"unit-variance": None},
        random_state=seed,
    )
    rows = [np.asarray(frame) for frames in fed.sites.values() for frame in frames]
    z = np.vstack([np.hstack([x[1:], x[:-1]]) for x in rows])
    return fed, Moments.of_rows(z)


@pytest.mark.parametrize("seed", [104, 138])
def test_scores_overrule_residual_variances_that_wrong_edges_made_alike(seed):
    fed, moments = unit_variance_moments(seed)
    limits, rng = EdgeConstraints.none(10, 1), np.random.default_rng(0)
    searches, choice = choose_noise(moments, 10, 1, limits, Criterion(), "auto", 2, rng)
    truth = np.concatenate([fed.truth.W, fed.truth.A[0]]) != 0
    wrong = {kind: int((found.support != truth).sum()) for kind, (_, found) in searches.items()}
    # Bartlett's statistic alone would keep equal variances.
    assert variance_difference(searches["equal"][1], moments.n) < price_of_free(10, moments.n)
    assert choice.kind == "free"
    assert wrong["free"] <= 3 < 20 < wrong["equal"]
