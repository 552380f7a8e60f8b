"""Integers that masks can hide, and secrets in shares: the arithmetic of secure aggregation.

Real numbers as pairs of residues modulo 2**64
----------------------------------------------
Sums and masks of residues are exact. A number x becomes its nearest whole number and what is left of it, each an
integer modulo 2**64:

    x  ~  high + low 2**-bits,        high = round(x),   |low| <= 2**(bits - 1),   bits = 64 - bit_length(K)

Of K summands neither part can wrap around, so each is added, and masked, by itself: there is no carry. The
only error is the rounding of each summand:

    | decode(sum_k encode(x_k)) - sum_k x_k |  <=  K 2**-(bits + 1)  +  2**-52 |sum_k x_k|

That is a relative error below 1e-9 for every entry whose summands are larger than about 4e-10 (ten sites; 7e-9
for 200), next to entries up to 4.6e18 / K in the same vector: counts, Gram entries and weights share one
scale, so no scale has to be agreed on (a data-dependent scale would itself be a message about the data).

Shamir's secret sharing of byte strings over GF(256)
----------------------------------------------------
A secret byte is the constant term of a random polynomial of degree ``threshold - 1``; share x is its value
at x. Any `threshold` shares give the secret by Lagrange interpolation at 0; fewer say nothing about it
(Shamir 1979). Field and share format are those of draft-mcgrew-tss-03 (Rijndael polynomial x^8 + x^4 + x^3 +
x + 1), whose published test case is in the tests.

Why it is written here: the maintained implementation (``Crypto.Protocol.SecretSharing`` of pycryptodome)
shares 16 bytes at a time in pure Python; opening one secret took 6 ms where a sum needs one secret for each
site in every round. Here all secrets of a round are opened together, by table look-up on byte strings.

Known weakness: table look-ups are not constant-time; an attacker who shares the processor's cache with a
site is not covered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.errors import AggregationError, ParameterError

Residues = NDArray[np.uint64]

LIMBS = 2


def largest_summand(n_summands: int) -> float:
    """Return the magnitude below which every one of `n_summands` numbers must be so that no sum wraps around."""
    return 2.0**62 / max(n_summands, 1)


def encode_fixed(vector: FloatArray, n_summands: int) -> Residues:
    """Return (2, n) residues of `vector` (n,); refuse a number so large that `n_summands` of them could wrap
    around.
    """
    x = np.asarray(vector, dtype=np.float64)
    limit = largest_summand(n_summands)
    # The norm bounds every entry and is quicker; it decides alone unless the numbers are enormous.
    if not np.vdot(x, x) < limit * limit and not np.maximum.reduce(np.abs(x), initial=0.0) < limit:
        if not np.all(np.isfinite(x)):
            raise AggregationError(
                "the vector contains NaN or infinity, which cannot be masked; nothing was sent.",
                code="not-finite",
            )
        raise AggregationError(
            f"the vector contains a number of magnitude {limit:.3g} or more, "
            f"which could overflow a sum over {n_summands} sites; rescale the variables.",
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


def decode_fixed(residues: Residues, n_summands: int) -> FloatArray:
    """Return the numbers (n,) that a sum (2, n) of encoded numbers stands for, `n_summands` as in encoding."""
    low, high = residues.view(np.int64)
    value: FloatArray = low.astype(np.float64)
    value *= 2.0 ** (n_summands.bit_length() - 64)
    value += high
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


MAX_SHARES = 255


def _tables() -> tuple[list[int], list[int]]:
    exponential, logarithm = [0] * 510, [0] * 256
    value = 1
    for power in range(255):
        exponential[power] = exponential[power + 255] = value
        logarithm[value] = power
        # Multiply by the generator 3 = x + 1 and reduce by the Rijndael polynomial.
        value ^= (value << 1) ^ (0x11B if value & 0x80 else 0)
    return exponential, logarithm


_EXP, _LOG = _tables()


def _multiply(a: int, b: int) -> int:
    return 0 if a == 0 or b == 0 else _EXP[_LOG[a] + _LOG[b]]


def _divide(a: int, b: int) -> int:
    return 0 if a == 0 else _EXP[_LOG[a] + 255 - _LOG[b]]


# Row a is the map b -> a b, in the form bytes.translate wants: multiplying a string by a constant is one C
# loop.
_TIMES = [bytes(_multiply(a, b) for b in range(256)) for a in range(256)]


def split_secret(
    secret: bytes, threshold: int, n_shares: int, random_bytes: Callable[[int], bytes]
) -> list[bytes]:
    """Return shares 1, ..., n_shares of `secret`, each as long as the secret."""
    if not 1 <= threshold <= n_shares <= MAX_SHARES:
        raise ParameterError(
            f"threshold={threshold} and n_shares={n_shares} must satisfy "
            f"1 <= threshold <= n_shares <= {MAX_SHARES}."
        )
    length = len(secret)
    coefficients = [np.frombuffer(random_bytes(length), dtype=np.uint8) for _ in range(threshold - 1)]
    shares = []
    for x in range(1, n_shares + 1):
        table = _TIMES[x]
        value = np.zeros(length, dtype=np.uint8)
        for coefficient in coefficients:
            value = np.frombuffer((value ^ coefficient).tobytes().translate(table), dtype=np.uint8)
        shares.append((value ^ np.frombuffer(secret, dtype=np.uint8)).tobytes())
    return shares


def lagrange_at_zero(points: Sequence[int]) -> list[int]:
    """Return the weights of the shares at `points` in the secret: ``prod_{m != j} x_m / (x_m - x_j)`` in
    GF(256).
    """
    if len(set(points)) != len(points) or not all(1 <= x <= MAX_SHARES for x in points):
        raise AggregationError(
            "the shares do not come from different sites of this roster; the secret stays closed.",
            code="bad-shares",
        )
    weights = []
    for j in points:
        weight = 1
        for m in points:
            if m != j:
                weight = _multiply(weight, _divide(m, m ^ j))
        weights.append(weight)
    return weights


# The same sites open one sum after another.
_weights = lru_cache(maxsize=64)(lagrange_at_zero)


def combine_shares(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Return the secret from at least `threshold` shares, keyed by their number."""
    if len(shares) < threshold:
        raise AggregationError(
            f"{len(shares)} shares are fewer than the threshold of {threshold}; the secret stays closed.",
            code="too-few-shares",
        )
    points = sorted(shares)[:threshold]
    lengths = {len(shares[x]) for x in points}
    if len(lengths) != 1:
        raise AggregationError(
            "the shares have different lengths; some site sent a share of something else.", code="bad-shares"
        )
    # XOR of whole strings as integers.
    secret = 0
    for x, weight in zip(points, _weights(tuple(points)), strict=True):
        secret ^= int.from_bytes(shares[x].translate(_TIMES[weight]), "big")
    return secret.to_bytes(lengths.pop(), "big")
