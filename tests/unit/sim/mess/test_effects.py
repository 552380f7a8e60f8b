import numpy as np
import pytest

from feddbn.sim.messy import slow_levels, stop_edges
from feddbn.sim.series import Effects, advance
from feddbn.sim.systems import System
from support.messy import residuals, values, with_mess


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


def test_a_network_that_goes_on_unchanged_advances_step_by_step_as_by_its_reduced_form():
    fed = with_mess(n_lags=2)
    system = System(fed.truth.W, fed.truth.A, np.arange(5))
    noise = [np.random.default_rng(k).standard_normal((60 + k // 2, 5)) for k in range(4)]
    expected = advance([system] * 4, noise, n_burned=10)
    found = advance([system] * 4, noise, 10, Effects(later=[system] * 4))
    for one, two in zip(expected, found, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-12)


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


def test_effects_are_shaped_in_units_of_the_noise():
    one, ten = with_mess("squares"), with_mess("squares", noise_scale=10)
    np.testing.assert_allclose(values(ten)[0], 10 * values(one)[0])
