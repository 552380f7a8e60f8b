import numpy as np
import pytest

from feddbn.sim import MESSES
from support.messy import values, with_mess

IN_SITE = ("offsets", "gains", "trend", "cycle")


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


@pytest.mark.parametrize("name", IN_SITE)
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


def test_unit_variance_is_that_of_all_rows_together():
    np.testing.assert_allclose(np.vstack(values(with_mess("unit-variance"))).std(axis=0), 1)


def test_one_variable_of_one_site_has_other_units(rows):
    factors = np.stack(
        [(x / y).mean(axis=0) for x, y in zip(values(with_mess("other-units")), rows, strict=True)]
    )
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
