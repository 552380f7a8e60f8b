import itertools

import numpy as np
import pytest
from feddbn.core.orders.average import (
    Hyper,
    NodeTable,
    _Beside,
    average_orders,
    average_within_order,
    median_graph,
)

from feddbn.core.constraints import EdgeConstraints, has_cycle
from feddbn.core.orders import average as order_average
from feddbn.core.orders.learn import OrderLearner
from feddbn.core.orders.parents import Criterion, ParentRegressions
from feddbn.core.orders.search import OrderSearch
from feddbn.core.statistics.moments import Moments
from support.simulated_moments import simulated


def posterior(moments, d, kind="equal", limits=None, n_lags=1, **options):
    limits = limits or EdgeConstraints.none(d, n_lags)
    search = OrderSearch(moments, limits, Criterion(1.0), kind)
    starts = [search.run(0, np.random.default_rng(0))]
    return average_orders(search.regressions, starts, limits, np.random.default_rng(1), **options)


def even_moment(mean, order):
    """E[(mean + N(0, 1))^(2 order)] by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    return float(weights @ (mean + nodes) ** (2 * order) / weights.sum())


def log_weight(scatter, d, node, parents, hyper):
    """The model's log posterior weight of one parent set with equal variances, written out independently."""
    S, s2, g = list(parents), hyper.noise_variance, hyper.g
    value = sum(np.log(pi / (1 - pi)) for pi in [hyper.pi_present if m < d else hyper.pi_lagged for m in S])
    if not S:
        return value
    gram, cross = scatter[np.ix_(S, S)], scatter[S, node]
    covariance = np.linalg.inv(gram / s2 + np.eye(len(S)) / g)
    mean = covariance @ cross / s2
    value += 0.5 * mean @ np.linalg.solve(covariance, mean)
    value += 0.5 * (np.linalg.slogdet(covariance)[1] - len(S) * np.log(g))
    for m, v in zip(mean, np.diag(covariance), strict=True):
        r = hyper.moment_order
        value += np.log(even_moment(m / np.sqrt(v), r) * v**r / (even_moment(0, r) * g**r))
    return value


def enumerated(moments, d, order, hyper):
    """Summed weight and edge probabilities of an order, over all parent sets."""
    weight, edges = 1.0, np.zeros((2 * d, d))
    for k, node in enumerate(order):
        candidates = [*order[:k], *range(d, 2 * d)]
        total = 0.0
        for size in range(len(candidates) + 1):
            for S in itertools.combinations(candidates, size):
                w = np.exp(log_weight(moments.scatter, d, node, S, hyper))
                total += w
                edges[list(S), node] += w
        edges[:, node] /= total
        weight *= total
    return weight, edges


@pytest.mark.slow
def test_probabilities_agree_with_enumeration_of_all_orders_and_parent_sets():
    d, (moments, _) = 3, simulated(3, 30, 4, mean_degree=1.5)
    result = posterior(moments, d, n_sweeps=600)
    found = [enumerated(moments, d, order, result.hyper) for order in itertools.permutations(range(d))]
    expected = sum(weight * edges for weight, edges in found) / sum(weight for weight, _ in found)
    np.testing.assert_allclose(result.probability, expected, atol=0.03)


@pytest.mark.parametrize("spread", [1.0, 300.0])
def test_sums_over_subsets_agree_with_direct_sums(spread):
    log = np.random.default_rng(0).normal(size=32) * spread
    sums = order_average.subset_sums(log)
    for mask in range(32):
        inside = [log[s] for s in range(32) if s & mask == s]
        assert sums[mask] == pytest.approx(np.logaddexp.reduce(inside))


@pytest.mark.parametrize("ridge", [None, np.array([0.5, 0.01, 2.0])])
def test_residuals_of_all_subsets_agree_with_least_squares(ridge):
    rng = np.random.default_rng(0)
    z = rng.standard_normal((50, 5)) @ rng.standard_normal((5, 5))
    R = np.corrcoef(z.T)
    rss, log_det = ParentRegressions(R, 50, 5).subset_fits(0, [1, 2, 4], ridge)
    added = np.diag(np.zeros(3) if ridge is None else ridge)
    for mask in range(8):
        bits = [b for b in range(3) if mask >> b & 1]
        S = [[1, 2, 4][b] for b in bits]
        M = R[np.ix_(S, S)] + added[np.ix_(bits, bits)]
        expected = 1 - (R[0, S] @ np.linalg.solve(M, R[S, 0]) if S else 0)
        assert rss[mask] == pytest.approx(expected)
        assert log_det[mask] == pytest.approx(np.linalg.slogdet(M)[1] if S else 0)


def test_required_edges_have_probability_one_and_forbidden_edges_zero():
    moments, _ = simulated(5, 40, 0)
    names = [f"x{i}" for i in range(5)]
    limits = EdgeConstraints.from_edges(names, 1, forbidden=[("*", 2, 1)], required=[(4, 0, 0), (1, 3, 1)])
    result = posterior(moments, 5, limits=limits, n_sweeps=20)
    assert result.probability[4, 0] == pytest.approx(1.0)
    assert result.probability[5 + 1, 3] == pytest.approx(1.0)
    assert (result.probability[5:, 2] == 0).all()


@pytest.mark.parametrize(
    ("kind", "factors"), [("free", np.array([0.01, 1, 5, 100, 3.0])), ("equal", np.full(5, 1e3))]
)
def test_probabilities_ignore_units_with_free_variances_and_a_common_unit_with_equal_ones(kind, factors):
    first, second = (
        posterior(simulated(5, 40, 0, factors=by)[0], 5, kind, n_sweeps=30) for by in (None, factors)
    )
    np.testing.assert_allclose(first.probability, second.probability, atol=1e-6)
    assert second.hyper.g == pytest.approx(first.hyper.g)


def test_median_graph_is_acyclic_even_if_probabilities_are_not():
    probability = np.zeros((3, 3))
    probability[0, 1], probability[1, 2], probability[2, 0] = 0.9, 0.8, 0.6
    graph = median_graph(probability, np.zeros((3, 3), bool))
    assert graph.tolist() == [[False, True, False], [False, False, True], [False, False, False]]
    must = np.zeros((3, 3), bool)
    must[2, 0] = True
    kept = median_graph(probability, must)
    assert kept[2, 0]
    assert not has_cycle(kept)


@pytest.mark.slow
def test_averaging_beats_the_single_best_order_on_few_rows():
    single, averaged = [], []
    for seed in range(6):
        moments, truth = simulated(10, 50, seed)
        search = OrderSearch(moments, EdgeConstraints.none(10, 1), Criterion(2.0), "equal")
        single.append((search.run(3, np.random.default_rng(0)).support != truth).sum())
        result = posterior(moments, 10, n_sweeps=40, n_chains=2, table_size=12)
        averaged.append((median_graph(result.probability, np.zeros_like(truth)) != truth).sum())
    assert np.mean(averaged) < np.mean(single)


def test_hyper_parameters_approach_the_generating_density():
    moments, truth = simulated(8, 150, 1)
    result = posterior(moments, 8, n_sweeps=50)
    assert isinstance(result.hyper, Hyper)
    assert 0.3 < result.hyper.pi_present / (truth[:8].sum() / 28) < 2.0
    assert 0.7 < result.hyper.noise_variance < 1.4


def test_probabilities_within_an_order_agree_with_enumeration():
    d, (moments, _) = 3, simulated(3, 30, 4, mean_degree=1.5)
    limits = EdgeConstraints.none(d, 1)
    search = OrderSearch(moments, limits, Criterion(1.0), "equal")
    found = search.run(0, np.random.default_rng(0))
    result = average_within_order(search.regressions, found, limits)
    assert result.n_orders == 1
    _, expected = enumerated(moments, d, found.order, result.hyper)
    np.testing.assert_allclose(result.probability, expected, atol=1e-6)


def test_a_certain_link_is_in_the_median_graph_though_its_direction_is_open():
    P = np.zeros((3, 3))
    P[0, 1], P[1, 0] = 0.49, 0.49
    P[1, 2], P[2, 1] = 0.3, 0.45
    nothing = np.zeros((3, 3), dtype=bool)
    assert not median_graph(P, nothing).any()
    found = median_graph(P, nothing, keep_links=True)
    assert np.argwhere(found).tolist() == [[0, 1]]
    P[0, 1] = 0.48
    assert np.argwhere(median_graph(P, nothing, keep_links=True)).tolist() == [[1, 0]]
    required = nothing.copy()
    required[0, 1] = True
    assert np.argwhere(median_graph(P, required, keep_links=True)).tolist() == [[0, 1]]


@pytest.mark.parametrize(("kind", "order"), [("equal", 0), ("equal", 2), ("free", 0), ("free", 1)])
def test_a_column_without_a_place_has_the_odds_of_a_table_that_has_it(kind, order):
    moments, _ = simulated(5, 60, 2)
    known = ParentRegressions(moments.scatter, moments.n, 5)
    hyper = Hyper(0.2, 0.1, 0.5 if kind == "equal" else 20.0, 0.9 * known.total.min() / moments.n, order)
    parents, limits = (0, 5), EdgeConstraints.none(5, 1)
    columns = [2, 3, 6, 8]
    found = _Beside(known, 1, hyper, kind == "free", None).odds(parents, columns)
    for m, odds in zip(columns, found, strict=True):
        table = NodeTable(known, 1, [m], limits, always=parents)
        table.weigh(hyper, kind == "free")
        assert odds == pytest.approx(np.log(np.expm1(table.log_sum[1] - table.log_sum[0])), abs=1e-3)


def many_causes(n_causes, lag, n=3000, seed=0):
    """Rows of x0 and its causes, which act on nothing else."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n + 1, n_causes + 1))
    x[lag:, 0] += 0.4 * x[: n + 1 - lag, 1:].sum(axis=1)
    return Moments.of_rows(np.hstack([x[1:], x[:-1]]))


@pytest.mark.slow
@pytest.mark.parametrize(("n_causes", "lag", "kind"), [(16, 1, "equal"), (16, 1, "free"), (16, 0, "equal")])
def test_a_variable_may_have_more_causes_than_a_table_has_places(n_causes, lag, kind):
    d = n_causes + 1
    truth = np.zeros((2 * d, d), dtype=bool)
    truth[lag * d + 1 : lag * d + d, 0] = True
    found = OrderLearner(kind).learn(
        many_causes(n_causes, lag), EdgeConstraints.none(d, 1), np.random.default_rng(0)
    )
    np.testing.assert_array_equal(found.support, truth)
    assert found.posterior.probability[truth].min() > 0.99
    assert found.posterior.probability[~truth].max() < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["equal", "free"])
def test_many_required_edges_are_certain_in_every_order(kind):
    d, rows = 15, np.random.default_rng(3).normal(size=(150, 15))
    names = [f"x{i}" for i in range(d)]
    required = [(i, 0, i % 2) for i in range(1, d)]
    limits = EdgeConstraints.from_edges(names, 1, forbidden=[], required=required)
    moments = Moments.of_rows(np.hstack([rows[1:], rows[:-1]]))
    found = OrderLearner(kind).learn(moments, limits, np.random.default_rng(0))
    probability = found.posterior.probability
    assert found.posterior.n_orders > 1
    np.testing.assert_array_equal(probability[limits.required], 1.0)
    assert (probability[0, 2:d:2] == 0).all()
