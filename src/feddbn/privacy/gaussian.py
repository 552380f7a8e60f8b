"""The Gaussian mechanism, exactly: how much noise gives how much privacy, and noise on a grid, drawn in whole numbers.

Adding N(0, sigma^2) to a sum whose L2 sensitivity is s gives (epsilon, delta)-differential privacy if and
only if

    delta >= Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu),      mu = s / sigma

(Balle & Wang 2018, Theorem 8). T such releases together are one release with mu sqrt(T) (Dong, Roth & Su
2022, Corollary 3.3), so the same formula calibrates a run of rounds. A *noise multiplier* is sigma / s = 1 /
mu.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.settings import number


def gaussian_delta(epsilon: float, multiplier: float, n_releases: int = 1) -> float:
    """Return the smallest delta for which the releases are (epsilon, delta)-differentially private."""
    # Imported here, and below: every site's process imports this module, few of them need it.
    from scipy.special import log_ndtr

    mu = math.sqrt(n_releases) / multiplier
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    # The second term is at most the first, because a privacy loss beyond epsilon is likelier under the first.
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


def gaussian_epsilon(delta: float, multiplier: float, n_releases: int = 1) -> float:
    """Return the smallest epsilon >= 0 for which the releases are (epsilon, delta)-differentially private."""
    _check_delta(delta)
    if gaussian_delta(0.0, multiplier, n_releases) <= delta:
        return 0.0
    upper = 1.0
    while gaussian_delta(upper, multiplier, n_releases) > delta:
        upper *= 2
    from scipy.optimize import brentq

    return float(brentq(lambda e: gaussian_delta(e, multiplier, n_releases) - delta, 0.0, upper, xtol=1e-12))


def noise_multiplier(epsilon: float, delta: float, n_releases: int = 1) -> float:
    """Return the smallest sigma / sensitivity that makes `n_releases` releases (epsilon, delta)-private
    together.
    """
    _check_delta(delta)
    number(above=0).check("epsilon", epsilon)
    if n_releases < 1:
        raise ParameterError(f"n_releases must be at least 1, got {n_releases}.")
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon, high, n_releases) > delta:
        high *= 2
    # The upper end of the bracket is returned, so that rounding never costs privacy.
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_delta(epsilon, middle, n_releases) <= delta else (middle, high)
    return high


def _check_delta(delta: float) -> None:
    number(above=0, below=1).check("delta", delta)


# Whole numbers with a Gaussian shape, drawn exactly, and what their being whole costs.
#
# The discrete Gaussian has P(k) proportional to exp(-k^2 / (2 v)) on the whole numbers. It is drawn by rejection from
# the discrete Laplace distribution (Canonne, Kamath & Steinke 2020, Algorithms 1 to 3) with integers only: no
# logarithm, no exponential and no rounding, so there are no low-order bits that could tell something (Mironov 2012).
# Randomness comes as bytes: ``os.urandom`` at a site, ``Generator.bytes`` in a simulation, where the same seed gives
# the same bits.
#
# What the books need ------------------- Books reckon with continuous Gaussian noise. Let m sites add independent
# discrete Gaussians of variance s^2 (in steps of the grid) to whole numbers, S^2 = m s^2, and let n be the number of
# coordinates. For one coordinate:
#
# 1. The sum of the m shares is nearly one discrete Gaussian of variance S^2: the logarithms of their probabilities
#    differ by at most tau = 10 sum_{j=1}^{m-1} exp(-2 pi^2 s^2 j / (j + 1)) (Kairouz, Liu & Steinke 2021).
# 2. A discrete Gaussian is nearly a rounded continuous one. With phi the density of N(0, S^2) and z = k / S, P(round =
#    k) = phi(k) int_0^{1/2} 2 cosh(k u / S^2) exp(-u^2 / (2 S^2)) du lies between phi(k) exp(-1 / (8 S^2)) and phi(k)
#    exp(z^2 / (8 S^2)), since 1 <= cosh(x) <= exp(x^2 / 2). Poisson's summation gives phi(k) / P(k) = 1 + 2 sum_{j>=1}
#    exp(-2 pi^2 S^2 j^2). So for |z| <= 64 the logarithms differ by at most eta = 4097 / (8 S^2) + 3 exp(-2 pi^2 S^2).
# 3. Rounding is done to what a Gaussian mechanism has released (whole numbers pass through rounding), so it costs
#    nothing.
#
# Going there and back, epsilon grows by at most 2 n (tau + eta) at the same delta; `discretisation_cost` is that
# number. Beyond 64 standard deviations lies less than 2 n exp(-2048), which adds less than 1e-90 to delta up to
# `LARGEST_EPSILON`.

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


# The grid on which answers with noise live: multiples of a power of two, added as whole numbers.
#
# A noisy answer is ``step * k`` with k a whole number below 2**53, so float64 holds it exactly, and secure aggregation
# (`integers`) adds it exactly for up to 255 sites: nothing is rounded between the noise and the opened sum. The step
# follows from the noise alone, which is public; it says nothing about the data.
#
# Why one unit moves a sum by no more than is paid for ---------------------------------------------------- Rounding a
# vector to the grid moves its weighted norm by at most ``r = step |weights| / 2``. A unit is shortened to ``bound - 2
# r`` (less a billionth, for the rounding of float64) and then rounded, so its norm is at most ``bound - r``. If vectors
# of norm c change a sum by at most ``f c``, f from 1 to 2p + 1, rounded ones change it by at most ``f (bound - 2 r) + m
# r`` with m vectors involved. That is at most ``f bound`` as long as m <= 2 f: one vector (f = 1), two vectors with the
# diameter (f = 2), p + 1 removed and p new rows (m = 2p + 1, f >= m / sqrt(2)). Sums beyond `limit` are cut there,
# entry by entry. Cutting two numbers brings them no farther apart, so the bound stays.

# A share of the noise has a standard deviation of 2**26 to 2**27 steps.
SHARE_BITS = 26
_FINEST, _COARSEST = -56, 20
LONGEST = 2**20
"""Longest vector that noise is added to."""
SLACK = discretisation_cost(LONGEST, 2.0**SHARE_BITS, 255)
"""What a release of at most `LONGEST` numbers costs in epsilon for being on a grid: below 3e-7."""
_TO_BE_SURE = 1e-9


@dataclass(frozen=True)
class ClippedSum:
    """Sum of clipped unit vectors in steps of the grid, how many units there were and how many were shortened.

    `n_left_out` units were not finite and count as zeros: to refuse would tell that there is one.
    """

    steps: Integers
    n_units: int
    n_clipped: int
    n_left_out: int


@dataclass(frozen=True)
class Grid:
    """Multiples of ``2**exponent``."""

    exponent: int

    @classmethod
    def for_share(cls, deviation: float) -> Grid:
        """Return the grid on which a share of noise of this standard deviation is fine."""
        exponent = (math.frexp(deviation)[1] - 1 if 0 < deviation < math.inf else 10_000) - SHARE_BITS
        if not _FINEST <= exponent <= _COARSEST:
            lowest, highest = 2.0 ** (_FINEST + SHARE_BITS), 2.0 ** (_COARSEST + SHARE_BITS + 1)
            raise ParameterError(
                f"noise of standard deviation {deviation:.3g} cannot be added exactly, it must be between "
                f"{lowest:.2g} and {highest:.2g}; change the units of the variables or the clipping bound."
            )
        return cls(exponent)

    @property
    def step(self) -> float:
        """Distance of neighbouring points."""
        return 2.0**self.exponent

    @property
    def limit(self) -> int:
        """Largest entry of a site's sum, in steps: with noise, 255 of them fit secure aggregation and float64."""
        return 1 << min(51, 53 - self.exponent)

    def clipped(self, vector: FloatArray, bound: float, weights: FloatArray) -> tuple[Integers, bool]:
        """Return a unit's vector shortened and rounded, in steps, and whether its norm was above `bound`.

        Its weighted norm is at most `bound` less what rounding can add.
        """
        target = (bound - self.step * math.sqrt(np.vdot(weights, weights))) * (1 - _TO_BE_SURE)
        weighted = weights * vector
        norm = math.sqrt(np.vdot(weighted, weighted))
        scale = 2.0**-self.exponent
        if norm > target:
            scale *= max(target, 0.0) / norm
        steps = np.rint(vector * scale)
        if norm * 2.0**-self.exponent > self.limit * weights.min():
            np.clip(steps, -self.limit, self.limit, out=steps)
        return steps.astype(np.int64), norm > bound

    def clipped_sum(
        self, units: Iterable[FloatArray], bound: float, length: int, weights: FloatArray
    ) -> ClippedSum:
        """Return the sum of the units' vectors (length,), each clipped to `bound`."""
        total = np.zeros(length, dtype=np.int64)
        n_units = n_clipped = n_left_out = 0
        # No entry of a rounded unit is larger, so few sums can reach the limit at all.
        largest = min(bound / float(weights.min()) / self.step + 1, self.limit)
        # What overflows is left out below.
        with np.errstate(all="ignore"):
            for vector in units:
                n_units += 1
                if not math.isfinite(np.vdot(weights * vector, weights * vector)):
                    n_left_out += 1
                    continue
                steps, is_clipped = self.clipped(vector, bound, weights)
                total += steps
                if n_units * largest > self.limit:
                    np.clip(total, -self.limit, self.limit, out=total)
                n_clipped += is_clipped
        return ClippedSum(total, n_units, n_clipped, n_left_out)

    def noise(self, deviations: FloatArray, random_bytes: RandomBytes) -> Integers:
        """Return discrete Gaussian noise in steps with at least these standard deviations, one for each number."""
        noise = np.empty(len(deviations), dtype=np.int64)
        for deviation in np.unique(deviations):
            here = deviations == deviation
            # Never less than asked for, also after rounding.
            variance = math.ceil((float(deviation) / self.step) ** 2 * (1 + _TO_BE_SURE))
            noise[here] = discrete_gaussian(variance, int(here.sum()), random_bytes)
        return noise
