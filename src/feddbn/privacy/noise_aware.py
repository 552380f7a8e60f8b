"""Statistics out of noisy sums: a positive definite matrix, and a sample size that admits the noise.

Noise of standard deviation s in an entry of a cross-product matrix acts on the choice of edges as fewer rows
would. For variables i and j with precision matrix T (inverse covariance), the part of i and of j that the
others do not explain has coefficients ``T[i] / T[i, i]`` and variance ``1 / T[i, i]``. Its sample covariance
over n rows has variance ``1 / (n T_ii T_jj)``; the noise adds ``s^2 |T_i|^2 |T_j|^2 / (n^2 T_ii^2 T_jj^2)``.
Together they are the variance of

    n_effective = n / (1 + s^2 / n * (|T_i|^2 / T_ii) (|T_j|^2 / T_jj))

rows, averaged over pairs. Every criterion that trades fit for edges on `n_effective` rows therefore charges
noise as it charges chance: with much noise the answer becomes sparse, not wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.moments import Moments
from feddbn.errors import DataError

__all__ = ["NoisyMoments", "effective_count", "moments_of_noisy_sums", "repair_psd"]


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


def moments_of_noisy_sums(vector: FloatArray, q: int, sigma: float, shrink: float = 1.0) -> NoisyMoments:
    """Return usable moments from a noisy vector (count, q totals, upper triangle).

    Parameters
    ----------
    sigma
        Standard deviation of the noise on a diagonal entry; entries off the diagonal have sigma / sqrt(2).
    shrink
        Eigenvalues of the scatter are raised to at least ``shrink * sigma * sqrt(q / 2)``, half the radius
        of the noise's own spectrum (Wigner's semicircle): nothing smaller can be told from noise.
    """
    n = float(vector[0])
    if not n > 1:
        raise DataError(
            "the noise is larger than the number of rows; use more recordings or a larger epsilon."
        )
    noisy = Moments.from_sums(vector, q)
    floor = max(shrink * sigma * np.sqrt(q / 2.0), 1e-9 * float(np.mean(np.abs(np.diag(noisy.scatter)))))
    scatter, n_repaired = repair_psd(noisy.scatter, floor)
    covariance = scatter / n
    n_effective = effective_count(covariance, n, sigma / np.sqrt(2.0))
    return NoisyMoments(Moments(n_effective, noisy.mean, covariance * n_effective), n, n_repaired)
