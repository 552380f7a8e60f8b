"""Do residuals still go along with squares and cubes of possible causes? Then effects are not straight lines.

    f_2(z) = (c^2 - 1) / sqrt(2),  f_3(z) = (c^3 - 3 c) / sqrt(6),   c = z kept within three public standard deviations

A residual of the right linear network is independent of whatever came before it in time or in the order, so sums of
``u f`` are sums of martingale differences with the variance ``sum u^2 f^2``, whatever the shape of the noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.statistics.residual_checks import LARGEST_RESIDUAL, ResidualChecks, largest_z_p

__all__ = ["CurvatureSums", "curvature_p", "information_of_shape"]

_REACH = 3.0
_EXPONENTIAL_INFORMATION = 0.419
"""Half the log of 2 pi e less the entropy of an exponential with variance 1."""


@dataclass(frozen=True)
class CurvatureSums:
    """(..., 2, q, d) sums of ``u_j f_k(z_m)`` and of their squares, for squares and cubes of every column m."""

    products: FloatArray
    squares: FloatArray

    @staticmethod
    def length(q: int, d: int) -> int:
        """Length of `to_vector`."""
        return 4 * q * d

    @classmethod
    def of_rows(cls, z: FloatArray, u: FloatArray) -> CurvatureSums:
        """The sums of rows: (..., n, q) standardised columns and (..., n, d) standardised residuals."""
        return cls.of_lagged(z, u, 0)

    @classmethod
    def of_lagged(cls, x: FloatArray, u: FloatArray, n_lags: int) -> CurvatureSums:
        """The same of rows ``[x_t, ..., x_{t-p}]``, given (..., p + n, k) consecutive values."""
        c = np.clip(x, -_REACH, _REACH)
        u = np.clip(u, -LARGEST_RESIDUAL, LARGEST_RESIDUAL)
        # Powers are products here, which take a tenth of the time; constant factors are left to the sums.
        quadratic = c * c
        cubic = quadratic - 3.0
        cubic *= c
        quadratic -= 1.0
        products = [_by_lag(shape, u, n_lags) for shape in (quadratic, cubic)]
        u *= u
        squares = [_by_lag(np.square(shape, out=shape), u, n_lags) for shape in (quadratic, cubic)]
        sizes = np.array([2.0, 6.0])[:, None, None]
        return cls(np.stack(products, axis=-3) / np.sqrt(sizes), np.stack(squares, axis=-3) / sizes)

    def to_vector(self) -> FloatArray:
        """One vector that adds up over recordings and sites."""
        lead = self.products.shape[:-3]
        return np.concatenate([part.reshape(*lead, -1) for part in (self.products, self.squares)], axis=-1)

    @classmethod
    def from_vector(cls, vector: FloatArray, d: int) -> CurvatureSums:
        """Inverse of `to_vector`, also for a sum of such vectors."""
        products, squares = vector.reshape(2, 2, -1, d)
        return cls(products, squares)


def _by_lag(shape: FloatArray, u: FloatArray, n_lags: int) -> FloatArray:
    """(..., q, d) products of a shape of values (..., p + n, k), at every lag, with n residuals."""
    length, n = shape.shape[-2], u.shape[-2]
    at_lag = (shape[..., length - n - lag : length - lag, :] for lag in range(n_lags + 1))
    return np.concatenate([one.swapaxes(-1, -2) @ u for one in at_lag], axis=-2)


def curvature_p(sums: CurvatureSums, support: BoolArray, before: BoolArray) -> float:
    """P-value that no effect is curved.

    Parameters
    ----------
    support
        (q, d) the edges of the network: where effects are, curvature is looked for by a chi-square over all of them.
    before
        (q, d) which columns come before which residual, in time or in the order; among them a single one may stick out.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.nan_to_num(sums.products / np.sqrt(sums.squares), posinf=0.0, neginf=0.0)
    edges, others = z[:, support & before], z[:, before]
    overall = float(chdtrc(edges.size, float((edges**2).sum()))) if edges.size else 1.0
    return min(1.0, 2.0 * min(overall, largest_z_p(others)))


def information_of_shape(checks: ResidualChecks) -> float:
    """By how much residuals are less random than Gaussian ones of their variances, per row: what a shape of noise explains.

    Negentropy to fourth order, ``skewness^2 / 12 + (kurtosis - 3)^2 / 48`` a variable, at most that of an exponential.
    """
    each = checks.skewness**2 / 12 + (checks.kurtosis - 3) ** 2 / 48
    return float(np.minimum(each, _EXPONENTIAL_INFORMATION).sum())
