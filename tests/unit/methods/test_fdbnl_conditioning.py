"""Data that are hard to solve for: a fit converges to the optimum or says in one sentence why not; never NaN."""

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn import FDBNL, Dynotears
from feddbn.core.graphs.pruning import topological_order

# Said for the duplicated column, and right.
pytestmark = pytest.mark.filterwarnings("ignore::feddbn.errors.DependentColumnsWarning")


def series(seed=0, d=5, n=120, n_lags=1):
    return feddbn.simulate(d=d, n_lags=n_lags, n_sites=1, n_samples=n, random_state=seed).sites["site-0"][0]


def near_unit_root():
    """Random walks with standard deviations of some hundreds, as in a known fixture that solvers fail on: d=5, n=50."""
    rng = np.random.default_rng(7)
    x = np.zeros((50, 5))
    for t in range(1, len(x)):
        x[t] = 0.999 * x[t - 1] + rng.normal(size=5) * [10, 20, 30, 15, 25]
        x[t, 2] += 0.9 * x[t, 0]
        x[t, 4] += 0.7 * x[t, 2]
    return pd.DataFrame(x, columns=list("abcde"))


def units():
    return series() * [1e-3, 1.0, 1e3, 1.0, 1e-2]


def duplicated():
    x = series()
    return x.assign(twin=x.iloc[:, 0])


def trend():
    x = series()
    return x + np.linspace(0, 300, len(x))[:, None]


CASES = {
    "levels": (lambda: series() + 1e6, 1),
    "trend": (trend, 1),
    "near unit root": (near_unit_root, 3),
    "units": (units, 1),
    "duplicated column": (duplicated, 1),
    "fewer rows than columns": (lambda: series(d=8, n=14), 2),
}


def single_rows():
    x = series(n=90)
    return {f"s{k}": x.iloc[k : k + 2] for k in range(len(x) - 1)}


# Levels as they are: the next test.
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        (name, rows)
        for name in CASES
        for rows in ("as they are", "prepared")
        if (name, rows) != ("levels", "as they are")
    ],
)
def test_hard_data_end_in_the_optimum(name, rows):
    make, n_lags = CASES[name]
    given = {"center": "none", "scale": "none", "detrend": 0, "period": None} if rows == "as they are" else {}
    model = Dynotears(n_lags=n_lags, lambda_w=0.1, lambda_a=0.1, check_residuals=False, **given).fit(make())
    assert model.status_.is_converged, model.warnings_
    assert model.certificate_.is_exact
    assert np.isfinite(model.objective_)
    assert np.isfinite(model.dbn_.W).all()
    assert np.isfinite(model.dbn_.A).all()
    topological_order(model.W_ != 0)
    assert model.n_rounds_ < 400


def test_levels_that_sums_of_products_cannot_hold_are_named_with_the_way_out():
    model = Dynotears(center="none", scale="none", detrend=0, period=None, check_residuals=False)
    model.fit(series() + 1e6)
    assert np.isfinite(model.dbn_.W).all()
    if model.status_.is_converged:
        pytest.fail("this is no hard case any more; use larger levels")
    assert model.n_rounds_ < 500
    assert not model.certificate_.is_exact
    said = [one for one in model.warnings_ if one.startswith("the fit stopped")]
    assert len(said) == 1
    assert "the mean of x" in said[0]
    assert "choose center='auto' or 'federated'" in said[0]


@pytest.mark.parametrize("name", CASES)
def test_the_papers_schedule_converges_or_says_why_not(name):
    make, n_lags = CASES[name]
    model = FDBNL(n_lags=n_lags, schedule="paper", center="none", scale="none", max_rounds=150).fit(make())
    assert np.isfinite(model.objective_)
    assert np.isfinite(model.dbn_.W).all()
    assert np.isfinite(model.history_["objective"]).all()
    assert model.status_.is_converged or any("the fit stopped" in said for said in model.warnings_)


def test_weights_keep_to_the_users_units():
    plain = Dynotears(lambda_w=0.0, lambda_a=0.0, scale="none", center="none", check_residuals=False)
    order = [(i, j, 0) for i in range(5) for j in range(i)]
    x, factor = series(), np.array([1e-3, 1.0, 1e3, 1.0, 1e-2])
    first = plain.set_params(forbidden_edges=order, w_threshold=0, a_threshold=0).fit(x)
    W, A = first.W_, first.A_[0]
    other = plain.fit(x * factor)
    np.testing.assert_allclose(other.W_ * factor[:, None] / factor, W, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(other.A_[0] * factor[:, None] / factor, A, rtol=1e-4, atol=1e-6)


def test_sites_with_one_row_each_end_where_the_pooled_rows_do():
    sites = single_rows()
    settings = {"center": "none", "scale": "none", "detrend": 0, "period": None, "check_residuals": False}
    settings |= {"refit": False, "gains": "none", "spikes": "keep", "on_disagreement": "ignore"}
    model = FDBNL(**settings).fit(sites)
    pooled = Dynotears(**settings).fit(series(n=90))
    assert model.certificate_.is_exact
    assert model.objective_ == pytest.approx(pooled.objective_, rel=1e-7)
    np.testing.assert_allclose(model.W_raw_, pooled.W_raw_, atol=1e-5)
