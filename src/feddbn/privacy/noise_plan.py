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
from feddbn.privacy.clipping import gram_weights
from feddbn.privacy.discrete_gaussian import LARGEST_EPSILON, RandomBytes
from feddbn.privacy.gaussian import noise_multiplier
from feddbn.privacy.grid import LONGEST, SLACK, Grid
from feddbn.privacy.policy import Unit

__all__ = ["ClipRule", "NoisePlan", "NoisyVector", "columns_of", "multiplier_for"]


def multiplier_for(epsilon: float, delta: float, n_releases: int = 1) -> float:
    """Return the least noise multiplier with which `n_releases` answers on a grid cost epsilon in total."""
    left = epsilon - n_releases * SLACK
    if epsilon > 0 >= left or LARGEST_EPSILON < epsilon < math.inf:
        least = n_releases * SLACK
        raise ParameterError(
            f"epsilon must be above {least:.1g} and at most {LARGEST_EPSILON:g}, got {epsilon}."
        )
    return noise_multiplier(left, delta, n_releases)


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
    is_count
        The entries of a unit's vector are never negative, as in a histogram.
    n_answers
        How often a run asks for it, each time with this noise. It tells what the run costs; what a site may give away is
        held against its budget, however often it is asked.
    """

    bound: float | None = None
    norm: Literal["flat", "gram"] = "flat"
    count_weight: float = 1.0
    total_weight: float = 1.0
    noise_factor: float = 1.0
    is_count: bool = False
    n_answers: int = 1

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

    @property
    def never_opposed(self) -> bool:
        """Whether the vectors of two rows never have a negative (weighted) product.

        For counts that is plain. For rows z and y of moments the product is c^2 + t^2 s + s^2 with s = z y, count weight c
        and total weight t; its least value is c^2 - t^4 / 4.
        """
        return self.is_count or (self.norm == "gram" and self.total_weight**2 <= 2 * self.count_weight)

    def weights(self, length: int) -> FloatArray:
        """Return the weights of a vector of this length."""
        if self.norm == "flat":
            return np.ones(length)
        return gram_weights(columns_of(length), self.count_weight, self.total_weight)


@dataclass(frozen=True)
class NoisyVector:
    """What leaves: the bounded, noisy vector, a multiple of the grid's step.

    Of `n_units` units `n_clipped` were shortened and `n_left_out` were not finite (known to the site only).
    """

    value: FloatArray
    n_units: int
    n_clipped: int
    n_left_out: int = 0


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
        return cls(unit, multiplier_for(epsilon, delta, n_releases), rules, n_colluding)

    def n_shares(self, n_guaranteed: int) -> int:
        """Over how many sites the noise is spread: those that are sure to be in the sum and honest."""
        return max(1, n_guaranteed - self.n_colluding)

    def multiplier_of(self, task: str) -> float:
        """Return the noise multiplier of answers to `task`."""
        return self.multiplier * self.rules[task].noise_factor

    def sensitivity(self, task: str, bound: float, is_split: bool, n_lags: int) -> float:
        """Return how far one unit can move an answer to `task` made of vectors of norm at most `bound`.

        A recording adds or removes one bounded vector. An answer that cannot be split by unit stays in a ball, so
        anything moves it by at most the diameter.

        A row is part of p + 1 lagged rows. Without a clock its neighbours are joined when it is removed, which makes p
        lagged rows that were not there. Let a be the sum of those that go, |a| <= (p + 1) bound, and b that of those that
        come, |b| <= p bound. Where vectors are never opposed, a b >= 0 and |a - b|^2 <= |a|^2 + |b|^2; else |a - b| <= |a|
        + |b|. A clock leaves a gap instead, b = 0, which is covered.
        """
        if not is_split:
            return 2 * bound
        if self.unit == "recording":
            return bound
        going, coming = n_lags + 1, n_lags
        return bound * (math.hypot(going, coming) if self.rules[task].never_opposed else going + coming)

    def sigma(self, task: str, bound: float, is_split: bool, n_lags: int) -> float:
        """Return the standard deviation of the noise in a sum, for a weight of 1."""
        return self.multiplier_of(task) * self.sensitivity(task, bound, is_split, n_lags)

    def noise_in_sum(
        self, task: str, bound: float, n_lags: int, n_contributors: int, n_guaranteed: int
    ) -> float:
        """Return the standard deviation of the noise in a sum over answers that are split by unit.

        Every contributor adds a full share, so more sites than guaranteed make more noise than needed.
        """
        extra = math.sqrt(n_contributors / self.n_shares(n_guaranteed))
        return self.sigma(task, bound, True, n_lags) * extra

    def protect(
        self,
        task: str,
        vectors: Iterable[FloatArray],
        is_split: bool,
        length: int,
        n_lags: int,
        n_guaranteed: int,
        random_bytes: RandomBytes,
        clip_bound: object = None,
    ) -> NoisyVector:
        """Return a site's bounded answer plus its share of the noise.

        Parameters
        ----------
        vectors
            One for each unit, or the whole answer alone if it is not split.
        n_guaranteed
            Sites that are sure to be in the sum.
        random_bytes
            Where the noise comes from: ``os.urandom`` at a site, ``Generator.bytes`` in a simulation.
        """
        if length > LONGEST:
            raise ParameterError(f"noise is added to at most {LONGEST} numbers, this answer has {length}.")
        rule = self.rules[task]
        bound = rule.bound_for(clip_bound)
        weights = rule.weights(length)
        sigma = self.sigma(task, bound, is_split, n_lags)
        deviations = sigma / math.sqrt(self.n_shares(n_guaranteed)) / weights
        grid = Grid.for_share(float(deviations.min()))
        summed = grid.clipped_sum(vectors, bound, length, weights)
        steps = summed.steps + grid.noise(deviations, random_bytes)
        # Both factors are exact, and so is their product.
        value = steps.astype(np.float64) * grid.step
        return NoisyVector(value, summed.n_units, summed.n_clipped, summed.n_left_out)
