"""Real numbers as residues modulo 2**128, where sums and masks are exact.

A number x becomes the nearest multiple of ``2**(1 - fractional_bits)``, times ``2**fractional_bits``, modulo
2**128: two 64-bit limbs. Adding residues adds numbers exactly; the only error is the rounding of each
summand:

    | decode(sum_k encode(x_k)) - sum_k x_k |  <=  K 2**-fractional_bits  +  2**-52 |sum_k x_k|

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
    "add_in_place",
    "decode_fixed",
    "encode_fixed",
    "sum_residues",
]

Residues = NDArray[np.uint64]

LIMBS = 2
DEFAULT_FRACTIONAL_BITS = 64
_HALF = np.uint64(32)
_SIGN = 63


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
    x = np.asarray(vector, dtype=np.float64)
    # Scaling by a power of two is exact, so the limbs below always carry 64 fractional bits of x.
    if fractional_bits != 64:
        x = x * 2.0 ** (fractional_bits - 64)
    limit = 2.0**62 / max(n_summands, 1)
    # The norm bounds every entry and is quicker; it decides alone unless the numbers are enormous.
    if not np.vdot(x, x) < limit * limit and not np.maximum.reduce(np.abs(x), initial=0.0) < limit:
        if not np.all(np.isfinite(x)):
            raise AggregationError(
                "the vector contains NaN or infinity, which cannot be masked; nothing was sent."
            )
        raise AggregationError(
            f"the vector contains a number of magnitude {limit * 2.0 ** (64 - fractional_bits):.3g} or more, "
            f"which could overflow a sum over {n_summands} sites; rescale the variables or lower "
            "fractional_bits."
        )
    # Around the nearest whole number the rest is exact, and at most 1/2: with 63 bits it fits a signed limb.
    whole = np.rint(x)
    rest = x - whole
    rest *= 2.0**63
    low = np.rint(rest, out=rest).astype(np.int64)
    residues = np.empty((LIMBS, len(x)), dtype=np.int64)
    residues[1] = whole
    residues[1] += low >> _SIGN
    np.left_shift(low, 1, out=residues[0])
    return residues.view(np.uint64)


def decode_fixed(residues: Residues, fractional_bits: int = DEFAULT_FRACTIONAL_BITS) -> FloatArray:
    """Return the numbers (n,) that residues (2, n) stand for; residues from 2**127 on are negative."""
    _check_bits(fractional_bits)
    low, high = np.ascontiguousarray(residues).view(np.int64)
    # The low limb is read as a signed number too, so that small numbers of either sign keep their digits.
    value = low.astype(np.float64)
    value *= 2.0**-64
    value += high - (low >> _SIGN)
    if fractional_bits != 64:
        value *= 2.0 ** (64 - fractional_bits)
    return value


def add_in_place(total: Residues, part: Residues) -> None:
    """Add residues (2, n) to residues (2, n), modulo 2**128."""
    total += part
    total[1] += total[0] < part[0]


def sum_residues(parts: Sequence[Residues | bytes], n: int, plus: int = 0) -> Residues:
    """Return the sum modulo 2**128 of residues (2, n), or raw keystreams read as such, and of the integer
    `plus`.

    Subtraction needs no code of its own: minus x is the bitwise complement of x plus one, and a stream
    cipher gives the complement of its keystream for free.
    """
    total, upper = np.zeros((LIMBS, n), dtype=np.uint64), np.zeros(n, dtype=np.uint64)
    half = np.empty(n, dtype=np.uint64)
    # One part at a time: stacking them would make arrays that the allocator fetches from the system anew for
    # every sum, which costs several times the additions.
    for part in parts:
        limbs = np.frombuffer(part, dtype="<u8").reshape(LIMBS, n) if isinstance(part, bytes) else part
        total += limbs
        upper += np.right_shift(limbs[0], _HALF, out=half)
    # Carries of the low limbs: their upper halves add up without overflow to H, and the sum of the low limbs
    # is H 2**32 plus less than 2**64, so it wrapped H >> 32 times, and once more if the total is below H <<
    # 32.
    total[1] += (upper >> _HALF) + (total[0] < upper << _HALF)
    if plus:
        step = np.uint64(plus)
        total[0] += step
        total[1] += total[0] < step
    return total
