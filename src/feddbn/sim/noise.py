"""Noise families, every one standardised to mean 0 and variance 1."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from feddbn.core.arrays import FloatArray

__all__ = ["NOISE_FAMILIES", "draw_noise"]

_Draw = Callable[[np.random.Generator, tuple[int, ...]], FloatArray]


def _gaussian(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    return rng.standard_normal(shape)


def _exponential(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    return rng.standard_exponential(shape) - 1.0


def _gumbel(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    # A standard Gumbel variable has mean gamma (Euler's constant) and variance pi^2 / 6.
    return (rng.gumbel(size=shape) - np.euler_gamma) * (math.sqrt(6.0) / math.pi)


def _laplace(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    return rng.laplace(scale=math.sqrt(0.5), size=shape)


def _uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    return rng.uniform(-math.sqrt(3.0), math.sqrt(3.0), size=shape)


_DRAWS: dict[str, _Draw] = {
    "gaussian": _gaussian,
    "exponential": _exponential,
    "gumbel": _gumbel,
    "laplace": _laplace,
    "uniform": _uniform,
}
NOISE_FAMILIES = tuple(_DRAWS)


def draw_noise(
    family: str, shape: tuple[int, ...], scale: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Independent draws with mean 0 and standard deviation `scale`, which broadcasts over the last axis."""
    return _DRAWS[family](rng, shape) * scale
