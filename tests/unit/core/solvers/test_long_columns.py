"""Several modules: columns with many active rows have one Cholesky factor each, kept from round to round."""

import numpy as np
import pytest

from feddbn.core.solvers import ordered_step, sign_search
from feddbn.core.solvers.lasso import solve_lasso
from feddbn.core.solvers.ordered_step import KnownInverses, ordered_columns
from feddbn.core.solvers.sign_search import LONG, solve_active

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


@pytest.mark.parametrize("room", [1 << 26, 23**2 * SITES * D])
def test_what_is_kept_of_a_round_is_not_used_where_supports_or_matrices_have_changed(room, monkeypatch):
    monkeypatch.setattr(ordered_step, "_ROOM", room)
    rng, H, active, right = problems(1)
    known, at = KnownInverses(SITES, Q, D), np.arange(SITES)
    for turn in range(5):
        np.testing.assert_allclose(known.solve(at, H, active, right), one_by_one(H, active, right), atol=1e-9)
        right = rng.normal(size=right.shape)
        if turn == 1:
            active = active ^ (rng.random(active.shape) < 0.02)
        if turn == 2:
            H = H + np.array([0.0, 0.5, 0.0])[:, None, None] * np.eye(Q)
        if turn == 3:
            at, H, active, right = at[[0, 2]], H[[0, 2]], active[[0, 2]], right[[0, 2]]


def test_a_factor_is_made_once_while_nothing_changes(monkeypatch):
    _, H, active, right = problems(2)
    made = []
    whole = ordered_step.factor_of
    monkeypatch.setattr(ordered_step, "factor_of", lambda *given: made.append(1) or whole(*given))
    known, at = KnownInverses(SITES, Q, D), np.arange(SITES)
    first = known.solve(at, H, active, right)
    n_long = int((active.sum(axis=2) >= LONG).sum())
    assert 0 < n_long < SITES * D
    assert np.array_equal(known.solve(at, H, active, right), first)
    assert len(made) == n_long


def test_lassos_of_many_sites_with_long_columns_are_exact(monkeypatch):
    monkeypatch.setattr(sign_search, "_COPIES", 0)
    rng, H, active, right = problems(3)
    allowed, penalty = active.transpose(0, 2, 1), np.full((SITES, Q, D), 0.05)
    B, start = right.transpose(0, 2, 1), rng.normal(size=(SITES, Q, D))
    found = ordered_columns(H, B, penalty, allowed, start)
    for k in range(SITES):
        exact = solve_lasso(H[k], penalty[k], allowed[k], linear=B[k], tol=1e-12)
        np.testing.assert_allclose(found[k], exact, atol=1e-7)
