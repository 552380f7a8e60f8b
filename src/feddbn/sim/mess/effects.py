"""Mess in the network itself: levels near a unit root, edges that stop, effects that are not linear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.sim.systems import System, first_stable

__all__ = ["CLIP", "effect_shape", "slow_levels", "stop_edges"]

CLIP = 3.0
Shape = Callable[[FloatArray], FloatArray]


def slow_levels(system: System, strength: float) -> System:
    """The system with a lag-1 edge from itself at every variable without causes within a moment.

    They share one weight, found by bisection, that gives the system the spectral radius `strength`.
    """
    roots = np.flatnonzero(~system.W.any(axis=0))

    def with_weight(weight: float) -> System:
        A = system.A.copy()
        A[0, roots, roots] = weight
        return replace(system, A=A)

    low, high = 0.0, 2.0
    if with_weight(low).spectral_radius >= strength:  # The drawn loops alone are too slow: damp them first.
        damped = with_weight(low)
        system = damped.damped(0.5 * strength / damped.spectral_radius)
    while with_weight(high).spectral_radius < strength:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if with_weight(middle).spectral_radius >= strength else (middle, high)
    return with_weight(high)


def stop_edges(system: System, strength: float, rng: np.random.Generator) -> System:
    """The stable system in which a share `strength` of all edges, chosen at random, is gone."""
    n_edges = np.count_nonzero(system.W) + np.count_nonzero(system.A)

    def attempt() -> System:
        gone = np.zeros(n_edges, dtype=bool)
        gone[rng.choice(n_edges, size=round(strength * n_edges), replace=False)] = True
        W, A = system.W.copy(), system.A.copy()
        n_within = np.count_nonzero(W)
        W[W != 0] *= ~gone[:n_within]
        A[A != 0] *= ~gone[n_within:]
        return replace(system, W=W, A=A)

    return first_stable(attempt)


def effect_shape(name: str, strength: float, scales: FloatArray) -> Shape:
    """What of a cause acts, as a function of its values; both shapes are bounded, so every system stays stable.

    With ``z = x / scales``: "tanh" is ``tanh(s z) / s``, "squares" is ``(1 - s) c + s (c^2 - 1) / sqrt(2)`` where c is
    z kept within +-`CLIP`; both times `scales`.
    """

    def shape(x: FloatArray) -> FloatArray:
        z = x / scales
        if name == "tanh":
            return np.asarray(scales * np.tanh(strength * z) / strength)
        c = np.clip(z, -CLIP, CLIP)
        return np.asarray(scales * ((1.0 - strength) * c + strength * (c**2 - 1.0) / np.sqrt(2.0)))

    return shape
