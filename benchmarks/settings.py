"""Data of the benchmarks: simulated federations, and how far a network is from the true one."""

from __future__ import annotations

import numpy as np

from feddbn import simulate


def shd(truth: np.ndarray, W: np.ndarray, threshold: float = 0.0) -> int:
    """Structural Hamming distance of two graphs; a reversal counts one."""
    a, b = truth != 0, np.abs(W) > threshold
    different = a != b
    return int(np.triu(different | different.T).sum())


def federation(d: int, n_sites: int, n_samples: int, seed: int, **more):
    return simulate(d=d, n_sites=n_sites, n_samples=n_samples, random_state=seed, **more)
