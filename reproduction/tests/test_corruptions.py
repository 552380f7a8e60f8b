"""Corruptions of noise, systems and columns: what each does to the federation that the same seed gives without it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import feddbn
from feddbn.sim.systems import System
from reproduction.corruptions import STRENGTHS, simulate, slow_levels, stop_edges

SETTING = {"d": 5, "n_sites": 6, "n_samples": 2400, "mean_degree": 2, "random_state": 3}


def corrupt(corruptions=None, **more) -> feddbn.SimulatedFederation:
    """Six sites of 400 usable rows, five variables; other arguments of `simulate` as given."""
    return simulate(corruptions or {}, **{**SETTING, **more})


def values(fed) -> list[np.ndarray]:
    """The first recording of every site."""
    return [np.asarray(frames[0]) for frames in fed.sites.values()]


def residuals(fed, shape=lambda x: x) -> list[np.ndarray]:
    """What the true network with one lag leaves of every recording, if `shape` of causes acts."""
    W, A = fed.truth.W, fed.truth.A[0]
    return [x[1:] - shape(x[1:]) @ W - shape(x[:-1]) @ A for x in values(fed)]


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


@pytest.mark.parametrize("name", STRENGTHS)
def test_the_same_seed_gives_the_same_bits_and_without_corruptions_those_of_the_package(name, clean):
    first, second = corrupt({name: None}, n_samples=300), corrupt({name: STRENGTHS[name]}, n_samples=300)
    for one, two in zip(values(first), values(second), strict=True):
        assert one.tobytes() == two.tobytes()
    for one, two in zip(values(clean), values(feddbn.simulate(**SETTING)), strict=True):
        assert one.tobytes() == two.tobytes()


def test_sites_with_networks_of_their_own_keep_them():
    several = dict.fromkeys(("stopping-edges", "slow-levels", "duplicate"))
    assert len({id(dbn) for dbn in corrupt(several, heterogeneity=0.5).truths.values()}) == 6


def test_a_sum_is_a_column_and_an_effect_of_its_parts(clean, rows):
    fed = corrupt({"sum-column": None})
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
    exact, noisy = corrupt({"duplicate": None}), corrupt({"duplicate": 0.5})
    source = int(np.flatnonzero(exact.truth.W[:, -1])[0])
    assert exact.truth.variables[-1] == f"x{source}_copy"
    stacked = np.vstack(values(exact))
    np.testing.assert_array_equal(stacked[:, -1], stacked[:, source])
    difference = np.vstack(values(noisy))[:, -1] - stacked[:, source]
    assert difference.std() == pytest.approx(0.5 * spread[source], rel=0.05)
    assert noisy.truth.noise_variances[-1] == pytest.approx((0.5 * spread[source]) ** 2)


def test_slow_levels_have_the_radius_asked_for_and_the_noise_of_the_clean_data(clean):
    fed = corrupt({"slow-levels": 0.98})
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
    fed = corrupt({"stopping-edges": None})
    half = len(rows[0]) // 2
    for changed, before in zip(values(fed), rows, strict=True):
        np.testing.assert_allclose(changed[:half], before[:half], atol=1e-10)
        assert not np.allclose(changed[half : half + 3], before[half : half + 3])
    np.testing.assert_array_equal(fed.truth.W, clean.truth.W)


def test_the_share_of_stopped_edges_is_the_strength(clean):
    W, A = clean.truth.W, clean.truth.A
    n = np.count_nonzero(W) + np.count_nonzero(A)
    later = stop_edges(System(W, A, np.arange(5)), 0.25, np.random.default_rng(0))
    assert np.count_nonzero(later.W) + np.count_nonzero(later.A) == n - round(n / 4)
    assert np.all((later.W == 0) | (later.W == W))
    assert np.all((later.A == 0) | (later.A == A))


@pytest.mark.parametrize(
    ("corruption", "shape"),
    [
        ({"tanh": 2.0}, lambda x: np.tanh(2 * x) / 2),
        ({"squares": 1.0}, lambda x: (np.clip(x, -3, 3) ** 2 - 1) / np.sqrt(2)),
        (
            {"squares": 0.25},
            lambda x: 0.75 * np.clip(x, -3, 3) + 0.25 * (np.clip(x, -3, 3) ** 2 - 1) / np.sqrt(2),
        ),
    ],
)
def test_curved_effects_leave_the_noise_of_the_clean_data(corruption, shape, clean):
    changed = corrupt(corruption)
    for found, drawn in zip(residuals(changed, shape), residuals(clean), strict=True):
        np.testing.assert_allclose(found, drawn, atol=1e-10)
    np.testing.assert_array_equal(changed.truth.A, clean.truth.A)


def test_unequal_noise_is_in_the_data_and_in_the_truth(clean):
    fed = corrupt({"unequal-noise": 3})
    scales = np.sqrt(fed.truth.noise_variances)
    assert 1 / 3 <= scales.min() < 0.9 < 1.1 < scales.max() <= 3
    np.testing.assert_allclose(np.vstack(residuals(fed)).std(axis=0), scales, rtol=0.06)
    np.testing.assert_array_equal(fed.truth.W, clean.truth.W)


def test_heavy_tails_are_student_t_with_variance_one():
    left = np.vstack(residuals(corrupt({"heavy-tails": 5}))).ravel()
    assert left.std() == pytest.approx(1, rel=0.04)
    assert stats.kstest(left * np.sqrt(5 / 3), stats.t(5).cdf).pvalue > 0.01
    assert stats.kstest(left, stats.norm.cdf).pvalue < 1e-4


def test_autocorrelated_noise_remembers_and_keeps_its_size():
    left = residuals(corrupt({"autocorrelated-noise": 0.6}))
    assert np.mean([np.sum(r[1:] * r[:-1]) / np.sum(r * r) for r in left]) == pytest.approx(0.6, abs=0.03)
    assert np.vstack(left).std() == pytest.approx(1, rel=0.05)


def test_changing_noise_rises_and_falls_by_the_amplitude():
    strength = 1.0
    drawn = np.stack(residuals(corrupt()))
    changed = np.stack(residuals(corrupt({"changing-noise": strength})))
    factors = changed / drawn  # The same noise, larger or smaller.
    assert np.all(factors > 0)
    ratio = factors.max(axis=1) / factors.min(axis=1)
    np.testing.assert_allclose(ratio, np.exp(2 * strength), rtol=0.01)
    np.testing.assert_allclose((factors**2).mean(axis=1), 1, rtol=0.02)
    assert np.abs(np.diff(np.log(factors), axis=1)).max() < 0.06
    assert len({round(float(f), 6) for f in factors[:, 100].ravel()}) == 30


def test_hidden_causes_give_the_noise_two_directions_more():
    left = np.vstack(residuals(corrupt({"hidden-causes": 1.0}, n_samples=12000)))
    extra = np.linalg.eigvalsh(np.cov(left.T) - np.eye(5))
    np.testing.assert_allclose(extra[:3], 0, atol=0.15)
    assert extra[3:].sum() == pytest.approx(6, rel=0.06)
    assert extra[3] > 0.5


def test_a_hidden_lagged_cause_shows_between_two_pairs_a_row_apart():
    left = residuals(corrupt({"hidden-lagged-cause": 1.0}, n_samples=24000))
    at_once = np.mean([r.T @ r / len(r) for r in left], axis=0) - np.eye(5)
    a_row_later = np.mean([r[:-1].T @ r[1:] / len(r) for r in left], axis=0)
    hit = np.flatnonzero(np.diag(at_once) > 0.5)
    assert len(hit) == 4
    unhit = np.setdiff1d(np.arange(5), hit)
    assert np.abs(at_once[unhit]).max() < 0.1
    sizes = np.sort(np.abs(a_row_later[np.ix_(hit, hit)]).ravel())
    # From the first pair to the second the hidden variable itself; within a pair .7; backwards .7 ** 2.
    np.testing.assert_allclose(sizes, [0.49] * 4 + [0.7] * 8 + [1.0] * 4, atol=0.12)
