"""Newton's steps to the largest likelihood of one model, from sums at one theta after the other.

    theta <- theta + I^-1 g      halved if the likelihood fell, bounded so that no step goes far

Columns are standardised, so 1 is a natural size of a coefficient. Where a combination of columns tells values apart without
an error, the likelihood has no maximum: it hardly rises any more while coefficients still grow, or slopes pass `STEEPEST`.
Such a model gets a ridge, that is a normal prior of standard deviation `SEPARATED_SD` on its slopes; all others have none.
"""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.glm.models import ModelSums

__all__ = ["SEPARATED_SD", "STEEPEST", "Climb"]

SEPARATED_SD = 2.5
"""Standard deviation of slopes, per standard deviation or level, where values are told apart without an error."""
STEEPEST = 8.0
"""No slope is steeper without a prior: from one standard deviation, or level, to the next the odds change 3000 times."""
_CLOSE = 1e-8
"""Expected rise of twice the likelihood below which one more step ends at the maximum, up to rounding."""
_NEAR = 1e-2
"""The same below which the likelihood at the maximum is known well enough to compare models."""
_LONGEST_STEP = 3.0
_FLAT, _STILL_MOVES, _FIRST_LOOK = 0.1, 0.3, 3
_MOST_HALVINGS = 12


class Climb:
    """One model on its way; `theta` is what to ask for next.

    Parameters
    ----------
    theta
        (m,) where to begin.
    is_slope
        (m,) which parameters a ridge holds.
    n_thresholds
        So many first parameters must ascend.
    """

    def __init__(self, theta: FloatArray, is_slope: BoolArray, n_thresholds: int = 0) -> None:
        self.theta: FloatArray = np.asarray(theta, dtype=np.float64)
        self.is_done = self.is_near = False
        self.has_ridge = False
        self.n_taken = 0
        self.log_likelihood = -np.inf
        self.dispersion: FloatArray = np.zeros(2)
        self._is_slope, self._n_thresholds = is_slope, n_thresholds
        self._from: FloatArray = self.theta
        self._step: FloatArray = np.zeros_like(self.theta)
        self._best, self._halvings = -np.inf, 0
        self._information: FloatArray = np.eye(len(self.theta))

    @property
    def covariance(self) -> FloatArray:
        """(m, m) of the estimates."""
        return np.asarray(np.linalg.pinv(self._information, hermitian=True), dtype=np.float64)

    def take(self, sums: ModelSums) -> None:
        """Go on from what the sums at `theta` tell."""
        if self.is_done:
            return
        self.n_taken += 1
        value = sums.log_likelihood - self._penalty(self.theta)
        if value < self._best - 1e-9 * (1 + abs(self._best)) and self._halvings < _MOST_HALVINGS:
            self._halvings += 1
            self._step = self._step / 4
            self.theta = self._from + self._step
            return
        step, decrement = self._newton(sums)
        moves = float(np.abs(step[self._is_slope]).max(initial=0.0))
        is_flat = decrement < _FLAT and moves > _STILL_MOVES and self.n_taken >= _FIRST_LOOK
        is_steep = bool((np.abs((self.theta + self._bounded(step))[self._is_slope]) > STEEPEST).any())
        if (is_flat or is_steep) and not self.has_ridge:
            self.has_ridge = True
            step, decrement = self._newton(sums)
            value = sums.log_likelihood - self._penalty(self.theta)
        self._best, self._halvings, self._from = value, 0, self.theta
        self.log_likelihood = sums.log_likelihood + (0.0 if self.has_ridge else decrement / 2)
        self.dispersion = sums.dispersion
        self.is_done, self.is_near = decrement < _CLOSE, decrement < _NEAR
        self._step = step if self.is_done else self._bounded(step)
        self.theta = self._from + self._step

    def _penalty(self, theta: FloatArray) -> float:
        return float((theta[self._is_slope] ** 2).sum()) / (2 * SEPARATED_SD**2) if self.has_ridge else 0.0

    def _newton(self, sums: ModelSums) -> tuple[FloatArray, float]:
        """The step, and by how much twice the likelihood is expected to rise."""
        g, H = sums.gradient, sums.information
        if self.has_ridge:
            pull = self._is_slope / SEPARATED_SD**2
            g, H = g - pull * self.theta, H + np.diag(pull)
        values, vectors = np.linalg.eigh(H)
        # A direction without information, or bent the wrong way, is gone along as if it had a little.
        least = 1e-10 * max(float(values.max(initial=0.0)), 1e-10)
        values = np.where(values > least, values, np.maximum(np.abs(values), least))
        self._information = H
        along = vectors.T @ g
        return np.asarray(vectors @ (along / values)), float((along**2 / values).sum())

    def _bounded(self, step: FloatArray) -> FloatArray:
        step = step * min(1.0, _LONGEST_STEP / max(float(np.abs(step).max(initial=0.0)), 1e-300))
        k = self._n_thresholds
        for _ in range(60):
            if k < 2 or (np.diff(self.theta[:k] + step[:k]) > 0).all():
                break
            step = step / 2
        return step
