"""The site's half of PFDBNL: closed forms, limits, the paper's alternation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from feddbn.core.constraints import EdgeConstraints, has_cycle
from feddbn.core.penalised.acyclicity import expm_value_and_grad
from feddbn.core.penalised.consensus import Decomposed
from feddbn.core.penalised.lasso import loss_value, ordered_columns, penalty_value
from feddbn.core.penalised.personal_site import (
    Members,
    OwnProblem,
    PersonalRound,
    auxiliary,
    coupling,
    order_of,
    solve_personal,
)
from support.lassos import solve_lasso

D, Q = 4, 8


def gram(seed: int = 0, n: int = 80) -> np.ndarray:
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, Q)) @ (np.eye(Q) + 0.3 * rng.standard_normal((Q, Q)))
    return Z.T @ Z / n


def stacks(n: int, seed: int = 1) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).standard_normal((n, Q, D)))


def test_auxiliary_step_has_zero_gradient() -> None:
    C, Cbar, U = stacks(3)
    mu, kappa = 0.7, np.linspace(0.5, 2.0, Q)[:, None]
    T = auxiliary(C, Cbar, U, mu, kappa)
    gradient = 2 * mu * (T - C) + U + kappa * (T - Cbar)
    assert np.abs(gradient).max() < 1e-12


def test_consensus_mean_has_zero_gradient_over_all_sites() -> None:
    T, U = np.array(stacks(5, 2)), np.array(stacks(5, 3))
    rho2, metric = 1.3, np.linspace(0.5, 2.0, Q)[:, None]
    C = (T + U / (rho2 * metric)).mean(axis=0)
    gradient = -(U + rho2 * metric * (T - C)).sum(axis=0)
    assert np.abs(gradient).max() < 1e-12


def test_coupling_is_the_curvature_left_after_minimising_the_auxiliary_weights_out() -> None:
    mu, kappa = 0.4, np.full((Q, 1), 1.7)
    C, P = stacks(2)
    T = auxiliary(C, P, np.zeros_like(C), mu, kappa)
    direct = mu * np.sum((C - T) ** 2) + 0.5 * np.sum(kappa * (T - P) ** 2)
    assert direct == pytest.approx(0.5 * np.sum(coupling(mu, kappa) * (C - P) ** 2))
    assert np.array_equal(coupling(np.inf, kappa), kappa)


def test_exact_personal_step_is_stationary() -> None:
    G, (T,) = gram(), stacks(1)
    constraints = EdgeConstraints.none(D, 1)
    L = np.where(constraints.allowed, 0.05, 0.0)
    mu, alpha, rho1 = 0.3, 0.8, 2.0
    H, B = G + 2 * mu * np.eye(Q), G[:, :D] + 2 * mu * T
    rules = PersonalRound(mu, 1.0, rho1, 1.0, 1.0, None, acyclic_steps=3000, tol=1e-8)
    found, h = solve_personal(
        H[None],
        B[None],
        L[None],
        constraints.allowed[None],
        np.array([alpha]),
        np.zeros((1, Q, D)),
        rules,
        expm_value_and_grad,
    )
    C = found[0]
    gradient = H @ C - B
    gradient[:D] += (alpha + rho1 * h[0]) * expm_value_and_grad(C[None, :D])[1][0]
    on, off = constraints.allowed & (C != 0), constraints.allowed & (C == 0)
    assert np.abs(gradient + L * np.sign(C))[on].max() < 1e-5
    assert (np.abs(gradient)[off] <= L[off] + 1e-5).all()


def own(mu: float, centre: np.ndarray, L: np.ndarray) -> OwnProblem:
    return OwnProblem(gram(), L, mu, centre, EdgeConstraints.none(D, 1))


def test_weak_pull_is_a_lasso_and_strong_pull_is_the_centre() -> None:
    G, (centre,) = gram(), stacks(1)
    allowed = EdgeConstraints.none(D, 1).within_order(range(D)).allowed
    L, start = np.full((Q, D), 0.05), np.zeros((Q, D))
    free = own(1e-12, centre, L).solve(allowed, start)
    nearby = free + 1e-3 * np.where(allowed, stacks(1, 9)[0], 0.0)
    assert loss_value(G, free) + penalty_value(free, L) <= loss_value(G, nearby) + penalty_value(nearby, L)
    held = own(1e8, centre, L).solve(allowed, start)
    assert np.allclose(held, np.where(allowed, centre, 0.0), atol=1e-5)
    at_the_limit = own(np.inf, centre, L)
    assert np.array_equal(at_the_limit.solve(allowed, start), np.where(allowed, centre, 0.0))
    assert np.array_equal(at_the_limit.refit(allowed), np.where(allowed, centre, 0.0))


def test_refit_is_the_solution_without_penalty() -> None:
    (centre,) = stacks(1)
    allowed = EdgeConstraints.none(D, 1).within_order(range(D)).allowed
    problem = own(0.4, centre, np.full((Q, D), 0.05))
    C = problem.refit(allowed)
    gradient = gram() @ (C - np.eye(Q, D)) + 2 * 0.4 * (C - centre)
    assert np.abs(gradient[allowed]).max() < 1e-12
    assert not C[~allowed].any()


def test_split_steps_and_exact_solves_end_at_the_same_point_in_a_fixed_order() -> None:
    problem = Decomposed.of(gram()[None], np.ones(Q))
    allowed = EdgeConstraints.none(D, 1).within_order(range(D)).allowed
    L, (centre,) = np.full((Q, D), 0.05), stacks(1)
    rules = PersonalRound(mu=0.5, rho=2.0, rho1=0.0, rho2=0.7, rho2_before=0.7, alpha=None)
    # One site that is pulled to a fixed centre: hold U at zero and the centre at what T would have to be.
    member, one = Members.start(centre[None]), np.ones(1)
    # In the unit metric the springs 1 and mu = 0.5 in series have a strength of 1/3.
    np.testing.assert_allclose(rules.agreement(problem.metric), 1 / 3)
    pull = float(coupling(0.5, np.array([[0.7 / 3]]))[0, 0]) / 2
    for _ in range(300):
        held = replace(member, U=np.zeros_like(member.U), T=centre[None])
        member, _ = held.step(problem, one, L, allowed[None], centre[None], rules, expm_value_and_grad)
    expected = own(pull, centre, L).solve(allowed, np.zeros((Q, D)))
    assert np.allclose(member.C[0], expected, atol=1e-6)


def test_agreement_follows_the_weaker_spring_row_by_row() -> None:
    metric = np.array([1e-4, 1.0, 1e4])
    rules = PersonalRound(mu=0.1, rho=1.0, rho1=0.0, rho2=1.0, rho2_before=1.0, alpha=None)
    np.testing.assert_allclose(rules.agreement(metric)[:, 0], [1e-4, 0.1 / 1.1, 0.1], rtol=2e-3)
    one_for_all = replace(rules, mu=np.inf)
    assert one_for_all.agreement(metric)[:, 0].tolist() == metric.tolist()
    assert replace(rules, in_series=False).agreement(metric)[:, 0].tolist() == metric.tolist()


def test_objective_counts_the_pull() -> None:
    C, centre = stacks(2)
    L = np.full((Q, D), 0.1)
    assert own(0.5, centre, L).objective(C) == pytest.approx(
        loss_value(gram(), C) + penalty_value(C, L) + 0.5 * np.sum((C - centre) ** 2)
    )


def test_order_keeps_the_strongest_edges_and_has_no_cycle() -> None:
    constraints = EdgeConstraints.none(D, 1)
    C = np.zeros((Q, D))
    C[0, 1], C[1, 2], C[2, 0] = 0.9, 0.8, 0.1
    allowed = order_of(C, constraints)
    assert allowed[0, 1]
    assert allowed[1, 2]
    assert not allowed[2, 0]
    assert not has_cycle(order_of(stacks(1)[0], constraints)[:D])


def test_ordered_sites_solve_their_convex_problem_exactly_from_any_start() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 8)) @ rng.normal(size=(8, 8))
    H, B = X.T @ X / 30 + 0.05 * np.eye(8), rng.normal(size=(8, 4))
    allowed = rng.random((8, 4)) < 0.8
    penalty = np.full((8, 4), 0.3)
    penalty[2] = 0.0
    exact = solve_lasso(H, penalty, allowed, linear=B, tol=1e-13)
    assert 0 < np.count_nonzero(exact) < np.count_nonzero(allowed)
    for start in (np.zeros((8, 4)), rng.normal(size=(8, 4)), exact):
        found = ordered_columns(H[None], B[None], penalty[None], allowed[None], start[None])[0]
        assert np.allclose(found, exact, atol=1e-9)
