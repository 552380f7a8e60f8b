"""What a row adds to the log likelihood of a generalised linear model, its gradient and its information.

    logistic            P(1) = 1 / (1 + exp(-eta))                                  theta = [intercept, slopes]
    multinomial         P(k) proportional to exp(eta_k), eta_0 = 0                  theta = [intercepts; slopes] row by row
    cumulative          P(y <= k) = 1 / (1 + exp(-(c_k - slope)))                   theta = [c_0 .. c_{L-2}, slopes]
    poisson             mean exp(eta)                                               theta = [intercept, slopes]
    negative-binomial   mean m = exp(eta), variance m + a m^2                       theta = [intercept, slopes, log a]

The information is the one observed, so that Newton's steps are those of maximum likelihood and standard errors are the usual
ones. Sums over rows add up over sites.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, expit, gammaln, polygamma

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind

__all__ = ["FAMILIES", "RowTerms", "family_of", "n_parameters", "row_terms"]

FAMILIES = ("logistic", "multinomial", "cumulative", "poisson", "negative-binomial")
_LARGEST_ETA = 700.0
_TINY = 1e-300


@dataclass(frozen=True)
class RowTerms:
    """Sums over some rows, and what each row weighs in them.

    Attributes
    ----------
    log_likelihood
        Summed over rows.
    gradient, information
        (m,) and (m, m), of theta.
    weight
        (n, k) how much each row decides about each linear predictor: the variance of what it predicts. Levels have one each.
    predictor
        (n, k) the linear predictors.
    dispersion
        Sums of (y - m)^2 - y and of m^2 for Poisson rows: their ratio tells how much wider than Poisson counts are.
    """

    log_likelihood: float
    gradient: FloatArray
    information: FloatArray
    weight: FloatArray
    predictor: FloatArray
    dispersion: tuple[float, float] = (0.0, 0.0)


def family_of(kind: Kind) -> str | None:
    """The family of a node of some kind; None for those that least squares fits."""
    return {
        "binary": "logistic",
        "categorical": "multinomial",
        "ordinal": "cumulative",
        "count": "poisson",
    }.get(kind.name)


def n_parameters(family: str, n_columns: int, n_levels: int) -> int:
    """How long theta is, for a node on so many columns."""
    if family == "multinomial":
        return (1 + n_columns) * (n_levels - 1)
    if family == "cumulative":
        return n_columns + n_levels - 1
    return 1 + n_columns + (family == "negative-binomial")


def row_terms(family: str, y: FloatArray, X: FloatArray, theta: FloatArray, n_levels: int = 2) -> RowTerms:
    """Return the terms of rows with values y (n,) and parents' columns X (n, P); levels are 0 .. n_levels - 1."""
    if family in ("multinomial", "cumulative"):
        return (_multinomial if family == "multinomial" else _cumulative)(y, X, theta, n_levels)
    rows: Callable[[FloatArray, FloatArray, FloatArray], RowTerms] = {
        "logistic": _logistic,
        "poisson": _poisson,
        "negative-binomial": _negative_binomial,
    }[family]
    return rows(y, _with_one(X), theta)


def _with_one(X: FloatArray) -> FloatArray:
    return np.concatenate([np.ones((len(X), 1)), X], axis=1)


def _bounded(eta: FloatArray) -> FloatArray:
    return np.clip(eta, -_LARGEST_ETA, _LARGEST_ETA)


def _logistic(y: FloatArray, Z: FloatArray, theta: FloatArray) -> RowTerms:
    predictor = Z @ theta
    eta = _bounded(predictor)
    p = expit(eta)
    weight = p * expit(-eta)
    value = float((y * eta - np.logaddexp(0.0, eta)).sum())
    return RowTerms(value, Z.T @ (y - p), (Z * weight[:, None]).T @ Z, weight[:, None], predictor[:, None])


def _poisson(y: FloatArray, Z: FloatArray, theta: FloatArray) -> RowTerms:
    predictor = Z @ theta
    eta = _bounded(predictor)
    mean = np.exp(eta)
    value = float((y * eta - mean - gammaln(y + 1)).sum())
    spread = (float(((y - mean) ** 2 - y).sum()), float((mean**2).sum()))
    return RowTerms(
        value, Z.T @ (y - mean), (Z * mean[:, None]).T @ Z, mean[:, None], predictor[:, None], spread
    )


def _negative_binomial(y: FloatArray, Z: FloatArray, theta: FloatArray) -> RowTerms:
    predictor = Z @ theta[:-1]
    eta = _bounded(predictor)
    mean, r = np.exp(eta), float(np.exp(-theta[-1]))
    both = r + mean
    value = gammaln(y + r) - gammaln(r) - gammaln(y + 1) - r * np.log1p(mean / r) + y * (eta - np.log(both))
    # In r first; log a = -log r.
    by_r = digamma(y + r) - digamma(r) - np.log1p(mean / r) + 1 - (r + y) / both
    by_rr = polygamma(1, y + r) - polygamma(1, r) + 1 / r - 2 / both + (r + y) / both**2
    gradient = np.append(Z.T @ (r * (y - mean) / both), -r * by_r.sum())
    m = len(theta)
    information = np.zeros((m, m))
    information[:-1, :-1] = (Z * (r * mean * (r + y) / both**2)[:, None]).T @ Z
    information[:-1, -1] = information[-1, :-1] = Z.T @ (r * mean * (y - mean) / both**2)
    information[-1, -1] = -(r * by_r + r * r * by_rr).sum()
    weight = (r * mean / both)[:, None]
    return RowTerms(float(value.sum()), gradient, information, weight, predictor[:, None])


def _multinomial(y: FloatArray, X: FloatArray, theta: FloatArray, n_levels: int) -> RowTerms:
    Z, k = _with_one(X), n_levels - 1
    predictor = np.concatenate([np.zeros((len(Z), 1)), Z @ theta.reshape(-1, k)], axis=1)
    full = _bounded(predictor)
    top = full.max(axis=1, keepdims=True)
    log_p = full - top - np.log(np.exp(full - top).sum(axis=1, keepdims=True))
    seen = y.astype(np.int64)
    value = float(log_p[np.arange(len(y)), seen].sum())
    p = np.exp(log_p[:, 1:])
    indicator = (seen[:, None] == np.arange(1, n_levels)).astype(np.float64)
    gradient = (Z.T @ (indicator - p)).ravel()
    information = np.zeros((Z.shape[1], k, Z.shape[1], k))
    for a in range(k):
        for b in range(a, k):
            part = (Z * (p[:, a] * ((a == b) - p[:, b]))[:, None]).T @ Z
            information[:, a, :, b] = part
            information[:, b, :, a] = part
    # The reference is a level like the others: rows decide about it, too.
    every = np.exp(log_p)
    square = information.reshape(theta.size, theta.size)
    return RowTerms(value, gradient, square, every * (1.0 - every), predictor)


def _cumulative(y: FloatArray, X: FloatArray, theta: FloatArray, n_levels: int) -> RowTerms:
    k = n_levels - 1
    seen, slope = y.astype(np.int64), X @ theta[k:]
    edges = np.concatenate([[-np.inf], theta[:k], [np.inf]])
    with np.errstate(invalid="ignore"):
        low, high = edges[seen] - slope, edges[seen + 1] - slope
    # The difference is taken on the side where both are small.
    flip = low > 0
    p = np.where(flip, expit(-low) - expit(-high), expit(high) - expit(low))
    p = np.maximum(p, _TINY)
    f = [expit(edge) * expit(-edge) / p for edge in (high, low)]
    bend = [one * (1 - 2 * expit(edge)) for one, edge in zip(f, (high, low), strict=True)]
    # Second derivatives of log p by its upper and its lower edge.
    upper, lower, mixed = bend[0] - f[0] ** 2, -bend[1] - f[1] ** 2, f[0] * f[1]
    Zs = []
    for shift in (0, -1):
        Z = np.concatenate([(seen[:, None] + shift == np.arange(k)).astype(np.float64), -X], axis=1)
        Zs.append(Z)
    gradient = Zs[0].T @ f[0] - Zs[1].T @ f[1]
    cross = (Zs[0] * mixed[:, None]).T @ Zs[1]
    information = -((Zs[0] * upper[:, None]).T @ Zs[0] + (Zs[1] * lower[:, None]).T @ Zs[1] + cross + cross.T)
    predictor = theta[:k] - slope[:, None]
    weight = expit(predictor) * expit(-predictor)
    return RowTerms(float(np.log(p).sum()), gradient, information, weight, predictor)
