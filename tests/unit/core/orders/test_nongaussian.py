import numpy as np
import pytest
from scipy import stats

from feddbn.core.constraints import EdgeConstraints
from feddbn.core.orders.nongaussian import (
    ShapedScores,
    entropies,
    entropy_terms,
    gaussian_p,
    node_residuals,
    residual_features,
    shape_p_value,
    shape_sums,
    tail_weight,
)
from feddbn.core.orders.parents import Criterion
from feddbn.core.orders.search import OrderSearch
from feddbn.core.statistics.moments import Moments


def standardised(values):
    return (values - values.mean(axis=0)) / values.std(axis=0)


def test_residuals_are_standardised_and_uncorrelated_with_the_parents():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((300, 5)) @ rng.standard_normal((5, 5)) * [1, 10, 0.1, 5, 1] + 100
    residuals = node_residuals(Moments.of_rows(z), [(0, (2, 4)), (1, ())])
    u = z @ residuals.coefficients - residuals.offset
    np.testing.assert_allclose(u.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(u.std(axis=0), 1)
    np.testing.assert_allclose(np.corrcoef(u[:, 0], z[:, 2])[0, 1], 0, atol=1e-9)


def test_features_add_up_over_groups_of_rows_and_never_overflow():
    u = np.random.default_rng(0).standard_normal((50, 3))
    np.testing.assert_allclose(residual_features(u[:20]) + residual_features(u[20:]), residual_features(u))
    assert np.isfinite(residual_features(np.array([[1e3], [-1e3]]))).all()


def test_gaussian_has_the_largest_entropy():
    rng = np.random.default_rng(0)
    n = 100_000
    columns = [rng.standard_normal(n), rng.exponential(size=n), rng.laplace(size=n), rng.uniform(size=n)]
    H = entropies(residual_features(standardised(np.stack(columns, axis=1))), n)
    assert H[0] == pytest.approx(0.5 * np.log(2 * np.pi * np.e), abs=1e-3)
    assert (H[1:] < H[0] - 0.01).all()
    assert (entropy_terms(residual_features(standardised(np.stack(columns, axis=1))), n) <= 0).all()


def test_p_values_of_gaussian_noise_are_uniform_also_in_the_tail():
    rng = np.random.default_rng(0)
    p = gaussian_p(residual_features(standardised(rng.standard_normal((500, 20_000)))), 500)
    for level in (0.5, 0.05, 0.001):
        assert np.mean(p < level) == pytest.approx(level, rel=0.25)
    for noise in (rng.exponential(size=(500, 1)), rng.laplace(size=(500, 1)), rng.uniform(size=(500, 1))):
        assert gaussian_p(residual_features(standardised(noise)), 500)[0] < 1e-4


def test_shapes_are_scipys_skewness_and_kurtosis_in_any_units():
    x = np.random.default_rng(0).exponential(size=(400, 3))
    x[:, 2] = 7.0
    sums = shape_sums(x)
    np.testing.assert_allclose(sums[1:3] / 400, stats.skew(x[:, :2]))
    np.testing.assert_allclose(sums[4:6] / 400, stats.kurtosis(x[:, :2]) + 3 - 3 * 399 / 401)
    assert sums[[0, 3, 6]].tolist() == [400, 0, 0]
    np.testing.assert_allclose(shape_sums(x * [1e6, -1e-6, 1] + 5), sums * [1, 1, -1, 1, 1, 1, 1])


def test_many_short_gaussian_recordings_do_not_look_non_gaussian():
    rng = np.random.default_rng(0)
    p = [shape_p_value(sum(shape_sums(rng.standard_normal((8, 4))) for _ in range(100))) for _ in range(50)]
    assert np.mean(np.array(p) < 0.05) <= 0.1
    assert shape_p_value(sum(shape_sums(rng.exponential(size=(8, 4))) for _ in range(100))) < 1e-6


@pytest.mark.parametrize("draw", ["standard_normal", "standard_exponential", "random"])
def test_tail_weight_is_how_much_more_a_variance_varies_than_that_of_gaussian_values(draw):
    rng = np.random.default_rng(0)
    values = getattr(rng, draw)((4000, 500))
    variances = values.var(axis=1) / values.var()
    expected = max(1.0, float(variances.var()) / (2 / 500))
    assert tail_weight(residual_features(standardised(values.reshape(-1, 1))), values.size) == pytest.approx(
        expected, rel=0.1
    )


NETWORK = ((), (0,), (0, 1, 4))


def search_and_rows(kind):
    x = np.random.default_rng(0).exponential(size=(200, 6)) * [1, 2, 3, 1, 1, 1]
    moments = Moments.of_rows(x)
    search = OrderSearch(moments, EdgeConstraints.none(3, 1), Criterion(), kind)
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
