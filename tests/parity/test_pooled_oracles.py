"""FDBNL and Dynotears against answers by other people's code."""

import os
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
from sklearn.linear_model import Lasso
from statsmodels.tsa.api import VAR

import feddbn
from feddbn import FDBNL, Dynotears, Prepare, Rounds
from feddbn.core.designs.recordings import Block, lagged_rows
from feddbn.core.statistics.moments import Moments

pytestmark = pytest.mark.promise

SIZES = {1: [120], 3: [20, 40, 60], 7: [10, 30, 12, 25, 18, 40, 9]}


def lagged(sites, n_lags):
    rows = [
        next(lagged_rows([Block(r.to_numpy())], n_lags)) for recordings in sites.values() for r in recordings
    ]
    return np.concatenate(rows)


@pytest.mark.parametrize(("n_sites", "n_lags"), [(1, 2), (3, 1), (7, 0), (7, 1)])
def test_with_an_order_fixed_fdbnl_equals_the_pooled_lasso(n_sites, n_lags):
    d = 5
    federation = feddbn.simulate(
        d=d, n_lags=n_lags, n_sites=n_sites, site_sizes=SIZES[n_sites], random_state=n_sites
    )
    order = [3, 0, 4, 1, 2]
    backwards = [(order[i], order[j], 0) for i in range(d) for j in range(i)]
    model = FDBNL(
        n_lags=n_lags,
        lambda_w=0.06,
        lambda_a=0.03,
        forbidden_edges=backwards,
        prepare=Prepare(scale="none"),
    ).fit(federation.sites)
    Z = lagged(federation.sites, n_lags)
    weights = np.vstack([model.W_raw_, model.A_raw_.reshape(-1, d)])
    for position, j in enumerate(order):
        earlier = order[:position]
        columns = [*earlier, *range(d, Z.shape[1])]
        expected = np.zeros(Z.shape[1])
        if columns:
            beta = cp.Variable(len(columns))
            penalty = np.array([0.06] * len(earlier) + [0.03] * (len(columns) - len(earlier)))
            loss = cp.sum_squares(Z[:, j] - Z[:, columns] @ beta) / (2 * len(Z)) + penalty @ cp.abs(beta)
            cp.Problem(cp.Minimize(loss)).solve(
                solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
            )
            expected[columns] = beta.value
        np.testing.assert_allclose(weights[:, j], expected, atol=1e-5)


def test_with_an_order_fixed_fdbnl_equals_scikit_learns_lasso():
    federation = feddbn.simulate(d=4, n_sites=3, n_samples=150, random_state=5)
    backwards = [(i, j, 0) for i in range(4) for j in range(i)]
    model = FDBNL(lambda_w=0.05, lambda_a=0.05, forbidden_edges=backwards, prepare=Prepare(scale="none")).fit(
        federation.sites
    )
    Z = lagged(federation.sites, 1)
    lasso = Lasso(alpha=0.05, fit_intercept=False, tol=1e-10, max_iter=100_000).fit(
        Z[:, [0, 1, 2, 4, 5, 6, 7]], Z[:, 3]
    )
    np.testing.assert_allclose(np.r_[model.W_raw_[:3, 3], model.A_raw_[0][:, 3]], lasso.coef_, atol=1e-5)


@pytest.mark.parametrize(("n_lags", "trend", "center"), [(1, "n", "auto"), (3, "c", "none")])
def test_without_penalty_and_without_w_the_lags_are_statsmodels_var(n_lags, trend, center):
    federation = feddbn.simulate(d=4, n_lags=n_lags, n_sites=1, n_samples=300, random_state=2)
    data = federation.sites["site-0"][0] + (3.0 if trend == "c" else 0.0)
    model = FDBNL(
        n_lags=n_lags,
        lambda_w=0,
        lambda_a=0,
        a_threshold=0,
        forbidden_edges=[("*", "*", 0)],
        check_residuals=False,
        rounds=Rounds(tol=1e-9),
        prepare=Prepare(center=center),
    ).fit(data)
    fit = VAR(data.to_numpy()).fit(n_lags, trend=trend)
    for lag in range(n_lags):
        np.testing.assert_allclose(model.A_[lag], fit.coefs[lag].T, atol=1e-6)
    if trend == "c":
        np.testing.assert_allclose(model.dbn_.intercept, fit.intercept, atol=1e-5)


@pytest.mark.parametrize("n_lags", [1, 2])
def test_dynotears_matches_the_golden_answers(n_lags):
    path = Path(os.environ.get("FEDDBN_DATA", "")) / "golden" / f"dynotears_golden_p{n_lags}.npz"
    if not path.is_file():
        pytest.skip("FEDDBN_DATA does not name a directory with the golden DYNOTEARS answers")
    golden = np.load(path)
    model = Dynotears(
        n_lags=n_lags,
        lambda_w=0.1,
        lambda_a=0.1,
        refit=False,
        w_threshold=0,
        a_threshold=0,
        prepare=Prepare(scale="none"),
    )
    rows = np.hstack([golden["X"], golden["Xlags"]])
    model.fit_moments(Moments.of_rows(rows), tuple("abcde"))
    assert model.objective_ == pytest.approx({1: 3.686555, 2: 3.711751}[n_lags], abs=1e-3)
    np.testing.assert_allclose(model.W_, golden["W_causalnex"], atol=0.03)
    np.testing.assert_allclose(model.A_.reshape(-1, 5), golden["A_causalnex"], atol=0.03)


@pytest.mark.parametrize(("n_sites", "seed"), [(2, 0), (64, 1)])
def test_fdbnl_reaches_the_objective_of_pooled_dynotears(n_sites, seed):
    # Two seeds keep the suite short.
    federation = feddbn.simulate(d=10, n_sites=n_sites, n_samples=512, random_state=seed)
    pooled = Dynotears(refit=False, prepare=Prepare(scale="none")).fit(federation.sites)
    model = FDBNL(refit=False, prepare=Prepare(scale="none")).fit(federation.sites)
    assert model.status_.is_converged
    assert model.objective_ <= 1.001 * pooled.objective_
