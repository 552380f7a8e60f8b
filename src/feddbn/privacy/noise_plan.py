"""What a site adds to its answers before they leave: bounds, noise and the unit they protect."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.moments import Moments, sums_length
from feddbn.errors import DataError, ParameterError
from feddbn.privacy.gaussian import LARGEST_EPSILON, LONGEST, SLACK, Grid, RandomBytes, noise_multiplier
from feddbn.privacy.policy import Unit
from feddbn.settings import number, word

# Which norm bounds a unit's vector, and which bound is worth its noise; `Grid` clips and adds the noise.
#
# A vector's norm is ``|weights * v|``; the noise on coordinate i then has standard deviation ``sigma /
# weights[i]``. For the sums of a Gram matrix (count, totals, upper triangle), `gram_weights` makes this the
# Frobenius norm of the full symmetric matrix and the noise a symmetric Gaussian matrix: sigma on the diagonal,
# sigma / sqrt(2) off it.


def gram_weights(q: int, count: float = 1.0, total: float = 1.0) -> FloatArray:
    """Return weights for a vector (count, q totals, upper triangle of q x q): Frobenius norm of the matrix.

    `count` and `total` above 1 spend more of the bound on the number of rows and on the totals, and so make
    their noise smaller; what they are worth depends on the units of the data.
    """
    rows, columns = np.triu_indices(q)
    off = np.where(rows == columns, 1.0, np.sqrt(2.0))
    return np.concatenate([[count], np.full(q, total), off])


def norm_edges() -> FloatArray:
    """Return public, data-independent edges between norms from 1e-6 to 1e12, two an octave."""
    n = int(np.ceil(np.log2(1e18) * 2)) + 1
    return np.asarray(1e-6 * 2.0 ** (np.arange(n) / 2))


def norm_histogram(
    units: Iterable[FloatArray], edges: FloatArray, weights: FloatArray | None = None
) -> list[FloatArray]:
    """Return one indicator vector (len(edges),) for each unit: its norm is at most edges[i], more than
    edges[i-1].
    """
    indicators = []
    for vector in units:
        norm = float(np.linalg.norm(vector if weights is None else weights * vector))
        one = np.zeros(len(edges))
        one[min(int(np.searchsorted(edges, norm)), len(edges) - 1)] = 1.0
        indicators.append(one)
    return indicators


def choose_clip(histogram: FloatArray, edges: FloatArray, sigma: float, quantile: float = 0.9) -> float:
    """Return the smallest edge below which about `quantile` of the units lie, from a noisy histogram.

    Bins within three standard deviations of zero are read as empty, so that noise in empty bins does not add
    up to units that are not there.
    """
    number(above=0, most=1).check("quantile", quantile)
    counts = np.where(histogram > 3 * sigma, histogram, 0.0)
    if not counts.any():
        raise DataError(
            "the noisy histogram of norms is empty at this noise level; use more recordings or a larger epsilon, "
            "or give the clipping bound instead."
        )
    cumulative = np.cumsum(counts)
    return float(edges[int(np.searchsorted(cumulative, quantile * cumulative[-1]))])


def multiplier_for(epsilon: float, delta: float) -> float:
    """Return the least noise multiplier with which an answer on a grid costs epsilon."""
    left = epsilon - SLACK
    if epsilon > 0 >= left or LARGEST_EPSILON < epsilon < math.inf:
        raise ParameterError(
            f"epsilon must be above {SLACK:.1g} and at most {LARGEST_EPSILON:g}, got {epsilon}."
        )
    return noise_multiplier(left, delta)


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
    """

    bound: float | None = None
    norm: Literal["flat", "gram"] = "flat"
    count_weight: float = 1.0
    total_weight: float = 1.0
    noise_factor: float = 1.0
    is_count: bool = False

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
        number(above=0).check("multiplier", self.multiplier)
        word("recording", "row").check("unit", self.unit)
        if self.n_colluding < 0:
            raise ParameterError(f"n_colluding must not be negative, got {self.n_colluding}.")

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


# Statistics out of noisy sums: a positive definite matrix, and a sample size that admits the noise.
#
# Noise of standard deviation s in an entry of a cross-product matrix acts on the choice of edges as fewer rows
# would. For variables i and j with precision matrix T (inverse covariance), the part of i and of j that the
# others do not explain has coefficients ``T[i] / T[i, i]`` and variance ``1 / T[i, i]``. Its sample covariance
# over n rows has variance ``1 / (n T_ii T_jj)``; the noise adds ``s^2 |T_i|^2 |T_j|^2 / (n^2 T_ii^2 T_jj^2)``.
# Together they are the variance of
#
#     n_effective = n / (1 + s^2 / n * (|T_i|^2 / T_ii) (|T_j|^2 / T_jj))
#
# rows, averaged over pairs. Every criterion that trades fit for edges on `n_effective` rows therefore charges
# noise as it charges chance: with much noise the answer becomes sparse, not wrong.


@dataclass(frozen=True)
class NoisyMoments:
    """Moments that can be used like exact ones.

    Attributes
    ----------
    moments
        Mean and positive definite scatter; ``moments.n`` is the effective number of rows.
    n_rows
        The noisy number of rows itself.
    n_repaired
        How many eigenvalues were raised to make the scatter positive definite.
    """

    moments: Moments
    n_rows: float
    n_repaired: int


def repair_psd(matrix: FloatArray, floor: float) -> tuple[FloatArray, int]:
    """Return the nearest symmetric matrix (Frobenius) whose eigenvalues are at least `floor`, and how many
    were not.
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    low = values < floor
    repaired = (vectors * np.where(low, floor, values)) @ vectors.T
    return (repaired + repaired.T) / 2, int(low.sum())


def effective_count(covariance: FloatArray, n: float, sigma: float) -> float:
    """Return the number of rows that would be as uncertain as n rows with noise `sigma` on each
    cross-product.
    """
    precision = np.linalg.inv(covariance)
    spread = np.sum(precision**2, axis=1) / np.diag(precision)
    return float(n / (1.0 + sigma**2 / n * float(np.mean(spread)) ** 2))


def moments_of_noisy_sums(vector: FloatArray, q: int, sigma: float) -> NoisyMoments:
    """Return usable moments from a noisy vector (count, q totals, upper triangle).

    Eigenvalues of the scatter are raised to at least ``sigma * sqrt(q / 2)``, half the radius of the noise's own spectrum
    (Wigner's semicircle): nothing smaller can be told from noise.

    Parameters
    ----------
    sigma
        Standard deviation of the noise on a diagonal entry; entries off the diagonal have sigma / sqrt(2).
    """
    n = float(vector[0])
    if not n > 1:
        raise DataError(
            "the noise is larger than the number of rows; use more recordings or a larger epsilon."
        )
    noisy = Moments.from_sums(vector, q)
    floor = max(sigma * np.sqrt(q / 2.0), 1e-9 * float(np.mean(np.abs(np.diag(noisy.scatter)))))
    scatter, n_repaired = repair_psd(noisy.scatter, floor)
    covariance = scatter / n
    n_effective = effective_count(covariance, n, sigma / np.sqrt(2.0))
    return NoisyMoments(Moments(n_effective, noisy.mean, covariance * n_effective), n, n_repaired)
