"""Mess in the noise that drives the network, and causes that nobody measures: they enter before the effects travel.

A function takes the noise of every recording (burn-in included), a strength and a generator, and returns new noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from feddbn.core.arrays import FloatArray

__all__ = ["HIDDEN_MEMORY", "NOISE_MESSES", "NoiseMess", "Shocks", "unequal_noise"]

HIDDEN_MEMORY = 0.7


@dataclass(frozen=True, eq=False)
class Shocks:
    """The noise of all recordings.

    Attributes
    ----------
    values
        One (burn-in + rows, d) array per recording.
    sites
        The number of each recording's site.
    n_burned
        Rows at the start of each array that nobody will see.
    scales
        (d,) standard deviations.
    """

    values: list[FloatArray]
    sites: list[int]
    n_burned: int
    scales: FloatArray


NoiseMess = Callable[[Shocks, float, np.random.Generator], Shocks]


def unequal_noise(scales: FloatArray, strength: float, rng: np.random.Generator) -> FloatArray:
    """Standard deviations times factors between 1 / `strength` and `strength`, uniform on a log scale."""
    return scales * strength ** rng.uniform(-1.0, 1.0, len(scales))


def heavy_tails(shocks: Shocks, strength: float, rng: np.random.Generator) -> Shocks:
    """A normal variable over the root of chi-squared / degrees is Student's t; scaled so that variances stay."""

    def change(u: FloatArray) -> FloatArray:
        return u * np.sqrt((strength - 2.0) / rng.chisquare(strength, u.shape))

    return replace(shocks, values=[change(u) for u in shocks.values])


def autocorrelated_noise(shocks: Shocks, strength: float, rng: np.random.Generator) -> Shocks:
    """``v_t = r v_{t-1} + sqrt(1 - r^2) u_t`` from ``v_0 = u_0``: variances stay."""
    return replace(shocks, values=[_remember(u, strength) for u in shocks.values])


def _remember(u: FloatArray, memory: float) -> FloatArray:
    v = u.copy()
    for t in range(1, len(v)):
        v[t] = memory * v[t - 1] + np.sqrt(1.0 - memory**2) * u[t]
    return v


def changing_noise(shocks: Shocks, strength: float, rng: np.random.Generator) -> Shocks:
    """Log standard deviations follow one to three sine waves over a recording; the mean variance stays."""
    n_sites, d = max(shocks.sites) + 1, len(shocks.scales)
    waves, phases = rng.integers(1, 4, (n_sites, d)), rng.uniform(0, 2 * np.pi, (n_sites, d))

    def change(u: FloatArray, site: int) -> FloatArray:
        n = len(u) - shocks.n_burned
        times = (np.arange(len(u))[:, None] - shocks.n_burned) / n
        factor = np.exp(strength * np.sin(2 * np.pi * waves[site] * times + phases[site]))
        return np.asarray(u * factor / np.sqrt((factor[shocks.n_burned :] ** 2).mean(axis=0)))

    return replace(shocks, values=[change(u, k) for u, k in zip(shocks.values, shocks.sites, strict=True)])


def noisy_site(shocks: Shocks, strength: float, rng: np.random.Generator) -> Shocks:
    """All noise of one site times `strength`."""
    chosen = int(rng.integers(max(shocks.sites) + 1))
    values = [u * strength if k == chosen else u for u, k in zip(shocks.values, shocks.sites, strict=True)]
    return replace(shocks, values=values)


def hidden_causes(shocks: Shocks, strength: float, rng: np.random.Generator) -> Shocks:
    """Two white hidden variables, each with the same weights at all sites."""
    d = len(shocks.scales)
    loads = np.zeros((2, d))
    for load in loads:
        load[rng.choice(d, size=min(3, d), replace=False)] = strength
    loads *= np.where(rng.random(loads.shape) < 0.5, -1.0, 1.0) * shocks.scales

    return replace(shocks, values=[u + rng.standard_normal((len(u), 2)) @ loads for u in shocks.values])


def hidden_lagged_cause(shocks: Shocks, strength: float, rng: np.random.Generator) -> Shocks:
    """One hidden variable that remembers `HIDDEN_MEMORY` of itself; half of its targets feel it a row later."""
    d = len(shocks.scales)
    targets = rng.choice(d, size=min(4, d), replace=False)
    loads = strength * np.where(rng.random(d) < 0.5, -1.0, 1.0) * shocks.scales
    at_once, later = targets[: len(targets) // 2], targets[len(targets) // 2 :]

    def change(u: FloatArray) -> FloatArray:
        hidden = _remember(rng.standard_normal((len(u) + 1, 1)), HIDDEN_MEMORY)
        changed = u.copy()
        changed[:, at_once] += hidden[1:] * loads[at_once]
        changed[:, later] += hidden[:-1] * loads[later]
        return changed

    return replace(shocks, values=[change(u) for u in shocks.values])


NOISE_MESSES: Mapping[str, NoiseMess] = MappingProxyType(
    {
        "heavy-tails": heavy_tails,
        "autocorrelated-noise": autocorrelated_noise,
        "changing-noise": changing_noise,
        "noisy-site": noisy_site,
        "hidden-causes": hidden_causes,
        "hidden-lagged-cause": hidden_lagged_cause,
    }
)
