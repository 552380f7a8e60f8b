"""Lassos: by signs, one at a time and many together, against coordinate descent and all signs that weights can have."""

from itertools import product

import numpy as np
import pytest

from feddbn.core.penalised import lasso
from feddbn.core.penalised.lasso import (
    LONG,
    KnownInverses,
    followed_weights,
    lasso_weights,
    ordered_columns,
    prices,
    solve_active,
    solve_by_signs,
)
from support.lassos import solve_lasso


def gram(seed, q=6, n=40):
    Z = np.random.default_rng(seed).normal(size=(n, q)) @ np.random.default_rng(seed + 1).normal(size=(q, q))
    return Z.T @ Z / n


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_sign_search_equals_coordinate_descent_from_any_start(seed):
    G, rng = gram(20 + seed, q=12, n=60), np.random.default_rng(seed)
    penalty = rng.uniform(0.0, 0.6, (12, 4)) * (rng.random((12, 4)) < 0.9)
    allowed = rng.random((12, 4)) < 0.8
    allowed[:4][np.diag_indices(4)] = False
    expected = solve_lasso(G, penalty, allowed, tol=1e-13, max_sweeps=100_000)
    for start in (np.zeros((12, 4)), rng.normal(size=(12, 4))):
        found = solve_by_signs(G, G[:, :4], penalty, allowed, start)
        np.testing.assert_allclose(found, expected, atol=1e-8)


def test_sign_search_stays_exact_where_columns_are_nearly_dependent():
    rng = np.random.default_rng(30)
    Z = rng.normal(size=(300, 1)) + 1e-3 * rng.normal(size=(300, 8))
    G = Z.T @ Z / 300
    penalty = np.full((8, 2), 1e-5)
    allowed = ~np.eye(8, 2, dtype=bool)
    C = solve_by_signs(G, G[:, :2], penalty, allowed, np.zeros((8, 2)))
    gradient = G[:, :2] - G @ C
    active = C != 0
    assert active.any(axis=0).all()
    np.testing.assert_allclose(gradient[active], 1e-5 * np.sign(C[active]), atol=1e-12)
    assert np.all(np.abs(gradient[~active & allowed]) <= 1e-5 + 1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_sign_search_ends_where_changing_all_wrong_signs_at_once_does_not(seed, monkeypatch):
    # Fewer rows than columns and a weak pull: the signs of a solution say little about those of the next.
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(8, 40))
    G = Z.T @ Z / 8 + 0.003 * np.eye(40)
    penalty, allowed = np.full((40, 4), 0.02), ~np.eye(40, 4, dtype=bool)
    searched = []
    search = lasso._search
    monkeypatch.setattr(lasso, "_search", lambda *args: searched.append(args) or search(*args))
    C = solve_by_signs(G, G[:, :4], penalty, allowed, rng.normal(size=(40, 4)))
    assert searched
    gradient, active = G[:, :4] - G @ C, C != 0
    np.testing.assert_allclose(gradient[active], 0.02 * np.sign(C[active]), atol=1e-10)
    assert np.all(np.abs(gradient[~active & allowed]) <= 0.02 + 1e-10)


def test_sign_search_takes_one_of_two_equal_columns():
    # Integers: the equations of both columns are singular to the last bit.
    G = np.array([[4.0, 2.0, 2.0], [2.0, 2.0, 2.0], [2.0, 2.0, 2.0]])
    C = solve_by_signs(G, G[:, :1], np.full((3, 1), 0.5), ~np.eye(3, 1, dtype=bool), np.zeros((3, 1)))
    np.testing.assert_allclose(C[:, 0], [0.0, 0.75, 0.0])


def test_refit_equals_least_squares_on_the_support():
    rng = np.random.default_rng(10)
    Z = rng.normal(size=(50, 6))
    support = rng.random((6, 3)) < 0.5
    support[:3] = False
    G = Z.T @ Z / 50
    C = solve_by_signs(G, G[:, :3], np.zeros((6, 3)), support, np.zeros((6, 3)))
    for j in range(3):
        S = np.flatnonzero(support[:, j])
        np.testing.assert_allclose(C[S, j], np.linalg.lstsq(Z[:, S], Z[:, j], rcond=None)[0], atol=1e-8)


def test_systems_solved_in_parts_have_the_same_bits(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 30))
    H = (X.T @ X / 60)[None] + 0.01 * np.eye(30)
    active, right = rng.random((50, 30)) < 0.4, rng.normal(size=(50, 30))
    site = np.zeros(50, dtype=np.intp)
    whole = lasso.solve_active(H, site, active, right)
    monkeypatch.setattr(lasso, "_NUMBERS_TOGETHER", 1500)
    assert np.array_equal(lasso.solve_active(H, site, active, right), whole)
    for k, at in enumerate(map(np.flatnonzero, active)):
        np.testing.assert_allclose(whole[k, at], np.linalg.solve(H[0][np.ix_(at, at)], right[k, at]))


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

    monkeypatch.setattr(lasso, "columns_by_signs", not_needed)
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
    whole = lasso._followed

    def counted(*given):
        nonlocal n_followed
        n_followed += 1
        return whole(*given)

    monkeypatch.setattr(lasso, "_followed", counted)
    monkeypatch.setattr(lasso, "columns_by_signs", None)
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


Q, D, SITES = 2 * LONG, 6, 3


def problems(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(SITES, 4 * Q, Q)) @ rng.normal(size=(Q, Q))
    H = X.transpose(0, 2, 1) @ X / (4 * Q) + 0.1 * np.eye(Q)
    # Short and long columns side by side.
    share = np.array([0.1, 0.9, 0.5, 0.95, 0.0, 0.3])[:, None]
    return rng, H, rng.random((SITES, D, Q)) < share, rng.normal(size=(SITES, D, Q))


def one_by_one(H, active, right):
    out = np.zeros(right.shape)
    for k, j in np.ndindex(active.shape[:2]):
        at = np.flatnonzero(active[k, j])
        out[k, j, at] = np.linalg.solve(H[k][np.ix_(at, at)], right[k, j, at])
    return out


def test_short_and_long_columns_are_solved_each_with_its_own_rows():
    _, H, active, right = problems(0)
    site = np.repeat(np.arange(SITES), D)
    found = solve_active(H, site, active.reshape(-1, Q), right.reshape(-1, Q)).reshape(right.shape)
    np.testing.assert_allclose(found, one_by_one(H, active, right), atol=1e-10)


def test_a_long_column_that_is_not_definite_is_still_solved():
    H = np.diag(np.r_[-1.0, np.ones(Q - 1)])[None]
    found = solve_active(H, np.zeros(1, dtype=np.intp), np.ones((1, Q), dtype=bool), np.ones((1, Q)))
    np.testing.assert_allclose(found[0], np.diag(H[0]))


def solved(known, H, active, right):
    """The solutions of several sites, each by what it knows."""
    each = zip(known, H[:, None], active[:, None], right[:, None], strict=True)
    return np.concatenate([one.solve(*given) for one, *given in each])


@pytest.mark.parametrize("room", [1 << 26, 23**2 * D])
def test_what_is_kept_of_a_round_is_not_used_where_supports_or_matrices_have_changed(room, monkeypatch):
    monkeypatch.setattr(lasso, "_ROOM", room)
    rng, H, active, right = problems(1)
    known = [KnownInverses(Q, D) for _ in range(SITES)]
    for turn in range(5):
        np.testing.assert_allclose(solved(known, H, active, right), one_by_one(H, active, right), atol=1e-9)
        right = rng.normal(size=right.shape)
        if turn == 1:
            active = active ^ (rng.random(active.shape) < 0.02)
        if turn == 2:
            H = H + np.array([0.0, 0.5, 0.0])[:, None, None] * np.eye(Q)
        if turn == 3:
            known, H, active, right = known[::2], H[::2], active[::2], right[::2]


def test_a_factor_is_made_once_while_nothing_changes(monkeypatch):
    _, H, active, right = problems(2)
    made = []
    whole = lasso.factor_of
    monkeypatch.setattr(lasso, "factor_of", lambda *given: made.append(1) or whole(*given))
    known = [KnownInverses(Q, D) for _ in range(SITES)]
    first = solved(known, H, active, right)
    n_long = int((active.sum(axis=2) >= LONG).sum())
    assert 0 < n_long < SITES * D
    assert np.array_equal(solved(known, H, active, right), first)
    assert len(made) == n_long


def test_lassos_of_many_sites_with_long_columns_are_exact(monkeypatch):
    monkeypatch.setattr(lasso, "_COPIES", 0)
    rng, H, active, right = problems(3)
    allowed, penalty = active.transpose(0, 2, 1), np.full((SITES, Q, D), 0.05)
    B, start = right.transpose(0, 2, 1), rng.normal(size=(SITES, Q, D))
    found = ordered_columns(H, B, penalty, allowed, start)
    # The conditions of a minimum, since descending by coordinates takes seconds here.
    gradient, active = B - H @ found, found != 0
    assert 0 < np.count_nonzero(active) < np.count_nonzero(allowed)
    assert not active[~allowed].any()
    np.testing.assert_allclose(gradient[active], 0.05 * np.sign(found[active]), atol=1e-7)
    assert np.abs(gradient[~active & allowed]).max() <= 0.05 + 1e-7
