"""Real numbers as residues modulo 2**128, where sums and masks are exact.

A number x becomes ``floor(x 2**fractional_bits) mod 2**128`` (or one less), two 64-bit limbs. Adding residues
adds numbers exactly; the only error is the rounding of each summand:

    | decode(sum_k encode(x_k)) - sum_k x_k |  <=  K 2**-fractional_bits  +  2**-53 |sum_k x_k|

With the default 64 fractional bits that is a relative error below 1e-9 for every entry whose summands are
larger than about 6e-11, next to entries up to 4.6e18 / K in the same vector: counts, Gram entries and
weights share one scale, so no scale has to be agreed on (a data-dependent scale would itself be a message
about the data).
"""

from __future__ import annotations

from collections.abc import Sequence

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
    "sum_residues",
]

Residues = NDArray[np.uint64]

LIMBS = 2
DEFAULT_FRACTIONAL_BITS = 64
_HALF = np.uint64(32)


def _check_bits(fractional_bits: int) -> None:
    if not 0 <= fractional_bits <= 120:
        raise ParameterError(f"fractional_bits must be between 0 and 120, got {fractional_bits}.")


def absolute_error_bound(n_summands: int, fractional_bits: int = DEFAULT_FRACTIONAL_BITS) -> float:
    """Return the largest rounding error of a sum of `n_summands` encoded numbers, before conversion to
    float64.
    """
    return float(n_summands * 2.0**-fractional_bits)


def encode_fixed(
    vector: FloatArray, n_summands: int, fractional_bits: int = DEFAULT_FRACTIONAL_BITS
) -> Residues:
    """Return (2, n) residues of `vector` (n,); refuse a number so large that `n_summands` of them could wrap
    around.
    """
    _check_bits(fractional_bits)
    # Scaling by a power of two is exact, so the limbs below always carry 64 fractional bits of `scaled`.
    scaled = np.abs(vector, dtype=np.float64)
    if fractional_bits != 64:
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
    scaled -= whole
    # What is left is exact and at most 1 - 2**-53, so the low limb stays below 2**64.
    scaled *= 2.0**64
    residues = np.empty((LIMBS, len(scaled)), dtype=np.uint64)
    residues[0] = scaled
    residues[1] = whole
    # The complement of k is -k - 1: together with the truncation above, negative numbers are rounded down.
    residues ^= np.negative(np.less(vector, 0.0).astype(np.uint64))
    return residues


def decode_fixed(residues: Residues, fractional_bits: int = DEFAULT_FRACTIONAL_BITS) -> FloatArray:
    """Return the numbers (n,) that residues (2, n) stand for; residues from 2**127 on are negative."""
    _check_bits(fractional_bits)
    low, high = residues
    flip = np.uint64(0) - (high >> np.uint64(63))
    negative = high >> np.uint64(63)
    low = (low ^ flip) + negative
    high = (high ^ flip) + negative * (low == 0)
    value = high.astype(np.float64) + low.astype(np.float64) * 2.0**-64
    sign = 1.0 - 2.0 * negative.astype(np.float64)
    return np.asarray(sign * value * 2.0 ** (64 - fractional_bits), dtype=np.float64)


def sum_residues(parts: Sequence[Residues | bytes], n: int, plus: int = 0) -> Residues:
    """Return the sum modulo 2**128 of residues (2, n), or raw keystreams read as such, and of the integer
    `plus`.

    Subtraction needs no code of its own: minus x is the bitwise complement of x plus one, and a stream
    cipher gives the complement of its keystream for free.
    """
    if len(parts) == 2 and not plus:
        return _add(
            *(np.frombuffer(p, dtype="<u8").reshape(2, n) if isinstance(p, bytes) else p for p in parts)
        )
    joined = b"".join(part if isinstance(part, bytes) else part.tobytes() for part in parts)
    stacked = np.frombuffer(joined, dtype="<u8").reshape(len(parts), 2, n)
    total = np.add.reduce(stacked, axis=0)
    # Carries of the low limbs: their upper halves add up without overflow to H, and the sum of the low limbs
    # is H 2**32 plus less than 2**64, so it wrapped H >> 32 times, and once more if the total is below H <<
    # 32.
    upper = np.add.reduce(stacked[:, 0] >> _HALF, axis=0)
    total[1] += (upper >> _HALF) + (total[0] < upper << _HALF)
    if plus:
        step = np.uint64(plus)
        total[0] += step
        total[1] += total[0] < step
    return np.asarray(total)


def _add(left: Residues, right: Residues) -> Residues:
    total = left + right
    total[1] += total[0] < right[0]
    return total
