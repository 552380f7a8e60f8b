"""Data that are hard to solve for: a fit converges to the optimum or says in one sentence why not; never NaN."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn import FDBNL, Dynotears, Prepare, Rounds
from feddbn.core.constraints import topological_order

# Said for the duplicated column, and right.
pytestmark = [
    pytest.mark.filterwarnings("ignore::feddbn.errors.DependentColumnsWarning"),
]


AS_GIVEN = Prepare(center="none", scale="none", detrend=0, period=None)


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


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", ["as they are", "prepared"])
def test_hard_data_end_in_the_optimum(name, rows):
    make, n_lags = CASES[name]
    prepare = AS_GIVEN if rows == "as they are" else Prepare()
    model = Dynotears(n_lags, 0.1, 0.1, check_residuals=False, prepare=prepare).fit(make())
    assert model.status_.is_converged, model.findings_
    assert model.certificate_.is_exact
    assert np.isfinite(model.objective_)
    assert np.isfinite(model.dbn_.W).all()
    assert np.isfinite(model.dbn_.A).all()
    topological_order(model.W_ != 0)
    assert len(model.history_) < 400


@pytest.mark.parametrize("method", [Dynotears, FDBNL, feddbn.OneShotDBN])
def test_without_own_means_all_sites_have_one_mean_and_a_level_changes_no_edge(method):
    prepare = replace(feddbn.AS_THEY_ARE, center="none")
    fed = feddbn.simulate(d=4, n_sites=3, n_samples=900, random_state=2)
    rows = [
        {name: [table + level for table in tables] for name, tables in fed.sites.items()} for level in (0, 50)
    ]
    plain, raised = (method(check_residuals=False, prepare=prepare).fit(one) for one in rows)
    np.testing.assert_allclose(raised.W_, plain.W_, atol=1e-6)
    np.testing.assert_allclose(raised.A_, plain.A_, atol=1e-6)
    np.testing.assert_allclose(raised.dbn_.stationary_mean(), plain.dbn_.stationary_mean() + 50, atol=1e-4)
    assert raised.center_ == plain.center_ == "none"


@pytest.mark.parametrize("name", CASES)
def test_the_papers_schedule_converges_or_says_why_not(name):
    make, n_lags = CASES[name]
    model = FDBNL(
        n_lags=n_lags,
        schedule="paper",
        rounds=Rounds(max_rounds=150),
        prepare=Prepare(center="none", scale="none"),
    ).fit(make())
    assert np.isfinite(model.objective_)
    assert np.isfinite(model.dbn_.W).all()
    assert np.isfinite(model.history_["objective"]).all()
    assert model.status_.is_converged or "not-converged" in model.findings_.codes


def test_sites_with_one_row_each_end_where_the_pooled_rows_do():
    sites = single_rows()
    rows = replace(AS_GIVEN, gains="none", robust="off", on_disagreement="ignore")
    model = FDBNL(check_residuals=False, refit=False, prepare=rows).fit(sites)
    pooled = Dynotears(check_residuals=False, refit=False, prepare=rows).fit(series(n=90))
    assert model.certificate_.is_exact
    assert model.objective_ == pytest.approx(pooled.objective_, rel=1e-7)
    np.testing.assert_allclose(model.W_raw_, pooled.W_raw_, atol=1e-5)
