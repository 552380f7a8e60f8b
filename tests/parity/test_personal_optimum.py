"""PFDBNL's sites end in the best of all orders, the common weights given; what the search rules out could not have helped."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import feddbn
from feddbn import PFDBNL, PersonalRounds, Prepare
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.penalised.optimum import (
    improved,
    members,
    order_value,
)
from feddbn.core.penalised.personal_site import OwnProblem, PersonalSite
from support.lassos import lasso_column

pytestmark = pytest.mark.promise

AS_IS = {"prepare": Prepare(scale="none"), "check_residuals": False}
D = 4


def own_problem(seed, d=D, mu=0.3, rows=40, required=(), **more):
    """One site's problem with random data and a random centre, in units that differ."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((rows, 2 * d)) @ (np.eye(2 * d) + 0.7 * rng.standard_normal((2 * d, 2 * d)))
    limits = EdgeConstraints.none(d, 1)
    must = np.zeros((2 * d, d), dtype=bool)
    for edge in required:
        must[edge] = True
    centre = np.where(limits.allowed, 0.3 * rng.standard_normal((2 * d, d)), 0.0)
    penalty = np.where(must, 0.0, 0.2)
    limits = EdgeConstraints(limits.allowed, must)
    return OwnProblem(
        1.5 * Z.T @ Z / rows, penalty, mu, centre, limits, optimum="order", is_proven=True, **more
    )


def slow_minimum(problem, order):
    """The minimum within an order by many proximal gradient steps on the objective itself."""
    allowed = problem.constraints.within_order(order).allowed
    d, q = allowed.shape[1], len(allowed)
    E, C = np.eye(q, d), np.zeros((q, d))
    step = 1.0 / (np.linalg.eigvalsh(problem.wG)[-1] + 2.0 * problem.mu)
    for _ in range(4000):
        V = C - step * (problem.wG @ (C - E) + 2.0 * problem.mu * (C - problem.centre))
        C = allowed * np.sign(V) * np.maximum(np.abs(V) - step * problem.penalty, 0.0)
    return problem.objective(C)


@pytest.mark.parametrize(("seed", "required"), [(0, ()), (1, ((2, 0), (0, 3)))])
def test_a_sites_best_order_is_the_lowest_of_all(seed, required):
    problem = own_problem(seed, d=3 if not required else D, required=required)
    d = problem.constraints.d
    orders = [
        order
        for order in itertools.permutations(range(d))
        if all(order.index(i) < order.index(j) for i, j in required)
    ]
    values = {order: slow_minimum(problem, order) for order in orders}
    start = max(values, key=values.__getitem__)
    found = problem.best_order(start)
    assert found.certificate.is_exact
    assert found.certificate.objective == pytest.approx(min(values.values()), rel=1e-6)
    assert values[found.order] == pytest.approx(min(values.values()), rel=1e-6)
    assert values[start] > 1.001 * values[found.order]
    # What has not been proven has a bound below.
    quick = OwnProblem(**{**vars(problem), "is_proven": False}).best_order(start)
    assert quick.certificate.lower_bound <= found.certificate.objective


def test_no_single_move_helps_where_moves_have_ended():
    for seed in range(4):
        problem = own_problem(seed, d=6, mu=0.05)
        scores = problem.scores()
        order, value = improved(scores, range(6), 10_000)
        assert value == pytest.approx(order_value(scores, order), rel=1e-12)
        for node, place in itertools.product(range(6), range(6)):
            rest = [other for other in order if other != node]
            moved = [*rest[:place], node, *rest[place:]]
            assert order_value(scores, moved) >= value * (1 - 1e-8)


def test_bounds_of_gains_and_losses_hold():
    scores = own_problem(3, d=6, mu=0.02).scores()
    rng = np.random.default_rng(3)
    n_gains = n_losses = 0
    for _ in range(60):
        node = int(rng.integers(6))
        before = int(rng.integers(2**6)) & ~(1 << node)
        value, gain, loss = scores.bounds([node], [before])
        for other in members(scores.all & ~(1 << node)):
            if before >> other & 1:
                change = scores.value(node, before & ~(1 << other)) - value[0]
                assert change >= loss[0, other] - 1e-10
                assert (change > 1e-10) == (loss[0, other] > 0)
                n_losses += change > 1e-10
            else:
                change = value[0] - scores.value(node, before | 1 << other)
                assert change <= gain[0, other] + 1e-10
                assert gain[0, other] > 0 or change < 1e-10
                n_gains += change > 1e-10
    assert min(n_gains, n_losses) > 20


def test_the_quick_bound_is_that_of_the_scores_from_whatever_weights_they_are_searched():
    problem = replace(own_problem(4, d=6, mu=0.05), is_proven=False)
    order, rng = [3, 1, 5, 0, 2, 4], np.random.default_rng(4)
    plain = problem.scores()
    for C in (None, rng.normal(size=problem.centre.shape)):
        scores, found = problem.scores(C), problem.best_order(order, C)
        assert scores.lowest == pytest.approx(plain.lowest, rel=1e-9)
        assert order_value(scores, order) == pytest.approx(order_value(plain, order), rel=1e-9)
        assert found.order == tuple(order)
        assert found.certificate.objective == pytest.approx(order_value(plain, order), rel=1e-9)
        assert found.certificate.lower_bound == pytest.approx(sum(plain.lowest), rel=1e-9)
        assert found.certificate.lower_bound < 0.999 * found.certificate.objective


def test_lassos_whose_signs_go_round_in_circles_are_solved():
    rng = np.random.default_rng(0)
    for _ in range(40):
        rows = rng.standard_normal((30, 1)) + 0.02 * rng.standard_normal((30, 12))
        G = rows.T @ rows / 30
        allowed = np.arange(12) > 0
        start = np.where(allowed, rng.standard_normal(12), 0.0)
        H = G + 1e-9 * np.eye(12)
        found = lasso_column(H, G[0], np.full(12, 1e-4), allowed, start)
        residual = G[0] - H @ found
        assert np.all(np.abs(residual[1:]) <= 1e-4 * (1 + 1e-6))
        used = found != 0
        assert np.allclose(residual[used], 1e-4 * np.sign(found[used]), atol=1e-9)


@pytest.mark.parametrize("w_range", [(0.3, 0.5), (0.5, 2.0)], ids=["mild", "strong"])
def test_every_site_of_a_fit_is_certified(w_range):
    fed = feddbn.simulate(d=6, n_sites=3, n_samples=150, w_range=w_range, heterogeneity=0.3, random_state=7)
    settings = {"mu": 0.3, "rounds.refit": False, "w_threshold": 0.0, "a_threshold": 0.0, **AS_IS}
    model = PFDBNL(**settings).fit(fed.sites)
    assert str(model.certificate_) == "exact in 3 of 3 sites"
    assert model.certificate_.gap == 0
    total = sum(one.objective for one in model.certificate_.sites.values())
    assert model.objective_ == pytest.approx(total)
    path = PFDBNL(**settings, **{"rounds.optimum": "path"}).fit(fed.sites)
    assert path.certificate_ is None
    assert model.objective_ <= path.objective_ * (1 + 1e-4)


def test_one_graph_for_all_and_the_papers_schedule_have_no_search():
    fed = feddbn.simulate(d=3, n_sites=2, n_samples=80, random_state=1)
    assert PFDBNL(mu=np.inf, **AS_IS).fit(fed.sites).certificate_ is None
    assert (
        PFDBNL(schedule="paper", rounds=PersonalRounds(max_rounds=30), **AS_IS).fit(fed.sites).certificate_
        is None
    )


def test_a_site_leaves_an_order_that_is_not_its_best():
    problem = own_problem(2, mu=0.05, rows=200)
    orders = itertools.permutations(range(D))
    values = {order: order_value(problem.scores(), order) for order in orders}
    worst = max(values, key=values.__getitem__)
    allowed = problem.constraints.within_order(worst).allowed
    site = PersonalSite(problem.solve(allowed, problem.centre), allowed).polished(problem)
    assert site.raw_objective == pytest.approx(min(values.values()), rel=1e-6)
    assert site.lower_bound == pytest.approx(site.raw_objective, rel=1e-6)
    assert not np.array_equal(site.allowed, allowed)
