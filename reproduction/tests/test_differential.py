"""Differential equations: what levels are like, and that slow ones are ranked at least as well as by signed VAR weights."""

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm, solve_continuous_lyapunov

from feddbn import OneShotDBN
from feddbn.core.statistics.diagnostics import slow_levels
from feddbn.results.edge_table import pair_ranking
from reproduction.differential import (
    diffusion,
    draw_rates,
    lorenz96,
    lorenz96_slope,
    lotka_volterra,
    lotka_volterra_slope,
    river_levels,
    runge_kutta,
)
from reproduction.ranking_scores import ranking_scores
from support.saying import only
from support.simulated_moments import lagged, lagged_moments


def _rng(seed=0):
    return np.random.default_rng(seed)


def _lorenz(t, x, forcing):
    """The equation, variable by variable."""
    d = len(x)
    return [(x[(i + 1) % d] - x[i - 2]) * x[i - 1] - x[i] + forcing for i in range(d)]


@pytest.mark.parametrize("forcing", [10.0, 40.0])
def test_steps_agree_with_an_independent_solver(forcing):
    x = forcing * _rng().uniform(0, 1, 6)
    exact = solve_ivp(_lorenz, (0, 0.1), x, args=(forcing,), rtol=1e-12, atol=1e-12).y[:, -1]
    found, n = x, round(forcing)
    for _ in range(n):
        found = runge_kutta(lorenz96_slope(forcing), found, 0.1 / n)
    np.testing.assert_allclose(found, exact, atol=5e-4)


def test_an_error_of_a_step_is_of_fifth_order():
    x = 10 * _rng().uniform(0, 1, 5)
    exact = solve_ivp(_lorenz, (0, 0.02), x, args=(10.0,), rtol=1e-13, atol=1e-13).y[:, -1]
    one = runge_kutta(lorenz96_slope(10.0), x, 0.02)
    two = runge_kutta(lorenz96_slope(10.0), runge_kutta(lorenz96_slope(10.0), x, 0.01), 0.01)
    assert np.abs(one - exact).max() / np.abs(two - exact).max() == pytest.approx(16, rel=0.3)


def test_rows_of_lorenz96_lie_dt_apart_on_one_path():
    for forcing, error in ((8.0, 1e-6), (40.0, 1e-3)):
        rows = lorenz96(7, 30, F=forcing, dt=0.05, noise=0.0, rng=_rng(3)).recordings[0]
        for t in (0, 13, 28):
            after = solve_ivp(_lorenz, (0, 0.05), rows[t], args=(forcing,), rtol=1e-10, atol=1e-10).y[:, -1]
            np.testing.assert_allclose(rows[t + 1], after, atol=error)


def test_the_graph_of_lorenz96_is_where_the_derivatives_are():
    d, slope = 6, lorenz96_slope(10.0)
    x = _rng().standard_normal(d)
    jacobian = np.array([(slope(x + 1e-6 * e) - slope(x - 1e-6 * e)) / 2e-6 for e in np.eye(d)])
    np.testing.assert_array_equal(lorenz96(d, 2, rng=_rng()).graph, np.abs(jacobian) > 1e-4)


def test_the_graph_of_predators_and_prey_is_where_the_derivatives_of_populations_are():
    d = 8
    drawn = lotka_volterra(d, 2, n_hunted=2, rng=_rng())
    hunts = drawn.graph[: d // 2, d // 2 :]
    assert (hunts.sum(axis=0) == 2).all()
    assert (hunts.sum(axis=1) == 2).all()
    slope = lotka_volterra_slope(hunts)

    def flow(x):
        """Populations a little later."""
        return np.exp(runge_kutta(slope, np.log(x), 1e-3))

    x = _rng().uniform(0.5, 2, d)
    jacobian = np.array([(flow(x + 1e-5 * e) - flow(x - 1e-5 * e)) / 2e-5 for e in np.eye(d)])
    np.testing.assert_array_equal(drawn.graph, np.abs(jacobian) > 1e-5)
    assert drawn.variables[:2] == ("prey0", "prey1")
    assert drawn.variables[-1] == "predator3"


def test_predators_and_prey_follow_their_equations_and_rest_at_1():
    d, n = 6, 3
    rows = lotka_volterra(d, 20, noise=0.0, dt=0.1, rng=_rng(1)).recordings[0]
    hunts = lotka_volterra(d, 1, rng=_rng(1)).graph[:n, n:]

    def change(t, x):
        prey, predators = x[:n], x[n:]
        grow = [
            prey[i] * (1 - prey[i] / 5 - 0.4 * sum(predators[j] for j in range(n) if hunts[i, j]))
            for i in range(n)
        ]
        hunt = [predators[j] * (sum(prey[i] for i in range(n) if hunts[i, j]) / 2 - 1) for j in range(n)]
        return grow + hunt

    after = solve_ivp(change, (0, 0.1), rows[4], rtol=1e-11, atol=1e-11).y[:, -1]
    np.testing.assert_allclose(rows[5], after, atol=1e-8)
    np.testing.assert_allclose(change(0, np.ones(d)), 0, atol=1e-12)


@pytest.mark.slow
def test_populations_go_on_swinging_around_1():
    drawn = lotka_volterra(10, 300, n_sites=2, rng=_rng(5))
    for rows in drawn.recordings:
        assert (rows > 0).all()
        assert np.log(rows).mean() == pytest.approx(0, abs=0.35)
        assert (np.log(rows).std(axis=0) > 0.1).all()
        assert (np.log(rows).std(axis=0) < 2).all()
    wild = lotka_volterra(4, 100, noise=1.0, rng=_rng(6)).recordings[0]
    assert np.isfinite(wild).all()


@pytest.mark.slow
@pytest.mark.parametrize("forcing", [10, 40, 100])
def test_lorenz96_is_chaotic_and_bounded(forcing):
    one, other = lorenz96(10, 200, F=forcing, n_sites=2, rng=_rng(2)).recordings
    assert np.isfinite(one).all()
    assert np.abs(one).max() < 4 * forcing
    assert abs(np.corrcoef(one[100:, 0], other[100:, 0])[0, 1]) < 0.5, "sites start differently"


def test_noise_is_added_to_what_is_seen():
    exact, seen = (lorenz96(5, 150, noise=noise, rng=_rng(4)).recordings[0] for noise in (0.0, 0.5))
    assert (seen - exact).std() == pytest.approx(0.5, rel=0.1)


def test_every_gauge_but_one_flows_into_one_other_and_no_water_flows_in_circles():
    levels, truth = river_levels(8, 50, rng=np.random.default_rng(0))
    assert levels.shape == (50, 8)
    assert sorted(truth.sum(axis=1)) == [0] + [1] * 7
    assert not np.linalg.matrix_power(truth, 8).any()
    again, _ = river_levels(8, 50, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(levels, again)


def test_levels_are_slow_and_a_gauge_below_follows_the_one_above():
    levels, truth = river_levels(6, 4000, shared=0.0, max_delay=4, rng=np.random.default_rng(1))
    slow = slow_levels(lagged_moments(levels), 6)
    assert len(slow.slow) == 6
    x = (levels - levels.mean(axis=0)) / levels.std(axis=0)
    forward = np.array([x[:-6, i] @ x[6:, j] for i, j in np.argwhere(truth)])
    backward = np.array([x[:-6, j] @ x[6:, i] for i, j in np.argwhere(truth)])
    assert (forward > 0).all(), "all effects are positive"
    assert (forward > backward).all(), "water takes its time"


@pytest.mark.slow
@pytest.mark.parametrize("shared", [0.2, 0.6])
@pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning")
@pytest.mark.filterwarnings("ignore::feddbn.errors.ResidualsWarning")
def test_slow_levels_are_ranked_about_as_well_as_by_signed_weights_and_with_a_warning(shared):
    ours, signed = [], []
    for seed in range(300, 306):
        levels, truth = river_levels(10, 3000, shared=shared, rng=np.random.default_rng(seed))
        names = [f"g{k}" for k in range(10)]
        model = OneShotDBN(check_residuals=False).fit({"a": pd.DataFrame(levels, columns=names)})
        assert only(model.findings_, "slow-levels").about
        ours.append(ranking_scores(truth, pair_ranking(model.edge_probabilities_, names)))
        rows = lagged((levels - levels.mean(axis=0)) / levels.std(axis=0))
        rows = rows - rows.mean(axis=0)
        weights = np.linalg.lstsq(rows[:, 10:], rows[:, :10], rcond=None)[0]
        signed.append(ranking_scores(truth, weights))
    for score in ("average_precision", "auroc"):
        gain = np.array([getattr(a, score) - getattr(b, score) for a, b in zip(ours, signed, strict=True)])
        assert gain.mean() >= -2 * gain.std(ddof=1) / np.sqrt(len(gain)), "up to two standard errors"


def test_values_of_a_diffusion_have_its_covariances():
    rng = _rng(3)
    A, Q = draw_rates(3, 4, rng=rng), np.array([[1.0, 0.4, 0.0], [0.4, 2.0, 0.0], [0.0, 0.0, 0.5]])
    assert np.linalg.eigvals(A).real.max() < 0
    assert (A != 0).sum() == 7
    gaps = np.tile([0.5, 1.5], 10_000)
    x = diffusion(A, Q, np.cumsum(gaps), rng)
    S = solve_continuous_lyapunov(A, -Q)
    error = 6 * np.abs(S).max() / np.sqrt(len(x) / 10)
    np.testing.assert_allclose(np.cov(x.T), S, atol=error)
    for start, gap in ((1, 0.5), (0, 1.5)):
        earlier = x[:-1][start::2]
        later = x[1:][start::2]
        np.testing.assert_allclose(later.T @ earlier / len(later), expm(A * gap) @ S, atol=error)
