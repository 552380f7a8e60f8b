"""Distributions of one variable in n rows, given its linear predictors: a law per kind (`feddbn.model.conditionals`).

Every law has

    mean          (n,) what is expected; of levels the mean position, 0 or 1 of a binary one
    variance      (n,)
    driven(z)     (n,) values that standard normal numbers z stand for: rising in z, so that paths with the same z compare
    log_density   (n,) of values (of a level or a count: the log of its probability)
    below, upto   (n,) P(x < value) and P(x <= value)
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.special import (
    betainc,
    betaln,
    gammaincinv,
    gammaln,
    log_expit,
    log_softmax,
    nbdtrik,
    ndtr,
    pdtr,
    pdtrik,
)

from feddbn.core.arrays import FloatArray

__all__ = ["Law", "Levels", "law_of"]

_HIGHEST = 1.0 - 2.0**-53
_LARGE = 1e7
_LOG_ROOT_2_PI = 0.5 * np.log(2 * np.pi)


class Law(Protocol):
    """What every distribution can be asked."""

    @property
    def mean(self) -> FloatArray:
        """(n,) expected values."""

    @property
    def variance(self) -> FloatArray:
        """(n,) variances."""

    def driven(self, z: FloatArray) -> FloatArray:
        """(n,) values that standard normal numbers stand for."""

    def log_density(self, x: FloatArray) -> FloatArray:
        """(n,) log density, or log probability, of values."""

    def below(self, x: FloatArray) -> FloatArray:
        """(n,) probability of less than the values."""

    def upto(self, x: FloatArray) -> FloatArray:
        """(n,) probability of the values or less."""


class _Normal:
    def __init__(self, eta: FloatArray, dispersion: float) -> None:
        self.eta, self.sd = eta, float(np.sqrt(dispersion))

    @property
    def mean(self) -> FloatArray:
        return self.eta

    @property
    def variance(self) -> FloatArray:
        return np.full(len(self.eta), self.sd**2)

    def driven(self, z: FloatArray) -> FloatArray:
        return self.eta + self.sd * z

    def log_density(self, x: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(-_LOG_ROOT_2_PI - np.log(self.sd) - self._z(x) ** 2 / 2)

    def below(self, x: FloatArray) -> FloatArray:
        return self.upto(x)

    def upto(self, x: FloatArray) -> FloatArray:
        return np.asarray(ndtr(self._z(x)))

    def _z(self, x: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray((x - self.eta) / self.sd)


class _LogNormal:
    def __init__(self, eta: FloatArray, dispersion: float) -> None:
        self.log, self.dispersion = _Normal(eta, dispersion), dispersion

    @property
    def mean(self) -> FloatArray:
        return np.asarray(np.exp(self.log.eta + self.dispersion / 2))

    @property
    def variance(self) -> FloatArray:
        return np.asarray(np.expm1(self.dispersion) * self.mean**2)

    def driven(self, z: FloatArray) -> FloatArray:
        return np.asarray(np.exp(self.log.driven(z)))

    def log_density(self, x: FloatArray) -> FloatArray:
        return self.log.log_density(np.log(x)) - np.log(x)

    def below(self, x: FloatArray) -> FloatArray:
        return self.upto(x)

    def upto(self, x: FloatArray) -> FloatArray:
        return self.log.upto(np.log(x))


class _Count:
    def __init__(self, eta: FloatArray, dispersion: float) -> None:
        self.eta, self.dispersion = eta, dispersion
        self.mean: FloatArray = np.exp(eta)

    @property
    def variance(self) -> FloatArray:
        return np.asarray(self.mean + self.dispersion * self.mean**2)

    def driven(self, z: FloatArray) -> FloatArray:
        q = np.minimum(ndtr(z), _HIGHEST)
        if (self.mean > _LARGE).any():
            is_large = self.mean > _LARGE
            small = _Count(np.where(is_large, 0.0, self.eta), self.dispersion).driven(z)
            return np.where(is_large, self._large(q), small)
        a = self.dispersion
        found = nbdtrik(q, 1 / a, self._share) if a else pdtrik(q, self.mean)
        # Without a whole number at which the distribution function is exactly q, the next one.
        up = np.ceil(np.where(np.isfinite(found), found, 0.0))
        down = np.maximum(up - 1, 0.0)
        return np.where(self.upto(down) >= q, down, np.where(self.upto(up) >= q, up, up + 1))

    def _large(self, q: FloatArray) -> FloatArray:
        """The same for large means, where gaps between numbers hardly matter: a gamma number of this mean and variance."""
        spread = 1 + self.dispersion * self.mean
        return np.rint(spread * gammaincinv(self.mean / spread, q))

    def log_density(self, x: FloatArray) -> FloatArray:
        a = self.dispersion
        if not a:
            return np.asarray(x * self.eta - self.mean - gammaln(x + 1))
        some = np.maximum(x, 1.0)
        # log of Gamma(x + r) / (Gamma(r) x!), without differences of large numbers; 0 at x = 0.
        ways = np.where(x > 0, -betaln(some, 1 / a) - np.log(some), 0.0)
        return np.asarray(ways - np.log1p(a * self.mean) * (1 / a + x) + x * (self.eta + np.log(a)))

    def below(self, x: FloatArray) -> FloatArray:
        return np.where(x > 0, self.upto(np.maximum(x - 1, 0.0)), 0.0)

    def upto(self, x: FloatArray) -> FloatArray:
        if not self.dispersion:
            return np.asarray(pdtr(x, self.mean))
        return np.asarray(betainc(1 / self.dispersion, x + 1, self._share))

    @property
    def _share(self) -> FloatArray:
        return np.asarray(1 / (1 + self.dispersion * self.mean))


class Levels:
    """Levels 0 to L-1 with probabilities (n, L)."""

    def __init__(self, log_probabilities: FloatArray) -> None:
        self.log_probabilities = log_probabilities
        self.probabilities: FloatArray = np.exp(log_probabilities)

    @property
    def mean(self) -> FloatArray:
        """(n,) mean position."""
        return np.asarray(self.probabilities @ np.arange(self.probabilities.shape[1]))

    @property
    def variance(self) -> FloatArray:
        """(n,) variance of the position."""
        return np.asarray(self.probabilities @ np.arange(self.probabilities.shape[1]) ** 2 - self.mean**2)

    def driven(self, z: FloatArray) -> FloatArray:
        """(n,) positions that standard normal numbers stand for."""
        steps = np.cumsum(self.probabilities, axis=1)[:, :-1]
        return np.asarray((ndtr(z)[:, None] > steps).sum(axis=1), dtype=np.float64)

    def log_density(self, x: FloatArray) -> FloatArray:
        """(n,) log of the probability of the levels at positions x."""
        return np.asarray(np.take_along_axis(self.log_probabilities, _columns(x), axis=1)[:, 0])

    def below(self, x: FloatArray) -> FloatArray:
        """(n,) probability of a lower position."""
        return self.upto(x) - np.exp(self.log_density(x))

    def upto(self, x: FloatArray) -> FloatArray:
        """(n,) probability of this position or a lower one."""
        return np.asarray(
            np.take_along_axis(np.cumsum(self.probabilities, axis=1), _columns(x), axis=1)[:, 0]
        )


def _columns(x: FloatArray) -> np.ndarray:
    return np.asarray(x, dtype=np.intp)[:, None]


def law_of(kind: str, intercept: FloatArray, slopes: FloatArray, dispersion: float) -> Law:
    """The law of n rows from what causes add, `slopes` (n, k), and the intercept of a kind."""
    if kind == "ordinal":
        return Levels(_ordinal(intercept - slopes))
    eta = intercept + slopes
    if kind == "categorical":
        return Levels(np.asarray(log_softmax(np.concatenate([np.zeros((len(eta), 1)), eta], axis=1), axis=1)))
    if kind == "binary":
        return Levels(np.asarray(np.concatenate([log_expit(-eta), log_expit(eta)], axis=1)))
    laws: dict[str, type[_Normal | _LogNormal | _Count]] = {
        "continuous": _Normal,
        "positive": _LogNormal,
        "count": _Count,
    }
    return laws[kind](eta[:, 0], dispersion)


def _ordinal(thresholds: FloatArray) -> FloatArray:
    """(n, L) log probabilities from (n, L-1) log odds of "this level or lower", ascending."""
    upto, above = log_expit(thresholds), log_expit(-thresholds)
    # P(k) = F(b) - F(a) = F(b) (1 - F(a)) (1 - exp(a - b)) for logistic F.
    between = upto[:, 1:] + above[:, :-1] + np.log(-np.expm1(thresholds[:, :-1] - thresholds[:, 1:]))
    return np.concatenate([upto[:, :1], between, above[:, -1:]], axis=1)
