"""What differs between segments, against least squares on the rows themselves.

Cuts by dynamic programming are those that trying all of them finds.

Weights that drift: against least squares with products of time, and told apart from steps.

Sites with clocks of their own: cuts against all cuts tried one by one, and what is summed.
"""

from itertools import combinations

import numpy as np
import pytest

from feddbn.core.changes import (
    CutLearner,
    Limits,
    SegmentFits,
    SegmentGrams,
    _CutSearch,
    _variance_runs,
    best_partitions,
    fit_node,
    ranges_of,
    time_functions,
)
from feddbn.core.constraints import EdgeConstraints
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


B, PER_BLOCK = 20, 150


def blocks_of(rows):
    return [Moments.of_rows(part) for part in np.split(rows, B)]


def rows_with(course, seed=0, scale=1.0):
    """(n, 2) rows of x and y = course(block) x + noise."""
    rng = np.random.default_rng(seed)
    x, noise = rng.normal(size=(2, B * PER_BLOCK))
    weight = np.repeat(course(np.linspace(0, 1, B)), PER_BLOCK)
    return np.stack([x, scale * (weight * x + noise) + 3.0], axis=1)


def limits():
    allowed = np.array([[False, True], [False, False]])
    return EdgeConstraints(allowed, np.zeros((2, 2), dtype=bool))


def found_in(rows, drift=True):
    blocks, options = blocks_of(rows), CutLearner()
    # Without a cut, and with the one that a step would have.
    before = min(
        (SegmentFits(blocks, cuts, limits(), options).of((0, 1)) for cuts in ((), (B // 2,))),
        key=lambda one: one.score,
    )
    return before, _CutSearch(options, blocks, limits()).drifting(before)


def test_functions_are_ramps_and_curves_without_a_line():
    n = np.array([3.0, 0.0, *range(1, 11)])
    one, up, down, parabola, cubic = time_functions(n)
    np.testing.assert_allclose(up + down, one)
    assert (up[0], up[-1]) == (0.0, 1.0)
    for values in (parabola, cubic):
        assert n @ values**2 == pytest.approx(n.sum())
        np.testing.assert_allclose([n @ values, n @ (values * up), n @ (parabola * cubic)], 0.0, atol=1e-9)


def test_a_node_is_least_squares_with_products_of_time():
    rows = rows_with(lambda t: 0.8 * t - 0.2, scale=10.0)
    functions = time_functions([PER_BLOCK] * B)
    grams = SegmentGrams.drifting(blocks_of(rows), (), 2, functions)
    node = fit_node(grams, 1, [0], [], 2 * np.log(len(rows)))
    names = {(m // 3, m % 3) for m, _, _ in node.columns}
    assert 0 in node.drifting
    over_time = np.repeat(functions, PER_BLOCK, axis=1)
    z = np.concatenate([(rows - grams.origin) / grams.scale, np.ones((len(rows), 1))], axis=1)
    X = np.stack([z[:, m] * over_time[k] for k, m in sorted(names)], axis=1)
    beta = np.linalg.lstsq(X, z[:, 1], rcond=None)[0]
    found = [node.weights[0, 3 * k + m] for k, m in sorted(names)]
    np.testing.assert_allclose(found, beta, rtol=1e-7)
    assert node.rss[0] == pytest.approx(float(((z[:, 1] - X @ beta) ** 2).sum()))


@pytest.mark.parametrize(
    "course",
    [lambda t: 0.7 * t, lambda t: 0.7 - 0.7 * t, lambda t: 0.9 * t - 0.4],
    ids=["up", "down", "through 0"],
)
def test_a_slow_course_is_drift_and_no_cut(course):
    before, found = found_in(rows_with(course))
    assert before.cuts == (B // 2,)
    assert found.cuts == ()
    assert found.nodes[1].drifting == {0}
    weights = [found.network_at(b)[0][0, 1] for b in range(B)]
    np.testing.assert_allclose(weights, course(np.linspace(0, 1, B)), atol=0.15)


def test_a_step_is_none_and_neither_is_what_stays():
    before, found = found_in(rows_with(lambda t: 0.7 * (t > 0.5)))
    assert before.cuts == (B // 2,)
    assert found is None
    before, found = found_in(rows_with(lambda t: 0.5 + 0 * t))
    assert before.cuts == ()
    assert found is None


def test_no_drift_of_anything_is_found_where_nothing_drifts():
    for seed in range(20):
        assert found_in(rows_with(lambda t: 0.5 + 0 * t, seed=100 + seed))[1] is None
