import numpy as np
import pytest

from feddbn.core.arrays import rows_in_cache
from feddbn.core.statistics.survey import (
    N_BINS,
    TAIL,
    bin_counts,
    deviations,
    fisher_z,
    lagged_profile,
    median_of_counts,
    periodogram,
    profile_length,
    robust_scale,
    tail_counts,
    without_slow_part,
)


def by_hand(values, reach=3):
    """Distances from the median of seven cells around, the rows mirrored at the ends."""
    n = len(values)
    places = np.arange(-reach, n + reach)
    places = np.abs(places)
    places = np.where(places >= n, 2 * (n - 1) - places, places)
    padded = values[places]
    return np.abs(values - np.array([np.median(padded[t : t + 2 * reach + 1], axis=0) for t in range(n)]))


def test_deviations_are_distances_from_the_median_around():
    values = np.random.default_rng(0).normal(size=(40, 3))
    np.testing.assert_allclose(deviations(values), by_hand(values))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 7, 8, 2 * rows_in_cache(40) + 5])
@pytest.mark.parametrize("digits", [0, 6])
def test_running_medians_are_exact_with_ties_in_few_rows_and_where_pieces_meet(n, digits):
    values = np.round(2 * np.random.default_rng(n).normal(size=(n, 40)), digits)
    np.testing.assert_array_equal(deviations(values), by_hand(values, min(3, n - 1)))


def test_counts_are_those_of_half_octaves_where_pieces_meet():
    deviation = np.abs(np.random.default_rng(3).normal(size=(rows_in_cache(2) + 7, 2)))
    deviation[:3, 0], deviation[-1, 1] = (0.0, 1.0, 4.0), np.nan
    counts = bin_counts(deviation)
    assert counts.sum(axis=1).tolist() == [len(deviation), len(deviation) - 1]
    assert counts[0, 0] == 1
    for octave in range(-4, 3):
        low, middle, high = (2.0**power for power in (octave, octave + 0.5, octave + 1))
        expected = [
            ((deviation >= a) & (deviation < b)).sum(axis=0) for a, b in ((low, middle), (middle, high))
        ]
        np.testing.assert_array_equal(counts[:, 2 * (octave + 48) : 2 * (octave + 49)].T, expected)


def test_a_periodogram_is_that_of_its_definition():
    rest = np.random.default_rng(4).normal(size=(2048 + 100, 3))
    rest[:, 2] = 0.0
    found, number = periodogram(rest)
    expected = np.zeros(1025)
    for piece in (rest[:2048], rest[2048:]):
        for j in range(2):
            angle = np.exp(-2j * np.pi * np.outer(np.arange(0, 1025, 64), np.arange(len(piece))) / 2048)
            expected[::64] += np.abs(angle @ piece[:, j]) ** 2 / (len(piece) * piece[:, j].var())
    assert number == 4
    np.testing.assert_allclose(found[::64], expected[::64], rtol=1e-9)


def test_an_empty_cell_has_no_deviation_and_a_spike_at_an_end_has_a_large_one():
    values = np.random.default_rng(1).normal(size=(30, 2))
    values[5, 0], values[0, 1], values[-1, 0] = np.nan, 50.0, -50.0
    found = deviations(values)
    assert np.isnan(found[5, 0])
    assert np.isnan(found).sum() == 1
    assert found[0, 1] > 40
    assert found[-1, 0] > 40


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e7])
def test_medians_come_from_counts_whatever_the_unit(unit):
    deviation = unit * np.abs(np.random.default_rng(2).normal(size=(5000, 2)))
    counts = bin_counts(deviation)
    assert counts.shape == (2, N_BINS)
    assert counts.sum(axis=1).tolist() == [5000, 5000]
    np.testing.assert_allclose(median_of_counts(counts), np.median(deviation, axis=0), rtol=0.05)
    np.testing.assert_allclose(robust_scale(counts), unit, rtol=0.06)


def test_cells_that_mostly_stand_still_have_no_scale_and_no_tail():
    deviation = np.zeros((100, 1))
    deviation[:20] = 5.0
    counts = bin_counts(deviation)
    assert robust_scale(counts)[0] == 0
    assert tail_counts(counts)[0] == 0


def test_tails_are_counted_beyond_twelve_robust_standard_deviations():
    deviation = np.abs(np.random.default_rng(3).normal(size=(4000, 1)))
    deviation[:7] = 3 * TAIL
    assert tail_counts(bin_counts(deviation))[0] == 7


def test_a_cubic_is_taken_off_a_long_recording_and_only_the_mean_off_a_short_one():
    t = np.linspace(-1, 1, 80)[:, None]
    cubic = np.hstack([1 + t + 2 * t**2 - t**3, 5 + 0 * t])
    np.testing.assert_allclose(without_slow_part(cubic), 0, atol=1e-12)
    short = cubic[:20]
    np.testing.assert_allclose(without_slow_part(short), short - short.mean(axis=0), atol=1e-12)
    holes = cubic.copy()
    holes[3:9, 0] = np.nan
    found = without_slow_part(holes)
    assert np.isnan(found[3:9, 0]).all()
    np.testing.assert_allclose(np.nan_to_num(found), 0, atol=1e-12)


def test_the_spectrum_of_white_noise_is_one_and_that_of_a_cycle_has_its_peak():
    rng = np.random.default_rng(4)
    noise, n = periodogram(rng.normal(size=(400, 200)))
    assert n == 200
    assert np.mean(noise / n) == pytest.approx(1.0, abs=0.02)
    t = np.arange(400)
    cycle, _ = periodogram(np.sin(2 * np.pi * t / 25)[:, None])
    assert np.argmax(cycle) / 2048 == pytest.approx(1 / 25, abs=1 / 4096)
    assert periodogram(rng.normal(size=(20, 2)))[1] == 0


def test_a_profile_has_log_standard_deviations_and_correlations_of_lagged_rows():
    x = np.random.default_rng(5).normal(size=(300, 3)).cumsum(axis=0) * 0.1
    x -= x.mean(axis=0)
    found = lagged_profile([x], 3, 1)
    assert found is not None
    profile, n = found
    assert len(profile) == profile_length(3, 1)
    assert n == 299
    Z = np.hstack([x[1:], x[:-1]])
    C = Z.T @ Z / len(Z)
    np.testing.assert_allclose(profile[:3], np.log(np.sqrt(np.diag(C)))[:3], atol=1e-12)
    R = C / np.sqrt(np.outer(np.diag(C), np.diag(C)))
    np.testing.assert_allclose(profile[3:], fisher_z(R[np.triu_indices(6, 1)]), atol=1e-12)


def test_few_rows_give_no_profile():
    assert lagged_profile([np.random.default_rng(6).normal(size=(8, 3))], 3, 1) is None
    assert lagged_profile([], 3, 1) is None
