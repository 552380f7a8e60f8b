"""Networks with curves: residuals, simulation, forecasts and interventions against equations written out."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from feddbn.errors import CurvesWarning, HistoryWarning, ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.step import draw_noise
from support.networks import curved, make_curve, part_at

CurvedDBN = Callable[..., DBN]
ORDER = (0, 1, 2, 3)


def by_hand(dbn: DBN, past: np.ndarray, u: np.ndarray, held: dict[int, float] | None = None) -> np.ndarray:
    """(steps, d) one path, edge by edge, in the order of the variables (that of `curved_dbn` is topological)."""
    rows = list(past)
    for shock in u:
        x = np.full(dbn.d, np.nan)
        for j in ORDER:
            if held and j in held:
                x[j] = held[j]
                continue
            value = dbn.intercept[j] + shock[j]
            for lag in range(dbn.n_lags + 1):
                before = x if lag == 0 else rows[-lag]
                for i in range(dbn.d):
                    if dbn.adjacency_matrices[lag, i, j]:
                        value += dbn.adjacency_matrices[lag, i, j] * before[i]
                for part in dbn.parts:
                    if (part.target, part.term.sources[0][1]) == (j, lag):
                        value += float(part_at(part, *(before[i] for i, _ in part.term.sources)))
            x[j] = value
        rows.append(x)
    return np.array(rows[len(past) :])


def test_residuals_of_a_path_written_out_are_its_noise(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn()
    rng = np.random.default_rng(0)
    u = rng.normal(size=(300, 4)) * np.sqrt(dbn.noise_variances)
    start = rng.normal(size=(2, 4))
    path = by_hand(dbn, start, u)
    np.testing.assert_allclose(dbn.residuals(np.concatenate([start, path])), u, atol=1e-12)
    expected = -0.5 * (np.log(2 * np.pi * dbn.noise_variances) + u**2 / dbn.noise_variances).sum()
    assert dbn.log_likelihood(np.concatenate([start, path])) == pytest.approx(expected, rel=1e-12)


def test_simulated_paths_equal_the_equations_given_their_noise(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn()
    history = np.random.default_rng(1).normal(size=(3, 4))
    found = dbn.simulate(50, random_state=7, history=history).to_numpy()
    u = draw_noise("gaussian", np.sqrt(dbn.noise_variances), (1, 50), np.random.default_rng(7))[0]
    np.testing.assert_allclose(found, by_hand(dbn, history[1:], u), atol=1e-12)
    held = dbn.simulate(50, random_state=7, history=history, interventions={"b": 2.0}).to_numpy()
    np.testing.assert_allclose(held, by_hand(dbn, history[1:], u, {1: 2.0}), atol=1e-12)


def test_the_same_seed_gives_the_same_bits(curved_dbn: CurvedDBN) -> None:
    dbn, history = curved_dbn(), np.zeros((2, 4))
    one, two = (dbn.forecast(history, 5, 0.9, random_state=3).to_frame() for _ in range(2))
    pd.testing.assert_frame_equal(one, two, check_exact=True)
    assert list(one.columns)[-1] == "beyond"
    np.testing.assert_array_equal(dbn.simulate(20, random_state=1), dbn.simulate(20, random_state=1))


def test_a_held_variable_is_what_it_is_held_at(curved_dbn: CurvedDBN) -> None:
    found = curved_dbn().do({"b": 0.1}, None, 3, 0.8, random_state=6, n_paths=300)
    np.testing.assert_array_equal(found.mean["b"], 0.1)
    np.testing.assert_array_equal(found.sd["b"], 0.0)


def test_zero_curves_give_the_answers_of_the_linear_network(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn(zero=True)
    line = DBN(dbn.W, dbn.A, dbn.variables, dbn.intercept, dbn.noise_variances)
    rows = line.simulate(500, random_state=0)
    np.testing.assert_allclose(dbn.residuals(rows), line.residuals(rows), atol=1e-14)
    np.testing.assert_allclose(dbn.log_likelihood(rows), line.log_likelihood(rows), rtol=1e-14)
    ours = dbn.forecast(rows, 6, 0.9, random_state=1, n_paths=20_000)
    exact = line.forecast(rows, 6, 0.9)
    error = exact.sd.to_numpy() / np.sqrt(20_000)
    assert np.all(np.abs(ours.mean - exact.mean) < 4.5 * error)
    np.testing.assert_allclose(ours.sd, exact.sd, rtol=0.03)
    np.testing.assert_allclose(dbn.stationary_mean(), line.stationary_mean(), atol=0.1)
    np.testing.assert_allclose(dbn.stationary_covariance(), line.stationary_covariance(), atol=0.12)
    np.testing.assert_allclose(
        dbn.simulate(30, random_state=2, history=rows),
        line.simulate(30, random_state=2, history=rows),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        dbn.at_level(np.ones(4)).intercept, line.at_level(np.ones(4)).intercept, atol=0.1
    )


def test_paths_beyond_the_range_seen_are_counted_and_warned_of(curved_dbn: CurvedDBN) -> None:
    dbn, history = curved_dbn(), np.zeros((2, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        usual = dbn.forecast(history, 3, random_state=0)
    assert usual.beyond is not None
    assert 0 < usual.beyond.to_numpy().max() < 0.2
    with pytest.warns(CurvesWarning, match="1.*100%.*'a'"):
        far = dbn.do({"a": 40.0}, history, 3, random_state=0)
    assert far.beyond is not None
    np.testing.assert_array_equal(far.beyond["a"], 1.0)


def explosive() -> DBN:
    A = np.zeros((1, 2, 2))
    A[0, 0, 0] = 1.5
    return curved(np.zeros((2, 2)), A, parts=[make_curve(0, 0, 1, 0.0, 1.0, (2.0,), "quadratic")])


def test_explosive_paths_are_refused_and_never_infinite() -> None:
    dbn = explosive()
    with pytest.warns(CurvesWarning, match="beyond"):
        short = dbn.forecast(np.ones((1, 2)), 20, random_state=0)
    assert np.isfinite(short.mean.to_numpy()).all()
    assert np.isfinite(short.sd.to_numpy()).all()
    with pytest.raises(ParameterError, match=r"simulated.*'x0'"):
        dbn.forecast(np.ones((1, 2)), 1000, random_state=0)
    with pytest.raises(ParameterError, match="usual"):
        dbn.stationary_mean()


def test_a_drifting_process_has_no_usual_level() -> None:
    A = np.zeros((1, 2, 2))
    A[0, 0, 0] = 1.0
    dbn = curved(np.zeros((2, 2)), A, intercept=[1.0, 0.0], parts=[make_curve(0, 1, 1, 0.0, 1.0, (1.0,))])
    with pytest.raises(ParameterError, match="'x0'"):
        dbn.stationary_covariance()


def test_at_level_moves_the_mean_of_simulated_rows(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn()
    own = dbn.stationary_mean()
    np.testing.assert_allclose(dbn.at_level(own).intercept, dbn.intercept, atol=0.1)
    level = own + np.array([30.0, -20.0, 10.0, 20.0])
    moved = dbn.at_level(level)
    for there, here in zip(moved.parts, dbn.parts, strict=True):
        shift = [(level - own)[i] for i, _ in here.term.sources]
        np.testing.assert_allclose(there.term.origins, np.array(here.term.origins) + shift)
    np.testing.assert_allclose(moved.stationary_mean(), level, atol=0.15)
    # The same rows, moved: the same residuals.
    rows = dbn.simulate(50, random_state=4)
    np.testing.assert_allclose(moved.residuals(rows + (level - own)), dbn.residuals(rows), atol=1e-9)


def test_a_history_in_other_units_is_warned_of(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn()
    rows = dbn.simulate(300, random_state=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dbn.forecast(rows, 2, random_state=0)
    with (
        pytest.warns(HistoryWarning, match="times"),
        pytest.warns(CurvesWarning, match="beyond"),
    ):
        dbn.forecast(rows * 100, 2, random_state=0)


@pytest.mark.parametrize(
    "gaps", [[(27, 0), (28, 0), (29, 0), (29, 2)], [(28, slice(None)), (29, slice(None))]]
)
def test_zero_curves_give_what_the_exact_filter_gives(
    curved_dbn: CurvedDBN, gaps: list[tuple[int, int]]
) -> None:
    dbn = curved_dbn(zero=True)
    line = DBN(dbn.W, dbn.A, dbn.variables, dbn.intercept, dbn.noise_variances)
    history = line.simulate(30, random_state=1).to_numpy().copy()
    for row, column in gaps:
        history[row, column] = np.nan
    n = 20_000
    ours, exact = dbn.forecast(history, 4, random_state=0, n_paths=n), line.forecast(history, 4)
    assert ours.n_inferred == exact.n_inferred > 0
    # Copies of the same draw are not independent: allow for a tenth as many.
    assert np.all(np.abs(ours.mean - exact.mean) < 4.5 * exact.sd / np.sqrt(n / 10))
    np.testing.assert_allclose(ours.sd, exact.sd, rtol=0.05)


def test_a_cause_is_inferred_from_its_curved_effect_as_by_integration() -> None:
    A = np.diag([0.5, 0.0])[None]
    hill = make_curve(0, 1, 0, 0.0, 1.0, (1.0,), "quadratic")
    dbn = curved(np.zeros((2, 2)), A, ["a", "b"], noise_variances=[1.0, 0.25], parts=[hill])
    history = np.array([[1.0, 0.0], [np.nan, 1.5]])
    found = dbn.forecast(history, 1, random_state=0, n_paths=40_000)
    # a ~ N(0.5, 1), b = hill(a) + noise of variance 0.25 and was 1.5; next a is half of it plus noise.
    a = np.linspace(-6, 7, 20_001)
    density = np.exp(-((a - 0.5) ** 2) / 2 - (1.5 - part_at(hill, a)) ** 2 / 0.5)
    density /= density.sum()
    mean = density @ a
    variance = density @ (a - mean) ** 2
    assert found.n_inferred == 1
    assert found.mean["a"].item() == pytest.approx(0.5 * mean, abs=0.03)
    assert found.sd["a"].item() == pytest.approx(np.sqrt(0.25 * variance + 1.0), rel=0.02)
    # Two hills: far more spread than the noise alone.
    assert variance > 1.0


def test_cells_that_hardly_any_path_explains_are_warned_of(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn()
    history = dbn.simulate(40, random_state=0).to_numpy().copy()
    history[-2:, 0] = np.nan
    history[-2:, 1] = 60.0
    with (
        pytest.warns(CurvesWarning, match="few"),
        pytest.warns(CurvesWarning, match="beyond"),
    ):
        dbn.forecast(history, 1, random_state=0)
