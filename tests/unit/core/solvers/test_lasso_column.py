"""One lasso at a time, against all signs that weights can have."""

from itertools import product

import numpy as np
import pytest

from feddbn.core.solvers import lasso_column
from feddbn.core.solvers.lasso_column import followed_weights, lasso_weights, prices


def by_all_signs(H, b, penalty, allowed):
    """The lowest objective of all sets of signs whose equations have a solution with these signs."""
    lowest = 0.0
    for signs in product((-1.0, 0.0, 1.0), repeat=len(b)):
        sign = np.array(signs)
        at = np.flatnonzero(sign)
        if allowed[at].all():
            x = np.linalg.solve(H[np.ix_(at, at)], (b - penalty * sign)[at])
            if np.all((x * sign[at] >= 0) | (penalty[at] == 0)):
                cost = penalty[at] @ np.abs(x)
                lowest = min(lowest, 0.5 * x @ H[np.ix_(at, at)] @ x - b[at] @ x + cost)
    return lowest


def objective(H, b, penalty, at, x):
    return 0.5 * x @ H[np.ix_(at, at)] @ x - b[at] @ x + penalty[at] @ np.abs(x)


@pytest.mark.parametrize("solve", [lasso_weights, followed_weights])
@pytest.mark.parametrize("nearly", [1.0, 0.03])
def test_the_minimum_of_all_signs(solve, nearly, monkeypatch):
    rng = np.random.default_rng(5)

    def not_needed(*_):
        raise AssertionError("the search that always ends was needed")

    monkeypatch.setattr(lasso_column, "columns_by_signs", not_needed)
    for k in range(12):
        rows = rng.standard_normal((40, 1)) + nearly * rng.standard_normal((40, 5))
        H, b = rows.T @ rows / 40, rows.T @ rng.standard_normal(40) / 10
        allowed = np.arange(5) != k % 6
        penalty = rng.uniform(0.01, 0.3, 5)
        if k % 3 == 0:
            penalty[(k + 2) % 5] = 0.0
        start = np.where(allowed & (rng.random(5) < 0.6), rng.standard_normal(5), 0.0)
        at, x = solve(H, b, penalty, prices(b, penalty, allowed), start)
        assert allowed[at].all()
        assert np.all(x != 0)
        assert objective(H, b, penalty, at, x) == pytest.approx(
            by_all_signs(H, b, penalty, allowed), abs=1e-10
        )


def test_a_solution_is_followed_where_pivoting_goes_round_in_circles(monkeypatch):
    rng, n_followed = np.random.default_rng(0), 0
    whole = lasso_column._followed

    def counted(*given):
        nonlocal n_followed
        n_followed += 1
        return whole(*given)

    monkeypatch.setattr(lasso_column, "_followed", counted)
    monkeypatch.setattr(lasso_column, "columns_by_signs", None)
    q, penalty, allowed = 30, np.full(30, 0.02), np.arange(30) > 0
    for _ in range(20):
        W = np.triu(rng.uniform(-2, 2, (q, q)) * (rng.random((q, q)) < 0.5), 1)
        rows = rng.standard_normal((80, q)) @ np.linalg.inv(np.eye(q) - W)
        H = np.corrcoef(rows.T) + 1e-10 * np.eye(q)
        start = np.where(allowed, rng.standard_normal(q), 0.0)
        at, x = lasso_weights(H, H[0], penalty, prices(H[0], penalty, allowed), start)
        residual = H[0] - H[:, at] @ x
        assert np.abs(residual[1:]).max() <= 0.02 * (1 + 1e-6)
        assert residual[at] == pytest.approx(0.02 * np.sign(x), abs=1e-8)
    assert n_followed > 5
