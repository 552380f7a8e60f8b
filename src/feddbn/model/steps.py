"""From one moment of a network to the next, for many rows at once: what simulated paths and particles need of it.

Networks with curves add noise to what causes say; variables of other kinds draw from distributions
(`feddbn.model.conditional_steps`).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.errors import ParameterError
from feddbn.model.additive import additive
from feddbn.model.conditional_steps import ConditionalSteps
from feddbn.model.network import Network
from feddbn.model.noise import Noise, draw_noise

__all__ = ["Steps", "draw_shocks", "steps_of"]


class Steps(Protocol):
    """How a network goes on."""

    def moment(self, past: FloatArray, shocks: FloatArray, held: FloatArray) -> FloatArray:
        """(n, d) the moment after `past` (n, p, d), oldest first, with shocks (n, d); `held` (d,) is NaN where free."""

    def log_weights(self, past: FloatArray, x: FloatArray, seen: BoolArray) -> FloatArray:
        """(n,) log density, up to a constant, of the cells `seen` (d,) of the moment x (n, d) after `past`."""


class _CurvedSteps:
    def __init__(self, dbn: Network) -> None:
        self._dbn, self._effects = dbn, additive(dbn)
        self._oldest_first = np.ascontiguousarray(dbn.A[::-1]).reshape(-1, dbn.d)

    def _expected(self, past: FloatArray) -> FloatArray:
        known = self._dbn.intercept + self._effects.of_past(past)
        return np.asarray(known + past.reshape(len(past), -1) @ self._oldest_first)

    def moment(self, past: FloatArray, shocks: FloatArray, held: FloatArray) -> FloatArray:
        free = np.isnan(held)
        return self._effects.moment(np.where(free, self._expected(past) + shocks, held), self._dbn.W, free)

    def log_weights(self, past: FloatArray, x: FloatArray, seen: BoolArray) -> FloatArray:
        # What the noise of present cells must have been, given their causes.
        noise = x - self._expected(past) - self._effects.within(x, self._dbn.W)
        v = self._dbn.noise_variances
        seen = seen & (v > 0)
        return np.asarray(-(noise[:, seen] ** 2 / (2 * v[seen])).sum(axis=1))


def steps_of(dbn: Network) -> Steps:
    """How this network goes on."""
    return ConditionalSteps(dbn) if dbn.conditionals else _CurvedSteps(dbn)


def draw_shocks(dbn: Network, noise: Noise, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    """(*shape, d) what drives the network: noise, or standard normal numbers that stand for draws from distributions."""
    if not dbn.conditionals:
        return draw_noise(noise, dbn.noise_variances, shape, rng)
    if not isinstance(noise, str) or noise != "gaussian":
        raise ParameterError(
            "noise has no meaning for variables of other kinds, which have distributions of their own; leave it out."
        )
    return rng.standard_normal((*shape, dbn.d))
