import numpy as np
import pytest
from scipy.stats import median_abs_deviation

import feddbn
from feddbn.core.statistics.survey import (
    SLOWER,
    compared,
    cycles_in,
    fisher_z,
    lagged_profile,
    looks_binary,
    objections,
    periodogram,
    profile_length,
    without_slow_part,
)


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
    profile, _ = found
    assert len(profile) == profile_length(3, 1)
    np.testing.assert_allclose(profile[:3], np.log(np.sqrt((x * x).mean(axis=0))), atol=1e-12)
    # Correlations of cells within three robust standard deviations.
    bound = 3 * median_abs_deviation(x, center=lambda *_, **__: np.zeros(3), scale="normal")
    R = np.zeros((6, 6))
    for a in range(6):
        for b in range(6):
            one, other = (
                np.clip(x[1 - k // 3 : 300 - k // 3, k % 3], -bound[k % 3], bound[k % 3]) for k in (a, b)
            )
            R[a, b] = one @ other / np.sqrt((one @ one) * (other @ other))
    np.testing.assert_allclose(profile[3:], fisher_z(R[np.triu_indices(6, 1)]), atol=1e-12)


def test_rows_are_worth_what_two_halves_of_them_have_in_common():
    def worth(phi):
        found = []
        for seed in range(40):
            x = np.random.default_rng(seed).normal(size=(600, 4))
            for t in range(1, len(x)):
                x[t] += phi * x[t - 1]
            found.append(lagged_profile([x], 4, 0)[1])
        return 1 / np.mean(1 / np.array(found))

    assert 400 < worth(0.0) <= 600
    # Correlations of two such series vary by (1 + phi^2) / (1 - phi^2) over n (Bartlett): 4.6 times as much.
    assert worth(0.8) == pytest.approx(600 * (1 - 0.8**2) / (1 + 0.8**2), rel=0.25)


def cycles_of(recordings):
    parts = [periodogram(x - x.mean(axis=0)) for x in recordings]
    n = sum(number for _, number in parts)
    return cycles_in(sum(power for power, _ in parts) / n, n, np.mean([len(x) for x in recordings]))


def noisy(rng, n, d, phi=()):
    x = rng.normal(size=(n + 50, d))
    for t in range(len(phi), len(x)):
        x[t] += sum(c * x[t - 1 - k] for k, c in enumerate(phi))
    return x[50:]


@pytest.mark.parametrize("period", [7, 24, 12.5])
@pytest.mark.parametrize("phi", [(), (0.6,), (-0.5,)])
def test_a_cycle_with_a_phase_of_its_own_at_every_site_is_found(period, phi):
    rng = np.random.default_rng(0)
    t = np.arange(200)[:, None]
    recordings = [
        noisy(rng, 200, 5, phi) + np.sin(2 * np.pi * t / period + rng.uniform(0, 6, 5)) for _ in range(8)
    ]
    assert cycles_of(recordings)[0] == pytest.approx(period, rel=0.01)


@pytest.mark.parametrize(("n", "period"), [(120, 24.0), (240, 24.0), (2000, 24.0), (2000, 23.4), (3000, 7.0)])
def test_a_period_is_found_between_the_frequencies_of_the_grid(n, period):
    rng = np.random.default_rng(900)
    t = np.arange(n)[:, None]
    recordings = [noisy(rng, n, 3, (0.5,)) + np.sin(2 * np.pi * t / period) for _ in range(6)]
    found = cycles_of(recordings)[0]
    # A day has whole hours; what is none drifts by less than a fiftieth of a turn in a recording.
    assert found == period if period == round(period) else abs(n / found - n / period) < 0.02 * n / 100


def test_two_cycles_are_found_the_stronger_first():
    rng = np.random.default_rng(1)
    t = np.arange(336)[:, None]
    wave = 2 * np.sin(2 * np.pi * t / 24) + np.sin(2 * np.pi * t / 10)
    assert cycles_of([noisy(rng, 336, 4) + wave for _ in range(6)])[:2] == (24.0, 10.0)


@pytest.mark.parametrize("phi", [(), (0.9,), (-0.8,), (1.2, -0.6)])
def test_noise_has_no_cycles_even_with_a_memory_or_a_resonance(phi):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        assert cycles_of([noisy(rng, 200, 6, phi) for _ in range(8)]) == ()


def test_objections_are_those_of_single_cells_wherever_they_are():
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.poisson(2.0, 400), rng.integers(0, 2, 400), rng.normal(size=400)]).astype(
        float
    )
    assert objections(values).tolist() == [[False, False, True], [True, False, True]]
    for row in (3, 15, 16, 399):
        for cell, expected in (
            (0.5, [True, True]),
            (-1.0, [True, True]),
            (2.0, [False, True]),
            (np.nan, [False, False]),
        ):
            other = values.copy()
            other[row, 1] = cell
            assert objections(other)[:, 1].tolist() == expected


def test_only_zeros_and_ones_have_the_variance_of_their_mean():
    rng = np.random.default_rng(1)
    for seed in range(200):
        x = np.random.default_rng(seed).normal(0.5, 0.5, 50)
        assert not looks_binary(np.array([x.mean()]), np.array([x.var()]))[0]
    x = (rng.random((1000, 3)) < [0.01, 0.5, 0.9]).astype(float)
    assert looks_binary(x.mean(axis=0), x.var(axis=0)).all()
    assert not looks_binary(np.array([0.0, 1.0]), np.zeros(2)).any()
    # Counts have the same sum and another sum of squares.
    counts = rng.poisson(0.5, 1000)
    assert not looks_binary(np.array([counts.mean()]), np.array([counts.var()]))[0]


SIX = tuple("abcdef")


def sites(seed, n_sites=8, n_rows=200, **options):
    made = feddbn.simulate(d=6, n_sites=n_sites, n_samples=n_sites * n_rows, random_state=seed, **options)
    return [tables[0].to_numpy() for tables in made.sites.values()]


def comparisons(values):
    profiles = [lagged_profile([without_slow_part(x)], len(SIX), 1) for x in values]
    total = sum(profile for profile, _ in profiles)
    squares = sum(profile**2 for profile, _ in profiles)
    return [compared(profile, n, total, squares, len(values), SIX) for profile, n in profiles]


@pytest.mark.parametrize("options", [{}, {"noise": "laplace"}, {"heterogeneity": 0.3}])
def test_nobody_objects_where_all_sites_are_alike_or_all_differ(options):
    for seed in range(5):
        assert not any(comparisons(sites(seed, **options)))


def test_factors_are_those_to_the_others_without_oneself():
    values = sites(0)
    values[2] = values[2] * np.array([1, 20, 1, 1, 1, 1])
    logs = np.array([np.log(without_slow_part(x).std(axis=0)) for x in values])
    (told,) = comparisons(values)[2]
    expected = np.exp(logs[2] - np.delete(logs, 2, 0).mean(axis=0))[1]
    assert told.values["factor"] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("factor", [100.0, 0.01])
def test_a_variable_in_other_units_is_named_at_its_site_only(factor):
    values = sites(1)
    values[3] = values[3] * np.array([1, 1, factor, 1, 1, 1])
    found = comparisons(values)
    assert [bool(one) for one in found] == [k == 3 for k in range(8)]
    (told,) = found[3]
    assert (told.code, told.about) == ("other-units", ("c",))
    assert told.values["factor"] == pytest.approx(factor, rel=0.5)


def test_exchanged_columns_are_named():
    values = sites(2)
    values[5] = values[5][:, [0, 4, 2, 3, 1, 5]]
    found = comparisons(values)
    assert [bool(one) for one in found] == [k == 5 for k in range(8)]
    (told,) = found[5]
    assert (told.code, told.values["behaves_like"]) == ("mixed-columns", [["e", "b"], ["b", "e"]])


@pytest.mark.parametrize("slow", [(5,), (0, 2, 5, 7)])
def test_sites_with_every_second_row_find_out_and_no_other_does(slow):
    found = comparisons([x[::2] if k in slow else x for k, x in enumerate(sites(3, n_rows=400))])
    assert [[one.code for one in told] for told in found] == [[SLOWER] if k in slow else [] for k in range(8)]


def test_how_far_relations_with_the_row_before_have_faded_is_known_where_it_is_exact():
    # x_t = P x_{t-1} + e: within a row C0, one row apart P C0, two apart P P C0.
    P = np.array([[0.7, 0.0], [0.4, 0.5]])
    C0 = np.linalg.solve(np.eye(4) - np.kron(P, P), np.eye(2).ravel()).reshape(2, 2)
    root = np.sqrt(np.outer(np.diag(C0), np.diag(C0)))

    def profile(power):
        lagged = np.linalg.matrix_power(P, power) @ C0 / root
        whole = np.block([[C0 / root, lagged], [lagged.T, C0 / root]])
        return np.r_[np.zeros(2), fisher_z(whole[np.triu_indices(4, 1)])]

    def told(own, others):
        every = np.array([own, *others])
        return compared(own, 1e6, every.sum(axis=0), (every**2).sum(axis=0), len(every), ("a", "b"))

    (alone,) = told(profile(2), [profile(1)] * 7)
    assert (alone.code, alone.values["share"]) == (SLOWER, pytest.approx(1.0, abs=1e-4))
    (among,) = told(profile(2), [profile(2)] * 3 + [profile(1)] * 4)
    assert among.code == SLOWER
    assert 0.45 < among.values["share"] < 1
    assert not told(profile(1), [profile(2)] * 4 + [profile(1)] * 3)


def test_a_site_that_shares_nothing_is_named_from_few_rows_and_one_with_as_much_noise_is_not():
    rng, n, size = np.random.default_rng(0), 200, profile_length(6, 1)
    shared = np.r_[np.zeros(6), 0.15 * rng.choice([-1.0, 1.0], size - 6)]
    other = np.r_[np.zeros(6), 0.15 * rng.choice([-1.0, 1.0], size - 6)]

    def distances(odd):
        profiles = [shared + rng.normal(size=size) / np.sqrt(n) for _ in range(5)]
        profiles.append(odd + rng.normal(size=size) / np.sqrt(n))
        total, squares = sum(profiles), sum(profile**2 for profile in profiles)
        return [compared(profile, n, total, squares, 6, SIX) for profile in profiles]

    told = []
    for _ in range(20):
        assert not any(distances(shared))
        found = distances(other)
        assert [bool(one) for one in found] == [False] * 5 + [True]
        told.append(found[5][0].values["distance"])
    # Twice .15^2 over 1/n (1 + 1/5), and 1 of sampling, are 8.5; spreads of five sites, at least 1/n each, make it smaller.
    assert 4.0 < np.median(told) < 8.5


def test_a_site_with_more_noise_everywhere_fits_and_three_cannot_tell_who_is_odd():
    values = sites(3)
    values[0] = 4 * values[0]
    assert not any(comparisons(values))
    assert comparisons(sites(4, n_sites=3)) == [(), (), ()]
