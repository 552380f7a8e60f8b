import math

import dp_accounting
import numpy as np
import pytest
from scipy.stats import norm

from feddbn.errors import ParameterError
from feddbn.privacy.gaussian import gaussian_delta, gaussian_epsilon, noise_multiplier
from support.saying import refused


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0, 8.0, 30.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_calibration_agrees_with_dp_accounting(epsilon, delta):
    ours = noise_multiplier(epsilon, delta)
    theirs = dp_accounting.get_sigma_gaussian(epsilon, delta)
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_delta_is_the_probability_formula_where_that_does_not_underflow():
    for epsilon, z in [(0.5, 1.0), (2.0, 0.7), (1.0, 3.0)]:
        mu = 1 / z
        direct = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert gaussian_delta(epsilon, z) == pytest.approx(direct, rel=1e-9)


def test_delta_is_what_a_likelihood_ratio_attacker_gets():
    # delta(epsilon) = E[max(0, 1 - exp(epsilon) dQ/dP)] by simulation of the privacy loss.
    rng = np.random.default_rng(0)
    z, epsilon = 1.2, 1.0
    mu = 1 / z
    loss = mu * rng.normal(size=2_000_000) + mu**2 / 2
    simulated = np.mean(np.maximum(0.0, 1 - np.exp(epsilon - loss)))
    assert gaussian_delta(epsilon, z) == pytest.approx(simulated, rel=0.02)


def test_noise_falls_with_epsilon_and_rises_with_releases():
    assert noise_multiplier(1.0, 1e-5) > noise_multiplier(2.0, 1e-5)
    assert noise_multiplier(1.0, 1e-5, 70) == pytest.approx(
        math.sqrt(70) * noise_multiplier(1.0, 1e-5), rel=1e-9
    )


def test_epsilon_inverts_the_calibration_and_never_underestimates():
    for n_releases in (1, 70):
        z = noise_multiplier(2.0, 1e-6, n_releases)
        assert gaussian_epsilon(1e-6, z, n_releases) == pytest.approx(2.0, rel=1e-6)
        assert gaussian_delta(2.0, z, n_releases) <= 1e-6


def test_enormous_noise_costs_nothing_at_this_delta():
    assert gaussian_epsilon(0.1, 1e6) == 0.0
    assert noise_multiplier(1000.0, 0.5) < 1e-1


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0.0, 1e-5), "epsilon"),
        ((math.inf, 1e-5), "epsilon"),
        ((1.0, 0.0), "delta"),
        ((1.0, 1e-5, 0), "n_releases"),
    ],
)
def test_impossible_arguments_are_named(arguments, name):
    with refused(ParameterError, name):
        noise_multiplier(*arguments)
