"""A linear stochastic differential equation from sums of products of readings, by the time between them.

    dx = A x dt + G dw,    Q = G G',    y_i(t) = level_i + x_i(t) + error_i where variable i is read at time t

Theory of operation: what two readings have in common depends on the time between them only,

    cov(y_i(t + delta), y_j(t)) = [exp(A delta) S + L]_ij + [i = j, delta = 0] r_i,    A S + S A' + Q = 0

S is the covariance of x, L that of the recordings' own levels, r the variance of errors of reading. So recordings need no
common clock, variables no common rows, and nothing is filled in: `lag_sums` adds up products of pairs of readings in bins
of the time between them, and sums of sites add up to those of all readings.

`learn_rates` fits A, Q, r and L to the covariances of the bins by weighted least squares. The weights are the inverse of
the covariance that the model itself gives them (Bartlett's formula, with what pairs share a reading), made anew at every
fit; so misfit is compared with its degrees of freedom, and falls by a parameter as twice a log likelihood does. Which
entries of A off the diagonal, of Q off the diagonal and of r are not 0, a walk over subsets says, in the model that is
linear at the last fit; a column costs half a logarithm of the number of readings. The subset of what is more probable than
not is fitted anew, until it stays. A may have cycles; it is stable, because no step of a fit leaves the stable ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm, solve_continuous_lyapunov, solve_triangular

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.designs.lags import LagSums
from feddbn.errors import DataError

LEAST_PAIRS = 20
MOST_MOMENTS = 4000
_DEFECTIVE = 1e7
_APART = 1e-5
_NEAR_BINS = 6
_EXPLAINED = 0.3
_UNEVEN = 0.05
_STEPS_TRIED = 400
_FASTEST = 30.0
_LATTICE = 250
_FORGOTTEN = 5.0
_LEAST_NOISE = 1e-3
_ROUNDS = 6
_CONTRADICTED = 4.0
_PRIOR_ODDS = 4.0
_SHARED_ODDS = 20.0
_FEW_RECORDINGS = 8


# --- The model of the moments -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Moments:
    """What is fitted: covariances of pairs in units of one standard deviation, one for each bin, later and earlier variable.

    Attributes
    ----------
    bins, later, earlier
        (m,) which bin and which variables; in bin 0 later <= earlier.
    value, delay, counts
        (m,) covariance, mean time between the readings, number of pairs.
    at, spread
        (B + 1,) mean and variance of the delays of all pairs of a bin.
    joint
        (d, d) numbers of pairs read at the same time; of readings, on the diagonal.
    scale, mean
        (d,) of the readings.
    """

    bins: IntArray
    later: IntArray
    earlier: IntArray
    value: FloatArray
    delay: FloatArray
    counts: FloatArray
    at: FloatArray
    spread: FloatArray
    joint: FloatArray
    scale: FloatArray
    mean: FloatArray


def _moments(sums: LagSums, least_pairs: int, variables: Sequence[str] = ()) -> _Moments:
    counts, readings = sums.counts, np.diagonal(sums.counts[0])
    mean = np.diagonal(sums.later[0]) / np.maximum(readings, 1)
    centred = (
        sums.products
        - sums.later * mean
        - mean[:, None] * sums.earlier
        + counts * np.multiply.outer(mean, mean)
    )
    variance = np.diagonal(centred[0]) / np.maximum(readings, 1)
    enough = counts >= least_pairs
    enough[0] &= np.triu(np.ones_like(enough[0]))
    own = np.diagonal(enough[1:], axis1=1, axis2=2).sum(axis=0)
    for k in np.flatnonzero((variance <= 1e-14 * mean**2) | (own < 2)).tolist():
        name = repr(variables[k]) if variables else str(k)
        raise DataError(
            f"variable {name} does not vary, or is not read {least_pairs} times or more at two distances of time; leave it "
            "out, or read more of it.",
            code="too-few-pairs",
        )
    scale = np.sqrt(variance)
    bins, later, earlier = np.nonzero(enough)
    n = counts[enough]
    return _Moments(
        bins,
        later,
        earlier,
        value=centred[enough] / n / (scale[later] * scale[earlier]),
        delay=sums.delays[enough] / n,
        counts=n,
        at=sums.delays.sum(axis=(1, 2)) / np.maximum(counts.sum(axis=(1, 2)), 1),
        spread=_delay_variances(sums),
        joint=counts[0],
        scale=scale,
        mean=mean,
    )


def _delay_variances(sums: LagSums) -> FloatArray:
    """(B + 1,) of the delays in each bin: even, or those of a lattice."""
    step, found = _lattice(sums), np.zeros(len(sums.edges))
    for b, (low, high) in enumerate(pairwise(sums.edges), 1):
        if step:
            n = np.floor(high / step * (1 + 1e-9)) - np.floor(low / step * (1 + 1e-9))
            found[b] = step**2 * max(n**2 - 1, 0.0) / 12
        else:
            found[b] = (high - low) ** 2 / 12
    return found


@dataclass(frozen=True)
class _Point:
    """A, Q, r and L: one vector of numbers, in units of one standard deviation."""

    A: FloatArray
    Q: FloatArray
    r: FloatArray
    L: FloatArray

    @property
    def vector(self) -> FloatArray:
        low = np.tril_indices(len(self.A))
        return np.concatenate([self.A.ravel(), self.Q[low], self.r, self.L[low]])

    @classmethod
    def of(cls, vector: FloatArray, d: int) -> _Point:
        t = d * (d + 1) // 2
        low = np.tril_indices(d)

        def symmetric(part: FloatArray) -> FloatArray:
            found = np.zeros((d, d))
            found[low] = part
            return found + np.tril(found, -1).T

        a, q, r, level = np.split(vector, [d * d, d * d + t, d * d + t + d])
        return cls(a.reshape(d, d), symmetric(q), r, symmetric(level))

    def is_allowed(self, shortest: float) -> bool:
        """Whether it is stable, and not so fast that nothing of it would be seen."""
        values = np.linalg.eigvals(self.A)
        if values.real.max() >= 0 or np.abs(values).max() * shortest >= _FASTEST or self.r.min() < 0:
            return False
        return bool(np.linalg.eigvalsh(self.Q)[0] >= 0)

    @property
    def stationary(self) -> FloatArray:
        """S of A S + S A' + Q = 0."""
        found = np.asarray(solve_continuous_lyapunov(self.A, -self.Q))
        return (found + found.T) / 2


def _expected(point: _Point, of: _Moments) -> FloatArray:
    """(m,) moments that the model expects."""
    at_bins = expm(point.A * of.at[:, None, None]) @ point.stationary
    # The mean over a bin: its delays are not all the same, and those of a pair of variables not quite those of all pairs.
    slope = point.A @ at_bins
    curve = at_bins + of.spread[:, None, None] / 2 * (point.A @ slope)
    chosen = (of.bins, of.later, of.earlier)
    found = curve[chosen] + (of.delay - of.at[of.bins]) * slope[chosen] + point.L[of.later, of.earlier]
    own = (of.bins == 0) & (of.later == of.earlier)
    found[own] += point.r[of.later[own]]
    return np.asarray(found)


def _jacobian(point: _Point, of: _Moments) -> FloatArray:
    """(m, parameters) derivatives of `_expected`, without those of its small corrections for delays within a bin."""
    A, S, d = point.A, point.stationary, len(point.A)
    low = np.tril_indices(d)
    t = len(low[0])
    # dS for every entry of A and of Q: A dS + dS A' + change = 0.
    change = np.zeros((d * d + t, d, d))
    for k in range(d):
        for m in range(d):
            change[k * d + m, k] += S[m]
            change[k * d + m, :, k] += S[m]
    place = np.arange(t)
    change[d * d + place, low[0], low[1]] = 1.0
    change[d * d + place, low[1], low[0]] = 1.0
    system = np.kron(A, np.eye(d)) + np.kron(np.eye(d), A)
    dS = -np.linalg.solve(system, change.reshape(-1, d * d).T).T.reshape(-1, d, d)
    found = np.zeros((len(of.value), d * d + t + d + t))
    grown, changes = np.asarray(expm(A * of.at[:, None, None])), _expm_changes(A, of.at, S)
    for b in range(len(of.at)):
        rows = np.flatnonzero(of.bins == b)
        part = grown[b] @ dS
        part[: d * d] += changes[b].reshape(d * d, d, d)
        found[rows, : d * d + t] = part[:, of.later[rows], of.earlier[rows]].T
    own = (of.bins == 0) & (of.later == of.earlier)
    found[own, d * d + t + of.later[own]] = 1.0
    pair = (np.maximum(of.later, of.earlier), np.minimum(of.later, of.earlier))
    found[np.arange(len(of.value)), d * d + t + d + pair[0] * (pair[0] + 1) // 2 + pair[1]] = 1.0
    return found


def _expm_changes(A: FloatArray, at: FloatArray, S: FloatArray) -> FloatArray:
    """(n, d, d, d, d), [b, k, m]: d(exp(A at_b) S) / dA_km, by the divided differences of exp at the eigenvalues of A."""
    d = len(A)
    values, vectors = np.linalg.eig(A)
    if np.linalg.cond(vectors) > _DEFECTIVE:
        values, vectors = np.linalg.eig(A * (1 + _APART * np.multiply.outer(np.arange(d), np.ones(d))))
    back = np.linalg.inv(vectors)
    grown = np.exp(np.multiply.outer(at, values))
    gap = values[:, None] - values[None]
    close = np.abs(np.multiply.outer(at, gap)) < 1e-4
    middle = at[:, None, None] * np.exp(at[:, None, None] * (values[:, None] + values[None]) / 2)
    apart = (grown[:, :, None] - grown[:, None]) / np.where(gap == 0, 1.0, gap)
    divided = np.where(close, middle, apart)
    left = np.einsum("ia,ak->ika", vectors, back).reshape(d * d, d)
    right = np.einsum("mb,bj->bmj", vectors, back @ S).reshape(d, d * d)
    found = ((left @ divided) @ right).real.reshape(-1, d, d, d, d)
    return np.asarray(found.transpose(0, 2, 3, 1, 4))


# --- How sure the moments are -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Readings:
    """How times of reading are spread: a lattice of so many steps, each read with a chance of its own.

    Attributes
    ----------
    step
        Of the lattice, in time: as wide as readings keep apart, and never so fine that sums become long.
    time, length
        Of all recordings, and of one.
    together
        (d, d) how much more often than by chance two variables are read at the same lattice point; for one variable, one
        over its chance.
    rows
        Share of lattice points with a row.
    left
        (B + 1,) share of the time that has another time of the same recording so much later.
    least_lags
        Delays of the lattice that a bin has at least: 1 where readings are on it, and any part of one where they are not.
    """

    step: float
    time: float
    length: float
    together: FloatArray
    rows: float
    left: FloatArray
    least_lags: float


def _lattice(sums: LagSums) -> float:
    """Step of the lattice on which readings are, or 0: which explains best in which bins pairs are more than in others."""
    edges, widths = sums.edges, np.diff(sums.edges)
    pairs = sums.counts[1:].sum(axis=(1, 2)) / np.maximum(
        sums.time - sums.n_recordings * edges[1:], 0.1 * sums.time
    )
    near = slice(0, max(len(widths) // 2, min(len(widths), _NEAR_BINS)))
    usual = pairs.sum() / widths.sum()
    if usual <= 0:
        return 0.0
    density = (pairs / widths / usual)[near]
    uneven = float(((density - 1) ** 2).sum())
    best, best_left = 0.0, _EXPLAINED * uneven
    for step in np.geomspace(edges[1] / 2, edges[-1] / 2, _STEPS_TRIED):
        within = np.diff(np.floor(edges / step * (1 + 1e-9))) * step / widths
        left = float(((density - within[near]) ** 2).sum())
        if left < best_left:
            best, best_left = float(step), left
    if not best or uneven <= _UNEVEN * len(density):
        return 0.0
    b = int(np.searchsorted(edges, best))
    n = sums.counts[b].sum() if 0 < b < len(edges) else 0.0
    # What the step is exactly, the pairs of its bin tell.
    return float(sums.delays[b].sum() / n) if n else best


def _readings(sums: LagSums, slowest: float) -> _Readings:
    length = max(sums.time / max(sums.n_recordings, 1), 1e-12)
    lattice = _lattice(sums)
    step = max(lattice, max(min(length, _FORGOTTEN * slowest), sums.edges[-1]) / _LATTICE)
    n = np.maximum(np.diagonal(sums.counts[0]), 1)
    steps = max(sums.time / step + sums.n_recordings, n.max())
    together = np.maximum(sums.counts[0] * steps / np.multiply.outer(n, n), 1.0)
    other = ~np.eye(len(n), dtype=bool) & (sums.counts[0] > 0)
    chance = n / steps
    pairs = (np.multiply.outer(chance, chance) * steps / np.maximum(sums.counts[0], 1))[other]
    rows = float(np.median(pairs)) if len(pairs) else float(chance.max())
    # Recordings differ in length: long delays are had by the long ones, as the numbers of pairs show.
    density = sums.counts[1:].sum(axis=(1, 2)) / np.diff(sums.edges)
    early = sums.edges[1:] <= max(length / 5, sums.edges[min(3, len(sums.edges) - 1)])
    seen = density / max(float(np.average(density[early], weights=np.diff(sums.edges)[early])), 1e-300)
    least = np.maximum(1 - sums.edges[1:] / length, np.where(early, 0.8, 0.0))
    left = np.concatenate([[1.0], np.clip(np.where(early, least, np.maximum(least, seen)), 0.01, 1.0)])
    return _Readings(
        step,
        steps * step,
        length,
        together,
        min(max(rows, float(chance.max())), 1.0),
        left,
        float(lattice == step),
    )


def _spread(point: _Point, of: _Moments, how: _Readings, widths: FloatArray) -> FloatArray:
    """(n, n) covariance of the moments where the model is right (Bartlett), with readings on a lattice.

    Two pairs s + delay, s and t + delay', t have cov = C_ik C_jl + C_il C_jk at the times between their ends; pairs that
    share a reading are more frequent than the lattice says by one over the chance of a reading.
    """
    d, S, step = len(point.A), point.stationary, how.step
    slowest = 1 / max(-np.linalg.eigvals(point.A).real.max(), 1e-3 / how.length)
    reach = int(np.ceil(min(how.length, _FORGOTTEN * slowest) / step)) + 1
    lags = np.rint(of.at / step).astype(int)
    most = reach + 2 * int(lags.max()) + 1
    half = np.empty((most + 1, d, d))
    half[0], E = S, expm(point.A * step)
    for u in range(most):
        half[u + 1] = E @ half[u]
    half[0] += np.diag(np.maximum(point.r, 0.0))
    C = np.concatenate([half[:0:-1].transpose(0, 2, 1), half])  # C[most + u] is that of u steps.
    flat = C.reshape(len(C), d * d)
    taper = np.maximum(1 - np.abs(np.arange(-reach, reach + 1)) * step / (how.length + step), 0.0)
    tapered = flat[most - reach : most + reach + 1] * taper[:, None]
    total, level = tapered.sum(axis=0), point.L.ravel()
    levels = (
        np.multiply.outer(level, total)
        + np.multiply.outer(total, level)
        + np.multiply.outer(level, level) * (how.length / step + 1)
    )

    known: dict[int, FloatArray] = {}

    def sum_of(lag: int) -> FloatArray:
        """[i, k, j, m]: the sum over u of C_ik(u + lag) C_jm(u)."""
        if lag not in known:
            shifted = flat[most - reach + lag : most + reach + 1 + lag]
            known[lag] = (shifted.T @ tapered + levels).reshape(d, d, d, d)
        return known[lag]

    # Long sums are smooth, and made on the lattice; what pairs that share a reading have in common is not.
    alone, zero = np.asarray(expm(point.A * of.at[:, None, None])) @ S, half[0] + point.L
    together = np.asarray(expm(point.A * np.add.outer(of.at, of.at)[..., None, None])) @ S
    apart = np.asarray(expm(point.A * np.abs(np.subtract.outer(of.at, of.at))[..., None, None])) @ S
    excess, n_steps = how.together - 1, how.time / step
    pairs = of.later * d + of.earlier
    per_bin = [np.flatnonzero(of.bins == b) for b in range(len(of.at))]
    found = np.empty((len(of.value), len(of.value)))
    left = how.left * n_steps
    for b, rows in enumerate(per_bin):
        for c in range(b + 1):
            columns = per_bin[c]
            if not len(rows) or not len(columns):
                continue
            x, y = int(lags[b]), int(lags[c])
            near = zero if b == c else apart[b, c] + point.L
            far, one, two = (M + point.L for M in (together[b, c], alone[b], alone[c]))
            # All four variables: [i, j, k, m], pairs (i, j) of this bin and (k, m) of the other one.
            every = sum_of(x - y).transpose(0, 2, 1, 3) + sum_of(x + y).transpose(0, 2, 3, 1)
            if b == 0:
                every = every + _same_row(how) * (_ik(zero) * _jm(zero) + _im(zero) * _jk(zero))
            elif c == 0:
                # k and m are one row.
                every += np.maximum(_jm(excess), _jk(excess)) * (
                    _ik(near) * _jm(zero) + _im(near) * _jk(zero)
                )
                every += np.maximum(_ik(excess), _im(excess)) * (
                    _ik(zero) * _jm(near.T) + _im(zero) * _jk(near.T)
                )
            else:
                # The readings j and m are one, then i and k, i and m, j and k.
                every += _jm(excess) * (_ik(near) * _jm(zero) + _im(one) * _jk(two.T))
                every += _ik(excess) * (_ik(zero) * _jm(near.T) + _im(two) * _jk(one.T))
                every += _im(excess) * (_ik(two.T) * _jm(one.T) + _im(zero) * _jk(far.T))
                every += _jk(excess) * (_ik(one) * _jm(two) + _im(far) * _jk(zero))
                if b == c:
                    both = _jm(excess) * _ik(excess) / max(widths[b] / step, how.least_lags)
                    every += both * (_ik(zero) * _jm(zero) + _im(one) * _jk(one.T))
            part = every.reshape(d * d, d * d)[np.ix_(pairs[rows], pairs[columns])]
            part = part / np.sqrt(left[b] * left[c])
            found[np.ix_(rows, columns)] = part
            found[np.ix_(columns, rows)] = part.T
    found[np.diag_indices_from(found)] *= 1 + 1e-6
    return found


def _ik(M: NDArray[Any]) -> NDArray[Any]:
    """Entries of a matrix by the first and third of four variables; so are the other three."""
    return M[:, None, :, None]


def _jm(M: NDArray[Any]) -> NDArray[Any]:
    return M[None, :, None, :]


def _im(M: NDArray[Any]) -> NDArray[Any]:
    return M[:, None, None, :]


def _jk(M: NDArray[Any]) -> NDArray[Any]:
    return M[None, :, :, None]


def _same_row(how: _Readings) -> FloatArray:
    """(d, d, d, d) how much more often than by chance pairs (i, j) and (k, m), each of one row, are of the same row."""
    share = np.minimum(1 / np.diagonal(how.together) / how.rows, 1.0)
    same = np.eye(len(share), dtype=bool)
    first = np.where(_ik(same) | _im(same), share[:, None, None, None], 1.0)
    second = np.where((_jk(same) | _jm(same)) & ~same[:, :, None, None], share[None, :, None, None], 1.0)
    return np.asarray(1 / (how.rows * first * second) - 1)


# --- Fits ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fit:
    point: _Point
    misfit: float
    weights: FloatArray  # lower triangle of the Cholesky factor of the moments' covariance

    def excess(self, of: _Moments) -> float:
        """Misfit for each degree of freedom: about 1 where the model is right."""
        return self.misfit / max(len(of.value) - int((self.point.vector != 0).sum()), 1)


def _whitened(weights: FloatArray, what: FloatArray) -> FloatArray:
    return np.asarray(solve_triangular(weights, what, lower=True))


def _descend(start: _Point, free: BoolArray, of: _Moments, weights: FloatArray, rounds: int = 30) -> _Fit:
    """Levenberg-Marquardt in the free parameters; no step leaves the stable ones."""
    d = len(start.A)
    vector, errors = start.vector, _Which.of(d).nugget
    error = _whitened(weights, of.value - _expected(start, of))
    misfit, damping = float(error @ error), 1e-3
    for _ in range(rounds):
        X = _whitened(weights, _jacobian(_Point.of(vector, d), of)[:, free])
        H, g = X.T @ X, X.T @ error
        ridge = np.diag(np.maximum(np.diagonal(H), 1e-12))
        gained = 0.0
        while damping < 1e8:
            trial, M = vector.copy(), H + damping * ridge
            step = np.linalg.solve(M, g)
            # An error of reading that would be negative is 0, and the others go on without it.
            held = errors[free] & (vector[free] + step < 0)
            if held.any():
                left = ~held
                step[held] = -vector[free][held]
                step[left] = np.linalg.solve(
                    M[np.ix_(left, left)], g[left] - M[np.ix_(left, held)] @ step[held]
                )
            trial[free] += step
            trial[errors] = np.maximum(trial[errors], 0.0)
            point = _Point.of(trial, d)
            if point.is_allowed(of.delay[of.bins > 0].min()):
                other = _whitened(weights, of.value - _expected(point, of))
                lower = float(other @ other)
                if lower < misfit:
                    gained, vector, error, misfit = misfit - lower, trial, other, lower
                    damping = max(damping / 10, 1e-9)
                    break
            damping *= 10
        if gained < 1e-4:
            break
    return _Fit(_Point.of(vector, d), misfit, weights)


def _start(of: _Moments, has_levels: bool = False) -> _Point:
    """Every variable by itself: the line through the logarithms of its covariances, less those at the longest delays."""
    d = len(of.scale)
    rates, variances, L = np.empty(d), np.ones(d), np.zeros((d, d))
    usual = float(np.median(of.delay[of.bins > 0]))
    if has_levels:
        last = of.bins >= of.bins.max() - 1
        pair = (of.later[last], of.earlier[last])
        n = np.zeros((d, d))
        np.add.at(L, pair, of.value[last])
        np.add.at(n, pair, 1.0)
        L = (L + L.T) / np.maximum(n + n.T, 1.0)
    for i in range(d):
        value = of.value - L[i, i]
        own = (of.later == i) & (of.earlier == i) & (of.bins > 0) & (value > 0.05)
        rates[i] = 1 / usual
        if own.sum() >= 2:
            weights = value[own] * np.sqrt(of.counts[own])
            line = np.polyfit(of.delay[own], np.log(value[own]), 1, w=weights)
            variances[i] = np.clip(np.exp(line[1]), 0.05, 1.0)
            rates[i] = np.clip(-line[0], 0.02 / usual, 50 / usual)
    return _Point(-np.diag(rates), np.diag(2 * rates * variances), np.zeros(d), L)


# --- Which rates there are ----------------------------------------------------------------------------------------------


class _Subsets:
    """Regression on any subset of columns, by sweeping: what adding or dropping each of them changes is read off."""

    def __init__(self, G: FloatArray, c: FloatArray, price: FloatArray, positive: BoolArray) -> None:
        p = len(c)
        self.table = np.zeros((p + 1, p + 1))
        self.table[:p, :p] = G
        self.table[:p, p] = self.table[p, :p] = c
        self.chosen = np.zeros(p, dtype=bool)
        self.price, self.positive = price, positive
        self.least = 1e-8 * np.maximum(np.diagonal(G), 1e-300)

    def flip(self, k: int) -> None:
        """Add a column, or drop it."""
        T, pivot = self.table, self.table[k, k]
        row = T[k] / pivot
        sign = -1.0 if self.chosen[k] else 1.0
        column = T[:, k].copy()
        T -= np.multiply.outer(column, row)
        T[k] = sign * row
        T[:, k] = sign * column / pivot
        T[k, k] = -1 / pivot
        self.chosen[k] = not self.chosen[k]

    def gains(self) -> FloatArray:
        """(p,) change of the log evidence by each flip."""
        p = len(self.chosen)
        own, weight = np.diagonal(self.table)[:p], self.table[:p, p]
        size = np.where(self.chosen, -own, np.maximum(own, self.least))
        change = weight**2 / np.maximum(size, 1e-300) / 2 - self.price
        change = np.where(self.chosen, -change, change)
        wrong = self.positive & (weight < 0)
        change[wrong & self.chosen], change[wrong & ~self.chosen] = np.inf, -np.inf
        change[~self.chosen & (own <= self.least)] = -np.inf
        return change


def _probable(subsets: _Subsets, rng: np.random.Generator, moves: int) -> FloatArray:
    """(p,) probabilities of the columns: the best subset by single flips, then a walk that stays where evidence is.

    A flip comes at the rate min(1, ratio of evidences); each subset counts for as long as the walk is expected to stay.
    """
    seen: set[bytes] = set()
    while True:
        gains = subsets.gains()
        best = int(np.argmax(gains))
        if gains[best] <= 0 or subsets.chosen.tobytes() in seen:
            break
        seen.add(subsets.chosen.tobytes())
        subsets.flip(best)
    total, found = 0.0, np.zeros(len(subsets.chosen))
    for _ in range(moves):
        rates = np.exp(np.minimum(subsets.gains(), 0.0))
        stay = 1 / max(rates.sum(), 1e-300)
        # A column that would come or go counts by its chance, not by whether it did.
        total += stay
        found += stay * subsets.chosen
        subsets.flip(int(rng.choice(len(rates), p=rates * stay)))
    return found / total


@dataclass(frozen=True)
class Rates:
    """A linear stochastic differential equation that was learned, in the units of the readings and of their times.

    Attributes
    ----------
    rates
        (d, d) A: ``rates[i, j]`` is how fast variable i changes by one unit of j; 0 where there is no edge.
    covariance
        (d * d, d * d) of the entries of `rates`, row by row; 0 for those that are not in it.
    probabilities
        (d, d) of the entries of `rates` not being 0; 1 on the diagonal. At most one half where the model is contradicted.
    stationary, noise
        (d, d) S, and Q of A S + S A' + Q = 0.
    nugget
        (d,) variance of errors of reading.
    levels
        (d, d) covariance of the recordings' own levels, or None where the evidence is against any.
    mean
        (d,) of the readings.
    misfit, df
        Weighted squares of what the model leaves of the moments, and what they are expected to be where it is right. Errors
        and probabilities allow for what is above.
    evidence
        Logarithm of the evidence of these edges, up to a constant of the sums.
    shortest
        (d,) smallest usual time between readings of a variable; what is over in less is not seen.
    n_moments, n_sparse
        Covariances that were fitted, and those left out with too few pairs of readings.
    """

    rates: FloatArray
    covariance: FloatArray
    probabilities: FloatArray
    stationary: FloatArray
    noise: FloatArray
    nugget: FloatArray
    levels: FloatArray | None
    mean: FloatArray
    misfit: float
    df: int
    evidence: float
    shortest: FloatArray
    n_moments: int
    n_sparse: int

    @property
    def is_contradicted(self) -> bool:
        """Whether moments are so far from the model that its edges mean nothing."""
        return self.misfit > _CONTRADICTED * self.df

    @property
    def too_fast(self) -> BoolArray:
        """(d,) which variables forget within less than the shortest usual time between their readings."""
        return np.asarray(-np.diagonal(self.rates) * self.shortest > 1)

    @property
    def slowest(self) -> float:
        """Time in which the slowest motion falls to 1 / e; sums that do not reach so far say little about it."""
        return float(-1 / np.linalg.eigvals(self.rates).real.max())


def learn_rates(
    sums: LagSums,
    rng: np.random.Generator,
    *,
    variables: Sequence[str] = (),
    least_pairs: int = LEAST_PAIRS,
    moves: int = 2000,
) -> Rates:
    """Learn a sparse A, what drives it and what hides it, from sums over all sites.

    Parameters
    ----------
    sums
        Of all readings. Recordings keep their own levels: what is subtracted from all of them must be the same.
    rng
        Averaging over sets of edges draws from it.
    variables
        Their names, for errors.
    least_pairs
        Bins of a pair of variables with fewer pairs of readings are left out.
    moves
        Of the walk over sets of edges.
    """
    sums = _merged(sums, MOST_MOMENTS)
    of = _moments(sums, least_pairs, variables)
    which = _Which.of(len(of.scale))
    fit, has_levels = _wide_fit(sums, of, which)
    always = which.own | which.level if has_levels else which.own
    odds = np.where(which.rate, _PRIOR_ODDS, np.where(which.nugget, 1.0, _SHARED_ODDS))
    price = np.log(odds) + np.log1p(np.diagonal(of.joint).sum()) / 2
    # Where a model is linear depends on where it is: the search starts with all edges, and with none.
    # What contradicts every model of this kind gets weights of one of them: those of its own would lead astray.
    is_odd = fit.excess(of) > _CONTRADICTED
    free = always | which.nugget
    if is_odd:
        none = _descend(_start(of, has_levels), free, of, fit.weights)
    else:
        none = _settled(_start(of, has_levels), free, sums, of)
    best: tuple[float, _Fit, BoolArray] | None = None
    seen: set[bytes] = set()
    for first in (fit, none):
        fit = first
        for _ in range(_ROUNDS):
            found = _probabilities(fit, of, which, always, price, rng, moves)
            free = always | (found > 0.5)
            if free.tobytes() in seen:
                break
            seen.add(free.tobytes())
            start = _Point.of(np.where(free, fit.point.vector, 0.0), len(of.scale))
            start = start if start.is_allowed(0.0) else _start(of, has_levels)
            fit = _descend(start, free, of, fit.weights)
            if not is_odd:
                fit = _descend(fit.point, free, of, _weights_at(fit.point, sums, of))
            evidence = -fit.misfit / 2 - float(
                np.log(np.diagonal(fit.weights)).sum() + price[free & ~always].sum()
            )
            if best is None or evidence > best[0]:
                best = evidence, fit, free
    assert best is not None
    evidence, fit, free = best
    found = _probabilities(fit, of, which, always, price, rng, moves)
    return _rates(evidence, fit, free, found, sums=sums, of=of, which=which, has_levels=has_levels)


def _rates(
    evidence: float,
    fit: _Fit,
    free: BoolArray,
    found: FloatArray,
    *,
    sums: LagSums,
    of: _Moments,
    which: _Which,
    has_levels: bool,
) -> Rates:
    """What was found, in the units of the readings."""
    point, d = fit.point, len(of.scale)
    df = len(of.value) - int(free.sum())
    X = _whitened(fit.weights, _jacobian(point, of)[:, free])
    spread = np.zeros((len(free), len(free)))
    spread[np.ix_(free, free)] = np.linalg.pinv(X.T @ X, hermitian=True) * max(fit.misfit / max(df, 1), 1.0)
    unit = np.multiply.outer(of.scale, 1 / of.scale)
    square = np.multiply.outer(of.scale, of.scale)
    probabilities = found[which.rate].reshape(d, d).copy()
    if fit.misfit > _CONTRADICTED * df:
        probabilities = np.minimum(probabilities, 0.5)
    np.fill_diagonal(probabilities, 1.0)
    apart = [of.delay[(of.later == i) & (of.earlier == i) & (of.bins > 0)] for i in range(d)]
    return Rates(
        rates=point.A * unit,
        covariance=spread[np.ix_(which.rate, which.rate)] * np.multiply.outer(unit.ravel(), unit.ravel()),
        probabilities=probabilities,
        stationary=point.stationary * square,
        noise=point.Q * square,
        nugget=np.maximum(point.r, 0.0) * of.scale**2,
        levels=point.L * square if has_levels and np.trace(point.L) > 0 else None,
        mean=of.mean,
        misfit=fit.misfit,
        df=df,
        evidence=evidence,
        shortest=np.array([own.min() if len(own) else np.inf for own in apart]),
        n_moments=len(of.value),
        n_sparse=(len(sums.edges) - 1) * d * d + d * (d + 1) // 2 - len(of.value),
    )


@dataclass(frozen=True)
class _Which:
    """Which parameters of `_Point.vector` are what; `own`: rates of variables on themselves and variances of their noise."""

    rate: BoolArray
    own: BoolArray
    nugget: BoolArray
    level: BoolArray

    @classmethod
    def of(cls, d: int) -> _Which:
        low = np.tril_indices(d)
        own, none = low[0] == low[1], np.zeros(len(low[0]), dtype=bool)
        parts = (np.eye(d, dtype=bool).ravel(), own, np.zeros(d, dtype=bool), none)
        place = np.repeat(np.arange(4), [len(part) for part in parts])
        return cls(place == 0, np.concatenate(parts), place == 2, place == 3)


def _merged(sums: LagSums, most: int) -> LagSums:
    """Neighbouring bins together, until there are no more moments than that."""
    n_bins, d = len(sums.edges) - 1, sums.counts.shape[1]
    n_left = min(n_bins, max(5, most // (d * d)))
    first = 1 + (np.arange(n_left) * n_bins) // n_left
    ends = np.concatenate([first[1:] - 1, [n_bins]])
    arrays = {
        name: np.add.reduceat(getattr(sums, name), np.concatenate([[0], first]), axis=0)
        for name in ("counts", "products", "delays", "later", "earlier")
    }
    edges = np.concatenate([sums.edges[:1], sums.edges[ends]])
    return LagSums(edges, **arrays, n_recordings=sums.n_recordings, time=sums.time)


def _weights_at(point: _Point, sums: LagSums, of: _Moments) -> FloatArray:
    """Cholesky factor of the covariance of the moments at a model whose covariances are made possible ones."""

    def possible(matrix: FloatArray, least: float) -> FloatArray:
        values, vectors = np.linalg.eigh(matrix)
        return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)

    noise = possible(point.Q, _LEAST_NOISE * float(np.abs(np.diagonal(point.Q)).mean()))
    sound = _Point(point.A, noise, np.maximum(point.r, 0.0), possible(point.L, 0.0))
    how = _readings(sums, -1 / np.linalg.eigvals(point.A).real.max())
    spread = _spread(sound, of, how, np.diff(np.concatenate([[0.0], sums.edges])))
    own = np.maximum(np.diagonal(spread), _LEAST_NOISE / of.counts)
    for ridge in (1e-3, 1e-2, 1e-1, 1.0):
        try:
            return np.asarray(np.linalg.cholesky(spread + np.diag(ridge * own)))
        except np.linalg.LinAlgError:
            continue
    return np.diag(np.sqrt(own))


def _wide_fit(sums: LagSums, of: _Moments, which: _Which) -> tuple[_Fit, bool]:
    """All rates, noise of each variable by itself, errors of reading; and levels, unless it does as well without."""
    free = which.rate | which.own | which.nugget
    fit = None
    if sums.n_recordings > 1:
        fit = _settled(_start(of, has_levels=True), free | which.level, sums, of)
        without = _descend(_start(of), free, of, fit.weights)
        more = max(fit.misfit / max(len(of.value) - int((free | which.level).sum()), 1), 1.0)
        price = which.level.sum() * np.log(max(sums.n_recordings, _FEW_RECORDINGS))
        if (without.misfit - fit.misfit) / more > price:
            return fit, True
    return _settled(_start(of), free, sums, of), False


def _settled(point: _Point, free: BoolArray, sums: LagSums, of: _Moments) -> _Fit:
    """A fit whose weights are its own."""
    for _ in range(2):
        point = _descend(point, free, of, _weights_at(point, sums, of)).point
    return _descend(point, free, of, _weights_at(point, sums, of))


def _probabilities(
    fit: _Fit,
    of: _Moments,
    which: _Which,
    always: BoolArray,
    price: FloatArray,
    rng: np.random.Generator,
    moves: int,
) -> FloatArray:
    """Of every parameter that may be 0, from the model that is linear where `fit` is."""
    X = _whitened(fit.weights, _jacobian(fit.point, of))
    y = _whitened(fit.weights, of.value - _expected(fit.point, of)) + X @ fit.point.vector
    basis = np.linalg.qr(X[:, always])[0]
    may = ~always & ~which.level
    Z, z = X[:, may], y - basis @ (basis.T @ y)
    Z = Z - basis @ (basis.T @ Z)
    more = max(fit.excess(of), 1.0)
    subsets = _Subsets(Z.T @ Z / more, Z.T @ z / more, price[may], which.nugget[may])
    found = np.zeros(len(always))
    found[may] = _probable(subsets, rng, moves)
    return found


@dataclass(frozen=True)
class FittedMoments:
    """Correlations of pairs of readings by the time between them, and what a model says they are; arrays are (m,).

    Attributes
    ----------
    later, earlier
        Variables of each pair.
    delay
        Mean time between its readings.
    observed, error, expected
        The correlation, its standard error where the model is right, and that of the model.
    """

    later: IntArray
    earlier: IntArray
    delay: FloatArray
    observed: FloatArray
    error: FloatArray
    expected: FloatArray


def fitted_moments(sums: LagSums, rates: Rates, least_pairs: int = LEAST_PAIRS) -> FittedMoments:
    """Return what was fitted, moment by moment; pairs read at the same time are left out."""
    sums = _merged(sums, MOST_MOMENTS)
    of = _moments(sums, least_pairs)
    unit, square = np.multiply.outer(of.scale, 1 / of.scale), np.multiply.outer(of.scale, of.scale)
    levels = np.zeros_like(square) if rates.levels is None else rates.levels / square
    point = _Point(rates.rates / unit, rates.noise / square, rates.nugget / of.scale**2, levels)
    error = np.linalg.norm(_weights_at(point, sums, of), axis=1)
    apart = of.bins > 0
    later, earlier = of.later[apart], of.earlier[apart]
    rest = (one[apart] for one in (of.delay, of.value, error, _expected(point, of)))
    return FittedMoments(later, earlier, *rest)
