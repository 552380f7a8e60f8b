"""The rounds of schedule="paper" against a transcription of [fdbnl] Algorithm 1 that shares no code with it.

The transcription solves the local step by a linear system and the global step of W by a general optimiser on
``W = P - N`` with P, N >= 0, which makes the L1 term smooth.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

from feddbn.core.constraints import EdgeConstraints
from feddbn.core.penalised.consensus import Consensus, ConsensusRun, Decomposed
from feddbn.core.penalised.path import RunOptions, make_schedule

pytestmark = pytest.mark.promise

D, K, LAMBDA, ROUNDS = 3, 2, 0.1, 12


def grams() -> list[np.ndarray]:
    """Gram matrices of [x_t, x_{t-1}] at two sites with a network x0 -> x1 -> x2."""
    found = []
    for seed in range(K):
        rng = np.random.default_rng(seed)
        x = np.zeros((120, D))
        for t in range(1, len(x)):
            x[t] = 0.3 * x[t - 1] + rng.normal(size=D)
            x[t, 1] += 0.6 * x[t, 0]
            x[t, 2] += 0.6 * x[t, 1]
        z = np.hstack([x[1:], x[:-1]])
        found.append(z.T @ z / len(z))
    return found


@pytest.fixture(scope="module")
def transcription() -> list[dict[str, object]]:
    """C, alpha, rho1 and rho2 after every round, as printed in the paper."""
    G = grams()
    E = np.eye(2 * D)[:, :D]
    C, U = np.zeros((2 * D, D)), [np.zeros((2 * D, D)) for _ in range(K)]
    alpha, rho1, rho2 = 0.0, 1.0, 1.0
    states = []
    for _ in range(ROUNDS):
        local = [np.linalg.solve(G[k] + rho2 * np.eye(2 * D), G[k] @ E - U[k] + rho2 * C) for k in range(K)]
        centre = np.mean([local[k] + U[k] / rho2 for k in range(K)], axis=0)
        cut = LAMBDA / (K * rho2)
        A = np.sign(centre[D:]) * np.maximum(np.abs(centre[D:]) - cut, 0.0)
        W = global_step(centre[:D], C[:D], alpha, rho1, rho2)
        C = np.vstack([W, A])
        U = [U[k] + rho2 * (local[k] - C) for k in range(K)]
        alpha += rho1 * (np.trace(scipy.linalg.expm(W * W)) - D)
        rho1, rho2 = 1.6 * rho1, 1.1 * rho2
        states.append({"C": C, "alpha": alpha, "rho1": rho1, "rho2": rho2})
    return states


def global_step(centre, start, alpha, rho1, rho2):
    off = ~np.eye(D, dtype=bool)

    def value(v):
        W = np.zeros((D, D))
        W[off] = v[: len(v) // 2] - v[len(v) // 2 :]
        power = scipy.linalg.expm(W * W)
        h = np.trace(power) - D
        gap = W - centre
        total = K * rho2 / 2 * np.sum(gap[off] ** 2) + LAMBDA * v.sum() + alpha * h + rho1 / 2 * h * h
        gradient = K * rho2 * gap + (alpha + rho1 * h) * 2 * W * power.T
        return total, np.concatenate([gradient[off] + LAMBDA, -gradient[off] + LAMBDA])

    first = np.concatenate([np.maximum(start[off], 0), np.maximum(-start[off], 0)])
    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10}
    bounds = [(0, None)] * len(first)
    best = scipy.optimize.minimize(
        value, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    ).x
    W = np.zeros((D, D))
    W[off] = best[: len(best) // 2] - best[len(best) // 2 :]
    return W


@pytest.fixture(scope="module")
def rounds():
    """The same from the package's own halves: sites answer, the server sees sums."""
    run = ConsensusRun(
        RunOptions(
            np.full((2 * D, D), LAMBDA),
            np.ones(2 * D),
            EdgeConstraints.none(D, 1),
            make_schedule("paper", K, float(K)),
            max_rounds=ROUNDS + 1,
        )
    )
    problem = Decomposed.of(np.stack(grams()), np.ones(2 * D))
    sites = Consensus(*np.zeros((2, K, 2 * D, D)))
    states = []
    for _ in range(ROUNDS):
        sites, vectors = sites.answers(problem, run.ask, run.C, run.rho2_before, run.rho2, run.relaxation)
        run.advance(vectors.sum(axis=0), K)
        states.append({"C": run.C, "alpha": run.alpha, "rho1": run.rho1, "rho2": run.rho2})
    return states


def test_alpha_and_penalties_follow_the_paper_round_by_round(rounds, transcription):
    assert transcription[-1]["alpha"] > 0
    for mine, theirs in zip(rounds, transcription, strict=True):
        assert mine["rho1"] == pytest.approx(theirs["rho1"], rel=1e-12)
        assert mine["rho2"] == pytest.approx(theirs["rho2"], rel=1e-12)
        assert mine["alpha"] == pytest.approx(theirs["alpha"], rel=2e-2, abs=1e-6)


def test_the_consensus_follows_the_paper_round_by_round(rounds, transcription):
    for mine, theirs in zip(rounds, transcription, strict=True):
        np.testing.assert_allclose(mine["C"], theirs["C"], atol=2e-3)
    assert np.abs(rounds[-1]["C"][0, 1]) > 0.2
