"""Several modules: the solvers, and the steps and thresholds that use them, against one another and scipy."""

import numpy as np
import pytest
from scipy.optimize import minimize

from feddbn.core.constraints import threshold
from feddbn.core.penalised.acyclicity import (
    _BALANCE_FROM,
    AcyclicStart,
    expm_value_and_grad,
    solve_acyclic_prox,
)
from feddbn.core.penalised.consensus import Decomposed
from feddbn.core.penalised.lasso import penalty_value


def gram(seed, q=6, n=40):
    Z = np.random.default_rng(seed).normal(size=(n, q)) @ np.random.default_rng(seed + 1).normal(size=(q, q))
    return Z.T @ Z / n


@pytest.mark.parametrize("weight", [1.0, 0.1])
def test_local_step_has_zero_gradient(weight):
    G, rng = gram(0), np.random.default_rng(2)
    metric = rng.uniform(0.5, 2.0, 6)
    Cbar, U = rng.normal(size=(6, 3)), rng.normal(size=(6, 3))
    C = Decomposed.of(weight * G[None], metric).solve(Cbar, U[None], 0.7)[0]
    E = np.eye(6)[:, :3]
    gradient = weight * G @ (C - E) + U + 0.7 * metric[:, None] * (C - Cbar)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-10)


def test_local_step_equals_the_papers_schur_complements():
    # [fdbnl] boxed closed forms for B_k and D_k, with S, M, N, P, Q, b1, b2 as printed there.
    G, rng, rho = gram(3), np.random.default_rng(4), 0.9
    Cbar, U = rng.normal(size=(6, 3)), rng.normal(size=(6, 3))
    S, M, N = G[:3, :3], G[:3, 3:], G[3:, 3:]
    P, Q = S + rho * np.eye(3), N + rho * np.eye(3)
    b1, b2 = S - U[:3] + rho * Cbar[:3], M.T - U[3:] + rho * Cbar[3:]
    B = np.linalg.solve(P - M @ np.linalg.solve(Q, M.T), b1 - M @ np.linalg.solve(Q, b2))
    D = np.linalg.solve(Q - M.T @ np.linalg.solve(P, M), b2 - M.T @ np.linalg.solve(P, b1))
    found = Decomposed.of(G[None], np.ones(6)).solve(Cbar, U[None], rho)[0]
    np.testing.assert_allclose(found, np.vstack([B, D]), atol=1e-10)


def test_acyclicity_of_many_graphs_is_that_of_each():
    rng = np.random.default_rng(40)
    W = np.exp(2 * rng.normal(size=(12, 6, 1))) * rng.normal(size=(12, 6, 6))
    W[:6] *= np.tril(np.ones((6, 6)), -1)
    W[6] *= 1e3
    norms = (W * W).sum(axis=1).max(axis=1)
    assert norms.min() < _BALANCE_FROM < norms[:6].max()
    values, grads = expm_value_and_grad(W)
    assert np.isinf(values[6])
    for one, value, grad in zip(W, values, grads, strict=True):
        alone = expm_value_and_grad(one[None])
        np.testing.assert_allclose(value, alone[0][0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(grad, alone[1][0], rtol=1e-12, atol=1e-12)


def test_acyclic_prox_reaches_the_objective_of_an_independent_solver():
    rng = np.random.default_rng(9)
    V, kappa = rng.normal(scale=0.5, size=(4, 4)), np.full((4, 1), 2.0)
    penalty, allowed = np.full((4, 4), 0.05), ~np.eye(4, dtype=bool)

    def value(W):
        h = float(expm_value_and_grad(W[None])[0][0])
        return (
            float(np.sum(kappa / 2 * (W - V)[allowed].reshape(4, 3) ** 2))
            + penalty_value(W, penalty)
            + h
            + 5 * h * h
        )

    start = AcyclicStart(np.zeros((1, 4, 4)), np.zeros(1), np.zeros((1, 4, 4)), np.zeros(1))
    step, n_evaluations = solve_acyclic_prox(
        V[None],
        kappa[None],
        penalty[None],
        allowed[None],
        np.array([1.0]),
        10.0,
        start,
        expm_value_and_grad,
        tol=1e-10,
        max_steps=5000,
    )
    W = step.W[0]
    assert n_evaluations > 1
    assert step.h[0] == pytest.approx(expm_value_and_grad(W[None])[0][0], rel=1e-12)

    def split(x):
        W = np.zeros((4, 4))
        W[allowed] = x[:12] - x[12:]
        return value(W)

    W0 = W[allowed]
    x0 = np.concatenate([np.maximum(W0, 0), np.maximum(-W0, 0)])
    other = minimize(split, x0, method="L-BFGS-B", bounds=[(0, None)] * 24, options={"maxfun": 100_000}).fun
    assert value(W) <= other + 1e-6


def test_threshold_keeps_required_edges():
    C = np.array([[0.0, 0.1], [0.3, 0.0], [0.1, 0.4], [0.0, 0.05]])
    required = np.zeros(C.shape, dtype=bool)
    required[3, 1] = True
    np.testing.assert_array_equal(threshold(C, required, 0.2, 0.3), [[0, 0], [0.3, 0], [0, 0.4], [0, 0.05]])
