"""Weights that drift: against least squares with products of time, and told apart from steps."""

import numpy as np
import pytest

from feddbn.core.changes.fits import ChangeOptions, SegmentFits, SegmentGrams, fit_node
from feddbn.core.changes.learn import learn_drift, time_functions
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.statistics.moments import Moments

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
    blocks, options = blocks_of(rows), ChangeOptions()
    # Without a cut, and with the one that a step would have.
    before = min(
        (SegmentFits(blocks, 2, cuts, limits(), options).of((0, 1)) for cuts in ((), (B // 2,))),
        key=lambda one: one.score,
    )
    return before, learn_drift(blocks, 2, before, limits(), options)


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


def test_few_blocks_tell_nothing_about_drift():
    blocks = [Moments.of_rows(part) for part in np.split(rows_with(lambda t: t), 4)]
    before = SegmentFits(blocks, 2, (), limits(), ChangeOptions()).of((0, 1))
    assert learn_drift(blocks, 2, before, limits(), ChangeOptions()) is None
