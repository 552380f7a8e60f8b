# ruff: noqa: B007, B023
"""PFDBNL against a naive transcription of Algorithm 2 in the paper's fMRI setting: K=5, n=200, d=15.

The transcription solves every personal step with L-BFGS-B from zero (positive and negative parts) and the auxiliary and
consensus steps numerically too; same penalties, same schedule as published, stopped at h <= 1e-8 or `max_rounds`.

    python benchmarks/personal_speed.py [max_rounds]
"""

import sys
import time

import numpy as np
from scipy.linalg import expm
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

import feddbn
from feddbn import PFDBNL


def naive(sites: list[np.ndarray], mu: float, lam: float, max_rounds: int) -> tuple[list[np.ndarray], int]:
    d = sites[0].shape[1]
    q = 2 * d
    rows = [np.hstack([x[1:], x[:-1]]) for x in sites]
    K, shape = len(rows), (q, d)
    C, T, U = np.zeros(shape), [np.zeros(shape)] * K, [np.zeros(shape)] * K
    P = [np.zeros(shape)] * K
    alpha, rho1, rho2 = 0.0, 1.0, 1.0
    diagonal = np.zeros(shape, dtype=bool)
    diagonal[:d][np.diag_indices(d)] = True
    bounds = [(0, 0) if f else (0, None) for f in np.tile(diagonal.ravel(), 2)]
    for t in range(max_rounds):
        for k, Z in enumerate(rows):
            X, n = Z[:, :d], len(Z)

            def personal(v: np.ndarray, X=X, Z=Z, n=n, k=k) -> tuple[float, np.ndarray]:
                c = (v[: q * d] - v[q * d :]).reshape(shape)
                R = X - Z @ c
                E = expm(c[:d] * c[:d])
                h = np.trace(E) - d
                pull = c - T[k]
                value = (
                    0.5 / n * np.sum(R * R)
                    + mu * np.sum(pull**2)
                    + lam * v.sum()
                    + alpha * h
                    + 0.5 * rho1 * h * h
                )
                g = -Z.T @ R / n + 2 * mu * pull
                g[:d] += (alpha + rho1 * h) * 2 * c[:d] * E.T
                return value, np.concatenate([g.ravel() + lam, -g.ravel() + lam])

            v = minimize(personal, np.zeros(2 * q * d), jac=True, method="L-BFGS-B", bounds=bounds).x
            P[k] = (v[: q * d] - v[q * d :]).reshape(shape)

            def auxiliary(v: np.ndarray, k=k) -> tuple[float, np.ndarray]:
                tilde = v.reshape(shape)
                gap = tilde - C
                value = mu * np.sum((P[k] - tilde) ** 2) + np.sum(U[k] * gap) + 0.5 * rho2 * np.sum(gap**2)
                return value, (2 * mu * (tilde - P[k]) + U[k] + rho2 * gap).ravel()

            T[k] = minimize(auxiliary, np.zeros(q * d), jac=True, method="L-BFGS-B").x.reshape(shape)

        def consensus(v: np.ndarray) -> tuple[float, np.ndarray]:
            c = v.reshape(shape)
            value = sum(np.sum(U[k] * (T[k] - c)) + 0.5 * rho2 * np.sum((T[k] - c) ** 2) for k in range(K))
            return value, sum(-U[k] - rho2 * (T[k] - c) for k in range(K)).ravel()

        C = minimize(consensus, np.zeros(q * d), jac=True, method="L-BFGS-B").x.reshape(shape)
        U = [U[k] + rho2 * (T[k] - C) for k in range(K)]
        h = float(np.mean([np.trace(expm(c[:d] ** 2)) - d for c in P]))
        alpha += rho1 * h
        rho1, rho2 = min(rho1 * 1.6, 1e16), rho2 * 1.1
        if h <= 1e-8:
            break
    return P, t + 1


def main(max_rounds: int) -> None:
    fed = feddbn.simulate(d=15, n_sites=5, n_samples=1000, mean_degree=2, heterogeneity=0.3, random_state=0)
    with threadpool_limits(1):
        PFDBNL(mu=0.1).fit(fed.sites)
        start = time.process_time()
        m = PFDBNL(mu=0.1).fit(fed.sites)
        ours = time.process_time() - start
        print(f"PFDBNL: {ours:.2f} s, {m.n_rounds_} rounds, {m.status_.name}", flush=True)
        start = time.process_time()
        P, rounds = naive([frames[0].to_numpy() for frames in fed.sites.values()], 0.1, 0.05, max_rounds)
        theirs = time.process_time() - start
    d = 15
    W = {name: np.where(np.abs(c[:d]) >= 0.2, c[:d], 0) for name, c in zip(fed.sites, P, strict=True)}
    naive_dbns = {name: feddbn.DBN(W[name], np.zeros((1, d, d)), m.dbn_.variables) for name in W}
    print(f"naive transcription: {theirs:.1f} s, {rounds} rounds; ratio {theirs / ours:.0f}")
    print(
        "mSHD of W:",
        feddbn.score_sites(fed.truths, m.dbns_)["W"]["mshd"],
        feddbn.score_sites(fed.truths, naive_dbns)["W"]["mshd"],
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
