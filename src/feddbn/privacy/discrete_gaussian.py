"""Whole numbers with a Gaussian shape, drawn exactly, and what their being whole costs.

The discrete Gaussian has P(k) proportional to exp(-k^2 / (2 v)) on the whole numbers. It is drawn by rejection from the
discrete Laplace distribution (Canonne, Kamath & Steinke 2020, Algorithms 1 to 3) with integers only: no logarithm, no
exponential and no rounding, so there are no low-order bits that could tell something (Mironov 2012). Randomness comes as
bytes: ``os.urandom`` at a site, ``Generator.bytes`` in a simulation, where the same seed gives the same bits.

What the books need
-------------------
Books reckon with continuous Gaussian noise. Let m sites add independent discrete Gaussians of variance s^2 (in steps of the
grid) to whole numbers, S^2 = m s^2, and let n be the number of coordinates. For one coordinate:

1. The sum of the m shares is nearly one discrete Gaussian of variance S^2: the logarithms of their probabilities differ
   by at most tau = 10 sum_{j=1}^{m-1} exp(-2 pi^2 s^2 j / (j + 1)) (Kairouz, Liu & Steinke 2021).
2. A discrete Gaussian is nearly a rounded continuous one. With phi the density of N(0, S^2) and z = k / S,
   P(round = k) = phi(k) int_0^{1/2} 2 cosh(k u / S^2) exp(-u^2 / (2 S^2)) du lies between phi(k) exp(-1 / (8 S^2)) and
   phi(k) exp(z^2 / (8 S^2)), since 1 <= cosh(x) <= exp(x^2 / 2). Poisson's summation gives
   phi(k) / P(k) = 1 + 2 sum_{j>=1} exp(-2 pi^2 S^2 j^2). So for |z| <= 64 the logarithms differ by at most
   eta = 4097 / (8 S^2) + 3 exp(-2 pi^2 S^2).
3. Rounding is done to what a Gaussian mechanism has released (whole numbers pass through rounding), so it costs nothing.

Going there and back, epsilon grows by at most 2 n (tau + eta) at the same delta; `discretisation_cost` is that number. Beyond
64 standard deviations lies less than 2 n exp(-2048), which adds less than 1e-90 to delta up to `LARGEST_EPSILON`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feddbn.errors import ParameterError

__all__ = ["LARGEST_EPSILON", "Integers", "RandomBytes", "discrete_gaussian", "discretisation_cost"]

RandomBytes = Callable[[int], bytes]
Integers = NDArray[np.int64]
# Python's integers in an array: their arithmetic never wraps around.
_Whole = NDArray[Any]
_WORD = 62
_FARTHEST = 64.0
LARGEST_EPSILON = 1800.0
"""Beyond it the proof above says nothing, and neither would epsilon."""


def discretisation_cost(n_numbers: int, deviation: float, n_shares: int) -> float:
    """Return by how much epsilon is larger than for continuous noise.

    `deviation` is that of one of `n_shares` shares, in steps of the grid; see the module's text for the proof.
    """
    if not deviation >= 1:
        raise ParameterError(f"deviation must be at least one step of the grid, got {deviation}.")
    rate = 2 * math.pi**2 * deviation**2
    tau = 10 * math.fsum(math.exp(-rate * j / (j + 1)) for j in range(1, n_shares))
    eta = (_FARTHEST**2 + 1) / (8 * deviation**2) + 3 * math.exp(-rate)
    return 2 * n_numbers * (tau + eta)


def discrete_gaussian(variance: int, size: int, random_bytes: RandomBytes) -> Integers:
    """Return `size` independent draws of the discrete Gaussian whose parameter is `variance`, a positive whole number."""
    if not 1 <= variance < 2**58:
        raise ParameterError(f"variance must be a whole number from 1 to 2**58, got {variance}.")
    scale = math.isqrt(variance) + 1
    denominator = 2 * variance * scale * scale
    accepted: list[Integers] = []
    missing = size
    while missing > 0:
        # About three of four are accepted.
        drawn = _discrete_laplace(scale, missing + missing // 2 + 8, random_bytes)
        excess = np.abs(drawn).astype(object) * scale - variance
        kept = drawn[_flip_exponential(excess * excess, denominator, random_bytes)]
        accepted.append(kept[:missing])
        missing -= len(accepted[-1])
    found: Integers = np.concatenate(accepted) if accepted else np.zeros(0, dtype=np.int64)
    return found


def _discrete_laplace(scale: int, n_tries: int, random_bytes: RandomBytes) -> Integers:
    """Return draws with P(k) proportional to exp(-|k| / scale), fewer than `n_tries`."""
    low = _below(scale, n_tries, random_bytes)
    low = low[_flip_exponential(low.astype(object), scale, random_bytes)]
    high = np.zeros(len(low), dtype=np.int64)
    going_on = np.arange(len(low))
    while len(going_on):
        ones = np.ones(len(going_on), dtype=object)
        going_on = going_on[_flip_exponential(ones, 1, random_bytes)]
        high[going_on] += 1
    size = low + scale * high
    is_negative = _below(2, len(size), random_bytes) == 1
    # Zero has one sign only.
    signed: Integers = np.where(is_negative, -size, size)[~(is_negative & (size == 0))]
    return signed


def _below(bound: int, n: int, random_bytes: RandomBytes) -> Integers:
    """Return n uniform whole numbers from 0 to bound - 1."""
    bits = max((bound - 1).bit_length(), 1)
    found = np.empty(n, dtype=np.int64)
    open_places = np.arange(n)
    while len(open_places):
        words = np.frombuffer(random_bytes(8 * len(open_places)), dtype="<u8") >> np.uint64(64 - bits)
        found[open_places] = words.astype(np.int64)
        open_places = open_places[words >= bound]
    return found


def _flip(numerator: _Whole, denominator: int, random_bytes: RandomBytes) -> NDArray[np.bool_]:
    """Return coins that are heads with probability numerator / denominator, from 0 to 1, exactly.

    The first bits of a uniform number decide unless they equal those of the probability; then the rest of both decides.
    """
    wide = numerator << _WORD
    first = wide // denominator
    words = np.frombuffer(random_bytes(8 * len(numerator)), dtype="<u8") >> np.uint64(64 - _WORD)
    drawn, wanted = words.astype(np.int64), first.astype(np.int64)
    heads: NDArray[np.bool_] = drawn < wanted
    tied = np.flatnonzero(drawn == wanted)
    if len(tied):
        heads[tied] = _flip(wide[tied] - first[tied] * denominator, denominator, random_bytes)
    return heads


def _flip_exponential(numerator: _Whole, denominator: int, random_bytes: RandomBytes) -> NDArray[np.bool_]:
    """Return coins that are heads with probability exp(-numerator / denominator), exactly.

    For a rate up to 1: heads with rate / 1, rate / 2, ... until the first tails; an even number of heads is heads (von
    Neumann). A larger rate is heads once for each whole 1 in it, and then for the rest.
    """
    heads = np.ones(len(numerator), dtype=bool)
    ones = numerator // denominator
    rest = numerator - ones * denominator
    while True:
        trying = np.flatnonzero(heads & (ones > 0).astype(bool))
        if not len(trying):
            break
        heads[trying] = _flip_unit_rate(np.ones(len(trying), dtype=object), 1, random_bytes)
        ones[trying] -= 1
    trying = np.flatnonzero(heads)
    heads[trying] = _flip_unit_rate(rest[trying], denominator, random_bytes)
    return heads


def _flip_unit_rate(numerator: _Whole, denominator: int, random_bytes: RandomBytes) -> NDArray[np.bool_]:
    heads = np.ones(len(numerator), dtype=bool)
    going_on, k = np.arange(len(numerator)), 1
    while len(going_on):
        going_on = going_on[_flip(numerator[going_on], denominator * k, random_bytes)]
        heads[going_on] = k % 2 == 0
        k += 1
    return heads
