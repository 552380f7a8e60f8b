"""Data of the benchmarks: simulated federations as rows, moments and frames."""

from __future__ import annotations

import numpy as np

from feddbn import simulate
from feddbn.core.constraints import break_cycles
from feddbn.core.penalised.lasso import loss_value
from feddbn.core.statistics.moments import Moments


def rows_of(sites: dict, n_lags: int = 1) -> list[tuple[np.ndarray, np.ndarray]]:
    """(X, Y) of each site: rows and their lagged rows, lag 1 first; no lag crosses two recordings."""
    rows = []
    for recordings in sites.values():
        X, Y = [], []
        for frame in recordings:
            x = np.asarray(frame, dtype=float)
            X.append(x[n_lags:])
            Y.append(np.hstack([x[n_lags - lag : len(x) - lag] for lag in range(1, n_lags + 1)]))
        rows.append((np.vstack(X), np.vstack(Y)))
    return rows


def pooled_gram(rows: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    Z = np.vstack([np.hstack(pair) for pair in rows])
    return Z.T @ Z / len(Z)


def pooled_objective(G: np.ndarray, C: np.ndarray, lambda_w: float, lambda_a: float) -> float:
    """Penalised objective of the acyclic part of C: what is compared is a network, not an infeasible point."""
    d = C.shape[1]
    C = C.copy()
    C[:d], _ = break_cycles(C[:d])
    return loss_value(G, C) + lambda_w * float(np.abs(C[:d]).sum()) + lambda_a * float(np.abs(C[d:]).sum())


def shd(truth: np.ndarray, W: np.ndarray, threshold: float = 0.0) -> int:
    """Structural Hamming distance of two graphs; a reversal counts one."""
    a, b = truth != 0, np.abs(W) > threshold
    different = a != b
    return int(np.triu(different | different.T).sum())


def federation(d: int, n_sites: int, n_samples: int, seed: int, **more):
    return simulate(d=d, n_sites=n_sites, n_samples=n_samples, random_state=seed, **more)


__all__ = ["Moments", "federation", "pooled_gram", "pooled_objective", "rows_of", "shd"]
