"""Which variables are near a unit root, from the moments of lagged rows alone.

Each variable is regressed on its own p lags, which the lagged Gram matrix holds already:

    x_t = c + phi_1 x_{t-1} + ... + phi_p x_{t-p} + u_t,      rho = phi_1 + ... + phi_p

rho is the part of a level that stays (1: a random walk), and ``t = (rho - 1) / se(rho)`` is the augmented Dickey-Fuller
statistic. Slow levels share few independent ups and downs, so that regressions among them find partners by chance and
edge probabilities near 0 and 1 promise too much. A rho of 0.95 is enough for that, however many rows show that it is below 1;
with fewer rows rho comes out too small, so that one of 0.9 counts where a unit root cannot be excluded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.scaling import correlations

__all__ = ["SlowLevels", "slow_levels", "slow_warnings"]

_SLOW = 0.95
_PERHAPS_SLOW = 0.9
_NOT_EXCLUDED = -2.86
"""The statistic's 5 % point with a constant and many rows (MacKinnon 2010)."""
_SHOWN = 4


@dataclass(frozen=True)
class SlowLevels:
    """How slowly variables move.

    Attributes
    ----------
    persistence
        (d,) rho: the part of a level that stays from row to row.
    statistic
        (d,) augmented Dickey-Fuller statistic; a unit root is excluded at 5 % below -2.86.
    n
        Number of rows.
    """

    persistence: FloatArray
    statistic: FloatArray
    n: float

    @property
    def slow(self) -> list[int]:
        """Positions of the variables near a unit root, the slowest first."""
        near = (self.persistence >= _SLOW) | (
            (self.persistence >= _PERHAPS_SLOW) & (self.statistic > _NOT_EXCLUDED)
        )
        return [int(j) for j in np.argsort(-self.persistence, kind="stable") if near[j]]

    @property
    def independent_rows(self) -> FloatArray:
        """(d,) as many independent values tell as much about a mean: ``n (1 - rho) / (1 + rho)``, at least 1."""
        rho = np.clip(self.persistence, 0.0, 1.0)
        return np.maximum(self.n * (1 - rho) / (1 + rho), 1.0)

    def sentence(self, variables: Sequence[str]) -> str | None:
        """Say which variables these are, what follows and what may help; None if there are none."""
        slow = self.slow
        if not slow:
            return None
        names = ", ".join(variables[j] for j in slow[:_SHOWN])
        more = f" and {len(slow) - _SHOWN} more" if len(slow) > _SHOWN else ""
        rows = self.independent_rows[slow[0]]
        return (
            f"levels near a unit root: {names}{more} (of {variables[slow[0]]} {self.persistence[slow[0]]:.3f} stays from row "
            f"to row: of {self.n:.0f} rows about {rows:.0f} count as independent); edge probabilities near 0 and 1 promise "
            "too much here. Rank edges by their strength, and try more lags (n_lags='auto') if effects may take "
            "several rows."
        )


def slow_levels(moments: Moments, d: int) -> SlowLevels | None:
    """Return how slowly d variables move, from moments of ``[x_t, ..., x_{t-p}]``; None without lags or rows to tell."""
    n_lags = moments.q // d - 1
    left = moments.n - 1 - n_lags
    if n_lags < 1 or left < 1:
        return None
    R, root = correlations(moments.scatter)
    persistence, statistic = np.zeros(d), np.full(d, -np.inf)
    for j in range(d):
        own = np.arange(1, n_lags + 1) * d + j
        # Lags of a variable that has hardly moved yet may be copies of each other.
        inverse = np.linalg.pinv(R[np.ix_(own, own)], hermitian=True)
        scale = root[j] / root[own]
        phi = inverse @ R[own, j] * scale
        residual = max(float(R[j, j] - R[own, j] @ inverse @ R[own, j]), 0.0) / left
        spread = float(np.sqrt(residual * float(scale @ inverse @ scale)))
        persistence[j] = float(phi.sum())
        if spread > 0:
            statistic[j] = (persistence[j] - 1.0) / spread
    return SlowLevels(persistence, statistic, moments.n)


def slow_warnings(moments: Moments, variables: Sequence[str], inputs: Sequence[int] = ()) -> list[str]:
    """The sentence about levels near a unit root, if there are any; `inputs` (positions) may be as slow as they are."""
    d = len(variables)
    outputs = [j for j in range(d) if j not in inputs]
    kept = np.array([lag * d + j for lag in range(moments.q // d) for j in outputs], dtype=int)
    found = slow_levels(moments.select(kept), len(outputs))
    sentence = None if found is None else found.sentence([variables[j] for j in outputs])
    return [] if sentence is None else [sentence]
