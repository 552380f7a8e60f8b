import numpy as np
import pytest
from scipy import stats

import feddbn
from feddbn.sim import MESSES
from feddbn.sim.mess import resolve_mess
from feddbn.sim.messy import NOISE_MESSES, ROW_MESSES, slow_levels, stop_edges
from feddbn.sim.systems import System
from support.messy import residuals, values, with_mess


@pytest.fixture(scope="module")
def clean():
    """The federation without mess."""
    return with_mess()


@pytest.fixture(scope="module")
def rows(clean):
    """Its recordings, one per site."""
    return values(clean)


@pytest.fixture(scope="module")
def spread(rows):
    """The standard deviations of its variables."""
    return np.vstack(rows).std(axis=0)


def test_every_mess_of_the_table_is_done_somewhere_and_in_its_order():
    elsewhere = {
        "unequal-noise",
        "slow-levels",
        "stopping-edges",
        "tanh",
        "squares",
        "sum-column",
        "duplicate",
    }
    assert set(MESSES) == {*ROW_MESSES, *NOISE_MESSES, *elsewhere, "everything"}
    assert all(mess.least <= mess.default <= mess.most for mess in MESSES.values())
    order = list(MESSES)
    for functions in (ROW_MESSES, NOISE_MESSES):
        assert list(functions) == sorted(functions, key=order.index)


def test_a_name_several_names_and_strengths_mean_the_same_in_any_order():
    for asked in ("spikes", ["spikes"], {"spikes": None}):
        assert resolve_mess(asked, 3, 1) == {"spikes": 0.01}
    assert resolve_mess(None, 3, 1) == {}
    assert list(resolve_mess(["rounding", "gains"], 3, 1)) == list(resolve_mess(["gains", "rounding"], 3, 1))


def test_everything_is_its_parts_and_a_part_that_is_named_has_its_own_strength():
    assert resolve_mess("everything", 3, 1) == {"trend": 3, "offsets": 3, "spikes": 0.005, "missing": 0.1}
    for asked in ({"everything": 2, "spikes": 0.5}, {"spikes": 0.5, "everything": 2}):
        assert resolve_mess(asked, 3, 1) == {"trend": 6, "offsets": 6, "spikes": 0.5, "missing": 0.2}


TOTAL = -2.3079209737982325


@pytest.mark.parametrize("name", MESSES)
def test_same_seed_gives_the_same_bits_and_strength_and_name_are_recorded(name):
    first, second = with_mess(name, n_samples=300), with_mess({name: None}, n_samples=300)
    for one, two in zip(values(first), values(second), strict=True):
        assert one.tobytes() == two.tobytes()
    assert first.parameters["mess"] == resolve_mess(name, 5, 1)
    assert set(first.truth.variables[:5]) == {f"x{i}" for i in range(5)}
    again = feddbn.simulate(**first.parameters)
    assert values(again)[0].tobytes() == values(first)[0].tobytes()


def test_a_mess_takes_nothing_from_the_generator_of_the_data():
    generators = [np.random.default_rng(8) for _ in range(3)]
    for mess, rng in zip((None, "everything", ["duplicate", "hidden-causes"]), generators, strict=True):
        with_mess(mess, random_state=rng)
    assert len({rng.bytes(8) for rng in generators}) == 1


def test_without_mess_the_data_are_those_of_earlier_versions():
    """The sum of a federation drawn before there was a mess."""
    total = sum(np.asarray(frame).sum() for frames in feddbn.simulate().sites.values() for frame in frames)
    assert total == pytest.approx(TOTAL, rel=1e-9)


def test_one_mess_does_not_change_what_another_draws():
    alone, both = values(with_mess("offsets")), values(with_mess(["missing", "offsets", "spikes"]))
    different = np.vstack(alone) != np.vstack(both)
    assert different.mean() == pytest.approx(0.1 + 0.9 * 0.01, abs=0.01)


def test_recordings_of_a_site_share_its_offset_and_sites_with_own_networks_are_fine():
    more = {"n_recordings": 3, "heterogeneity": 0.5}
    clean, messy = with_mess(**more), with_mess("offsets", **more)
    shifts = [
        np.asarray(b - a).mean(axis=0)
        for a, b in zip(clean.sites["site-0"], messy.sites["site-0"], strict=True)
    ]
    np.testing.assert_allclose(shifts[0], shifts[1])
    several = with_mess(["stopping-edges", "slow-levels", "duplicate"], **more)
    assert len({id(dbn) for dbn in several.truths.values()}) == 6


def test_a_sum_is_a_column_and_an_effect_of_its_parts(clean, rows):
    fed = with_mess("sum-column")
    name = fed.truth.variables[-1]
    parts = [f"x{i}" for i in np.flatnonzero(fed.truth.W[:, -1])]
    assert len(parts) == 3
    assert name == "sum_of_" + "_".join(parts)
    frame = fed.sites["site-2"][0]
    np.testing.assert_allclose(frame[name], frame[parts].sum(axis=1))
    np.testing.assert_array_equal(frame.iloc[:, :5], rows[2])
    np.testing.assert_array_equal(fed.truth.W[:5, :5], clean.truth.W)
    assert fed.truth.W[5].tolist() == [0] * 6
    assert fed.truth.A.shape == (1, 6, 6)
    assert fed.truth.noise_variances.tolist() == [1, 1, 1, 1, 1, 0]


def test_a_copy_is_exact_or_noisy(spread):
    exact, noisy = with_mess("duplicate"), with_mess({"duplicate": 0.5})
    source = int(np.flatnonzero(exact.truth.W[:, -1])[0])
    assert exact.truth.variables[-1] == f"x{source}_copy"
    stacked = np.vstack(values(exact))
    np.testing.assert_array_equal(stacked[:, -1], stacked[:, source])
    difference = np.vstack(values(noisy))[:, -1] - stacked[:, source]
    assert difference.std() == pytest.approx(0.5 * spread[source], rel=0.05)
    assert noisy.truth.noise_variances[-1] == pytest.approx((0.5 * spread[source]) ** 2)


def test_slow_levels_have_the_radius_asked_for_and_the_noise_of_the_clean_data(clean):
    fed = with_mess({"slow-levels": 0.98})
    W, A = fed.truth.W, fed.truth.A[0]
    assert np.abs(np.linalg.eigvals(A @ np.linalg.inv(np.eye(5) - W))).max() == pytest.approx(0.98, abs=1e-9)
    np.testing.assert_array_equal(W, clean.truth.W)
    changed = np.argwhere(clean.truth.A[0] != A)
    assert changed.tolist() == [[i, i] for i in np.flatnonzero(~W.any(axis=0))]
    assert np.vstack(residuals(fed)).std() == pytest.approx(1, rel=0.02)
    root = changed[0, 0]
    assert np.mean([np.corrcoef(x[1:, root], x[:-1, root])[0, 1] for x in values(fed)]) > 0.85


def test_levels_that_are_too_slow_already_are_damped_first():
    W = np.zeros((2, 2))
    system = System(W, np.array([[[-0.5, 1.2], [1.2, -0.5]]]), np.arange(2))
    assert slow_levels(system, 0.97).spectral_radius == pytest.approx(0.97)


def test_edges_stop_in_the_middle_and_not_before(clean, rows):
    fed = with_mess("stopping-edges")
    half = len(rows[0]) // 2
    for messy, before in zip(values(fed), rows, strict=True):
        np.testing.assert_allclose(messy[:half], before[:half], atol=1e-10)
        assert not np.allclose(messy[half : half + 3], before[half : half + 3])
    np.testing.assert_array_equal(fed.truth.W, clean.truth.W)


def test_the_share_of_stopped_edges_is_the_strength(clean):
    W, A = clean.truth.W, clean.truth.A
    n = np.count_nonzero(W) + np.count_nonzero(A)
    later = stop_edges(System(W, A, np.arange(5)), 0.25, np.random.default_rng(0))
    assert np.count_nonzero(later.W) + np.count_nonzero(later.A) == n - round(n / 4)
    assert np.all((later.W == 0) | (later.W == W))
    assert np.all((later.A == 0) | (later.A == A))


@pytest.mark.parametrize(
    ("mess", "shape"),
    [
        ({"tanh": 2.0}, lambda x: np.tanh(2 * x) / 2),
        ({"squares": 1.0}, lambda x: (np.clip(x, -3, 3) ** 2 - 1) / np.sqrt(2)),
        (
            {"squares": 0.25},
            lambda x: 0.75 * np.clip(x, -3, 3) + 0.25 * (np.clip(x, -3, 3) ** 2 - 1) / np.sqrt(2),
        ),
    ],
)
def test_curved_effects_leave_the_noise_of_the_clean_data(mess, shape, clean):
    messy = with_mess(mess)
    for found, drawn in zip(residuals(messy, shape), residuals(clean), strict=True):
        np.testing.assert_allclose(found, drawn, atol=1e-10)
    np.testing.assert_array_equal(messy.truth.A, clean.truth.A)


def test_unequal_noise_is_in_the_data_and_in_the_truth(clean):
    fed = with_mess({"unequal-noise": 3})
    scales = np.sqrt(fed.truth.noise_variances)
    assert 1 / 3 <= scales.min() < 0.9 < 1.1 < scales.max() <= 3
    np.testing.assert_allclose(np.vstack(residuals(fed)).std(axis=0), scales, rtol=0.06)
    np.testing.assert_array_equal(fed.truth.W, clean.truth.W)


def test_heavy_tails_are_student_t_with_variance_one():
    left = np.vstack(residuals(with_mess({"heavy-tails": 5}))).ravel()
    assert left.std() == pytest.approx(1, rel=0.04)
    assert stats.kstest(left * np.sqrt(5 / 3), stats.t(5).cdf).pvalue > 0.01
    assert stats.kstest(left, stats.norm.cdf).pvalue < 1e-4


def test_autocorrelated_noise_remembers_and_keeps_its_size():
    left = residuals(with_mess({"autocorrelated-noise": 0.6}))
    assert np.mean([np.sum(r[1:] * r[:-1]) / np.sum(r * r) for r in left]) == pytest.approx(0.6, abs=0.03)
    assert np.vstack(left).std() == pytest.approx(1, rel=0.05)


def test_changing_noise_rises_and_falls_by_the_amplitude():
    strength = 1.0
    drawn = np.stack(residuals(with_mess()))
    changed = np.stack(residuals(with_mess({"changing-noise": strength})))
    factors = changed / drawn  # The same noise, larger or smaller.
    assert np.all(factors > 0)
    ratio = factors.max(axis=1) / factors.min(axis=1)
    np.testing.assert_allclose(ratio, np.exp(2 * strength), rtol=0.01)
    np.testing.assert_allclose((factors**2).mean(axis=1), 1, rtol=0.02)
    assert np.abs(np.diff(np.log(factors), axis=1)).max() < 0.06
    assert len({round(float(f), 6) for f in factors[:, 100].ravel()}) == 30


def test_hidden_causes_give_the_noise_two_directions_more():
    left = np.vstack(residuals(with_mess({"hidden-causes": 1.0}, n_samples=12000)))
    extra = np.linalg.eigvalsh(np.cov(left.T) - np.eye(5))
    np.testing.assert_allclose(extra[:3], 0, atol=0.15)
    assert extra[3:].sum() == pytest.approx(6, rel=0.06)
    assert extra[3] > 0.5


def test_a_hidden_lagged_cause_shows_between_two_pairs_a_row_apart():
    left = residuals(with_mess({"hidden-lagged-cause": 1.0}, n_samples=24000))
    at_once = np.mean([r.T @ r / len(r) for r in left], axis=0) - np.eye(5)
    a_row_later = np.mean([r[:-1].T @ r[1:] / len(r) for r in left], axis=0)
    hit = np.flatnonzero(np.diag(at_once) > 0.5)
    assert len(hit) == 4
    unhit = np.setdiff1d(np.arange(5), hit)
    assert np.abs(at_once[unhit]).max() < 0.1
    sizes = np.sort(np.abs(a_row_later[np.ix_(hit, hit)]).ravel())
    # From the first pair to the second the hidden variable itself; within a pair .7; backwards .7 ** 2.
    np.testing.assert_allclose(sizes, [0.49] * 4 + [0.7] * 8 + [1.0] * 4, atol=0.12)


def test_jitter_moves_a_row_towards_a_neighbour_by_one_share_for_all_variables(rows):
    found, before = values(with_mess({"jitter": 0.3}))[0], rows[0]
    moved, shares = (found - before)[1:-1], []
    for way in ((before[2:] - before[1:-1]), (before[:-2] - before[1:-1])):
        share = (moved * way).sum(axis=1) / (way**2).sum(axis=1)
        fits = np.abs(moved - share[:, None] * way).max(axis=1) < 1e-9
        shares.append(share[fits])
    assert len(shares[0]) + len(shares[1]) == len(moved)
    assert abs(len(shares[0]) - len(shares[1])) < 0.15 * len(moved)
    sizes = np.concatenate(shares)
    assert sizes.min() >= 0
    assert 0.28 < sizes.max() <= 0.3
    np.testing.assert_array_equal(values(with_mess({"jitter": 0}))[0], before)


def test_half_of_the_sites_see_every_second_row(rows):
    found = values(with_mess("two-rates"))
    slow = [k for k in range(6) if len(found[k]) < len(rows[k])]
    assert len(slow) == 3
    for k in range(6):
        np.testing.assert_array_equal(found[k], rows[k][::2] if k in slow else rows[k])


@pytest.mark.parametrize("name", ["offsets", "gains", "trend", "cycle"])
def test_drifts_and_units_are_of_a_site_and_variable(name, rows, spread):
    many = {"n_sites": 60, "n_samples": 60 * 50, "n_lags": 1}
    before, after = np.stack(values(with_mess(**many))), np.stack(values(with_mess(name, **many)))
    scale = before.reshape(-1, 5).std(axis=0)
    added, strength = (after - before) / scale, MESSES[name].default
    if name == "gains":
        factors = after / before
        np.testing.assert_allclose(factors, factors[:, :1].repeat(51, axis=1))
        size = np.log(factors[:, 0])
    elif name == "offsets":
        np.testing.assert_allclose(added, added[:, :1].repeat(51, axis=1), atol=1e-9)
        size = added[:, 0]
    elif name == "trend":
        np.testing.assert_allclose(np.diff(added, n=2, axis=1), 0, atol=1e-9)
        np.testing.assert_allclose(added.mean(axis=1), 0, atol=1e-9)
        size = added[:, -1] - added[:, 0]
    else:
        np.testing.assert_allclose(added[:, 24:48], added[:, :24], atol=1e-9)
        np.testing.assert_allclose(added[:, :24].mean(axis=1), 0, atol=1e-9)
        # A sine of amplitude a has mean square a^2 / 2.
        size = np.sqrt(2 * (added[:, :24] ** 2).mean(axis=1)) * np.where(added[:, 0] > 0, 1, -1)
    assert np.sqrt((size**2).mean()) == pytest.approx(strength, rel=0.12)
    assert abs(size.mean()) < 0.25 * strength
    assert len(np.unique(np.round(size, 9))) == 300


def test_measurement_noise_is_forgotten_by_the_next_row(rows, spread):
    added = np.stack(values(with_mess("measurement-noise"))) - np.stack(rows)
    np.testing.assert_allclose(added.std(axis=(0, 1)), 0.5 * spread, rtol=0.05)
    assert abs(np.mean(added[:, 1:] * added[:, :-1])) < 0.02


def test_units_are_those_of_all_rows_or_other_ones_in_one_variable_of_one_site(rows):
    np.testing.assert_allclose(np.vstack(values(with_mess("unit-variance"))).std(axis=0), 1)
    found = values(with_mess("other-units"))
    factors = np.stack([(x / y).mean(axis=0) for x, y in zip(found, rows, strict=True)])
    assert sorted(np.round(factors.ravel(), 9))[-2:] == [1, 100]


def test_one_sensor_is_stuck_for_a_quarter_of_the_rows(rows):
    runs = [np.diff(x, axis=0) == 0 for x in values(with_mess({"stuck": 0.25}))]
    counts = np.stack([run.sum(axis=0) for run in runs])
    assert sorted(counts.ravel())[-2:] == [0, round(0.25 * len(rows[0])) - 1]
    site, variable = np.unravel_index(counts.argmax(), counts.shape)
    where = np.flatnonzero(runs[site][:, variable])
    assert where[-1] - where[0] + 1 == len(where)


def test_rounded_values_are_multiples(rows):
    found = values(with_mess({"rounding": 0.5}))[0]
    np.testing.assert_array_equal(2 * found, np.round(2 * found))
    assert np.abs(found - rows[0]).max() <= 0.25


def test_spikes_are_fifteen_standard_deviations_off(rows, spread):
    added = (np.vstack(values(with_mess({"spikes": 0.05}))) - np.vstack(rows)) / spread
    hit = np.abs(added) > 1e-9
    np.testing.assert_allclose(np.abs(added[hit]), 15)
    assert hit.mean() == pytest.approx(0.05, abs=0.006)
    assert np.mean(added[hit] > 0) == pytest.approx(0.5, abs=0.06)


def test_no_column_of_a_mixed_site_is_where_its_name_says(rows):
    found = values(with_mess({"mixed-columns": 2}))
    mixed = [k for k in range(6) if not np.array_equal(found[k], rows[k])]
    assert len(mixed) == 2
    for k in mixed:
        places = [int(np.flatnonzero((rows[k] == column[:, None]).all(axis=0))[0]) for column in found[k].T]
        assert sorted(places) == list(range(5))
        assert all(place != i for i, place in enumerate(places))


@pytest.mark.parametrize(("name", "value"), [("sentinels", -999.0), ("missing", np.nan)])
def test_a_share_of_the_cells_is_replaced_and_the_rest_stays(name, value, rows):
    found, before = np.vstack(values(with_mess({name: 0.2}))), np.vstack(rows)
    hit = np.isnan(found) if np.isnan(value) else found == value
    assert hit.mean() == pytest.approx(0.2, abs=0.01)
    np.testing.assert_array_equal(found[~hit], before[~hit])
