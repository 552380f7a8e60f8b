"""Rankings of edges from sums: lagged ones by posterior probability, contemporaneous ones by shape.

Lagged edges: averages over small parent sets
---------------------------------------------
For one target y, every model has the same common columns (intercepts of the centring groups and the target's
own past) with flat priors, and a set S of at most two regulators with m features each. With Zellner's g-prior
on the regulators' coefficients and p(sigma) ~ 1/sigma (Liang et al. 2008, JASA 103, with the common columns
partialled out)::

    log ML(S) - log ML(empty) = -(n - c)/2 log(1 - g/(1+g) R^2_S) - |S| m/2 log(1 + g)

R^2_S is the share of the residual variance of y, after the c common columns, that S explains; g = n is the
unit-information prior. A regulator i is in S with prior probability pi_i, independently, given |S| <= 2. The
posterior probability of an edge is the sum over the sets that contain it.

Hubs: pi_i has the prior Beta(1, 1/pi - 1) (mean pi, worth one edge) and is replaced a few times by its
posterior mean given the current edge probabilities (an EM step, exact but for the limit on |S|).

Known weaknesses: at most two regulators per target (a third one's effect is attributed to the nearest pair);
the own past is linear and in every model; memory grows with targets x regulators^2.

Contemporaneous edges: partial correlation for presence, non-Gaussianity for direction
--------------------------------------------------------------------------------------
Each recording is prewhitened by its own AR(1) per variable and standardised, so that slow drifts do not pass
for correlation. With w the result, x -> y and super-Gaussian or skewed noise, the sign of ::

    R = rho E[ x tanh(y) - tanh(x) y ]

is positive on average (Hyvarinen & Smith 2013, JMLR 14: the first-order likelihood ratio of the
two directions). It is turned into a probability by its standard error and multiplies the partial
correlation::

    score[i, j] = |pcorr_ij| (1/2 + 1/2 Phi(z_ij)),   z_ij = sqrt(n) sign(rho_ij) mean(D_ij) / sd(D_ij)
    D_ij = w_i tanh(w_j) - tanh(w_i) w_j

Known weaknesses: with Gaussian noise z is noise and the score is symmetric up to chance; sub-Gaussian noise
turns the sign around; skewed noise with a negative effect gives weak evidence (z is at most 40 % of that of a
positive effect, measured with exponential noise); a cycle or a hidden common cause is not recognised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.statistics.moments import correlations
from feddbn.errors import DataError

_R2_MAX = 1.0 - 1e-12


@dataclass(frozen=True)
class ParentScores:
    """Log Bayes factors of every parent set of size one and two, against the empty set.

    Attributes
    ----------
    singles
        (d, r) for target j and regulator a; -inf where the edge is not allowed.
    pairs
        (d, r (r-1) / 2) in the order of `np.triu_indices(r, 1)`.
    single_effects
        (d, r) shrunken effect of a on j, in standard deviations.
    pair_effects
        (2, d, r (r-1) / 2): effects of the first and of the second of the pair.
    null
        (d,) log marginal likelihood of the empty set, up to a constant that no feature map changes.
    """

    singles: FloatArray
    pairs: FloatArray
    single_effects: FloatArray
    pair_effects: FloatArray
    null: FloatArray

    @property
    def d(self) -> int:
        """Number of targets."""
        return int(self.singles.shape[0])

    @property
    def r(self) -> int:
        """Number of regulators: variables times lags."""
        return int(self.singles.shape[1])


@dataclass(frozen=True)
class EdgePosterior:
    """The average over parent sets.

    Attributes
    ----------
    probability
        (r, d), [from, to]: posterior probability that the edge exists.
    weight
        (r, d), [from, to]: posterior mean effect in standard deviations, zero where the edge is absent.
    rates
        (r,) prior probability of an edge of each regulator after the EM steps.
    log_marginal_likelihood
        Sum over targets, at these rates; comparable between feature maps and smoothings of the same rows.
    """

    probability: FloatArray
    weight: FloatArray
    rates: FloatArray
    log_marginal_likelihood: float


def g_prior_log_bayes_factor(r2: FloatArray, n_free: float, n_coefficients: int, g: float) -> FloatArray:
    """Return ``-(n_free / 2) log(1 - g/(1+g) R^2) - (n_coefficients / 2) log(1 + g)``."""
    explained = np.clip(r2, 0.0, _R2_MAX)
    factor: FloatArray = -0.5 * n_free * np.log1p(
        -g / (1.0 + g) * explained
    ) - 0.5 * n_coefficients * np.log1p(g)
    return factor


def score_parent_sets(
    cross: FloatArray,
    n: float,
    n_intercepts: float,
    d: int,
    n_lags: int,
    *,
    ridge: float = 1e-3,
) -> ParentScores:
    """Return the scores of all parent sets of size <= 2 of every target.

    Parameters
    ----------
    cross
        (q, q) centred cross-products of rows ``[x_t | x_{t-1} ... x_{t-p} | m features of x_{t-1} ... x_{t-p}]``.
    n
        Number of rows.
    n_intercepts
        Number of means that the centring removed.
    d, n_lags
        Number of variables and p. A target's own past is in every model and never a candidate.
    ridge
        Added to the unit diagonal of the regulators' correlation matrix, so that duplicates do not divide by
        zero.
    """
    n_free = n - n_intercepts - n_lags
    if n_free < 2:
        raise DataError(f"{n:.0f} usable rows leave {n_free:.0f}; edge probabilities need at least 2.")
    regulators = regulator_columns(len(cross), d, n_lags)
    r, m = regulators.shape
    correlation, _ = correlations(cross)
    n_pairs = r * (r - 1) // 2
    scores = ParentScores(
        np.full((d, r), -np.inf),
        np.full((d, n_pairs), -np.inf),
        np.zeros((d, r)),
        np.zeros((2, d, n_pairs)),
        np.zeros(d),
    )
    variances = np.diag(cross) / n
    for target in range(d):
        index = np.flatnonzero(np.arange(r) % d != target)
        columns = regulators[index].ravel()
        grams, moments, residual = _partial_out(correlation, columns, target, own_past(d, n_lags, target))
        residual_variance = variances[target] * max(residual, 0.0)
        scores.null[target] = -0.5 * n_free * np.log(max(residual_variance, np.finfo(float).tiny))
        if residual <= 1e-12:
            moments, residual = np.zeros_like(moments), 1.0  # a constant target: nothing explains it better
        _score_target(scores, target, index, grams, moments, residual, m, ridge, n_free, float(n))
    return scores


def regulator_columns(q: int, d: int, n_lags: int) -> IntArray:
    """(r, m) columns of each regulator's features; the lags of all variables come first, then the next lag."""
    return np.arange((n_lags + 1) * d, q).reshape(n_lags * d, -1)


def own_past(d: int, n_lags: int, target: int) -> IntArray:
    """Columns of a target's own past."""
    return np.arange(1, n_lags + 1) * d + target


def average_parent_sets(
    scores: ParentScores,
    *,
    edge_rate: float,
    regulator_of: IntArray | None = None,
    n_hub_steps: int = 5,
) -> EdgePosterior:
    """Return posterior edge probabilities, averaging over all parent sets of size <= 2.

    Parameters
    ----------
    scores
        From `score_parent_sets`.
    edge_rate
        Prior probability pi of one edge.
    regulator_of
        (r,) variable of each regulator, so that the lags of one variable share a rate; each its own by
        default.
    n_hub_steps
        EM steps of the regulators' rates; 0 keeps the same rate for all.
    """
    r = scores.r
    group = np.arange(r) if regulator_of is None else np.asarray(regulator_of)
    n_possible = np.bincount(group, weights=np.isfinite(scores.singles).sum(axis=0))
    rates = np.full(r, edge_rate)
    probability, weight, evidence = _posterior(scores, rates)
    for _ in range(n_hub_steps):
        found = np.bincount(group, weights=probability.sum(axis=1))
        rates = np.clip((found + 1.0) / (n_possible + 1.0 / edge_rate), 1e-6, 1.0 - 1e-6)[group]
        probability, weight, evidence = _posterior(scores, rates)
    return EdgePosterior(probability, weight, rates, float(evidence + scores.null.sum()))


def _partial_out(
    correlation: FloatArray, columns: IntArray, target: int, own: IntArray
) -> tuple[FloatArray, FloatArray, float]:
    """Cross-products of `columns`, with the target, and of the target, after the target's own past."""
    past = correlation[np.ix_(own, own)] + 1e-10 * np.eye(len(own))
    loading = np.linalg.solve(past, correlation[np.ix_(own, np.append(columns, target))])
    gram = correlation[np.ix_(columns, columns)] - correlation[np.ix_(columns, own)] @ loading[:, :-1]
    moment = correlation[columns, target] - correlation[np.ix_(columns, own)] @ loading[:, -1]
    residual = float(correlation[target, target] - correlation[target, own] @ loading[:, -1])
    return gram, moment, residual


def _score_target(
    scores: ParentScores,
    target: int,
    index: IntArray,
    gram: FloatArray,
    moment: FloatArray,
    residual: float,
    m: int,
    ridge: float,
    n_free: float,
    g: float,
) -> None:
    """Fill one row of `scores`: whiten each regulator's block, then pairs need m x m systems only."""
    k, r = len(index), scores.r
    if k == 0:
        return
    gram = gram + ridge * np.eye(k * m)
    blocks = gram.reshape(k, m, k, m)
    own_block = blocks[np.arange(k), :, np.arange(k), :]
    whiten = np.linalg.inv(np.linalg.cholesky(own_block))
    whitened = np.einsum("ai,aij->aj", moment.reshape(k, m), whiten.transpose(0, 2, 1))
    # A contribution b'phi is reported as its projection on the first feature: first' phi / first' first.
    projection = np.einsum("aij,aj->ai", whiten, own_block[:, :, 0]) / own_block[:, 0, 0][:, None]
    shrink = g / (1.0 + g)
    r2 = np.einsum("ai,ai->a", whitened, whitened) / residual
    scores.singles[target, index] = g_prior_log_bayes_factor(r2, n_free, m, g)
    scores.single_effects[target, index] = shrink * np.einsum("ai,ai->a", whitened, projection)

    first, second = np.triu_indices(k, 1)
    if len(first) == 0:
        return
    half = np.matmul(whiten, gram.reshape(k, m, k * m)).reshape(k * m, k, m)
    overlap = np.einsum("abk,blk->bla", half, whiten).reshape(k, m, k, m)
    # Pairs stand last, so that each of the few m x m steps runs over all of them at once.
    overlaps = np.ascontiguousarray(overlap.transpose(3, 1, 2, 0)[:, :, first, second])
    of_first, of_second = whitened.T[:, first], whitened.T[:, second]
    remaining = np.eye(m)[:, :, None] - np.einsum("ijp,ikp->jkp", overlaps, overlaps)
    gain = of_second - np.einsum("ijp,ip->jp", overlaps, of_first)
    second_coefficient = _solve_each(remaining, gain)
    first_coefficient = of_first - np.einsum("ijp,jp->ip", overlaps, second_coefficient)
    r2_pair = r2[first] + np.einsum("ip,ip->p", gain, second_coefficient) / residual
    a, b = index[first], index[second]
    position = a * (2 * r - a - 1) // 2 + (b - a - 1)
    scores.pairs[target, position] = g_prior_log_bayes_factor(r2_pair, n_free, 2 * m, g)
    scores.pair_effects[0, target, position] = shrink * np.einsum(
        "ip,ip->p", first_coefficient, projection.T[:, first]
    )
    scores.pair_effects[1, target, position] = shrink * np.einsum(
        "ip,ip->p", second_coefficient, projection.T[:, second]
    )


def _solve_each(matrices: FloatArray, right: FloatArray) -> FloatArray:
    """(m, P) solutions of P positive definite systems, matrices (m, m, P), right (m, P), by elimination."""
    S, b = matrices.copy(), right.copy()
    m = len(b)
    for i in range(m):
        for j in range(i + 1, m):
            factor = S[j, i] / S[i, i]
            S[j, i:] -= factor * S[i, i:]
            b[j] -= factor * b[i]
    for i in reversed(range(m)):
        for j in range(i + 1, m):
            b[i] -= S[i, j] * b[j]
        b[i] /= S[i, i]
    return b


def _posterior(scores: ParentScores, rates: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """(r, d) probabilities, (r, d) mean effects and the log evidence relative to the empty sets."""
    d, r = scores.d, scores.r
    first, second = np.triu_indices(r, 1)
    odds = rates / (1.0 - rates)
    log_odds = np.log(odds)
    probability, weight = np.zeros((r, d)), np.zeros((r, d))
    evidence = 0.0
    for target in range(d):
        single = scores.singles[target] + log_odds
        pair = scores.pairs[target] + log_odds[first] + log_odds[second]
        top = max(0.0, single.max(initial=0.0), pair.max(initial=0.0))
        single, pair = np.exp(single - top), np.exp(pair - top)
        total = np.exp(-top) + single.sum() + pair.sum()
        single, pair = single / total, pair / total
        probability[:, target] = single + _total(first, r, pair) + _total(second, r, pair)
        weight[:, target] = (
            single * scores.single_effects[target]
            + _total(first, r, pair * scores.pair_effects[0, target])
            + _total(second, r, pair * scores.pair_effects[1, target])
        )
        possible = np.where(np.isfinite(scores.singles[target]), odds, 0.0)
        prior_total = 1.0 + possible.sum() + (possible.sum() ** 2 - (possible**2).sum()) / 2.0
        evidence += top + np.log(total) - np.log(prior_total)
    return np.minimum(probability, 1.0), weight, evidence


def _total(at: IntArray, length: int, values: FloatArray) -> FloatArray:
    """(length,) sums of `values` by position."""
    return np.bincount(at, weights=values, minlength=length).astype(np.float64)


@dataclass(frozen=True)
class DirectionSums:
    """Sums over prewhitened rows w: all that `score_pairs` needs.

    Attributes
    ----------
    n
        Number of rows.
    products
        (d, d) sum of ``w_i w_j``.
    asymmetry
        (d, d) sum of ``D_ij = w_i tanh(w_j) - tanh(w_i) w_j``; antisymmetric.
    asymmetry_squares
        (d, d) sum of ``D_ij^2``.
    """

    n: float
    products: FloatArray
    asymmetry: FloatArray
    asymmetry_squares: FloatArray

    def __add__(self, other: DirectionSums) -> DirectionSums:
        """The sums over both."""
        return DirectionSums(
            self.n + other.n,
            self.products + other.products,
            self.asymmetry + other.asymmetry,
            self.asymmetry_squares + other.asymmetry_squares,
        )


@dataclass(frozen=True)
class PairScores:
    """Scores of ordered pairs, all (d, d) and [from, to] with a zero diagonal.

    Attributes
    ----------
    score
        Presence times direction, in [0, 1].
    partial_correlation
        Signed and symmetric.
    direction
        Probability-like evidence Phi(z) for from -> to against to -> from.
    """

    score: FloatArray
    partial_correlation: FloatArray
    direction: FloatArray


def direction_sums(segments: Sequence[FloatArray]) -> DirectionSums:
    """Return the sums of one recording, given its segments (n, d) of consecutive rows.

    A recording of fewer than 4 usable rows is skipped: its own AR(1) fit would explain it completely. A
    variable that is constant in the recording contributes zeros.
    """
    d = segments[0].shape[1]
    now, past = (np.concatenate(part) for part in zip(*((x[1:], x[:-1]) for x in segments), strict=True))
    n, total = len(now), np.zeros((3, d, d))
    if n < 4:
        return DirectionSums(0.0, *total)
    now, past = now - now.mean(axis=0), past - past.mean(axis=0)
    size, of_past, both = (now**2).sum(axis=0), (past**2).sum(axis=0), (now * past).sum(axis=0)
    slope = np.divide(both, of_past, out=np.zeros(d), where=of_past > 0)
    residual = size - slope * both
    usable = residual > 1e-12 * np.maximum(size, np.finfo(float).tiny)
    w = (now - slope * past) * np.where(usable, 1.0, 0.0) / np.sqrt(np.where(usable, residual, 1.0) / n)
    t = np.tanh(w)
    cross = w.T @ t
    mixed, w2, t2 = w * t, w**2, t**2
    # D_ij^2 = w_i^2 t_j^2 + t_i^2 w_j^2 - 2 (w_i t_i)(w_j t_j): three products instead of an (n, d, d) array.
    squares = w2.T @ t2
    return DirectionSums(n, w.T @ w, cross - cross.T, squares + squares.T - 2.0 * (mixed.T @ mixed))


def score_pairs(sums: DirectionSums, ridge: float = 1e-3) -> PairScores:
    """Return presence, direction and their product for every ordered pair."""
    d = len(sums.products)
    if sums.n < 4:
        raise DataError(
            f"{sums.n:.0f} usable rows are too few to score pairs;"
            " give recordings of at least 5 rows without gaps."
        )
    correlation, _ = correlations(sums.products)
    np.fill_diagonal(correlation, 1.0)
    precision: FloatArray = np.linalg.inv(correlation + ridge * np.eye(d)).astype(np.float64, copy=False)
    partial = -correlations(precision)[0]
    np.fill_diagonal(partial, 0.0)
    mean = sums.asymmetry / sums.n
    variance = np.maximum(sums.asymmetry_squares / sums.n - mean**2, 0.0)
    z = np.zeros((d, d))
    np.divide(np.sqrt(sums.n) * np.sign(correlation) * mean, np.sqrt(variance), out=z, where=variance > 0)
    direction = ndtr(z)
    np.fill_diagonal(direction, 0.0)
    return PairScores(np.abs(partial) * (0.5 + 0.5 * direction), partial, direction)
