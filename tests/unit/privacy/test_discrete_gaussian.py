import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from feddbn.errors import ParameterError
from feddbn.privacy import gaussian as sampler
from feddbn.privacy.gaussian import discrete_gaussian, discretisation_cost
from support.saying import refused


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
