"""Gradients reveal the Gram matrix; what they have not shown is bounded from above."""

import numpy as np
import pytest

from feddbn.core.constraints import EdgeConstraints
from feddbn.core.penalised import consensus as seen_gram
from feddbn.core.penalised.consensus import ConsensusRun, SeenGram, gradient_answers, loss_and_grad
from feddbn.core.penalised.path import RunOptions, Stage, Status, make_schedule
from support.lassos import solve_lasso

Q, D = 8, 4
METRIC = np.array([0.1, 3.0, 1.0, 2.0, 0.5, 1.0, 7.0, 1.0])


def gram(seed, n=50):
    Z = np.random.default_rng(seed).normal(size=(n, Q)) @ np.random.default_rng(seed + 100).normal(
        size=(Q, Q)
    )
    return Z.T @ Z / n


def scaled(G):
    root = np.sqrt(METRIC)
    return G / np.outer(root, root)


def points(seed, n):
    return np.random.default_rng(seed).normal(scale=0.3, size=(n, Q, D))


@pytest.mark.parametrize("seed", range(3))
def test_two_gradients_show_everything(seed):
    G, seen = gram(seed), SeenGram(METRIC)
    for C in points(seed, 2):
        seen.see(C, loss_and_grad(G[None], C)[1][0])
    np.testing.assert_allclose(seen.scaled(0.0), scaled(G), rtol=1e-7, atol=1e-9 * np.abs(scaled(G)).max())


@pytest.mark.parametrize("seed", range(3))
def test_after_one_gradient_the_matrix_is_an_upper_bound_that_agrees_with_it(seed):
    G, seen = gram(seed), SeenGram(METRIC)
    (C,) = points(seed, 1)
    gradient = loss_and_grad(G[None], C)[1][0]
    seen.see(C, gradient)
    B = seen.scaled(float(np.linalg.eigvalsh(scaled(G))[-1]))
    assert np.linalg.eigvalsh(B - scaled(G))[0] >= -1e-9 * np.abs(B).max()
    root = np.sqrt(METRIC)[:, None]
    np.testing.assert_allclose(root * (B @ (root * (C - np.eye(Q, D)))), gradient, atol=1e-9)


def test_repeated_gradients_add_nothing_and_do_no_harm():
    G, seen = gram(5), SeenGram(METRIC)
    (C,) = points(5, 1)
    seen.see(C, loss_and_grad(G[None], C)[1][0])
    once = seen.scaled(50.0)
    seen.see(C, loss_and_grad(G[None], C)[1][0])
    np.testing.assert_array_equal(seen.scaled(50.0), once)


def test_a_singular_matrix_comes_back_positive_definite():
    G, seen = gram(6, n=3), SeenGram(METRIC)
    for C in points(6, 3):
        seen.see(C, loss_and_grad(G[None], C)[1][0])
    B = seen.scaled(0.0)
    assert 0 < np.linalg.eigvalsh(B)[0] < 1e-6 * np.abs(B).max()
    np.testing.assert_allclose(B, scaled(G), atol=1e-6 * np.abs(B).max())


def test_noise_raises_the_small_eigenvalues_to_its_own_size():
    G, seen, rng = gram(7, n=3), SeenGram(METRIC), np.random.default_rng(8)
    for C in points(7, 3):
        seen.see(C, loss_and_grad(G[None], C)[1][0] + rng.normal(scale=0.1, size=(Q, D)))
    assert np.linalg.eigvalsh(seen.scaled(0.0))[0] > 0.01


def test_forgetting_starts_anew():
    G, H, seen = gram(9), gram(10), SeenGram(METRIC)
    for C in points(9, 2):
        seen.see(C, loss_and_grad(G[None], C)[1][0])
    seen.forget()
    for C in points(10, 2):
        seen.see(C, loss_and_grad(H[None], C)[1][0])
    np.testing.assert_allclose(seen.scaled(0.0), scaled(H), rtol=1e-7, atol=1e-9 * np.abs(scaled(H)).max())


def test_a_run_that_loses_a_site_ends_at_the_optimum_of_those_that_stayed():
    data = np.random.default_rng(11).normal(size=(2, 400, 4)) @ np.triu(np.full((4, 4), 0.6))
    grams = np.stack([Z.T @ Z / len(Z) for Z in data])
    penalty = np.full((4, 4), 0.1)
    options = RunOptions(
        penalty=penalty,
        metric=np.ones(4),
        constraints=EdgeConstraints(~np.eye(4, dtype=bool), np.zeros((4, 4), dtype=bool)),
        schedule=make_schedule("rounds", 2, 2.0),
    )
    run = ConsensusRun(options)
    while not run.is_done:
        here = grams if run.stage in (Stage.WARM, Stage.ACYCLIC) else grams[:1]
        run.advance(gradient_answers(here, run.C).sum(axis=0), len(here), len(here))
    assert run.status is Status.CONVERGED
    order = np.argsort((run.C_raw != 0).sum(axis=0), kind="stable")
    allowed = np.zeros((4, 4), dtype=bool)
    for k, node in enumerate(order):
        allowed[order[:k], node] = True
    np.testing.assert_allclose(run.C_raw, solve_lasso(grams[0], penalty, allowed, tol=1e-12), atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_quick_ways_for_many_columns_show_the_same(seed, monkeypatch):
    G, found = gram(seed), []
    G[:, 1] = G[1] = G[:, 0] if seed == 2 else G[1]
    for most in (400, 4):
        monkeypatch.setattr(seen_gram, "_MANY", most)
        seen = SeenGram(METRIC)
        for C in points(seed, 3):
            seen.see(C, loss_and_grad(G[None], C)[1][0])
        found.append(seen.scaled(1.0))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-7, atol=1e-8 * np.abs(found[0]).max())
