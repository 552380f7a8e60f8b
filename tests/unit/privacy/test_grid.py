import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddbn.errors import ParameterError
from feddbn.privacy.fixed_point import decode_fixed, encode_fixed
from feddbn.privacy.gaussian import LONGEST, SHARE_BITS, SLACK, Grid, discretisation_cost
from feddbn.privacy.noise_plan import gram_weights


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
