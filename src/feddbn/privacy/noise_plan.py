"""What a site adds to its answers before they leave: bounds, noise and the unit they protect."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.moments import sums_length
from feddbn.errors import ParameterError
from feddbn.privacy.clipping import clip_to, clipped_sum, gaussian_share, gram_weights
from feddbn.privacy.gaussian import noise_multiplier
from feddbn.privacy.policy import Unit

__all__ = ["ClipRule", "NoisePlan", "NoisyVector", "columns_of"]


def columns_of(length: int) -> int:
    """Return q of a vector (count, q totals, upper triangle) of length 1 + q + q (q + 1) / 2."""
    q = round((math.sqrt(8 * length + 1) - 3) / 2)
    if sums_length(q) != length:
        raise ParameterError(
            f"a vector of length {length} is not a count, totals and the upper triangle of a matrix; "
            "use norm='flat'."
        )
    return q


@dataclass(frozen=True)
class ClipRule:
    """How answers to one task are bounded.

    Attributes
    ----------
    bound
        Largest norm of one unit's vector, or of the whole vector if the task cannot be split by unit. None
        reads ``clip_bound`` from the task: the noise grows with the bound, so a server may choose it.
    norm
        "flat": Euclidean norm of the vector; "gram": Frobenius norm of count, totals and symmetric matrix.
    count_weight, total_weight
        See `gram_weights`.
    noise_factor
        Noise of this task relative to the plan's multiplier.
    """

    bound: float | None = None
    norm: Literal["flat", "gram"] = "flat"
    count_weight: float = 1.0
    total_weight: float = 1.0
    noise_factor: float = 1.0

    def __post_init__(self) -> None:
        for name in ("bound", "count_weight", "total_weight", "noise_factor"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ParameterError(f"{name} must be positive and finite, got {value}.")

    def bound_for(self, asked: object) -> float:
        """Return the bound of this rule, or the one a task asks for if the rule leaves it open."""
        if self.bound is not None:
            return self.bound
        if isinstance(asked, bool) or not isinstance(asked, (int, float)) or not 0 < asked < math.inf:
            raise ParameterError(f"this task must name a positive clip_bound, got {asked!r}.")
        return float(asked)

    def weights(self, length: int) -> FloatArray | None:
        """Return the weights of a vector of this length, or None for the flat norm."""
        if self.norm == "flat":
            return None
        return gram_weights(columns_of(length), self.count_weight, self.total_weight)


@dataclass(frozen=True)
class NoisyVector:
    """What leaves: the bounded, noisy vector; `n_clipped` of `n_units` units were shortened (known to the
    site only).
    """

    value: FloatArray
    n_units: int
    n_clipped: int


@dataclass(frozen=True)
class NoisePlan:
    """Clipping and noise of one run, agreed by all sites.

    Attributes
    ----------
    unit
        What one epsilon protects: everything of a recording (a person), or one row.
    multiplier
        Standard deviation of the noise in a sum, in units of its sensitivity.
    rules
        One `ClipRule` for each task that may be answered with noise; other tasks leave without and cost
        infinitely.
    n_colluding
        Sites that may tell the server their own share of the noise; the others' shares alone suffice.
    """

    unit: Unit
    multiplier: float
    rules: Mapping[str, ClipRule]
    n_colluding: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.multiplier < math.inf:
            raise ParameterError(f"multiplier must be positive and finite, got {self.multiplier}.")
        if self.unit not in ("recording", "row"):
            raise ParameterError(f"unit must be 'recording' or 'row', got {self.unit!r}.")
        if self.n_colluding < 0:
            raise ParameterError(f"n_colluding must not be negative, got {self.n_colluding}.")

    @classmethod
    def for_budget(
        cls,
        unit: Unit,
        epsilon: float,
        delta: float,
        rules: Mapping[str, ClipRule],
        n_releases: int = 1,
        n_colluding: int = 0,
    ) -> NoisePlan:
        """Return the plan with the least noise for which `n_releases` answers cost epsilon in total."""
        return cls(unit, noise_multiplier(epsilon, delta, n_releases), rules, n_colluding)

    def n_shares(self, n_guaranteed: int) -> int:
        """Over how many sites the noise is spread: those that are sure to be in the sum and honest."""
        return max(1, n_guaranteed - self.n_colluding)

    def multiplier_of(self, task: str) -> float:
        """Return the noise multiplier of answers to `task`."""
        return self.multiplier * self.rules[task].noise_factor

    def sensitivity(self, bound: float, is_split: bool, n_lags: int) -> float:
        """Return how far one unit can move an answer made of vectors of norm at most `bound`.

        A recording adds or removes one bounded vector. A row is part of n_lags + 1 lagged rows. An answer
        that cannot be split by unit stays in a ball, so anything moves it by at most the diameter.
        """
        if not is_split:
            return 2 * bound
        return bound * (n_lags + 1 if self.unit == "row" else 1)

    def noise_in_sum(
        self, task: str, bound: float, n_lags: int, n_contributors: int, n_guaranteed: int
    ) -> float:
        """Return the standard deviation of the noise in a sum over answers that are split by unit.

        Every contributor adds a full share, so more sites than guaranteed make more noise than needed.
        """
        extra = math.sqrt(n_contributors / self.n_shares(n_guaranteed))
        return self.multiplier_of(task) * self.sensitivity(bound, True, n_lags) * extra

    def protect(
        self,
        task: str,
        vector: FloatArray,
        units: Iterable[FloatArray] | None,
        n_lags: int,
        n_guaranteed: int,
        rng: np.random.Generator,
        clip_bound: object = None,
    ) -> NoisyVector:
        """Return this site's bounded answer plus its share of the noise."""
        rule, length = self.rules[task], len(vector)
        bound = rule.bound_for(clip_bound)
        weights = rule.weights(length)
        if units is None:
            bounded = clip_to(vector, bound, weights)
            total, n_units, n_clipped = bounded, 1, int(bounded is not vector)
        else:
            summed = clipped_sum(units, bound, length, weights)
            total, n_units, n_clipped = summed.value, summed.n_units, summed.n_clipped
        sigma = self.multiplier_of(task) * self.sensitivity(bound, units is not None, n_lags)
        noise = gaussian_share(length, sigma, self.n_shares(n_guaranteed), rng, weights)
        return NoisyVector(total + noise, n_units, n_clipped)
