"""Second moments of rows with missing cells, against loops over rows, complete data and direct maximisation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from feddbn.core.statistics.missing import (
    expected_moments,
    known_n,
    known_pairs,
    pair_totals,
    pairs_n,
    pairwise_scatter,
    pairwise_sums,
    products_about,
    seldom_together,
)
from feddbn.core.statistics.moments import Moments

SCALE = np.array([1.0, 20.0, 0.01, 3.0, 1.0])


def _covariance(q: int, seed: int = 0) -> np.ndarray:
    L = np.random.default_rng(seed).normal(size=(q, q)) / np.sqrt(q) + np.eye(q)
    return L @ L.T


def _rows(n: int, q: int, share: float, seed: int = 1, mean: np.ndarray | float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, q)) @ np.linalg.cholesky(_covariance(q)).T + mean
    rows[rng.random((n, q)) < share] = np.nan
    return rows


def _trend(n: int) -> np.ndarray:
    return np.column_stack([np.ones(n), np.linspace(-1.0, 1.0, n)])


def _em(rows: np.ndarray, steps: int, basis: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    covariance, mean = np.diag(np.nanvar(rows, axis=0)), np.nanmean(rows, axis=0)
    for _ in range(steps):
        moments = expected_moments(rows, covariance, mean, basis)
        covariance, mean = moments.scatter / moments.n, moments.mean
    return covariance, mean


def test_pairwise_sums_are_those_of_a_loop_over_pairs() -> None:
    rows = _rows(60, 4, 0.3, mean=50.0) * SCALE[:4]
    basis = _trend(60)
    counts, products = pairwise_sums(rows, basis)
    left = np.full_like(rows, np.nan)
    for j in range(4):
        there = ~np.isnan(rows[:, j])
        fit, *_ = np.linalg.lstsq(basis[there], rows[there, j], rcond=None)
        left[there, j] = rows[there, j] - basis[there] @ fit
    for i in range(4):
        for j in range(4):
            both = ~np.isnan(rows[:, i]) & ~np.isnan(rows[:, j])
            assert counts[i, j] == both.sum()
            assert np.isclose(products[i, j], left[both, i] @ left[both, j], rtol=1e-10)


def test_pairwise_sums_take_nothing_off_without_a_basis_and_miss_what_it_explains_completely() -> None:
    rows = _rows(40, 3, 0.0, mean=5.0)
    counts, products = pairwise_sums(rows)
    assert np.array_equal(counts, np.full((3, 3), 40.0))
    assert np.allclose(products, rows.T @ rows)
    rows[2:, 1] = np.nan
    counts, products = pairwise_sums(rows, _trend(40))
    assert not counts[1].any()
    assert not products[1].any()


def test_products_about_a_centre_are_those_of_centred_rows_even_far_from_zero() -> None:
    rows, centre = _rows(300, 4, 0.3, mean=500.0), np.array([500.0, 499.0, 501.0, 0.0])
    counts, products = pairwise_sums(rows)
    moved = products_about(centre, counts, pair_totals(rows), products)
    assert np.allclose(moved, pairwise_sums(rows - centre)[1], rtol=1e-7, atol=1e-5)
    assert np.allclose(np.diag(pair_totals(rows)), np.nansum(rows, axis=0))


def test_pairwise_covariance_of_complete_rows_is_exact_and_worth_all_of_them() -> None:
    # Nearly dependent columns: no repair may touch them.
    rows = _rows(50, 4, 0.0)
    rows[:, 3] = rows[:, 0] + 1e-4 * rows[:, 3]
    covariance, n = pairwise_scatter(*pairwise_sums(rows, np.ones((50, 1))))
    assert np.allclose(covariance, np.cov(rows.T, bias=True), rtol=1e-10)
    assert n == 50


def test_pairwise_covariance_is_positive_and_near_the_truth() -> None:
    rows = _rows(20000, 5, 0.3)
    covariance, _ = pairwise_scatter(*pairwise_sums(rows, np.ones((20000, 1))))
    assert np.allclose(covariance, _covariance(5), atol=0.08)
    few, n = pairwise_scatter(*pairwise_sums(_rows(12, 5, 0.4, seed=3), np.ones((12, 1))))
    assert np.linalg.eigvalsh(few)[0] > 0
    assert 0 < n < 12


def test_pairs_of_uncorrelated_columns_are_worth_their_count() -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(20000, 4))
    rows[rng.random(rows.shape) < 0.3] = np.nan
    counts, _ = pairwise_sums(rows)
    assert np.isclose(pairs_n(counts, np.eye(4)), 20000 * 0.49, rtol=0.02)


def test_seldom_together_are_the_pairs_of_which_few_rows_have_both() -> None:
    """As by a loop: x0 and x1 share three rows of four hundred, x1 none with its own past."""
    x = np.ones((401, 3))
    x[::2, 1] = np.nan
    x[1::2, 0] = np.nan
    x[[1, 3, 5], 0] = 1.0
    x[9:, 2] = np.where(np.isnan(x[9:, 0]), 1.0, np.nan)
    rows = np.hstack([x[1:], x[:-1]])
    counts, _ = pairwise_sums(rows)
    expected = set()
    for j in range(3):
        for k in range(6):
            i, lag = k % 3, k // 3
            both = [row for row in rows if not (np.isnan(row[j]) or np.isnan(row[k]))]
            rarer = min((~np.isnan(rows[:, j])).sum(), (~np.isnan(rows[:, k])).sum())
            if len(both) < 8 and 10 * len(both) < rarer and (lag or i < j):
                expected.add((i, j, lag))
    assert (1, 1, 1) in expected
    assert (0, 1, 0) in expected
    assert counts[0, 1] == 3
    assert len(expected) < 10
    assert seldom_together(counts, 3) == tuple(sorted(expected))


def test_rows_without_any_cell_change_nothing() -> None:
    rows = _rows(80, 4, 0.3)
    holes = np.insert(rows, [10, 10, 40, 80], np.nan, axis=0)
    S = _covariance(4)
    for a, b in zip(pairwise_sums(rows), pairwise_sums(holes), strict=True):
        assert np.allclose(a, b)
    one, other = expected_moments(rows, S), expected_moments(holes, S)
    assert one.n == other.n
    assert np.allclose(one.scatter, other.scatter)
    assert np.allclose(known_pairs(rows, S), known_pairs(holes, S))


def test_expected_moments_are_those_of_a_loop_over_rows() -> None:
    mean = np.array([1.0, -20.0, 0.0, 4.0, 100.0])
    S = _covariance(5) * np.outer(SCALE, SCALE)
    rows = _rows(50, 5, 0.4) * SCALE + mean
    rows[7] = np.nan
    filled, spread = [], np.zeros((5, 5))
    for row in rows:
        m = np.isnan(row)
        if m.all():
            continue
        B = S[np.ix_(m, ~m)] @ np.linalg.inv(S[np.ix_(~m, ~m)])
        whole = row.copy()
        whole[m] = mean[m] + B @ (row[~m] - mean[~m])
        filled.append(whole)
        spread[np.ix_(m, m)] += S[np.ix_(m, m)] - B @ S[np.ix_(~m, m)]
    expected = Moments.of_rows(np.array(filled))
    found = expected_moments(rows, S, mean)
    assert found.n == len(filled)
    assert np.allclose(found.mean, expected.mean, rtol=1e-9)
    assert np.allclose(
        found.scatter / np.outer(SCALE, SCALE), (expected.scatter + spread) / np.outer(SCALE, SCALE)
    )


def test_complete_rows_need_no_expectation() -> None:
    rows = _rows(40, 3, 0.0, mean=1e4)
    exact = Moments.of_rows(rows)
    found = expected_moments(rows, np.eye(3))
    assert np.array_equal(found.scatter, exact.scatter)
    assert np.array_equal(found.mean, exact.mean)
    off = expected_moments(rows, np.eye(3), basis=np.ones((40, 1)))
    assert np.allclose(off.scatter, exact.scatter, rtol=1e-9)
    assert np.array_equal(off.mean, np.zeros(3))
    assert expected_moments(np.full((3, 2), np.nan), np.eye(2)).n == 0


def test_a_basis_is_fitted_by_generalised_least_squares_on_the_present_cells() -> None:
    rows, S, basis = _rows(60, 3, 0.3), _covariance(3), _trend(60)
    rows += basis @ np.array([[10.0, -3.0, 0.0], [2.0, 0.0, -8.0]])
    left, right = np.zeros((6, 6)), np.zeros(6)
    for t, row in enumerate(rows):
        o = ~np.isnan(row)
        design = np.kron(basis[t], np.eye(3))[o]
        K = np.linalg.inv(S[np.ix_(o, o)])
        left += design.T @ K @ design
        right += design.T @ K @ row[o]
    coefficients = np.linalg.solve(left, right).reshape(2, 3)
    centred = expected_moments(rows - basis @ coefficients, S)
    found = expected_moments(rows, S, basis=basis)
    assert np.allclose(found.scatter, centred.about(np.zeros(3)), atol=1e-3)
    assert np.array_equal(found.mean, np.zeros(3))


def test_a_column_that_its_basis_explains_completely_tells_nothing() -> None:
    rows, S, basis = _rows(30, 3, 0.1), _covariance(3), _trend(30)
    rows[2:, 1] = np.nan
    without = rows.copy()
    without[:, 1] = np.nan
    found, expected = expected_moments(rows, S, basis=basis), expected_moments(without, S, basis=basis)
    assert found.n == expected.n
    assert np.allclose(found.scatter, expected.scatter)
    assert expected_moments(rows[:2], S, basis=basis[:2]).n == 0


@pytest.mark.slow
def test_em_never_lowers_the_likelihood_and_ends_at_its_direct_maximum() -> None:
    rows = _rows(120, 3, 0.25, mean=np.array([1.0, 2.0, 3.0]))
    places = np.tril_indices(3)
    patterns = [np.array(p) for p in np.ndindex(2, 2, 2) if any(p)]
    groups = [(p > 0, rows[(np.isnan(rows) == (p == 0)).all(axis=1)]) for p in patterns]

    def loss(theta: np.ndarray) -> float:
        L = np.zeros((3, 3))
        L[places] = theta[3:]
        S = L @ L.T + 1e-12 * np.eye(3)
        total = 0.0
        for o, some in groups:
            if len(some):
                total -= float(np.sum(multivariate_normal.logpdf(some[:, o], theta[:3][o], S[np.ix_(o, o)])))
        return total

    losses = []
    for steps in range(0, 60, 3):
        covariance, mean = _em(rows, steps)
        losses.append(loss(np.concatenate([mean, np.linalg.cholesky(covariance)[places]])))
    assert np.all(np.diff(losses) <= 1e-6)
    start = np.concatenate([np.nanmean(rows, axis=0), np.eye(3)[places]])
    best = minimize(loss, start, method="BFGS", options={"gtol": 1e-4})
    L = np.zeros((3, 3))
    L[places] = best.x[3:]
    covariance, mean = _em(rows, 200)
    assert np.allclose(covariance, L @ L.T, atol=1e-4)
    assert np.allclose(mean, best.x[:3], atol=1e-4)


def test_em_is_near_the_truth_where_cells_are_missing_by_what_is_present() -> None:
    # The second column is missing where the first is large: means of its present cells are wrong, EM's are not.
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(20000, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
    rows[(rows[:, 0] > 0.3) & (rng.random(20000) < 0.9), 1] = np.nan
    covariance, mean = _em(rows, 100)
    assert abs(np.nanmean(rows[:, 1])) > 0.2
    assert np.allclose(mean, 0.0, atol=0.03)
    assert np.allclose(covariance, [[1.0, 0.8], [0.8, 1.0]], atol=0.04)


def test_a_row_knows_the_share_of_a_residual_that_its_cells_determine() -> None:
    S = _covariance(4)
    K = np.linalg.inv(S)
    row = np.array([[1.0, np.nan, 0.5, np.nan]])
    draw = np.random.default_rng(0).normal(size=(200000, 4)) @ np.linalg.cholesky(S).T
    residuals = draw @ K
    fit, *_ = np.linalg.lstsq(draw[:, [0, 2]], residuals, rcond=None)
    share = (draw[:, [0, 2]] @ fit).var(axis=0) / residuals.var(axis=0)
    assert np.allclose(known_pairs(row, S), np.outer(share, share), atol=0.01)
    assert np.array_equal(known_pairs(np.ones((7, 4)), S), np.full((4, 4), 7.0))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_neither_way_overstates_the_evidence_for_edges_that_are_not_there(share: float) -> None:
    """A parent that is none, given all others, gains a chi-square of mean 1 at complete data."""
    q, n, gains = 8, 800, {"pairs": [], "expected": [], "counts": []}
    for seed in range(12):
        rng = np.random.default_rng([seed, 4])
        B = np.triu((rng.random((q, q)) < 0.4) * rng.uniform(0.4, 0.8, (q, q)), 1)
        rows = rng.normal(size=(n, q)) @ np.linalg.inv(np.eye(q) - B)
        rows[rng.random((n, q)) < share] = np.nan
        counts, products = pairwise_sums(rows, np.ones((n, 1)))
        pairs, n_pairs = pairwise_scatter(counts, products)
        expected, _ = _em(rows, 40)
        n_expected = known_n(known_pairs(rows, expected))
        assert n_pairs < n_expected < n * (1 - share)
        for j in range(1, q):
            for i in np.flatnonzero(B[:j, j] == 0):
                others = np.delete(np.arange(j), i)
                gains["pairs"].append(n_pairs * _gain(pairs, j, others, i))
                gains["expected"].append(n_expected * _gain(expected, j, others, i))
                gains["counts"].append(np.median(counts) * _gain(pairs, j, others, i))
    assert 0.1 < np.mean(gains["pairs"]) < 1.2
    assert 0.5 < np.mean(gains["expected"]) < 1.2
    assert np.mean(gains["counts"]) > 1.3


def _gain(S: np.ndarray, j: int, others: np.ndarray, i: int) -> float:
    def left(parents: np.ndarray) -> float:
        if len(parents) == 0:
            return float(S[j, j])
        return float(S[j, j] - S[j, parents] @ np.linalg.solve(S[np.ix_(parents, parents)], S[parents, j]))

    return float(np.log(left(others) / left(np.append(others, i))))


def test_sums_of_parts_add_up_to_the_sums_of_the_whole() -> None:
    rows, S = _rows(90, 4, 0.3), _covariance(4)
    parts = [expected_moments(rows[:40], S), expected_moments(rows[40:], S)]
    whole = expected_moments(rows, S)
    assert np.allclose(parts[0].merge(parts[1]).scatter, whole.scatter)
    assert np.allclose(known_pairs(rows[:40], S) + known_pairs(rows[40:], S), known_pairs(rows, S))


def test_a_singular_covariance_still_fills_finitely() -> None:
    rows = _rows(40, 3, 0.0)
    rows[:, 2] = rows[:, 0]
    S = np.cov(rows.T)
    lost = rows.copy()
    lost[5, 2] = np.nan
    lost[6, 1:] = np.nan
    found = expected_moments(lost, S, rows.mean(axis=0))
    assert np.all(np.isfinite(found.scatter))
    assert np.isclose(found.scatter[2, 2], found.scatter[0, 0], rtol=1e-6)
