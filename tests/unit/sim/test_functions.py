"""Functions of simulated effects: what they are, and that rows follow them."""

import numpy as np
import pytest

import feddbn
from feddbn.model.nodes import Term
from feddbn.sim.functions import GRID, _gaussian_process, draw_function


def _draws(n=40):
    rng = np.random.default_rng(1)
    return [draw_function(rng) for _ in range(n)]


def _at(table, z):
    return Term(((0, 1),), "table", (0.0,), (1.0,), table).columns(z)[:, 0]


def test_functions_have_mean_0_and_variance_1_over_a_normal_cause_and_are_bounded():
    z = np.random.default_rng(0).standard_normal(50_000)
    for table in _draws(5):
        values = _at(table, z)
        assert values.mean() == pytest.approx(0, abs=0.02)
        assert values.std() == pytest.approx(1, abs=0.02)
        np.testing.assert_array_equal(_at(table, [-1e9, 1e9]), _at(table, [-3.0, 3.0]))


@pytest.mark.slow
def test_gaussian_processes_have_the_covariance_of_their_kernel():
    rng, n = np.random.default_rng(2), 2000
    at = np.searchsorted(GRID, [-2.0, -1.0, 0.0, 0.5, 2.0])
    draws = np.array([_gaussian_process(rng)[at] for _ in range(n)])
    kernel = np.exp(-0.5 * (GRID[at][:, None] - GRID[at]) ** 2)
    # A covariance of n draws of normal variables has a standard error of at most sqrt(2 / n).
    np.testing.assert_allclose(draws.T @ draws / n, kernel, atol=4.5 * np.sqrt(2 / n))


SETTING = {"d": 5, "n_lags": 2, "n_sites": 3, "n_samples": 300, "random_state": 4}


def _by_hand(dbn, rows):
    """What is left of rows by the definition: one row, one variable, one term after the other."""
    left = np.zeros((len(rows) - dbn.n_lags, dbn.d))
    for t in range(dbn.n_lags, len(rows)):
        for j in range(dbn.d):
            value = rows[t, j]
            for term, b in dbn.node(j).parts:
                x = [rows[t - lag, i] for i, lag in term.sources]
                if term.basis == "table":
                    value -= b[0, 0] * np.interp((x[0] - term.origins[0]) / term.scales[0], GRID, term.table)
                else:
                    value -= b[0, 0] * x[0]
            left[t - dbn.n_lags, j] = value
    return left


def test_what_functions_leave_is_the_noise_of_the_linear_data():
    plain, fed = (feddbn.simulate(**SETTING, effects=one) for one in ("linear", "gp"))
    np.testing.assert_allclose(fed.truth.W, plain.truth.W, rtol=1e-12)
    for site in fed.sites:
        rows, linear = fed.sites[site][0].to_numpy(), plain.sites[site][0]
        noise = plain.truth.residuals(linear)
        np.testing.assert_allclose(fed.truth.residuals(rows), noise, atol=1e-8)
        np.testing.assert_allclose(_by_hand(fed.truth, rows), noise, atol=1e-8)


def test_sites_around_a_backbone_share_the_functions_of_the_edges_they_share():
    def functions(**more):
        fed = feddbn.simulate(d=10, n_sites=2, n_samples=60, **more)
        return [
            {
                (part.term.sources, part.target, round(float(part.coefficients[0, 0]), 9)): part.term
                for part in dbn.parts
            }
            for dbn in fed.truths.values()
        ]

    one, other = functions(effects="gp", heterogeneity=0.3)
    shared = one.keys() & other.keys()
    assert len(shared) > 10
    assert all(one[edge].table == other[edge].table for edge in shared)
    one, other = functions(effects="gp", heterogeneity="independent")
    assert not one.keys() & other.keys()


@pytest.mark.slow
@pytest.mark.parametrize("w_range", [(0.3, 0.5), (0.5, 2.0)])
def test_rows_stay_bounded_about_the_units_of_their_functions(w_range):
    for seed in range(2):
        fed = feddbn.simulate(
            d=10,
            n_sites=1,
            n_samples=2000,
            effects="gp",
            w_range=w_range,
            mean_degree=3,
            random_state=seed,
        )
        rows, units = fed.sites["site-0"][0].to_numpy(), fed.truth.units
        first, last = rows[:1000].std(axis=0), rows[1000:].std(axis=0)
        assert (last < 3 * first).all()
        assert (first < 3 * last).all()
        if w_range[1] < 1:
            some = list(units)
            scale, centre = (np.array([units[i][k] for i in some]) for k in (1, 0))
            np.testing.assert_allclose(rows[:, some].std(axis=0) / scale, 1, atol=0.25)
            np.testing.assert_allclose((rows[:, some].mean(axis=0) - centre) / scale, 0, atol=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_functions_can_be_found_again_from_the_data(seed):
    """An independent look: smooth the target, less all other effects, over bins of the cause."""
    fed = feddbn.simulate(d=4, n_sites=1, n_samples=20_000, effects="gp", mean_degree=2, random_state=seed)
    x, truth = fed.sites["site-0"][0].to_numpy(), fed.truth
    edge = truth.edges().iloc[0]
    i, j, lag = truth.variables.index(edge.source), truth.variables.index(edge.target), int(edge.lag)
    cause, effect = x[1 - lag : len(x) - lag, i], truth.effect(i, j, lag)
    left = truth.residuals([x])[:, j] + effect.at(cause)[:, 0]
    cuts = np.quantile(cause, np.linspace(0, 1, 81))
    bins = np.clip(np.searchsorted(cuts, cause) - 1, 0, 79)
    means, centres = (np.array([one[bins == b].mean() for b in range(80)]) for one in (left, cause))
    seen = np.sort(cause)[len(cause) // 20 : -len(cause) // 20]
    error = np.std(np.interp(seen, centres, means) - effect.at(seen)[:, 0])
    assert error < 0.1
    assert np.std(effect.at(seen)) > 2.5 * error
