import numpy as np
import pytest

from feddbn.core.statistics.moments import Moments
from feddbn.errors import DataError
from feddbn.privacy.noise_plan import effective_count, gram_weights, moments_of_noisy_sums, repair_psd


def test_repair_raises_only_the_eigenvalues_below_the_floor():
    matrix = np.diag([3.0, 1.0, -2.0])
    repaired, n = repair_psd(matrix, 0.5)
    np.testing.assert_allclose(repaired, np.diag([3.0, 1.0, 0.5]), atol=1e-12)
    assert n == 1
    same, none = repair_psd(np.eye(3), 0.5)
    np.testing.assert_allclose(same, np.eye(3), atol=1e-12)
    assert none == 0


def test_without_noise_moments_stay_what_they_are():
    rng = np.random.default_rng(0)
    exact = Moments.of_rows(rng.normal(size=(200, 3)) + 1.0)
    noisy = moments_of_noisy_sums(exact.to_sums(), 3, 0.0)
    assert noisy.moments.n == pytest.approx(200)
    np.testing.assert_allclose(noisy.moments.scatter, exact.scatter, rtol=1e-9)
    np.testing.assert_allclose(noisy.moments.mean, exact.mean)


def test_effective_count_is_the_count_whose_chance_covariance_is_as_large():
    # Two independent variables: the spread of their noisy sample covariance tells the number of rows it is
    # worth.
    rng = np.random.default_rng(1)
    n, sigma = 400, 60.0
    covariances = [
        np.mean(rng.normal(size=n) * rng.normal(size=n)) + rng.normal() * sigma / n for _ in range(4000)
    ]
    assert effective_count(np.eye(2), n, sigma) == pytest.approx(1 / np.var(covariances), rel=0.08)


def test_effective_count_does_not_depend_on_the_order_of_variables_and_falls_with_noise():
    rng = np.random.default_rng(2)
    covariance = np.cov(rng.normal(size=(4, 50)))
    shuffled = covariance[::-1, ::-1]
    assert effective_count(covariance, 100, 5.0) == pytest.approx(effective_count(shuffled, 100, 5.0))
    counts = [effective_count(covariance, 100, s) for s in (0.0, 1.0, 10.0)]
    assert counts[0] == 100
    assert counts == sorted(counts, reverse=True)


def test_much_noise_is_repaired_and_counted_as_few_rows():
    rng = np.random.default_rng(3)
    q = 6
    exact = Moments.of_rows(rng.normal(size=(300, q)))
    sigma = 250.0
    vector = exact.to_sums() + rng.normal(scale=sigma / gram_weights(q))
    vector[0] = 300.0
    noisy = moments_of_noisy_sums(vector, q, sigma)
    assert noisy.n_repaired > 0
    assert noisy.n_rows == 300.0
    assert noisy.moments.n < 30
    assert np.linalg.eigvalsh(noisy.moments.scatter)[0] > 0


def test_noise_that_swallows_the_count_is_refused():
    with pytest.raises(DataError):
        moments_of_noisy_sums(np.concatenate([[-3.0], np.zeros(5)]), 2, 1.0)
