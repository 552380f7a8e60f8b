"""The grid on which answers with noise live: multiples of a power of two, added as whole numbers.

A noisy answer is ``step * k`` with k a whole number below 2**53, so float64 holds it exactly, and secure aggregation
(`fixed_point`) adds it exactly for up to 255 sites: nothing is rounded between the noise and the opened sum. The step follows
from the noise alone, which is public; it says nothing about the data.

Why one unit moves a sum by no more than is paid for
----------------------------------------------------
Rounding a vector to the grid moves its weighted norm by at most ``r = step |weights| / 2``. A unit is shortened to
``bound - 2 r`` (less a billionth, for the rounding of float64) and then rounded, so its norm is at most ``bound - r``. If
vectors of norm c change a sum by at most ``f c``, f from 1 to 2p + 1, rounded ones change it by at most
``f (bound - 2 r) + m r`` with m vectors involved. That is at most ``f bound`` as long as m <= 2 f: one vector (f = 1), two
vectors with the diameter (f = 2), p + 1 removed and p new rows (m = 2p + 1, f >= m / sqrt(2)).
Sums beyond `limit` are cut there, entry by entry. Cutting two numbers brings them no farther apart, so the bound stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.privacy.discrete_gaussian import Integers, RandomBytes, discrete_gaussian, discretisation_cost

__all__ = ["LONGEST", "SLACK", "ClippedSum", "Grid"]

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
