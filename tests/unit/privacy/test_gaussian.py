import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import norm

from feddbn.errors import ParameterError
from feddbn.privacy import gaussian as sampler
from feddbn.privacy.gaussian import (
    LONGEST,
    SHARE_BITS,
    SLACK,
    Grid,
    discrete_gaussian,
    discretisation_cost,
    gaussian_delta,
    gaussian_epsilon,
    noise_multiplier,
)
from feddbn.privacy.integers import decode_fixed, encode_fixed
from feddbn.privacy.noise_plan import gram_weights
from support.saying import refused

pytestmark = pytest.mark.promise


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


def probabilities(variance, reach=None):
    """The definition, for whole numbers from -reach to reach."""
    reach = reach or math.ceil(12 * math.sqrt(variance)) + 4
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-(k**2) / (2 * variance))
    return k, weights / weights.sum()


def chi_square(drawn, variance):
    k, p = probabilities(variance)
    expected = p * len(drawn)
    seen = np.array([(drawn == value).sum() for value in k])
    often = expected >= 10
    rare = expected[~often].sum()
    seen, expected = np.append(seen[often], seen[~often].sum()), np.append(expected[often], rare)
    return stats.chisquare(seen, expected * len(drawn) / expected.sum()).pvalue


@pytest.mark.parametrize("variance", [1, 2, 7, 50])
def test_frequencies_are_those_of_the_definition(variance):
    drawn = discrete_gaussian(variance, 40_000, np.random.default_rng([1, variance]).bytes)
    assert chi_square(drawn, variance) > 1e-4


def test_the_test_would_see_another_distribution():
    rounded = np.rint(np.random.default_rng(1).normal(scale=1.0, size=40_000)).astype(int)
    assert chi_square(rounded, 1) < 1e-10


@pytest.mark.parametrize("word", [1, 3])
def test_ties_are_decided_by_the_bits_that_follow(monkeypatch, word):
    monkeypatch.setattr(sampler, "_WORD", word)
    drawn = discrete_gaussian(3, 30_000, np.random.default_rng([2, word]).bytes)
    assert chi_square(drawn, 3) > 1e-4


def test_on_a_fine_grid_it_is_gaussian_in_shape_and_size():
    variance = 2**53 + 12345
    drawn = discrete_gaussian(variance, 20_000, np.random.default_rng(3).bytes) / math.sqrt(variance)
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    assert drawn.var() == pytest.approx(1.0, rel=0.03)
    assert abs(drawn.mean()) < 0.02
    # Low bits are those of any number, not of few.
    whole = discrete_gaussian(variance, 4_000, np.random.default_rng(4).bytes)
    assert stats.chisquare(np.bincount(whole % 16, minlength=16)).pvalue > 1e-4


def test_the_same_seed_gives_the_same_bits_and_the_operating_system_none():
    first, second = (discrete_gaussian(100, 50, np.random.default_rng(5).bytes) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert len(discrete_gaussian(100, 0, np.random.default_rng(5).bytes)) == 0


@given(st.integers(1, 2**57), st.integers(0, 40), st.integers(0, 1000))
def test_any_variance_and_size(variance, size, seed):
    drawn = discrete_gaussian(variance, size, np.random.default_rng(seed).bytes)
    assert drawn.shape == (size,)
    assert np.all(np.abs(drawn.astype(float)) < 20 * math.sqrt(variance) + 20)


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0, 2.5])
def test_coins_of_exponential_probability(rate):
    n = 20_000
    numerator = np.full(n, round(rate * 10), dtype=object)
    heads = sampler._flip_exponential(numerator, 10, np.random.default_rng(6).bytes).sum()
    assert stats.binomtest(int(heads), n, math.exp(-rate)).pvalue > 1e-4


def test_impossible_variances_are_refused():
    for wrong in (0, 2**58):
        with refused(ParameterError, 1, 2, 58):
            discrete_gaussian(wrong, 1, np.random.default_rng(0).bytes)
    with refused(ParameterError, "grid"):
        discretisation_cost(1, 0.5, 1)


def worst_log_ratio(p, q, k, deviation):
    near = np.abs(k) <= 8 * deviation
    return np.abs(np.log(p[near] / q[near])).max()


@pytest.mark.parametrize(("deviation", "n_shares"), [(1.0, 2), (1.0, 5), (2.0, 3), (3.0, 1)])
def test_the_books_cover_what_a_sum_of_shares_differs_from_a_rounded_gaussian(deviation, n_shares):
    """By brute force: convolve the shares, round the Gaussian, and compare the logarithms of all probabilities."""
    total = deviation * math.sqrt(n_shares)
    k, share = probabilities(deviation**2, 60)
    summed = np.ones(1)
    for _ in range(n_shares):
        summed = np.convolve(summed, share)
    middle = len(summed) // 2
    summed = summed[middle - 60 : middle + 61]
    edges = np.arange(-60.5, 61.5) / total
    # Differences of the smaller tail keep their digits.
    rounded = np.where(k > 0, -np.diff(stats.norm.sf(edges)), np.diff(stats.norm.cdf(edges)))
    assert 2 * worst_log_ratio(summed, rounded, k, total) <= discretisation_cost(1, deviation, n_shares)
    # The first part alone: the sum is nearly one discrete Gaussian (Kairouz, Liu & Steinke 2021).
    _, one = probabilities(total**2, 60)
    rate = 2 * math.pi**2 * deviation**2
    tau = 10 * sum(math.exp(-rate * j / (j + 1)) for j in range(1, n_shares))
    assert worst_log_ratio(summed, one, k, total) <= tau + 1e-9


def test_step_follows_from_the_noise_and_the_noise_is_fine_on_it():
    for deviation in (1e-9, 0.3, 1.0, 77.7, 1e13):
        grid = Grid.for_share(deviation)
        assert 2**SHARE_BITS <= deviation / grid.step < 2 ** (SHARE_BITS + 1)
    for wrong in (1e-12, 1e15, 0.0, math.inf, math.nan):
        with pytest.raises(ParameterError):
            Grid.for_share(wrong)


def test_being_on_a_grid_costs_less_than_a_millionth():
    assert SLACK == discretisation_cost(LONGEST, 2.0**SHARE_BITS, 255) < 3e-7


@given(st.integers(1, 30), st.floats(1e-3, 1e6), st.floats(1e-4, 1e4), st.integers(0, 2**32 - 1))
def test_no_rounded_unit_is_longer_than_its_bound(length, scale, deviation, seed):
    rng = np.random.default_rng(seed)
    grid = Grid.for_share(deviation)
    # The bound is at least a thousandth of the noise: a multiplier above 1000 is not of this world.
    bound = deviation * 10 ** rng.uniform(-3, 3)
    weights = rng.uniform(0.5, 2.0, length)
    vector = scale * rng.standard_t(2, length)
    steps, is_clipped = grid.clipped(vector, bound, weights)
    half = grid.step * np.linalg.norm(weights) / 2
    assert np.linalg.norm(weights * steps * grid.step) <= bound - half * (1 - 1e-6)
    assert is_clipped == (np.linalg.norm(weights * vector) > bound)


def test_a_short_vector_is_rounded_and_a_long_one_keeps_its_direction():
    grid = Grid.for_share(1.0)
    steps, is_clipped = grid.clipped(np.array([0.3, -0.4]), 5.0, np.ones(2))
    np.testing.assert_allclose(steps * grid.step, [0.3, -0.4], atol=grid.step)
    assert not is_clipped
    steps, is_clipped = grid.clipped(np.array([30.0, 40.0]), 1.0, np.ones(2))
    np.testing.assert_allclose(steps * grid.step, [0.6, 0.8], atol=1e-6)
    assert is_clipped


def test_one_unit_moves_the_sum_by_at_most_the_bound():
    rng = np.random.default_rng(1)
    grid, weights = Grid.for_share(0.5), gram_weights(2)
    units = [rng.normal(size=6) * 10.0**k for k in range(-2, 4)]
    whole = grid.clipped_sum(units, 2.0, 6, weights)
    assert whole.n_units == 6
    assert whole.n_clipped == sum(np.linalg.norm(weights * u) > 2 for u in units)
    for left_out in range(6):
        rest = grid.clipped_sum(units[:left_out] + units[left_out + 1 :], 2.0, 6, weights)
        assert np.linalg.norm(weights * (whole.steps - rest.steps) * grid.step) <= 2.0


def test_a_unit_that_is_not_finite_counts_as_zeros_and_is_told_to_the_owner():
    grid = Grid.for_share(1.0)
    units = [np.ones(2), np.array([np.nan, 1.0]), np.array([np.inf, 0.0]), np.array([1e300, 0.0])]
    summed = grid.clipped_sum(units, 10.0, 2, np.ones(2))
    np.testing.assert_allclose(summed.steps * grid.step, [1.0, 1.0], atol=grid.step)
    assert (summed.n_units, summed.n_clipped, summed.n_left_out) == (4, 0, 3)


def test_sums_stay_within_what_can_be_added_exactly():
    for deviation in (1.0, 1e13):
        grid = Grid.for_share(deviation)
        top = grid.clipped_sum([np.array([1e16])] * 9, 1e16, 1, np.ones(1)).steps[0]
        assert top <= grid.limit
        value = float(top + 40 * 2 ** (SHARE_BITS + 1)) * grid.step
        assert value < 2.0**62 / 256


@pytest.mark.parametrize("n_sites", [1, 3, 7, 255])
def test_secure_aggregation_adds_grid_numbers_without_rounding(n_sites):
    random_bytes = np.random.default_rng(n_sites).bytes
    for deviation in (1e-9, 3.0, 5e12):
        grid = Grid.for_share(deviation)
        steps = [grid.noise(np.full(20, deviation), random_bytes) for _ in range(min(n_sites, 7))]
        residues = sum(encode_fixed(one * grid.step, n_sites) for one in steps)
        low, high = residues.view(np.int64)
        unit = 64 - n_sites.bit_length()
        exact = [(int(h) << unit) + int(v) for h, v in zip(high, low, strict=True)]
        wanted = [int(value) for value in np.sum(steps, axis=0)]
        shift = unit + grid.exponent
        assert exact == [value << shift if shift >= 0 else value >> -shift for value in wanted]
        np.testing.assert_allclose(
            decode_fixed(residues, n_sites), np.sum(steps, axis=0) * grid.step, rtol=1e-12
        )


def test_noise_has_the_size_asked_for_by_entry():
    grid = Grid.for_share(0.5)
    deviations = np.repeat([0.5, 2.0], 8_000)
    noise = grid.noise(deviations, np.random.default_rng(2).bytes) * grid.step
    assert noise[:8_000].std() == pytest.approx(0.5, rel=0.04)
    assert noise[8_000:].std() == pytest.approx(2.0, rel=0.04)
