"""Generalised linear models of nodes given their parents, fitted by Newton's steps on sums.

Families:

    logistic            P(1) = 1 / (1 + exp(-eta))                                  theta = [intercept, slopes]
    multinomial         P(k) proportional to exp(eta_k), eta_0 = 0                  theta = [intercepts; slopes] row by row
    cumulative          P(y <= k) = 1 / (1 + exp(-(c_k - slope)))                   theta = [c_0 .. c_{L-2}, slopes]
    poisson             mean exp(eta)                                               theta = [intercept, slopes]
    negative-binomial   mean m = exp(eta), variance m + a m^2                       theta = [intercept, slopes, log a]

The information is the one observed, so that Newton's steps are those of maximum likelihood and standard errors are the
usual ones. Sums over rows add up over sites.

Newton's steps to the largest likelihood of one model, from sums at one theta after the other:

    theta <- theta + I^-1 g      halved if the likelihood fell, bounded so that no step goes far

Columns are standardised, so 1 is a natural size of a coefficient. Where a combination of columns tells values apart
without an error, the likelihood has no maximum: it hardly rises any more while coefficients still grow, or slopes pass
`STEEPEST`. Such a model gets a ridge, that is a normal prior of standard deviation `SEPARATED_SD` on its slopes; all
others have none.

The way back from standardised columns to the units of the codes:

    eta = t_0 + sum_c t_c (x_c - origin_c) / scale_c      =>      b_c = t_c / scale_c,   b_0 = t_0 - sum_c b_c origin_c
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, expit, gammaln, logit, polygamma

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.designs.design import Design
from feddbn.core.kinds import Kind
from feddbn.core.statistics.moments import Moments, safe_roots, symmetric, upper_triangle

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


def row_terms(
    family: str,
    y: FloatArray,
    X: FloatArray,
    theta: FloatArray,
    n_levels: int = 2,
    weights: FloatArray | None = None,
) -> RowTerms:
    """Return the terms of rows with values y (n,) and parents' columns X (n, P); levels are 0 .. n_levels - 1.

    Every row counts in the sums as often as its weight (n,) says; None: once.
    """
    counted = np.ones(len(y)) if weights is None else weights
    if family in ("multinomial", "cumulative"):
        return (_multinomial if family == "multinomial" else _cumulative)(y, X, theta, n_levels, counted)
    rows: Callable[[FloatArray, FloatArray, FloatArray, FloatArray], RowTerms] = {
        "logistic": _logistic,
        "poisson": _poisson,
        "negative-binomial": _negative_binomial,
    }[family]
    return rows(y, _with_one(X), theta, counted)


def _with_one(X: FloatArray) -> FloatArray:
    return np.concatenate([np.ones((len(X), 1)), X], axis=1)


def _bounded(eta: FloatArray) -> FloatArray:
    return np.clip(eta, -_LARGEST_ETA, _LARGEST_ETA)


def _logistic(y: FloatArray, Z: FloatArray, theta: FloatArray, counted: FloatArray) -> RowTerms:
    predictor = Z @ theta
    eta = _bounded(predictor)
    p = expit(eta)
    weight = p * expit(-eta)
    value = float((counted * (y * eta - np.logaddexp(0.0, eta))).sum())
    information = (Z * (counted * weight)[:, None]).T @ Z
    return RowTerms(value, Z.T @ (counted * (y - p)), information, weight[:, None], predictor[:, None])


def _poisson(y: FloatArray, Z: FloatArray, theta: FloatArray, counted: FloatArray) -> RowTerms:
    predictor = Z @ theta
    eta = _bounded(predictor)
    mean = np.exp(eta)
    value = float((counted * (y * eta - mean - gammaln(y + 1))).sum())
    spread = (float((counted * ((y - mean) ** 2 - y)).sum()), float((counted * mean**2).sum()))
    gradient, information = Z.T @ (counted * (y - mean)), (Z * (counted * mean)[:, None]).T @ Z
    return RowTerms(value, gradient, information, mean[:, None], predictor[:, None], spread)


def _negative_binomial(y: FloatArray, Z: FloatArray, theta: FloatArray, counted: FloatArray) -> RowTerms:
    predictor = Z @ theta[:-1]
    eta = _bounded(predictor)
    mean, r = np.exp(eta), float(np.exp(-theta[-1]))
    both = r + mean
    value = gammaln(y + r) - gammaln(r) - gammaln(y + 1) - r * np.log1p(mean / r) + y * (eta - np.log(both))
    # In r first; log a = -log r.
    by_r = digamma(y + r) - digamma(r) - np.log1p(mean / r) + 1 - (r + y) / both
    by_rr = polygamma(1, y + r) - polygamma(1, r) + 1 / r - 2 / both + (r + y) / both**2
    gradient = np.append(Z.T @ (counted * r * (y - mean) / both), -r * (counted * by_r).sum())
    m = len(theta)
    information = np.zeros((m, m))
    information[:-1, :-1] = (Z * (counted * r * mean * (r + y) / both**2)[:, None]).T @ Z
    information[:-1, -1] = information[-1, :-1] = Z.T @ (counted * r * mean * (y - mean) / both**2)
    information[-1, -1] = -(counted * (r * by_r + r * r * by_rr)).sum()
    weight = (r * mean / both)[:, None]
    return RowTerms(float((counted * value).sum()), gradient, information, weight, predictor[:, None])


def _multinomial(
    y: FloatArray, X: FloatArray, theta: FloatArray, n_levels: int, counted: FloatArray
) -> RowTerms:
    Z, k = _with_one(X), n_levels - 1
    predictor = np.concatenate([np.zeros((len(Z), 1)), Z @ theta.reshape(-1, k)], axis=1)
    full = _bounded(predictor)
    top = full.max(axis=1, keepdims=True)
    log_p = full - top - np.log(np.exp(full - top).sum(axis=1, keepdims=True))
    seen = y.astype(np.int64)
    value = float((counted * log_p[np.arange(len(y)), seen]).sum())
    p = np.exp(log_p[:, 1:])
    indicator = (seen[:, None] == np.arange(1, n_levels)).astype(np.float64)
    gradient = (Z.T @ (counted[:, None] * (indicator - p))).ravel()
    information = np.zeros((Z.shape[1], k, Z.shape[1], k))
    for a in range(k):
        for b in range(a, k):
            part = (Z * (counted * p[:, a] * ((a == b) - p[:, b]))[:, None]).T @ Z
            information[:, a, :, b] = part
            information[:, b, :, a] = part
    # The reference is a level like the others: rows decide about it, too.
    every = np.exp(log_p)
    square = information.reshape(theta.size, theta.size)
    return RowTerms(value, gradient, square, every * (1.0 - every), predictor)


def _cumulative(
    y: FloatArray, X: FloatArray, theta: FloatArray, n_levels: int, counted: FloatArray
) -> RowTerms:
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
    upper, lower, mixed = (counted * one for one in (bend[0] - f[0] ** 2, -bend[1] - f[1] ** 2, f[0] * f[1]))
    Zs = []
    for shift in (0, -1):
        Z = np.concatenate([(seen[:, None] + shift == np.arange(k)).astype(np.float64), -X], axis=1)
        Zs.append(Z)
    gradient = Zs[0].T @ (counted * f[0]) - Zs[1].T @ (counted * f[1])
    cross = (Zs[0] * mixed[:, None]).T @ Zs[1]
    information = -((Zs[0] * upper[:, None]).T @ Zs[0] + (Zs[1] * lower[:, None]).T @ Zs[1] + cross + cross.T)
    predictor = theta[:k] - slope[:, None]
    weight = expit(predictor) * expit(-predictor)
    return RowTerms(float((counted * np.log(p)).sum()), gradient, information, weight, predictor)


@dataclass(frozen=True)
class NodeModel:
    """One node given its parents.

    Attributes
    ----------
    node
        Position of the variable.
    parents
        Rows of the stack ``[W; A_1; ...]``, ascending.
    family
        See `feddbn.core.glm`.
    """

    node: int
    parents: tuple[int, ...]
    family: str

    def n_parameters(self, design: Design) -> int:
        """How many numbers its theta has."""
        kind = design.codings[self.node].kind
        return n_parameters(self.family, len(columns_of(design, self.parents)), kind.n_levels)


def columns_of(design: Design, parents: Sequence[int]) -> IntArray:
    """Columns of the parents, one after the other."""
    return np.array([c for m in parents for c in design.groups[m].columns], dtype=np.int64)


def values_of(kind: Kind, columns: FloatArray) -> FloatArray:
    """(n,) the values that stand behind the columns (n, width) of a variable with a family of its own."""
    if kind.name == "categorical":
        return np.asarray(columns @ np.arange(1.0, kind.n_levels))
    return np.rint(np.expm1(columns[:, 0])) if kind.name == "count" else columns[:, 0]


def model_rows(
    model: NodeModel,
    design: Design,
    rows: FloatArray,
    standardised: FloatArray,
    theta: FloatArray,
    weights: FloatArray | None = None,
) -> RowTerms:
    """The terms of some rows of the design; theta is for standardised columns of parents."""
    kind = design.codings[model.node].kind
    y = values_of(kind, rows[:, list(design.groups[model.node].columns)])
    X = standardised[:, columns_of(design, model.parents)]
    return row_terms(model.family, y, X, theta, kind.n_levels, weights)


@dataclass
class ModelSums:
    """Sums over rows for one model: they add up over chunks and over sites.

    Attributes
    ----------
    log_likelihood, gradient, information
        As in `RowTerms`.
    dispersion
        The same, or empty where nobody asks.
    """

    log_likelihood: float
    gradient: FloatArray
    information: FloatArray
    dispersion: FloatArray

    @classmethod
    def empty(cls, m: int, is_poisson: bool) -> ModelSums:
        """Sums over no rows."""
        return cls(0.0, np.zeros(m), np.zeros((m, m)), np.zeros(2 * is_poisson))

    def add(self, terms: RowTerms) -> None:
        """Add the terms of some rows."""
        self.log_likelihood += terms.log_likelihood
        self.gradient = self.gradient + terms.gradient
        self.information = self.information + terms.information
        self.dispersion = self.dispersion + np.array(terms.dispersion)[: len(self.dispersion)]

    def to_sums(self) -> FloatArray:
        """One vector that adds up."""
        return np.concatenate(
            [[self.log_likelihood], self.gradient, upper_triangle(self.information), self.dispersion]
        )

    @staticmethod
    def length(m: int, is_poisson: bool) -> int:
        """Length of `to_sums` for m parameters."""
        return 1 + m + m * (m + 1) // 2 + 2 * is_poisson

    @classmethod
    def from_sums(cls, vector: FloatArray, m: int, is_poisson: bool) -> ModelSums:
        """Inverse of `to_sums`."""
        if len(vector) != cls.length(m, is_poisson):
            raise ValueError(f"{len(vector)} sums do not belong to {m} parameters")
        triangle = m * (m + 1) // 2
        return cls(
            float(vector[0]),
            vector[1 : 1 + m],
            symmetric(vector[1 + m : 1 + m + triangle], m),
            vector[1 + m + triangle :],
        )


SEPARATED_SD = 2.5
"""Standard deviation of slopes, per standard deviation or level, where values are told apart without an error."""
STEEPEST = 8.0
"""No slope is steeper without a prior: from one standard deviation, or level, to the next the odds change 3000 times."""
_CLOSE = 1e-8
"""Expected rise of twice the likelihood below which one more step ends at the maximum, up to rounding."""
_NEAR = 1e-2
"""The same below which the likelihood at the maximum is known well enough to compare models."""
_LONGEST_STEP = 3.0
_FLAT, _STILL_MOVES, _FIRST_LOOK = 0.1, 0.3, 3
_MOST_HALVINGS = 12


class Climb:
    """One model on its way; `theta` is what to ask for next.

    Parameters
    ----------
    theta
        (m,) where to begin.
    is_slope
        (m,) which parameters a ridge holds.
    n_thresholds
        So many first parameters must ascend.
    """

    def __init__(self, theta: FloatArray, is_slope: BoolArray, n_thresholds: int = 0) -> None:
        self.theta: FloatArray = np.asarray(theta, dtype=np.float64)
        self.is_done = self.is_near = False
        self.has_ridge = False
        self.n_taken = 0
        self.log_likelihood = -np.inf
        self.dispersion: FloatArray = np.zeros(2)
        self._is_slope, self._n_thresholds = is_slope, n_thresholds
        self._from: FloatArray = self.theta
        self._step: FloatArray = np.zeros_like(self.theta)
        self._best, self._halvings = -np.inf, 0
        self._information: FloatArray = np.eye(len(self.theta))

    @property
    def covariance(self) -> FloatArray:
        """(m, m) of the estimates."""
        return np.asarray(np.linalg.pinv(self._information, hermitian=True), dtype=np.float64)

    def take(self, sums: ModelSums) -> None:
        """Go on from what the sums at `theta` tell."""
        if self.is_done:
            return
        self.n_taken += 1
        value = sums.log_likelihood - self._penalty(self.theta)
        if value < self._best - 1e-9 * (1 + abs(self._best)) and self._halvings < _MOST_HALVINGS:
            self._halvings += 1
            self._step = self._step / 4
            self.theta = self._from + self._step
            return
        step, decrement = self._newton(sums)
        moves = float(np.abs(step[self._is_slope]).max(initial=0.0))
        is_flat = decrement < _FLAT and moves > _STILL_MOVES and self.n_taken >= _FIRST_LOOK
        is_steep = bool((np.abs((self.theta + self._bounded(step))[self._is_slope]) > STEEPEST).any())
        if (is_flat or is_steep) and not self.has_ridge:
            self.has_ridge = True
            step, decrement = self._newton(sums)
            value = sums.log_likelihood - self._penalty(self.theta)
        self._best, self._halvings, self._from = value, 0, self.theta
        self.log_likelihood = sums.log_likelihood + (0.0 if self.has_ridge else decrement / 2)
        self.dispersion = sums.dispersion
        self.is_done, self.is_near = decrement < _CLOSE, decrement < _NEAR
        self._step = step if self.is_done else self._bounded(step)
        self.theta = self._from + self._step

    def _penalty(self, theta: FloatArray) -> float:
        return float((theta[self._is_slope] ** 2).sum()) / (2 * SEPARATED_SD**2) if self.has_ridge else 0.0

    def _newton(self, sums: ModelSums) -> tuple[FloatArray, float]:
        """The step, and by how much twice the likelihood is expected to rise."""
        g, H = sums.gradient, sums.information
        if self.has_ridge:
            pull = self._is_slope / SEPARATED_SD**2
            g, H = g - pull * self.theta, H + np.diag(pull)
        values, vectors = np.linalg.eigh(H)
        # A direction without information, or bent the wrong way, is gone along as if it had a little.
        least = 1e-10 * max(float(values.max(initial=0.0)), 1e-10)
        values = np.where(values > least, values, np.maximum(np.abs(values), least))
        self._information = H
        along = vectors.T @ g
        return np.asarray(vectors @ (along / values)), float((along**2 / values).sum())

    def _bounded(self, step: FloatArray) -> FloatArray:
        step = step * min(1.0, _LONGEST_STEP / max(float(np.abs(step).max(initial=0.0)), 1e-300))
        k = self._n_thresholds
        for _ in range(60):
            if k < 2 or (np.diff(self.theta[:k] + step[:k]) > 0).all():
                break
            step = step / 2
        return step


_FEWEST = 0.5
"""No level or count is taken to be rarer than this many rows."""


@dataclass(frozen=True)
class NodeEstimate:
    """A fitted model in the units of the codes.

    Attributes
    ----------
    model
        Which.
    theta, covariance
        Intercepts first, then the slopes of parent after parent; as the family lays them out, without the log dispersion.
    dispersion
        Variance (least squares), overdispersion (counts), 1 otherwise.
    log_likelihood
        At the estimate, on the scale of the codes.
    n_parameters
        How many numbers were fitted, a dispersion among them.
    has_ridge
        Whether values are told apart without an error, so that slopes were held by a prior.
    """

    model: NodeModel
    theta: FloatArray
    covariance: FloatArray
    dispersion: float
    log_likelihood: float
    n_parameters: int
    has_ridge: bool = False

    def bic(self, n: float) -> float:
        """Twice the negative log likelihood, and log(n) for each parameter."""
        return -2 * self.log_likelihood + self.n_parameters * float(np.log(n))


def column_units(moments: Moments, design: Design) -> tuple[FloatArray, FloatArray]:
    """Origin and scale of the contemporaneous columns: means, and standard deviations except for single levels."""
    k = sum(design.widths)
    scale = safe_roots(np.diag(moments.scatter)[:k] / moments.n)
    start = 0
    for coding in design.codings:
        if coding.name in ("binary", "categorical"):
            scale[start : start + coding.width] = 1.0
        start += coding.width
    return moments.mean[:k].copy(), scale


def slopes_of(model: NodeModel, design: Design) -> BoolArray:
    """(m,) which parameters are slopes."""
    kind, m = design.codings[model.node].kind, model.n_parameters(design)
    found = np.ones(m, dtype=bool)
    found[: _n_intercepts(kind)] = False
    if model.family == "negative-binomial":
        found[-1] = False
    return found


def _n_intercepts(kind: Kind) -> int:
    return kind.n_levels - 1 if kind.name in ("ordinal", "categorical") else 1


def starting_theta(
    model: NodeModel, design: Design, moments: Moments, scale: FloatArray, counts: Sequence[float]
) -> FloatArray:
    """(m,) the linear solution on the scale of the link, for standardised columns.

    `counts` are how many rows have each level, as far as that is known.
    """
    kind, columns = design.codings[model.node].kind, columns_of(design, model.parents)
    own = np.array(design.groups[model.node].columns)
    S = moments.scatter
    solved = np.linalg.lstsq(S[columns][:, columns], S[columns][:, own], rcond=None)[0]
    slopes = solved * np.tile(scale, design.n_lags + 1)[columns][:, None]
    mean, least = moments.mean[own], _FEWEST / moments.n
    if kind.name == "binary":
        p = float(np.clip(mean[0], least, 1 - least))
        return np.concatenate([[logit(p)], slopes[:, 0] / (p * (1 - p))])
    if kind.name == "count":
        level = max(float(np.expm1(mean[0] + S[own[0], own[0]] / moments.n / 2)), least)
        return np.concatenate([[np.log(level)], slopes[:, 0] * (1 + level) / level])
    if kind.name == "categorical":
        shares = np.clip(mean, least, 1.0)
        first = float(np.clip(1 - mean.sum(), least, 1.0))
        bend = slopes / shares + slopes.sum(axis=1, keepdims=True) / first
        return np.concatenate([np.log(shares / first)[None], bend]).ravel()
    known = np.asarray(counts, dtype=np.float64) + 1.0
    share = np.clip(np.cumsum(known)[:-1] / known.sum(), least, 1 - least)
    edges = logit(share) + 1e-6 * np.arange(len(share))
    return np.concatenate([edges, slopes[:, 0] / (expit(edges) * expit(-edges)).sum()])


def in_code_units(
    model: NodeModel,
    design: Design,
    theta: FloatArray,
    covariance: FloatArray,
    origin: FloatArray,
    scale: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Coefficients and their covariance for columns as they are, without the log dispersion."""
    kind, columns = design.codings[model.node].kind, columns_of(design, model.parents)
    n_each = design.n_lags + 1
    size, shift = np.tile(scale, n_each)[columns], np.tile(origin, n_each)[columns]
    k = _n_intercepts(kind)
    if model.family == "negative-binomial":
        theta, covariance = theta[:-1], covariance[:-1, :-1]
    m = len(theta)
    change = np.eye(m)
    if kind.name == "ordinal":
        # Thresholds are compared with slopes: both are shifted.
        change[:k, k:] = shift / size
        change[range(k, m), range(k, m)] = 1 / size
    else:
        for c in range(len(columns)):
            for a in range(k):
                row = (c + 1) * k + a
                change[a, row] = -shift[c] / size[c]
                change[row, row] = 1 / size[c]
    return change @ theta, change @ covariance @ change.T


def least_squares(model: NodeModel, design: Design, moments: Moments) -> NodeEstimate:
    """The same for a node that has one column and is normal given its parents; exact from the moments."""
    (own,) = design.groups[model.node].columns
    columns = columns_of(design, model.parents)
    S, n, k = moments.scatter, moments.n, len(columns)
    size = safe_roots(np.diag(S)[columns] / n)
    inverse = np.linalg.pinv(S[np.ix_(columns, columns)] / np.outer(size, size), hermitian=True)
    inverse = inverse / np.outer(size, size)
    slopes = inverse @ S[columns, own]
    rss = max(float(S[own, own] - slopes @ S[columns, own]), 1e-12 * max(float(S[own, own]), 1e-300))
    variance = rss / max(n - 1 - k, 1.0)
    mean = moments.mean[columns]
    covariance = np.empty((k + 1, k + 1))
    covariance[1:, 1:] = inverse
    covariance[0, 1:] = covariance[1:, 0] = -inverse @ mean
    covariance[0, 0] = 1 / n + mean @ inverse @ mean
    theta = np.concatenate([[moments.mean[own] - slopes @ mean], slopes])
    value = -0.5 * n * (np.log(2 * np.pi * rss / n) + 1)
    return NodeEstimate(model, theta, covariance * variance, variance, float(value), k + 2)
