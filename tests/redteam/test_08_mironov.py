"""Red team 9 (a8): the low bits of the noise do not tell an empty bin from one unit."""

import numpy as np
import pytest
from scipy import stats

from feddbn.federation.sums.private_moments import private_moments_plan
from feddbn.privacy.gaussian import Grid
from feddbn.privacy.integers import encode_fixed

PLAN = private_moments_plan("gram.rows", "recording", 1.0, 1e-5)
N_BINS, N_RELEASES = 2000, 5
RNG = np.random.default_rng(8)


def low_bits(count, n_sites, protect):
    """What a server that opens sums sees below the whole numbers, for bins in which one site holds `count` units."""
    seen = []
    for _ in range(N_RELEASES):
        total = np.zeros((2, N_BINS), dtype=np.uint64)
        for site in range(n_sites):
            total += encode_fixed(protect(count if site == 0 else 40, n_sites), n_sites)
        seen.append(total.view(np.int64)[0])
    return np.concatenate(seen)


def on_the_grid(count, n_sites):
    units = [np.full(N_BINS, 1.0)] * count
    # Every bin is a release of its own: as many units in each, and the noise of one bin.
    sigma = PLAN.multiplier_of("counts.norms")
    grid = Grid.for_share(sigma / np.sqrt(n_sites))
    steps = sum(
        (np.rint(unit / grid.step).astype(np.int64) for unit in units), np.zeros(N_BINS, dtype=np.int64)
    )
    return (steps + grid.noise(np.full(N_BINS, sigma / np.sqrt(n_sites)), RNG.bytes)) * grid.step


def in_floating_point(count, n_sites):
    noise = RNG.normal(scale=PLAN.multiplier_of("counts.norms") / np.sqrt(n_sites), size=N_BINS)
    return count * np.ones(N_BINS) + noise


def finer_than(bits, n_sites, power):
    unit = 64 - n_sites.bit_length() - power
    return (bits % (1 << unit) != 0).mean()


@pytest.mark.parametrize("n_sites", [1, 3])
def test_no_number_has_bits_below_the_grid_whatever_it_hides(n_sites):
    for count in (0, 1, 2):
        bits = low_bits(count, n_sites, on_the_grid)
        assert finer_than(bits, n_sites, 53) == 0.0
        # All bits on the grid are used, as often with a unit as without.
        grid = Grid.for_share(PLAN.multiplier_of("counts.norms") / np.sqrt(n_sites))
        step = 1 << (64 - n_sites.bit_length() + grid.exponent)
        assert np.all(bits % step == 0)
        assert stats.chisquare(np.bincount((bits // step) % 64, minlength=64)).pvalue > 1e-5


def test_the_attack_works_on_floating_point_noise():
    empty, one = (finer_than(low_bits(count, 1, in_floating_point), 1, 53) for count in (0, 1))
    assert empty > 0.01
    assert one < empty / 5


def test_what_a_site_sends_is_on_a_grid_that_the_noise_alone_decides():
    steps = set()
    for count in (0, 1, 50):
        units = [np.eye(40)[i % 40] for i in range(count)]
        value = PLAN.protect("counts.norms", units, True, 40, 1, 3, RNG.bytes).value
        grid = Grid.for_share(PLAN.sigma("counts.norms", 1.0, True, 1) / np.sqrt(PLAN.n_shares(3)))
        assert np.all(value / grid.step == np.rint(value / grid.step))
        steps.add(grid.step)
    assert len(steps) == 1
