"""Time series of simulated systems, by the reduced form; step by step where effects are not linear or change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.sim.curved_series import Stepper
from feddbn.sim.noise import draw_noise
from feddbn.sim.systems import System

__all__ = ["Effects", "advance", "draw_shocks"]


@dataclass(frozen=True, eq=False)
class Effects:
    """How effects differ from those of one linear system.

    Attributes
    ----------
    shape
        What of the values of causes acts; None: the values themselves.
    later
        The system of every recording from its middle on; None: the same as before.
    """

    shape: Callable[[FloatArray], FloatArray] | None = None
    later: Sequence[System] | None = None

    @property
    def are_plain(self) -> bool:
        """Whether there is no difference."""
        return self.shape is None and self.later is None


def draw_shocks(
    n_rows: Sequence[int],
    generators: Sequence[np.random.Generator],
    noise: str,
    scales: FloatArray,
    n_burned: int,
) -> list[FloatArray]:
    """One (n_burned + n_rows[r], d) array of noise per recording r, drawn with ``generators[r]``."""
    return [
        draw_noise(noise, (n_burned + length, len(scales)), scales, rng)
        for length, rng in zip(n_rows, generators, strict=True)
    ]


def advance(
    systems: Sequence[System], shocks: Sequence[FloatArray], n_burned: int, effects: Effects | None = None
) -> list[FloatArray]:
    """One (rows, d) array per recording r, from ``systems[r]`` and its noise, without the first `n_burned` rows.

    ``x_t = (sum_l x_{t-l} A_l + u_t)(I - W)^{-1}`` from ``x = 0``, unless `effects` or the shapes of systems say
    otherwise. Recordings of the same length advance together, so the Python loop runs over time and not over
    recordings.
    """
    outcome: list[FloatArray | None] = [None] * len(systems)
    by_length: dict[int, list[int]] = {}
    for r, u in enumerate(shocks):
        by_length.setdefault(len(u), []).append(r)
    for length, members in by_length.items():
        stacked = np.stack([shocks[r] for r in members], axis=1)
        group = [systems[r] for r in members]
        later = group if effects is None or effects.later is None else [effects.later[r] for r in members]
        middle = n_burned + (length - n_burned) // 2
        if group[0].shapes is not None:
            paths = _curved(group, later, middle, stacked)
        elif effects is None or effects.are_plain:
            paths = _linear(group, stacked)
        else:
            paths = _step_by_step(group, later, middle, effects.shape or _same, stacked)
        for column, r in enumerate(members):
            outcome[r] = np.ascontiguousarray(paths[n_burned:, column])
    return [recording for recording in outcome if recording is not None]


def _linear(systems: list[System], shocks: FloatArray) -> FloatArray:
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


def _curved(systems: list[System], later: list[System], middle: int, shocks: FloatArray) -> FloatArray:
    """(T, R, d) paths of systems with shapes, with `later` systems from row `middle` on."""
    if later is systems:
        return Stepper(systems).advance(shocks, shocks[:0])
    first = Stepper(systems).advance(shocks[:middle], shocks[:0])
    return np.concatenate([first, Stepper(later).advance(shocks[middle:], first)])


def _same(x: FloatArray) -> FloatArray:
    return x


def _step_by_step(
    systems: list[System],
    later: list[System],
    middle: int,
    shape: Callable[[FloatArray], FloatArray],
    shocks: FloatArray,
) -> FloatArray:
    """(T, R, d) paths of ``x_t = f(x_t) W + sum_l f(x_{t-l}) A_l + u_t``, with `later` systems from row `middle` on."""
    W, A = np.stack([s.W for s in systems]), np.stack([s.A for s in systems], axis=1)
    x = np.empty_like(shocks)
    acting = np.empty_like(shocks)
    for t in range(len(shocks)):
        if t == middle:
            W, A = np.stack([s.W for s in later]), np.stack([s.A for s in later], axis=1)
        given = shocks[t].copy()
        for lag in range(1, min(t, len(A)) + 1):
            given += (acting[t - lag][:, None, :] @ A[lag - 1])[:, 0]
        now = given
        for _ in range(
            shocks.shape[2] - 1
        ):  # W has no cycles: after d - 1 repetitions nothing changes any more.
            now = given + (shape(now)[:, None, :] @ W)[:, 0]
        x[t], acting[t] = now, shape(now)
    return x
