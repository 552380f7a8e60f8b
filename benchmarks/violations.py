"""Federations whose noise breaks an assumption, in one way each; the network behind them is known.

Every function of `VIOLATIONS` takes the shocks of one recording or its finished rows; everything else is a clean federation
of `simulate`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.model.dbn import DBN
from feddbn.sim.simulation import simulate

__all__ = ["VIOLATIONS", "broken"]

BURN_IN = 200


def _same(u: FloatArray, rng: np.random.Generator) -> FloatArray:
    return u


def _autocorrelated(u: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Noise that remembers .6 of itself, of variance 1."""
    for t in range(1, len(u)):
        u[t] = 0.6 * u[t - 1] + 0.8 * u[t]
    return u


def _several_memories(u: FloatArray, rng: np.random.Generator) -> FloatArray:
    """The same, with a memory of .2 to .8 that differs from variable to variable."""
    rho = np.linspace(0.2, 0.8, u.shape[1])
    for t in range(1, len(u)):
        u[t] = rho * u[t - 1] + np.sqrt(1 - rho**2) * u[t]
    return u


def _arch(u: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Noise whose variance is .4 + .6 of its last square, of variance 1."""
    for t in range(1, len(u)):
        u[t] *= np.sqrt(0.4 + 0.6 * u[t - 1] ** 2)
    return u


def _step(u: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Noise of half of the variables that is three times as large in the last half of every recording."""
    half = BURN_IN + (len(u) - BURN_IN) // 2
    u[half:, : u.shape[1] // 2] *= 3.0
    return u


def _wandering(u: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Noise whose log variance wanders for all variables together, with a standard deviation of 1."""
    level = np.zeros(len(u))
    for t in range(1, len(u)):
        level[t] = 0.95 * level[t - 1] + np.sqrt(1 - 0.95**2) * rng.standard_normal()
    return u * np.exp(level / 2)[:, None]


def _heavy(u: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Student's t with 3 degrees of freedom, of variance 1."""
    return rng.standard_t(3, u.shape) / np.sqrt(3.0)


def _measured(x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Every value measured with an error as large as the signal."""
    return x + x.std(axis=0) * rng.standard_normal(x.shape)


def _with_holes(x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """A fifth of the cells is missing."""
    x[rng.random(x.shape) < 0.2] = np.nan
    return x


def _with_gaps(x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """A fifth of the rows is missing."""
    x[rng.random(len(x)) < 0.2] = np.nan
    return x


Change = Callable[[FloatArray, np.random.Generator], FloatArray]
# What becomes of the shocks, what of the rows, and whether two further variables drive others unseen.
VIOLATIONS: dict[str, tuple[Change, Change, bool]] = {
    "clean": (_same, _same, False),
    "autocorrelated noise": (_autocorrelated, _same, False),
    "autocorrelated noise, several memories": (_several_memories, _same, False),
    "variance follows the last square": (_arch, _same, False),
    "variance steps up half-way": (_step, _same, False),
    "variance wanders": (_wandering, _same, False),
    "t noise, 3 degrees": (_heavy, _same, False),
    "observation noise": (_same, _measured, False),
    "hidden lagged cause": (_same, _same, True),
    "gaps, a fifth of the rows": (_same, _with_gaps, False),
    "gaps, a fifth of the cells": (_same, _with_holes, False),
}


def broken(
    violation: str, seed: int, d: int = 8, n_sites: int = 8, rows: int = 200
) -> tuple[dict[str, list[pd.DataFrame]], DBN]:
    """The sites of a federation that breaks one assumption, and the network of what they measure."""
    on_shocks, on_rows, is_hidden = VIOLATIONS[violation]
    rng = np.random.default_rng([seed, 7])
    truth = simulate(
        d=d, n_lags=1, n_sites=1, n_samples=10, mean_degree=2.5, w_range=(0.3, 0.6), random_state=seed
    ).truth
    hidden = _hidden_effects(d, rng) if is_hidden else None
    mixing, A = np.linalg.inv(np.eye(d) - truth.W), truth.A[0]
    sites = {}
    for k in range(n_sites):
        shocks = on_shocks(rng.standard_normal((BURN_IN + rows + 1, d)), rng)
        causes = np.zeros((len(shocks), 1))
        if hidden is not None:
            causes = rng.standard_normal((len(shocks), len(hidden)))
            for t in range(1, len(causes)):
                causes[t] += 0.8 * causes[t - 1]
        effects = np.zeros((1, d)) if hidden is None else hidden
        x = np.zeros_like(shocks)
        for t in range(1, len(x)):
            x[t] = (x[t - 1] @ A + shocks[t] + causes[t - 1] @ effects) @ mixing
        sites[f"site-{k}"] = [pd.DataFrame(on_rows(x[BURN_IN:], rng), columns=list(truth.variables))]
    return sites, truth


def _hidden_effects(d: int, rng: np.random.Generator) -> FloatArray:
    """Two hidden variables act on three of the variables each."""
    effects = np.zeros((2, d))
    for row in effects:
        row[rng.choice(d, size=min(3, d), replace=False)] = rng.choice([-1.0, 1.0], min(3, d)) * 0.6
    return effects
