"""Real numbers as pairs of residues modulo 2**64, where sums and masks are exact.

A number x becomes its nearest whole number and what is left of it, each an integer modulo 2**64:

    x  ~  high + low 2**-bits,        high = round(x),   |low| <= 2**(bits - 1),   bits = 64 - bit_length(K)

Of K summands neither part can wrap around, so each is added, and masked, by itself: there is no carry. The
only error is the rounding of each summand:

    | decode(sum_k encode(x_k)) - sum_k x_k |  <=  K 2**-(bits + 1)  +  2**-52 |sum_k x_k|

That is a relative error below 1e-9 for every entry whose summands are larger than about 4e-10 (ten sites; 7e-9
for 200), next to entries up to 4.6e18 / K in the same vector: counts, Gram entries and weights share one
scale, so no scale has to be agreed on (a data-dependent scale would itself be a message about the data).
`fractional_bits` other than 64 moves the whole range up or down.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.errors import AggregationError, ParameterError

Residues = NDArray[np.uint64]

LIMBS = 2
DEFAULT_FRACTIONAL_BITS = 64


def _check_bits(fractional_bits: int) -> None:
    if not 0 <= fractional_bits <= 120:
        raise ParameterError(f"fractional_bits must be between 0 and 120, got {fractional_bits}.")


def largest_summand(n_summands: int, fractional_bits: int = DEFAULT_FRACTIONAL_BITS) -> float:
    """Return the magnitude below which every one of `n_summands` numbers must be so that no sum wraps around."""
    return float(2.0 ** (126 - fractional_bits) / max(n_summands, 1))


def encode_fixed(
    vector: FloatArray, n_summands: int, fractional_bits: int = DEFAULT_FRACTIONAL_BITS
) -> Residues:
    """Return (2, n) residues of `vector` (n,); refuse a number so large that `n_summands` of them could wrap
    around.
    """
    _check_bits(fractional_bits)
    x = np.asarray(vector, dtype=np.float64)
    # Scaling by a power of two is exact, so what follows need not know of it.
    if fractional_bits != 64:
        x = x * 2.0 ** (fractional_bits - 64)
    limit = largest_summand(n_summands)
    # The norm bounds every entry and is quicker; it decides alone unless the numbers are enormous.
    if not np.vdot(x, x) < limit * limit and not np.maximum.reduce(np.abs(x), initial=0.0) < limit:
        if not np.all(np.isfinite(x)):
            raise AggregationError(
                "the vector contains NaN or infinity, which cannot be masked; nothing was sent.",
                code="not-finite",
            )
        raise AggregationError(
            f"the vector contains a number of magnitude {largest_summand(n_summands, fractional_bits):.3g} or more, "
            f"which could overflow a sum over {n_summands} sites; rescale the variables or lower "
            "fractional_bits.",
            code="too-large",
        )
    residues = np.empty((LIMBS, len(x)), dtype=np.int64)
    whole = np.rint(x)
    residues[1] = whole
    # What is left of a number beside the nearest whole one is exact.
    np.subtract(x, whole, out=whole)
    whole *= 2.0 ** (64 - n_summands.bit_length())
    residues[0] = np.rint(whole, out=whole)
    return residues.view(np.uint64)


def decode_fixed(
    residues: Residues, n_summands: int, fractional_bits: int = DEFAULT_FRACTIONAL_BITS
) -> FloatArray:
    """Return the numbers (n,) that a sum (2, n) of encoded numbers stands for, `n_summands` as in encoding."""
    _check_bits(fractional_bits)
    low, high = residues.view(np.int64)
    value: FloatArray = low.astype(np.float64)
    value *= 2.0 ** (n_summands.bit_length() - 64)
    value += high
    if fractional_bits != 64:
        value *= 2.0 ** (64 - fractional_bits)
    return value


def sum_residues(parts: Sequence[Residues | bytes], n: int, plus: int = 0) -> Residues:
    """Return the sum modulo 2**64 of residues (2, n), or raw keystreams read as such, and of the integer
    `plus`.

    Subtraction needs no code of its own: minus x is the bitwise complement of x plus one, and a stream
    cipher gives the complement of its keystream for free.
    """
    total = np.full((LIMBS, n), plus, dtype=np.uint64)
    for part in parts:
        total += np.frombuffer(part, dtype="<u8").reshape(LIMBS, n) if isinstance(part, bytes) else part
    return total
