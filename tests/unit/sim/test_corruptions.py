"""Corruptions of rows: what each does to the rows that the same seed gives without it."""

from __future__ import annotations

import numpy as np
import pytest

import feddbn
from feddbn.sim import CORRUPTIONS

SETTING = {"d": 5, "n_sites": 6, "n_samples": 2400, "mean_degree": 2, "random_state": 3}


def corrupt(corruptions=None, **more) -> feddbn.SimulatedFederation:
    """Six sites of 400 usable rows, five variables; other arguments of `simulate` as given."""
    return feddbn.simulate(**{**SETTING, **more}, corruptions=corruptions)


def values(fed) -> list[np.ndarray]:
    """The first recording of every site."""
    return [np.asarray(frames[0]) for frames in fed.sites.values()]


@pytest.fixture(scope="module")
def clean():
    """The federation without corruptions."""
    return corrupt()


@pytest.fixture(scope="module")
def rows(clean):
    """Its recordings, one per site."""
    return values(clean)


@pytest.fixture(scope="module")
def spread(rows):
    """The standard deviations of its variables."""
    return np.vstack(rows).std(axis=0)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_same_seed_gives_the_same_bits_and_strength_and_name_are_recorded(name):
    first, second = corrupt(name, n_samples=300), corrupt({name: None}, n_samples=300)
    assert first.parameters["corruptions"] == {name: CORRUPTIONS[name].default}
    again = feddbn.simulate(**first.parameters)
    for one, two, three in zip(values(first), values(second), values(again), strict=True):
        assert one.tobytes() == two.tobytes() == three.tobytes()
    assert first.truth.equals(corrupt(n_samples=300).truth)


def test_what_is_drawn_does_not_depend_on_other_corruptions():
    generators = [np.random.default_rng(8) for _ in range(2)]
    for corruptions, rng in zip((None, ["spikes", "jitter"]), generators, strict=True):
        corrupt(corruptions, random_state=rng)
    assert len({rng.bytes(8) for rng in generators}) == 1
    alone, both = values(corrupt("offsets")), values(corrupt(["missing", "offsets", "spikes"]))
    different = np.vstack(alone) != np.vstack(both)
    assert different.mean() == pytest.approx(0.1 + 0.9 * 0.01, abs=0.01)


def test_recordings_of_a_site_share_its_offset():
    more = {"n_recordings": 3, "heterogeneity": 0.5}
    clean, changed = corrupt(**more), corrupt("offsets", **more)
    shifts = [
        np.asarray(b - a).mean(axis=0)
        for a, b in zip(clean.sites["site-0"], changed.sites["site-0"], strict=True)
    ]
    np.testing.assert_allclose(shifts[0], shifts[1])


def test_jitter_moves_a_row_towards_a_neighbour_by_one_share_for_all_variables(rows):
    found, before = values(corrupt({"jitter": 0.3}))[0], rows[0]
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
    np.testing.assert_array_equal(values(corrupt({"jitter": 0}))[0], before)


def test_half_of_the_sites_see_every_second_row(rows):
    found = values(corrupt("two-rates"))
    slow = [k for k in range(6) if len(found[k]) < len(rows[k])]
    assert len(slow) == 3
    for k in range(6):
        np.testing.assert_array_equal(found[k], rows[k][::2] if k in slow else rows[k])


@pytest.mark.parametrize("name", ["offsets", "gains", "trend", "cycle"])
def test_drifts_and_units_are_of_a_site_and_variable(name, rows, spread):
    many = {"n_sites": 60, "n_samples": 60 * 50, "n_lags": 1}
    before, after = np.stack(values(corrupt(**many))), np.stack(values(corrupt(name, **many)))
    scale = before.reshape(-1, 5).std(axis=0)
    added, strength = (after - before) / scale, CORRUPTIONS[name].default
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
    added = np.stack(values(corrupt("measurement-noise"))) - np.stack(rows)
    np.testing.assert_allclose(added.std(axis=(0, 1)), 0.5 * spread, rtol=0.05)
    assert abs(np.mean(added[:, 1:] * added[:, :-1])) < 0.02


def test_units_are_those_of_all_rows_or_other_ones_in_one_variable_of_one_site(rows):
    np.testing.assert_allclose(np.vstack(values(corrupt("unit-variance"))).std(axis=0), 1)
    found = values(corrupt("other-units"))
    factors = np.stack([(x / y).mean(axis=0) for x, y in zip(found, rows, strict=True)])
    assert sorted(np.round(factors.ravel(), 9))[-2:] == [1, 100]


def test_one_sensor_is_stuck_for_a_quarter_of_the_rows(rows):
    runs = [np.diff(x, axis=0) == 0 for x in values(corrupt({"stuck": 0.25}))]
    counts = np.stack([run.sum(axis=0) for run in runs])
    assert sorted(counts.ravel())[-2:] == [0, round(0.25 * len(rows[0])) - 1]
    site, variable = np.unravel_index(counts.argmax(), counts.shape)
    where = np.flatnonzero(runs[site][:, variable])
    assert where[-1] - where[0] + 1 == len(where)


def test_rounded_values_are_multiples(rows):
    found = values(corrupt({"rounding": 0.5}))[0]
    np.testing.assert_array_equal(2 * found, np.round(2 * found))
    assert np.abs(found - rows[0]).max() <= 0.25


def test_spikes_are_fifteen_standard_deviations_off(rows, spread):
    added = (np.vstack(values(corrupt({"spikes": 0.05}))) - np.vstack(rows)) / spread
    hit = np.abs(added) > 1e-9
    np.testing.assert_allclose(np.abs(added[hit]), 15)
    assert hit.mean() == pytest.approx(0.05, abs=0.006)
    assert np.mean(added[hit] > 0) == pytest.approx(0.5, abs=0.06)


def test_no_column_of_a_mixed_site_is_where_its_name_says(rows):
    found = values(corrupt({"mixed-columns": 2}))
    mixed = [k for k in range(6) if not np.array_equal(found[k], rows[k])]
    assert len(mixed) == 2
    for k in mixed:
        places = [int(np.flatnonzero((rows[k] == column[:, None]).all(axis=0))[0]) for column in found[k].T]
        assert sorted(places) == list(range(5))
        assert all(place != i for i, place in enumerate(places))


@pytest.mark.parametrize(("name", "value"), [("sentinels", -999.0), ("missing", np.nan)])
def test_a_share_of_the_cells_is_replaced_and_the_rest_stays(name, value, rows):
    found, before = np.vstack(values(corrupt({name: 0.2}))), np.vstack(rows)
    hit = np.isnan(found) if np.isnan(value) else found == value
    assert hit.mean() == pytest.approx(0.2, abs=0.01)
    np.testing.assert_array_equal(found[~hit], before[~hit])
