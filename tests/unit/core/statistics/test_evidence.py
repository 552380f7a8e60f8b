"""Evidence of changes against numerical integration, its mean where nothing changes, and e-BH by hand."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.linalg import null_space
from scipy.stats import multivariate_normal

from feddbn.core.statistics.evidence import (
    SIZE,
    is_alarm,
    noise_evidence,
    noise_sums,
    over_starts,
    products,
    weight_evidence,
)
from feddbn.core.statistics.moments import Moments

pytestmark = pytest.mark.promise


def integrated(X, z, y):
    """The Bayes factor by quadrature over the noise deviation, of the part of y that X leaves."""
    N = null_space(X.T)
    v, w = N.T @ y, N.T @ z
    means = np.zeros(len(v))

    def marginal(V):
        def density(log_sd):
            return multivariate_normal(means, np.exp(2 * log_sd) * V).pdf(v)

        return quad(density, -4, 7, limit=100)[0]

    return np.log(marginal(np.eye(len(v)) + SIZE * np.outer(w, w)) / marginal(np.eye(len(v))))


def rows(n, rng, q=3):
    return np.c_[np.ones(n), rng.normal(size=(n, q - 1)) @ rng.normal(size=(q - 1, q - 1))]


@pytest.mark.parametrize("cut", [3, 7])
def test_the_bayes_factors_of_weights_are_those_of_numerical_integration(cut):
    Z = np.c_[rows(9, np.random.default_rng(cut), 4)]
    after = np.arange(9) >= cut
    found = weight_evidence(Z.T @ Z, (Z[after].T @ Z[after])[None], 9, 2)[0]
    for target in (2, 3):
        expected = [integrated(Z[:, :target], Z[:, m] * after, Z[:, target]) for m in range(target)]
        np.testing.assert_allclose(found[target - 2, :target], expected, rtol=1e-6)
        assert (found[target - 2, target:] == -np.inf).all()


def test_the_bayes_factor_of_a_noise_variance_is_the_same_one_level_up():
    weight, u = np.array([40.0, 10.0, 12.0, 9.0, 11.0]), np.array([0.1, 0.0, 0.3, 1.2, 0.9])
    sums = np.array([np.ones(5), weight, weight * u, weight * u**2])[:, :, None]
    found = noise_evidence(sums.sum(axis=1), sums[:, 3:].sum(axis=1)[None])[0, 0]
    root = np.sqrt(weight)
    expected = integrated(root[:, None], root * (np.arange(5) >= 3), root * u)
    assert found == pytest.approx(expected, rel=1e-6)
    assert noise_evidence(sums[:, :2].sum(axis=1), sums[:, 1:2].sum(axis=1)[None]).tolist() == [[0.0]]


def test_a_look_gives_the_log_of_its_noise_variance_without_bias_and_nothing_if_it_has_few_rows():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(2000, 12, 3)) * [1, 1, 3] + [1, 0, 0]
    Z[..., 2] += 2 * Z[..., 1]
    found = np.array([noise_sums(one.T @ one, 12, 2) for one in Z])[:, :, 0]
    assert found[0, :2].tolist() == [1, 10]
    assert found[:, 2].mean() / 10 == pytest.approx(np.log(9), abs=4 * found[:, 2].std() / 10 / np.sqrt(2000))
    assert not noise_sums(Z[0, :9].T @ Z[0, :9], 9, 2).any()


def test_the_mean_of_an_e_value_is_one_where_nothing_changes_and_its_expected_log_falls():
    rng = np.random.default_rng(1)
    X, after = rows(40, rng), np.arange(40) >= 20
    e = []
    for _ in range(2000):
        Z = np.c_[X, X @ [3.0, -1.0, 2.0] + 7 * rng.normal(size=40)]
        e.append(np.exp(weight_evidence(Z.T @ Z, (Z[after].T @ Z[after])[None], 40, 3)[0, 0, :3]))
    e = np.array(e)
    np.testing.assert_allclose(e.mean(axis=0), 1.0, atol=4 * e.std(axis=0).max() / np.sqrt(len(e)))
    assert (np.log(e).mean(axis=0) < 0).all()


@pytest.mark.parametrize("tails", [5, 1000])
def test_alarms_are_as_rare_as_promised_over_many_looks_at_a_series_with_a_memory(tails):
    rng, n_series, n_looks = np.random.default_rng(3), 150, 15
    shocks = rng.standard_t(tails, (n_series, 20 * (n_looks + 2)))
    y = np.zeros_like(shocks)
    for t in range(1, shocks.shape[1]):
        y[:, t] = 0.6 * y[:, t - 1] + shocks[:, t]
    Z = np.stack([np.ones_like(y[:, 1:]), y[:, :-1], y[:, 1:]], axis=-1)
    alarms = 0
    for rows in Z:
        looks = np.array([part.T @ part for part in np.split(rows[: 20 * (n_looks + 1)], n_looks + 1)])
        noise = np.array([noise_sums(gram, 20, 2) for gram in looks])
        for k in range(2, n_looks + 2):
            since, later = (np.cumsum(part[1:k][::-1], axis=0)[::-1] for part in (looks, noise))
            weights = weight_evidence(looks[:k].sum(axis=0), since, 20 * k, 2)[:, 0, :2]
            log_e = np.c_[weights, noise_evidence(noise[:k].sum(axis=0), later)]
            found = over_starts(log_e, np.arange(1.0, k), np.full(3, -np.inf), k - 1)
            if np.exp(found).mean() >= 20:
                alarms += 1
                break
    assert alarms <= 0.05 * n_series


def test_units_and_origin_of_columns_do_not_matter():
    rng = np.random.default_rng(2)
    Z = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 3))
    columns = np.array([-1, 1, 2, 0])

    def found(Z):
        base, new = (Moments.of_rows(part) for part in (Z[:20], Z[20:]))
        scale = np.sqrt(np.diag(base.scatter) / base.n)
        grams = [products(part, columns, base.mean, scale) for part in (base, new)]
        return weight_evidence(grams[0] + grams[1], grams[1][None], 30, 1)

    np.testing.assert_allclose(found(Z), found(Z * [100.0, 1e-3, -5.0] + [3.0, 1e3, 0.0]), rtol=1e-8)


def test_a_mixture_over_starts_is_one_where_all_parts_are():
    nothing = np.full((2,), -np.inf)
    assert over_starts(np.zeros((4, 2)), np.arange(1.0, 5.0), nothing, 4) == pytest.approx([0, 0], abs=1e-12)
    # The second start is no longer followed: what it had is settled.
    settled = np.full((2,), np.log(1 / 6))
    assert over_starts(np.zeros((3, 2)), np.array([1.0, 3.0, 4.0]), settled, 4) == pytest.approx(
        [0, 0], abs=1e-12
    )


@pytest.mark.parametrize(
    ("e", "expected"),
    [([59, 29, 1], [0, 0, 0]), ([61, 1, 1], [1, 0, 0]), ([1, 31, 31], [0, 1, 1]), ([20, 20, 20], [1, 1, 1])],
)
def test_alarms_are_those_of_e_bh(e, expected):
    assert is_alarm(np.log(np.array(e) + 1e-9), 0.05).tolist() == [bool(one) for one in expected]
