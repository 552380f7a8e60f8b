"""The paper's two algorithms, transcribed as a careful reader would on a first day: the baseline of the benchmarks.

Algorithm 1 (FDBNL): each round the sites evaluate the boxed closed forms with explicit inverses; the server minimises
its augmented Lagrangian by L-BFGS-B over the doubled vector ``[W+, W-, A+, A-] >= 0`` from zero, adding up the terms of
the sites in a loop at every evaluation, with scipy's matrix exponential. Penalties grow by 1.6 and 1.1 per round.

Algorithm 2 (PFDBNL): each site minimises its own augmented Lagrangian by L-BFGS-B from zero, its auxiliary variables
in closed form; the server minimises its quadratic by L-BFGS-B from zero.

Two kindnesses to the baseline: its Gram blocks are computed once, not every round; and it does not stop at W = 0,
which is acyclic and has learned nothing. Nothing here is used by the library.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from scipy.linalg import expm
from scipy.optimize import minimize

Rows = tuple[np.ndarray, np.ndarray]


@dataclass
class NaiveFit:
    """Final stack(s) C = [W; A], rounds done, CPU seconds, evaluations of h, and whether h reached its tolerance."""

    C: np.ndarray
    personal: list[np.ndarray]
    n_rounds: int
    seconds: float
    n_evaluations: int
    h: float
    is_finished: bool


def acyclicity(W: np.ndarray) -> tuple[float, np.ndarray]:
    E = expm(W * W)
    return float(np.trace(E)) - len(W), 2.0 * W * E.T


class _Blocks:
    """S, M, N of the paper for one site."""

    def __init__(self, X: np.ndarray, Y: np.ndarray) -> None:
        n = len(X)
        self.S, self.M, self.N = X.T @ X / n, X.T @ Y / n, Y.T @ Y / n

    def loss_and_grad(self, W: np.ndarray, A: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        R = np.eye(len(W)) - W
        value = (
            0.5 * np.trace(R.T @ self.S @ R) - np.trace(R.T @ self.M @ A) + 0.5 * np.trace(A.T @ self.N @ A)
        )
        return float(value), -self.S @ R + self.M @ A, self.N @ A - self.M.T @ R


def _unpack(x: np.ndarray, d: int, q: int) -> tuple[np.ndarray, np.ndarray]:
    half = x[: q * d] - x[q * d :]
    return half[: d * d].reshape(d, d), half[d * d :].reshape(q - d, d)


def _minimise(smooth, d: int, q: int, lambda_w: float, lambda_a: float) -> np.ndarray:
    """Minimise smooth(W, A) + L1 penalties from zero over the doubled vector."""
    penalty = np.concatenate([np.full(d * d, lambda_w), np.full((q - d) * d, lambda_a)])

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        W, A = _unpack(x, d, q)
        value, grad_W, grad_A = smooth(W, A)
        g = np.concatenate([grad_W.ravel(), grad_A.ravel()])
        return value + float(penalty @ (x[: q * d] + x[q * d :])), np.concatenate([g + penalty, -g + penalty])

    bounds = [(0.0, 0.0) if i < d * d and i % (d + 1) == 0 else (0.0, None) for i in range(q * d)] * 2
    solution = minimize(objective, np.zeros(2 * q * d), jac=True, method="L-BFGS-B", bounds=bounds)
    W, A = _unpack(solution.x, d, q)
    return np.vstack([W, A])


def naive_fdbnl(
    rows: list[Rows],
    lambda_w: float,
    lambda_a: float,
    *,
    max_rounds: int = 100,
    max_seconds: float = 1e9,
    h_tol: float = 1e-8,
) -> NaiveFit:
    start = time.process_time()
    sites = [_Blocks(X, Y) for X, Y in rows]
    d, q = len(sites[0].S), len(sites[0].S) + len(sites[0].N)
    W, A = np.zeros((d, d)), np.zeros((q - d, d))
    B, D = [W] * len(sites), [A] * len(sites)
    beta, gamma = [W] * len(sites), [A] * len(sites)
    alpha, rho1, rho2 = 0.0, 1.0, 1.0
    n_evaluations = 0
    for n_rounds in range(1, max_rounds + 1):  # noqa: B007 (read after the loop)
        for k, s in enumerate(sites):
            P, Q = s.S + rho2 * np.eye(d), s.N + rho2 * np.eye(q - d)
            b1, b2 = s.S - beta[k] + rho2 * W, s.M.T - gamma[k] + rho2 * A
            Pi, Qi = np.linalg.inv(P), np.linalg.inv(Q)
            B[k] = np.linalg.inv(P - s.M @ Qi @ s.M.T) @ (b1 - s.M @ Qi @ b2)
            D[k] = np.linalg.inv(Q - s.M.T @ Pi @ s.M) @ (b2 - s.M.T @ Pi @ b1)

        def smooth(W: np.ndarray, A: np.ndarray, alpha=alpha, rho1=rho1, rho2=rho2):
            nonlocal n_evaluations
            n_evaluations += 1
            h, grad_h = acyclicity(W)
            value, grad_W, grad_A = (
                alpha * h + 0.5 * rho1 * h * h,
                (alpha + rho1 * h) * grad_h,
                np.zeros_like(A),
            )
            for k in range(len(sites)):
                gap_W, gap_A = B[k] - W, D[k] - A
                value += float(np.sum(beta[k] * gap_W) + np.sum(gamma[k] * gap_A))
                value += 0.5 * rho2 * float(np.sum(gap_W**2) + np.sum(gap_A**2))
                grad_W = grad_W - beta[k] - rho2 * gap_W
                grad_A = grad_A - gamma[k] - rho2 * gap_A
            return value, grad_W, grad_A

        C = _minimise(smooth, d, q, lambda_w, lambda_a)
        W, A = C[:d], C[d:]
        for k in range(len(sites)):
            beta[k] = beta[k] + rho2 * (B[k] - W)
            gamma[k] = gamma[k] + rho2 * (D[k] - A)
        h, _ = acyclicity(W)
        alpha += rho1 * h
        rho1, rho2 = 1.6 * rho1, 1.1 * rho2
        if (h <= h_tol and np.any(W != 0)) or time.process_time() - start > max_seconds:
            break
    return NaiveFit(C, [], n_rounds, time.process_time() - start, n_evaluations, h, h <= h_tol)


def naive_pfdbnl(
    rows: list[Rows],
    lambda_w: float,
    lambda_a: float,
    mu: float,
    *,
    max_rounds: int = 100,
    max_seconds: float = 1e9,
    h_tol: float = 1e-8,
) -> NaiveFit:
    start = time.process_time()
    sites = [_Blocks(X, Y) for X, Y in rows]
    d, q = len(sites[0].S), len(sites[0].S) + len(sites[0].N)
    C = np.zeros((q, d))
    personal, T, U = [C] * len(sites), [C] * len(sites), [C] * len(sites)
    alpha, rho1, rho2 = 0.0, 1.0, 1.0
    n_evaluations = 0
    for n_rounds in range(1, max_rounds + 1):  # noqa: B007 (read after the loop)
        for k, s in enumerate(sites):

            def local(W: np.ndarray, A: np.ndarray, s=s, k=k, alpha=alpha, rho1=rho1):
                nonlocal n_evaluations
                n_evaluations += 1
                h, grad_h = acyclicity(W)
                value, grad_W, grad_A = s.loss_and_grad(W, A)
                gap_W, gap_A = W - T[k][:d], A - T[k][d:]
                value += mu * float(np.sum(gap_W**2) + np.sum(gap_A**2)) + alpha * h + 0.5 * rho1 * h * h
                return value, grad_W + 2 * mu * gap_W + (alpha + rho1 * h) * grad_h, grad_A + 2 * mu * gap_A

            personal[k] = _minimise(local, d, q, lambda_w, lambda_a)
            T[k] = (2 * mu * personal[k] + rho2 * C - U[k]) / (2 * mu + rho2)

        def consensus(W: np.ndarray, A: np.ndarray, rho2=rho2):
            C, value, grad = np.vstack([W, A]), 0.0, np.zeros((q, d))
            for k in range(len(sites)):
                gap = T[k] - C
                value += float(np.sum(U[k] * gap)) + 0.5 * rho2 * float(np.sum(gap**2))
                grad -= U[k] + rho2 * gap
            return value, grad[:d], grad[d:]

        C = _minimise(consensus, d, q, 0.0, 0.0)
        for k in range(len(sites)):
            U[k] = U[k] + rho2 * (T[k] - C)
        hs = [acyclicity(P[:d])[0] for P in personal]
        h = float(np.mean(hs))
        alpha += rho1 * h
        rho1, rho2 = 1.6 * rho1, 1.1 * rho2
        if (
            max(hs) <= h_tol and any(np.any(P[:d] != 0) for P in personal)
        ) or time.process_time() - start > max_seconds:
            break
    return NaiveFit(
        C, personal, n_rounds, time.process_time() - start, n_evaluations, max(hs), max(hs) <= h_tol
    )
