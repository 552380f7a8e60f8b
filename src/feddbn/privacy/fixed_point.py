"""Real numbers as residues modulo 2**128, where sums and masks are exact.

A number x becomes ``round(x 2**fractional_bits) mod 2**128``, two little-endian 64-bit limbs, low limb first.
Adding residues adds numbers exactly; the only error is the rounding of each summand:

    | decode(sum_k encode(x_k)) - sum_k x_k |  <=  K 2**-(fractional_bits + 1)  +  2**-53 |sum_k x_k|

With the default 64 fractional bits that is a relative error below 1e-9 for every entry whose summands are
larger than about 3e-11, next to entries up to 4.6e18 / K in the same vector: counts, Gram entries and
weights share one scale, so no scale has to be agreed on (a data-dependent scale would itself be a message
about the data).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from feddbn.core.lagged import FloatArray
from feddbn.errors import AggregationError, ParameterError

__all__ = [
    "DEFAULT_FRACTIONAL_BITS",
    "LIMBS",
    "Residues",
    "absolute_error_bound",
    "decode_fixed",
    "encode_fixed",
    "subtract",
    "sum_residues",
]

Residues = NDArray[np.uint64]

LIMBS = 2
DEFAULT_FRACTIONAL_BITS = 64
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def _check_bits(fractional_bits: int) -> None:
    if not 0 <= fractional_bits <= 120:
        raise ParameterError(f"fractional_bits must be between 0 and 120, got {fractional_bits}.")


def absolute_error_bound(n_summands: int, fractional_bits: int = DEFAULT_FRACTIONAL_BITS) -> float:
    """Return the largest rounding error of a sum of `n_summands` encoded numbers, before conversion to
    float64.
    """
    return float(n_summands * 2.0 ** -(fractional_bits + 1))


def encode_fixed(
    vector: FloatArray, n_summands: int, fractional_bits: int = DEFAULT_FRACTIONAL_BITS
) -> Residues:
    """Return (n, 2) residues of `vector` (n,); refuse a number so large that `n_summands` of them could wrap
    around.
    """
    _check_bits(fractional_bits)
    # Scaling by a power of two is exact, so the limbs below always carry 64 fractional bits of `scaled`.
    scaled = np.abs(np.asarray(vector, dtype=np.float64))
    scaled *= 2.0 ** (fractional_bits - 64)
    limit = 2.0**62 / max(n_summands, 1)
    if not np.max(scaled, initial=0.0) < limit:
        if not np.all(np.isfinite(scaled)):
            raise AggregationError(
                "the vector contains NaN or infinity, which cannot be masked; nothing was sent."
            )
        raise AggregationError(
            f"the vector contains a number of magnitude {limit * 2.0 ** (64 - fractional_bits):.3g} or more, "
            f"which could overflow a sum over {n_summands} sites; rescale the variables or lower "
            "fractional_bits."
        )
    whole = np.floor(scaled)
    # scaled - whole is exact and at most 1 - 2**-53, so the rounded low limb stays below 2**64.
    low = np.rint((scaled - whole) * 2.0**64).astype(np.uint64)
    high = whole.astype(np.uint64)
    # Two's complement of the negative ones: flip every bit, add one, carry into the high limb if the low one
    # wraps.
    negative = np.signbit(vector).astype(np.uint64)
    flip = np.uint64(0) - negative
    low ^= flip
    low += negative
    high ^= flip
    high += negative * (low == 0)
    return np.stack([low, high], axis=1)


def decode_fixed(residues: Residues, fractional_bits: int = DEFAULT_FRACTIONAL_BITS) -> FloatArray:
    """Return the numbers (n,) that residues (n, 2) stand for; residues from 2**127 on are negative."""
    _check_bits(fractional_bits)
    negative = residues[:, 1] >= np.uint64(1 << 63)
    magnitude = np.where(negative[:, None], subtract(np.zeros_like(residues), residues), residues)
    value = magnitude[:, 1].astype(np.float64) + magnitude[:, 0].astype(np.float64) * 2.0**-64
    return np.asarray(np.where(negative, -value, value) * 2.0 ** (64 - fractional_bits), dtype=np.float64)


def subtract(left: Residues, right: Residues) -> Residues:
    """Return ``left - right`` modulo 2**128, (n, 2)."""
    difference = left - right
    difference[:, 1] -= (left[:, 0] < right[:, 0]).astype(np.uint64)
    return difference


def sum_residues(parts: Iterable[Residues | bytes], n: int) -> Residues:
    """Return the sum modulo 2**128 of residues, or of raw keystreams read as residues, (n, 2).

    The carries are resolved once at the end: 32-bit half limbs are added in 64 bits, which holds 2**32
    summands.
    """
    halves = np.zeros(4 * n, dtype=np.uint64)
    for part in parts:
        raw = (
            part
            if isinstance(part, bytes)
            else np.ascontiguousarray(part, dtype="<u8").reshape(-1).view("<u4")
        )
        halves += np.frombuffer(raw, dtype="<u4") if isinstance(raw, bytes) else raw
    limbs = halves.reshape(n, 4)
    for position in range(3):
        limbs[:, position + 1] += limbs[:, position] >> _HALF
    limbs &= _LOW
    return np.asarray(limbs[:, 0::2] | (limbs[:, 1::2] << _HALF))
