"""What differs between segments, against least squares on the rows themselves.

Cuts by dynamic programming are those that trying all of them finds.
"""

from itertools import combinations

import numpy as np
import pytest

from feddbn.core.changes import (
    Limits,
    SegmentGrams,
    _variance_runs,
    best_partitions,
    fit_node,
    ranges_of,
)
from feddbn.core.statistics.moments import Moments

N = (300, 500)


def drawn(seed, weights, variances=(1.0, 1.0), levels=(0.0, 0.0)):
    """Rows [y, a, b] of two segments, y = weights a + noise."""
    rng = np.random.default_rng(seed)
    parts = []
    for n, weight, variance, level in zip(N, weights, variances, levels, strict=True):
        a, b = rng.normal(size=(2, n)) + 5.0
        parts.append(np.column_stack([level + weight * a + np.sqrt(variance) * rng.normal(size=n), a, b]))
    return parts


def fitted(parts, price=14.0, **more):
    grams = SegmentGrams.of([Moments.of_rows(rows) for rows in parts], 3)
    return grams, fit_node(grams, 0, [1, 2], [], price, **more)


@pytest.mark.parametrize("price", [0.0, 3.0, 12.0])
def test_runs_of_one_variance_are_those_that_trying_all_partitions_finds(price):
    rng = np.random.default_rng(0)
    for n_segments in (1, 2, 7):
        n = rng.integers(20, 60, n_segments).astype(float)
        rss = n * rng.choice([1.0, 1.2, 4.0], n_segments)
        tried = []
        for cuts in (c for k in range(n_segments) for c in combinations(range(1, n_segments), k)):
            runs = [rss[a:b].sum() / n[a:b].sum() for a, b in ranges_of(cuts, n_segments)]
            lengths = [b - a for a, b in ranges_of(cuts, n_segments)]
            variances = np.repeat(runs, lengths)
            tried.append((round(n @ np.log(variances) + price * len(cuts), 9), len(cuts), cuts, variances))
        best = min(tried, key=lambda one: one[:3])
        cuts, variances = _variance_runs(rss, n, price)
        assert cuts == best[2]
        np.testing.assert_allclose(variances, best[3])


def test_as_many_changes_may_be_allowed_as_anybody_likes():
    """Of sixty segments trying all partitions would never end; nor would a loop over a billion numbers of cuts."""
    n, rss = np.full(60, 30.0), np.repeat([30.0, 300.0, 30.0], 20)
    cuts, variances = _variance_runs(rss, n, 10.0)
    assert cuts == (20, 40)
    np.testing.assert_allclose(variances, rss / n)
    cost = np.where(np.tri(4, 4, 0, dtype=bool), np.inf, 1.0)
    assert [len(cuts) for cuts, _ in best_partitions(cost, 10**9)] == [0, 1, 2]


def test_an_edge_that_stays_is_one_column_with_the_weight_of_all_rows():
    parts = drawn(0, (0.5, 0.5))
    grams, node = fitted(parts)
    assert node.columns == ((1, 0, 2), (3, 0, 2))
    assert node.changes == set()
    rows = np.concatenate(parts)
    X = np.column_stack([rows[:, 1], np.ones(len(rows))])
    expected = np.linalg.lstsq(X, rows[:, 0], rcond=None)[0][0]
    np.testing.assert_allclose(node.weights[:, 1] * grams.scale[0] / grams.scale[1], expected)


def test_an_edge_that_vanishes_is_one_column_and_one_that_turns_is_two():
    _, vanishing = fitted(drawn(1, (0.5, 0.0), levels=(0.0, 2.5)))
    assert [column for column in vanishing.columns if column[0] == 1] == [(1, 0, 1)]
    assert vanishing.weights[1, 1] == 0.0
    _, turning = fitted(drawn(2, (0.5, -0.5), levels=(0.0, 5.0)))
    assert len([column for column in turning.columns if column[0] == 1]) == 2
    assert turning.weights[0, 1] > 0 > turning.weights[1, 1]


def test_variances_alone_are_no_difference_of_edges_and_weigh_the_rows():
    parts = drawn(3, (0.5, 0.5), variances=(0.1, 3.0))
    grams, node = fitted(parts)
    assert node.columns == ((1, 0, 2), (3, 0, 2))
    assert node.variance_cuts == (1,)
    # Weighted least squares on the rows, with the variances found.
    weight = np.repeat(1 / np.sqrt(node.variances), N)
    rows = np.concatenate(parts)
    X = np.column_stack([rows[:, 1], np.ones(len(rows))])
    expected = np.linalg.lstsq(X * weight[:, None], rows[:, 0] * weight, rcond=None)[0][0]
    np.testing.assert_allclose(node.weights[0, 1] * grams.scale[0] / grams.scale[1], expected, rtol=1e-5)


def test_the_score_is_that_of_the_residuals_and_prices():
    parts = drawn(4, (0.5, 0.0), variances=(1.0, 0.2), levels=(0.0, 2.5))
    grams, node = fitted(parts, price=14.0)
    fit = 0.0
    for s, rows in enumerate(parts):
        z = np.column_stack([(rows - grams.origin) / grams.scale, np.ones(len(rows))])
        residual = z[:, 0] - z @ node.weights[s]
        fit += len(rows) * np.log(np.mean(residual**2))
    assert node.variance_cuts == (1,)
    # Three nodes and three runs of two segments: an edge that differs costs 2 log 9 more.
    n_partial = sum(column[1:] != (0, 2) for column in node.columns)
    assert n_partial == 1
    prices = 14.0 * (len(node.columns) + 1) + n_partial * 2 * np.log(9)
    np.testing.assert_allclose(node.score, fit + prices, rtol=1e-6)


def test_a_change_that_is_ruled_out_costs_its_evidence():
    parts = drawn(5, (0.5, 0.0), levels=(0.0, 2.5))
    grams, node = fitted(parts)
    same = fit_node(grams, 0, [1, 2], [], 14.0, Limits(unchanged=(1, 1)))
    assert same.weights[0, 1] == same.weights[1, 1]
    assert same.score > node.score + 10


def test_a_required_edge_is_there_whatever_it_is_worth():
    parts = drawn(6, (0.0, 0.0))
    grams = SegmentGrams.of([Moments.of_rows(rows) for rows in parts], 3)
    node = fit_node(grams, 0, [1, 2], [2], 14.0)
    assert node.columns == ((2, 0, 2), (3, 0, 2))


def total(cost, cuts):
    return sum(cost[a, b] for a, b in ranges_of(cuts, len(cost) - 1))


@pytest.mark.parametrize("seed", range(5))
def test_no_other_cuts_are_better(seed):
    rng = np.random.default_rng(seed)
    n_blocks = 8
    cost = np.full((n_blocks + 1, n_blocks + 1), np.inf)
    for a in range(n_blocks):
        for b in range(a + 1, n_blocks + 1):
            cost[a, b] = rng.normal() if b - a >= 2 else np.inf
    found = best_partitions(cost, 5)
    # Ranges of two blocks or more: at most three cuts.
    assert [len(cuts) for cuts, _ in found] == [0, 1, 2, 3]
    for k, (cuts, value) in enumerate(found):
        every = [total(cost, some) for some in combinations(range(1, n_blocks), k)]
        assert value == pytest.approx(min(every))
        assert total(cost, cuts) == pytest.approx(value)
