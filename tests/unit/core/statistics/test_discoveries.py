"""Which edges are discoveries: exact tests, Benjamini and Hochberg's rule, and the share of false edges."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.stats import false_discovery_control, norm, t

from feddbn.core.constraints import EdgeConstraints
from feddbn.core.statistics.discoveries import discoveries, edge_p_values, q_values, threshold
from feddbn.core.statistics.moments import Moments

pytestmark = pytest.mark.promise

NAMES = ("a", "b", "c")


def draw(n=80, seed=0, d=3, n_lags=2):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, d * (n_lags + 1))) @ rng.standard_normal((d * (n_lags + 1),) * 2)
    return z + 5.0, Moments.of_rows(z + 5.0), EdgeConstraints.none(d, n_lags)


def test_p_values_are_those_of_least_squares_on_all_lags_and_what_comes_before():
    z, moments, limits = draw()
    order = (2, 0, 1)
    p = edge_p_values(moments, [order], limits)
    for place, j in enumerate(order):
        columns = [*order[:place], *range(3, 9)]
        expected = sm.OLS(z[:, j], sm.add_constant(z[:, columns])).fit().pvalues[1:]
        np.testing.assert_allclose(p[columns, j], expected, rtol=1e-8)
    np.testing.assert_array_equal(p[:3], p[:3].T)
    assert np.isnan(np.diag(p[:3])).all()
    assert np.isfinite(p[3:]).all()


def test_of_several_orders_the_largest_counts_and_fewer_rows_have_larger_ones():
    _, moments, limits = draw()
    first, second = (edge_p_values(moments, [order], limits) for order in ((0, 1, 2), (2, 1, 0)))
    both = edge_p_values(moments, [(0, 1, 2), (2, 1, 0)], limits)
    np.testing.assert_array_equal(both, np.maximum(first, second))
    half = Moments(moments.n / 2, moments.mean, moments.scatter / 2)
    np.testing.assert_allclose(
        edge_p_values(moments, [(0, 1, 2)], limits, moments.n / 2),
        edge_p_values(half, [(0, 1, 2)], limits),
        rtol=1e-10,
    )
    assert not (edge_p_values(half, [(0, 1, 2)], limits) < first).any()


def test_constraints_columns_that_follow_from_others_and_too_few_rows():
    z, moments, _ = draw()
    limits = EdgeConstraints.from_edges(
        NAMES, 2, [("*", "a", 0), ("a", "b", 1)], [("c", "b", 0), ("b", "b", 2)]
    )
    p = edge_p_values(moments, [(1, 0, 2)], limits)
    untested = [(3, 1), (2, 1), (1, 2), (7, 1)]
    assert np.isnan([p[edge] for edge in untested]).all()
    found = discoveries(q_values(p), 1.0, (1, 0, 2), limits)
    assert [found[edge] for edge in untested] == [False, True, False, True]
    assert not found[:3, 0].any()
    # c is a copy of b: no test tells which of the two acts.
    z[:, 5], z[:, 2] = z[:, 4], z[:, 1]
    copied = edge_p_values(Moments.of_rows(z), [(0, 1, 2)], EdgeConstraints.none(3, 2))
    assert (copied[5] == 1).all()
    assert (copied[3:, 2] == 1).all()
    assert (copied[4, :2] < 1).all()
    few = edge_p_values(Moments.of_rows(z[:5]), [(0, 1, 2)], EdgeConstraints.none(3, 2))
    assert np.nanmin(few) == 1


def test_q_values_are_benjamini_and_hochbergs_of_two_families():
    p = edge_p_values(draw()[1], [(0, 1, 2)], draw()[2])
    q = q_values(p)
    np.testing.assert_allclose(q[3:], false_discovery_control(p[3:].ravel()).reshape(6, 3))
    pairs = np.triu_indices(3, 1)
    np.testing.assert_allclose(q[:3][pairs], false_discovery_control(p[:3][pairs]))
    np.testing.assert_array_equal(q[:3], q[:3].T)
    assert np.isnan(q_values(np.full((6, 3), np.nan))).all()


@pytest.mark.parametrize("left", [np.inf, 30.0])
def test_the_threshold_is_that_of_the_last_discovery(left):
    law = norm if np.isinf(left) else t(left)
    p = np.concatenate([np.full(5, 1e-9), np.linspace(0.2, 1, 59)])
    at = threshold(0.1, 64, 6, left)
    found = false_discovery_control(np.append(p[:-1], 2 * law.sf(at * (1 + 1e-6)))) <= 0.1
    missed = false_discovery_control(np.append(p[:-1], 2 * law.sf(at * (1 - 1e-6)))) <= 0.1
    assert (found.sum(), missed.sum()) == (6, 5)
    assert threshold(0.1, 10, 0) == pytest.approx(norm.isf(0.005))
    assert threshold(0.9, 10, 20) == 0


@pytest.mark.parametrize("fdr", [0.1, 0.3])
def test_the_share_of_false_edges_is_the_level_where_nothing_is_learned_from_the_rows(fdr):
    """Half of the lagged edges are there; the order is known. The mean share is level times the share of nulls."""
    d, n, shares = 6, 60, []
    rng, limits = np.random.default_rng(1), EdgeConstraints.none(6, 1)
    for _ in range(400):
        A = np.where(rng.random((d, d)) < 0.25, 0.5, 0.0)
        past, noise = rng.standard_normal((n, d)), rng.standard_normal((n, d))
        rows = np.hstack([past @ A + noise, past])
        q = q_values(edge_p_values(Moments.of_rows(rows), [range(d)], limits))
        found = q[d:] <= fdr
        shares.append((found & (A == 0)).sum() / max(found.sum(), 1))
    mean, error = np.mean(shares), np.std(shares) / np.sqrt(len(shares))
    assert abs(mean - 0.75 * fdr) < 4 * error
    assert error < 0.01
