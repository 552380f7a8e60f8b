"""Time series of simulated systems, by the reduced form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.sim.noise import draw_noise
from feddbn.sim.systems import System

__all__ = ["simulate_recordings"]


def simulate_recordings(
    systems: Sequence[System],
    n_rows: Sequence[int],
    generators: Sequence[np.random.Generator],
    noise: str,
    scales: FloatArray,
    burn_in: int,
) -> list[FloatArray]:
    """One (n_rows[r], d) array per recording r, drawn from ``systems[r]`` with ``generators[r]``.

    ``x_t = (sum_l x_{t-l} A_l + u_t)(I - W)^{-1}`` from ``x = 0``, with the first `burn_in` rows thrown away.
    Recordings of the same length advance together, so the Python loop runs over time and not over recordings.
    """
    outcome: list[FloatArray | None] = [None] * len(systems)
    by_length: dict[int, list[int]] = {}
    for r, length in enumerate(n_rows):
        by_length.setdefault(length, []).append(r)
    for length, members in by_length.items():
        n_burned = burn_in if len(systems[members[0]].A) else 0
        shape = (n_burned + length, len(scales))
        shocks = np.stack([draw_noise(noise, shape, scales, generators[r]) for r in members], axis=1)
        paths = _advance([systems[r] for r in members], shocks)
        for column, r in enumerate(members):
            outcome[r] = np.ascontiguousarray(paths[n_burned:, column])
    return [recording for recording in outcome if recording is not None]


def _advance(systems: list[System], shocks: FloatArray) -> FloatArray:
    """(T, R, d) paths from (T, R, d) shocks; works in place on the mixed shocks."""
    if all(system is systems[0] for system in systems):
        x = shocks @ systems[0].mixing
        B = systems[0].reduced
    else:
        # One system per recording: the recording axis is a batch axis of matrix products of one row each.
        x = shocks[:, :, None, :] @ np.stack([s.mixing for s in systems])
        B = np.stack([s.reduced for s in systems], axis=1)
    for t in range(1, len(x)):
        for lag in range(1, min(t, len(B)) + 1):
            x[t] += x[t - lag] @ B[lag - 1]
    return x.reshape(shocks.shape)
