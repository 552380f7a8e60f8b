"""Lines and curves: evidence against a multivariate normal, moves against fits from scratch, searches against all orders."""

import itertools

import numpy as np
import pytest

from feddbn.core.constraints import EdgeConstraints
from feddbn.core.designs.design import Basis, Design
from feddbn.core.designs.features import CURVE, curve_features
from feddbn.core.orders.groups import CurvedRegressions, curved_groups, curved_network, in_data_units
from feddbn.core.orders.learn import OrderLearner, chosen_groups
from feddbn.core.orders.parents import Criterion
from feddbn.core.orders.search import OrderSearch
from feddbn.core.statistics.moments import Moments

D = 3
DESIGN = Design.curved(
    ("a", "b", "c"), 1, Basis(CURVE), origin=(0.0,) * D, scale=(1.0,) * D, products=((0, 1, 1),)
)
GROUPS = curved_groups(DESIGN)


def rows(n=200, seed=0):
    """Standardised columns of a design with random rows, one of which depends on a curve."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, DESIGN.q))
    Z[:, 1] += Z[:, list(GROUPS.columns[6])] @ rng.uniform(0.3, 0.6, 6)
    Z[:, 2] -= 0.8 * Z[:, 1]
    return Z - Z.mean(axis=0)


@pytest.fixture(scope="module")
def regressions():
    Z = rows()
    return CurvedRegressions(Z.T @ Z, len(Z), GROUPS)


def brute_evidence(Z, node, parents):
    """-2 log evidence up to what all sets share, by the n by n covariance of the rows."""
    Z = Z / np.sqrt((Z**2).mean(axis=0))
    columns = [c for t in parents for c in GROUPS.columns[t]]
    X, y = Z[:, columns], Z[:, node]
    V = np.eye(len(Z)) + X @ np.diag(GROUPS.prior[columns]) @ X.T
    return len(Z) * np.log(y @ np.linalg.solve(V, y) / len(Z)) + np.linalg.slogdet(V)[1]


@pytest.mark.parametrize("parents", [(), (0,), (6,), (0, 3, 6), (2, 8, 12), (0, 6, 9)])
def test_the_evidence_is_that_of_a_multivariate_normal(regressions, parents):
    fit = regressions.fit(1, parents)
    found = regressions.n * np.log(fit.rss) + fit.charge.now
    assert found == pytest.approx(brute_evidence(rows(), 1, parents), abs=1e-6)


@pytest.mark.parametrize("parents", [(), (0,), (0, 6), (5, 8, 12)])
def test_what_a_group_gains_and_costs_is_what_fits_from_scratch_say(regressions, parents):
    fit = regressions.fit(1, parents)
    for t in range(regressions.q):
        if t in parents or t in (1, 7):
            assert fit.gain[t] == 0
            continue
        with_it = regressions.fit(1, tuple(sorted((*parents, t))))
        assert fit.rss - fit.gain[t] == pytest.approx(with_it.rss, rel=1e-9)
        assert fit.charge.now + fit.charge.more[t] == pytest.approx(with_it.charge.now, rel=1e-9)
    for k, t in enumerate(parents):
        without = regressions.fit(1, tuple(m for m in parents if m != t))
        assert fit.rss + fit.loss[k] == pytest.approx(without.rss, rel=1e-9)
        assert fit.charge.now - fit.charge.less[k] == pytest.approx(without.charge.now, rel=1e-9)


def test_a_copy_of_a_parent_is_as_good_as_a_fit_from_scratch_says():
    Z = rows(n=100_000)
    Z[:, list(GROUPS.columns[8])] = 2 * Z[:, list(GROUPS.columns[6])]
    regressions = CurvedRegressions(Z.T @ Z, len(Z), GROUPS)
    fit, with_copy = regressions.fit(1, (6,)), regressions.fit(1, (6, 8))
    assert fit.rss - fit.gain[8] == pytest.approx(with_copy.rss, rel=1e-9)
    assert fit.charge.now + fit.charge.more[8] == pytest.approx(with_copy.charge.now, rel=1e-9)
    assert 0 <= fit.gain[8] < 1e-3


@pytest.fixture(scope="module")
def small():
    """Few groups, so that everything can be tried."""
    design = Design.curved(("a", "b", "c"), 0, Basis(CURVE), origin=(0.0,) * D, scale=(1.0,) * D)
    rng = np.random.default_rng(3)
    x = rng.standard_normal((150, D))
    x[:, 1] += np.abs(x[:, 0])
    x[:, 2] += 0.5 * x[:, 1]
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    Z = np.concatenate([z, curve_features(z).reshape(len(z), -1)], axis=1)
    return design, Moments.of_rows(Z)


def test_the_search_finds_the_best_of_all_orders_and_sets(small):
    design, moments = small
    groups = curved_groups(design)
    regressions = CurvedRegressions(moments.scatter, moments.n, groups)
    limits = EdgeConstraints.none(D, 0)
    search = OrderSearch(moments, limits, Criterion(), "free", regressions)
    found = search.run(5, np.random.default_rng(0))
    best = np.inf
    for order in itertools.permutations(range(D)):
        lowest = 0.0
        for node in order:
            table = _costs(regressions, groups, list(order), node)
            lowest += min(table.values())
        best = min(best, lowest)
    assert found.score == pytest.approx(
        best + (regressions.n * np.log(regressions.total / regressions.n)).sum()
    )


def _costs(regressions, groups, order, node):
    before = order[: order.index(node)]
    may = [t for t, edges in enumerate(groups.edges) if edges[0] in before]
    price = regressions.price
    found = {}
    for size in range(len(may) + 1):
        for parents in itertools.combinations(may, size):
            fit = regressions.fit(node, parents)
            found[parents] = regressions.n * np.log(fit.rss) + fit.charge.now + price * size
    return found


def test_a_forbidden_edge_has_no_group_and_a_required_one_keeps_its_line(small):
    design, moments = small
    limits = EdgeConstraints.from_edges(("a", "b", "c"), 0, [("a", "b", 0)], [("c", "a", 0)])
    found = OrderLearner(groups=curved_groups(design)).learn(moments, limits, np.random.default_rng(0))
    assert not found.support[0, 1]
    assert found.support[2, 0]
    assert 2 in chosen_groups(found)[0]


def test_a_curve_pays_only_where_there_is_one_and_directs_the_edge(small):
    design, moments = small
    learned = OrderLearner(groups=curved_groups(design)).learn(
        moments, EdgeConstraints.none(D, 0), np.random.default_rng(0)
    )
    assert chosen_groups(learned) == ((), (0, 3), (1,))
    firm = {(e.source, e.target): e.oriented for e in learned.orientation}
    assert firm[0, 1]


def test_weights_and_curves_are_ridge_regression_in_the_units_of_the_data(small):
    design, moments = small
    scaled = Design.curved(design.variables, 0, Basis(CURVE), origin=(5.0, -2.0, 1.0), scale=(10.0, 0.1, 3.0))
    found = curved_network(in_data_units(moments, scaled), scaled, ((), (0, 3), (1,)))
    Z = moments
    columns = [0, *range(3, 9)]
    sd = np.sqrt(np.diag(Z.scatter) / Z.n)
    ridge = np.diag(1 / curved_groups(design).prior[columns]) * np.outer(sd[columns], sd[columns])
    beta = np.linalg.solve(Z.scatter[np.ix_(columns, columns)] + ridge, Z.scatter[columns, 1])
    assert found.weights[0, 1] == pytest.approx(beta[0] * 0.1 / 10.0)
    (curve,) = found.curves
    np.testing.assert_allclose(curve.coefficients, beta[1:] * 0.1)
    # At the origin of its cause, the target has what the standardised model says it has there.
    level = Z.mean[1] - Z.mean[columns] @ beta
    expected = -2.0 + 0.1 * level
    assert found.intercept[1] + found.weights[0, 1] * 5.0 == pytest.approx(expected)
