"""Standardised columns, starting values, and the way back to the units of the codes.

eta = t_0 + sum_c t_c (x_c - origin_c) / scale_c      =>      b_c = t_c / scale_c,   b_0 = t_0 - sum_c b_c origin_c
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.designs.design import Design
from feddbn.core.glm.models import NodeModel, columns_of
from feddbn.core.kinds import Kind
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.scaling import safe_roots

__all__ = ["NodeEstimate", "column_units", "in_code_units", "least_squares", "slopes_of", "starting_theta"]

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
    """Origin and scale of the columns within a moment: means, and standard deviations except for single levels."""
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
