import numpy as np
import pytest
from scipy import stats

from feddbn.sim.graphs import NOISE_FAMILIES, draw_noise

ORACLES = {
    "gaussian": stats.norm(),
    "exponential": stats.expon(loc=-1),
    "gumbel": stats.gumbel_r(loc=-np.euler_gamma * np.sqrt(6) / np.pi, scale=np.sqrt(6) / np.pi),
    "laplace": stats.laplace(scale=np.sqrt(0.5)),
    "uniform": stats.uniform(loc=-np.sqrt(3), scale=2 * np.sqrt(3)),
}


@pytest.mark.parametrize("family", NOISE_FAMILIES)
def test_every_family_is_the_standardised_distribution_it_is_named_after(family):
    oracle = ORACLES[family]
    assert oracle.mean() == pytest.approx(0, abs=1e-12)
    assert oracle.var() == pytest.approx(1)
    draws = draw_noise(family, (20_000,), np.ones(()), np.random.default_rng(7))
    assert stats.kstest(draws, oracle.cdf).pvalue > 0.001


@pytest.mark.parametrize("family", NOISE_FAMILIES)
def test_noise_has_mean_zero_and_the_scale_of_each_variable(family):
    scales = np.array([0.5, 1.0, 3.0])
    n = 100_000
    draws = draw_noise(family, (n, 3), scales, np.random.default_rng(8))
    assert np.all(np.abs(draws.mean(axis=0)) < 5 * scales / np.sqrt(n))
    np.testing.assert_allclose(draws.std(axis=0), scales, rtol=0.02)
