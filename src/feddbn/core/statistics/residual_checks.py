"""What residuals say about the assumptions, from sums that sites can add up.

With standardised residuals u_t (mean square 1 over all sites), every site sends, for l = 0, 1, ..., L ::

    sum u_t u_{t-l}',    sum u_t^2 (u_{t-l}^2)',    sums of u, u^3, of u^2 by thirds of the recordings,
    sum (n_r - 1) log s_r^2   over recordings r with residual variance s_r^2

Products of neighbours stay within a segment. The first two tell memory and dependence: if residuals are independent,
``sum u_t u_{t-l} / sqrt(sum u_t^2 u_{t-l}^2)`` is standard normal also where their variance changes (White 1980). The
second tell changing variance: the mean of u_i^2 u_j^2 is then above 1, and it is the factor by which the variance of a
regression's score is larger than least squares believes, so rows / factor is the number of rows the evidence is worth.

Echo: what a shock of l rows ago would do to a variable along the network's own lagged edges. A residual must not go along
with it. With errors of measurement weights are too small, so an echo is left at the first lag beyond the network's, and
noise that remembers leaves one at lag 1: one number for all variables finds them where d^2 correlations drown.

Curvature: residuals that still go along with squares and cubes of possible causes say that effects are no straight lines.

    f_2(z) = (c^2 - 1) / sqrt(2),  f_3(z) = (c^3 - 3 c) / sqrt(6),   c = z kept within three public standard deviations

A residual of the right linear network is independent of whatever came before it in time or in the order, so sums of
``u f`` are sums of martingale differences with the variance ``sum u^2 f^2``, whatever the shape of the noise. Where shocks
are rare and large, few rows have both u and f, or none, and that sum says little; so it is at least the mean of f^2 times n.

Change: the same sums of ``f_1(z) = r c``, r the place of the row in its recording, from -sqrt(3) to sqrt(3). A residual that
goes along with r c says that the weight of z grows or falls over time (a score test against a drift). What means of short
recordings do to these products is the same at the begin and at the end, so it cancels, and so does an effect that is missing
all the time. Places fit the same rows as all other sums: no sum rests on a few rows at one end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np
from scipy.special import chdtrc, erfc

from feddbn.core.arrays import BoolArray, FloatArray, total_weight, weighted
from feddbn.core.statistics.evidence import is_alarm, log_bayes_factor

LARGEST_RESIDUAL = 20.0
"""A standardised residual beyond this counts as this: no single value may rule a sum of fourth powers."""
LEVEL = 0.001
"""A violation is named if its p-value is below this and its size matters."""
MEMORY_LEVEL = 0.01
"""The same for memory, whatever its size: its p-value is too large by several times where nothing is wrong."""
FALSE_SHARE = 0.01
"""Of the effects that are said to change over time, the expected share of those that do not."""
_LEAST_VARIANCE = 1e-6
_Pieces = Iterable[tuple[int, FloatArray, FloatArray | None]]
_ENOUGH_PAIRS = 30
_LARGE_INFLATION = 1.25
_LARGE_ARCH = 0.15
_LARGE_RATIO = 2.0
_LARGE_SPREAD = 0.3
_LARGE_KURTOSIS = 9.0


@dataclass(frozen=True)
class ResidualSums:
    """Sums over standardised residuals u (d columns); l = 0, ..., L is the first axis of five of them.

    Attributes
    ----------
    counts
        (L+1,) number of pairs (t, t-l).
    products, squares
        (L+1, d, d) sums of ``u_ti u_(t-l)j`` and of ``u_ti^2 u_(t-l)j^2``.
    now, before
        (L+1, d) sums of u_t^2 and of u_(t-l)^2 over the pairs.
    totals, cubes
        (d,) sums of u and u^3.
    third_counts, third_squares
        (3,) and (3, d): rows and sums of u^2 in the first, second and last third of the recordings.
    recordings
        (3,) number of recordings with two rows or more, and their sums of n_r - 1 and of 1 / (n_r - 1).
    log_variances, within
        (d,) sums over these of (n_r - 1) log s_r^2 and of (n_r - 1) s_r^2.
    """

    counts: FloatArray
    products: FloatArray
    squares: FloatArray
    now: FloatArray
    before: FloatArray
    totals: FloatArray
    cubes: FloatArray
    third_counts: FloatArray
    third_squares: FloatArray
    recordings: FloatArray
    log_variances: FloatArray
    within: FloatArray

    @classmethod
    def shapes(cls, d: int, n_back: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each sum, in the order in which they travel."""
        pair, single = (n_back + 1, d, d), (n_back + 1, d)
        shapes: tuple[tuple[int, ...], ...] = (
            (n_back + 1,), pair, pair, single, single, (d,), (d,), (3,), (3, d), (3,), (d,), (d,)
        )  # fmt: skip
        return dict(zip((field.name for field in fields(cls)), shapes, strict=True))

    def to_vector(self) -> FloatArray:
        """One vector that adds up over recordings and sites."""
        return np.concatenate([getattr(self, item.name).ravel() for item in fields(self)])

    @classmethod
    def from_vector(cls, vector: FloatArray, d: int, n_back: int) -> ResidualSums:
        """Inverse of `to_vector`, also for a sum of such vectors."""
        found, start = {}, 0
        for name, shape in cls.shapes(d, n_back).items():
            size = math.prod(shape)
            found[name] = vector[start : start + size].reshape(shape)
            start += size
        return cls(**found)

    def of(self, columns: Sequence[int]) -> ResidualSums:
        """The same sums of some of the residuals."""
        chosen = list(columns)
        pairs = {name: getattr(self, name)[:, chosen][:, :, chosen] for name in ("products", "squares")}
        rows = {name: getattr(self, name)[:, chosen] for name in ("now", "before", "third_squares")}
        single = {
            name: getattr(self, name)[chosen] for name in ("totals", "cubes", "log_variances", "within")
        }
        return replace(self, **pairs, **rows, **single)


def sums_length(d: int, n_back: int) -> int:
    """Return the length of `ResidualSums.to_vector` for d variables and L = `n_back`."""
    return sum(math.prod(shape) for shape in ResidualSums.shapes(d, n_back).values())


def residual_sums(pieces: _Pieces, span: tuple[int, int], d: int, n_back: int) -> ResidualSums:
    """Return the sums of one recording, given in order as (time of the first row, (m, d) residuals, (m,) weights or None).

    A pair of rows counts as its later one does. A piece that begins where the one before it ended continues it. `span` has
    the first and the last time.
    """
    shapes = ResidualSums.shapes(d, n_back)
    sums = {name: np.zeros(shape) for name, shape in shapes.items()}
    tail, end = np.zeros((0, d)), -1
    first, length = span[0], max(span[1] - span[0] + 1, 1)
    for time, values, weights in pieces:
        m = len(values)
        kept = len(tail) if time == end else 0
        joined = np.empty((kept + m, d))
        joined[:kept] = tail[len(tail) - kept :]
        u = np.clip(values, -LARGEST_RESIDUAL, LARGEST_RESIDUAL, out=joined[kept:])
        square, last = joined * joined, kept + m
        counted = np.ones(m) if weights is None else weights
        for lag in range(min(n_back + 1, last)):
            n = min(m, last - lag)
            here, there = (slice(last - n - back, last - back) for back in (0, lag))
            now, before, own = square[here], square[there], None if weights is None else weights[m - n :]
            sums["counts"][lag] += total_weight(n, own)
            sums["products"][lag] += weighted(joined[here], own).T @ joined[there]
            sums["squares"][lag] += weighted(now, own).T @ before
            # Products with ones are sums, much quicker than those along an axis of few numbers.
            sums["now"][lag] += counted[m - n :] @ now
            sums["before"][lag] += counted[m - n :] @ before
        sums["totals"] += counted @ u
        sums["cubes"] += counted @ (u * square[kept:])
        # The first rows of the second and of the last third.
        cuts = [min(max(-(-k * length // 3) - (time - first), 0), m) for k in (1, 2)]
        for third, (start, stop) in enumerate(pairwise([0, *cuts, m])):
            sums["third_counts"][third] += counted[start:stop].sum()
            sums["third_squares"][third] += counted[start:stop] @ square[kept + start : kept + stop]
        tail, end = joined[max(last - n_back, 0) :], time + m
    left = sums["counts"][0] - 1
    if left >= 1:
        squares = np.diagonal(sums["products"][0])
        within = squares - sums["totals"] ** 2 / (left + 1)
        within = np.maximum(within, left * _LEAST_VARIANCE)
        sums["recordings"] += [1.0, left, 1.0 / left]
        sums["log_variances"] += left * np.log(within / left)
        sums["within"] += within
    return ResidualSums(**sums)


@dataclass(frozen=True)
class ResidualChecks:
    """What the residuals of a network say: sizes, and p-values where the assumption would give larger ones.

    Attributes
    ----------
    n
        Number of rows.
    autocorrelation
        (d,) each residual's correlation with itself a row before.
    memory_p
        That no residual goes along with any residual up to L rows before, nor with an echo.
    echo
        z-scores of the network's echoes at lag 1 and at its first lag beyond; empty if not asked for.
    dependence, dependence_p
        Largest correlation of two residuals of the same row, and its p-value.
    kurtosis, skewness, tails_p
        (d,) fourth and third standardised moments (3 and 0 for a Gaussian); smallest Jarque-Bera p-value.
    arch
        (d,) correlation of each residual's square with that a row before, beyond what autocorrelation explains.
    volatility, shared, volatility_p
        (d,) mean product of a residual's square with those of others and of earlier rows: 1 if variances are constant; mean
        correlation of the squares of two residuals of one row; p-value that squares do not go together.
    thirds, thirds_p
        (3, d) mean square in each third of the recordings, and the p-value that they are alike.
    spread, spread_p
        (d,) estimated standard deviation of the recordings' log variances; p-value that they are alike (Bartlett).
    curvature_p
        That effects are straight lines (`core.statistics.residual_checks`); 1 if that was not looked at.
    changes
        The effects that change over time (`changing_weights`), the clearest first.
    """

    n: float
    autocorrelation: FloatArray
    memory_p: float
    echo: FloatArray
    dependence: float
    dependence_p: float
    kurtosis: FloatArray
    skewness: FloatArray
    tails_p: float
    arch: FloatArray
    volatility: FloatArray
    shared: float
    volatility_p: float
    thirds: FloatArray
    thirds_p: float
    spread: FloatArray
    spread_p: float
    curvature_p: float = 1.0
    changes: tuple[WeightChange, ...] = ()

    @property
    def inflation(self) -> float:
        """Factor by which least squares overstates its evidence at the worst variable; at least 1."""
        return max(1.0, float(np.max(self.volatility, initial=1.0)))


def violations(checks: ResidualChecks) -> tuple[str, ...]:
    """Return which assumptions the residuals contradict: "memory", "dependence", "volatility", "thirds", "spread", "tails",
    "curvature", "change".

    Memory and dependence bias weights, and evidence for what they feign grows with the rows as evidence of them does; so
    every one that can be told is named. The others make evidence weaker, by a factor that has to matter.
    """
    ratio = checks.thirds.max(axis=0) / np.maximum(checks.thirds.min(axis=0), 1e-12)
    is_volatile = checks.inflation >= _LARGE_INFLATION or float(checks.arch.max()) >= _LARGE_ARCH
    found = {
        "memory": checks.memory_p < MEMORY_LEVEL,
        "dependence": checks.dependence_p < LEVEL,
        "volatility": checks.volatility_p < LEVEL and is_volatile,
        "thirds": checks.thirds_p < LEVEL and float(ratio.max()) >= _LARGE_RATIO,
        "spread": checks.spread_p < LEVEL and float(checks.spread.max()) >= _LARGE_SPREAD,
        "tails": checks.tails_p < LEVEL and float(checks.kurtosis.max()) >= _LARGE_KURTOSIS,
        "curvature": checks.curvature_p < LEVEL,
        "change": bool(checks.changes),
    }
    return tuple(name for name, is_found in found.items() if is_found)


def echo_weights(W: FloatArray, A: FloatArray, variances: FloatArray, n_back: int) -> FloatArray:
    """(L, d, d) what a standardised shock i, l = 1..L rows ago, adds to standardised equation j along lagged edges.

    With the reduced form ``x_t = sum_l v_{t-l} Psi_l``, ``v = u (I - W)^-1``, it is ``sum_k Psi_{l-k} A_k``.
    """
    p, d = len(A), len(W)
    mixing = np.linalg.inv(np.eye(d) - W)
    psi, found = [np.eye(d)], []
    for lag in range(1, n_back + 1):
        lagged = sum((psi[lag - k] @ A[k - 1] for k in range(1, min(lag, p) + 1)), np.zeros((d, d)))
        psi.append(lagged @ mixing)
        found.append(mixing @ lagged)
    root = np.sqrt(np.maximum(variances, 1e-300))
    return np.stack(found) * root[:, None] / root


def largest_z_p(z: FloatArray) -> float:
    """P-value of the largest of standard normal numbers (Bonferroni), 1 if there are none."""
    if not z.size:
        return 1.0
    size = float(np.abs(z).max())
    return min(1.0, z.size * float(erfc(size / np.sqrt(2.0))))


def check_residuals(
    sums: ResidualSums, weights: FloatArray | None = None, own_share: float = 0.0
) -> ResidualChecks:
    """Return what summed residuals say.

    Parameters
    ----------
    weights
        Those of `echo_weights`, None to leave echoes out.
    own_share
        Number of nuisance parameters of recordings per row. Residuals off a mean of T rows have autocorrelations of -1/T
        without any memory, which is taken into account.
    """
    # Where every row lacks a cell there are no residuals: nothing is found, and `n` says why.
    n, d = max(float(sums.counts[0]), 1.0), len(sums.totals)
    square = np.diag(sums.products[0])
    expected = own_share * sums.counts[1:, None, None] / n * np.diag(square)
    sums = replace(sums, products=np.concatenate([sums.products[:1], sums.products[1:] + expected]))
    # Of a variable that follows from its causes no residual is left, and none has no shape.
    varies = square > 1e-6 * n
    square = np.where(varies, square, n)
    root = np.sqrt(square / n)
    pairs = np.maximum(sums.counts, 1.0)
    # Rare large shocks: few rows or none have two of them, and then squares say less than their means do.
    usual = sums.now[:, :, None] * sums.before[:, None, :] / pairs[:, None, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.nan_to_num(sums.products / np.sqrt(np.maximum(sums.squares, usual)), posinf=0.0, neginf=0.0)
    correlations = sums.products / pairs[:, None, None] / np.outer(root, root)
    echo = np.zeros(0) if weights is None else _echoes(sums, weights)
    # Fitted weights make early correlations smaller than chance would, so these p-values are too large if anything.
    each = [largest_z_p(echo), largest_z_p(z[1:])]
    each.append((len(z) - 1) * min(float(chdtrc(d * d, float((part**2).sum()))) for part in z[1:]))
    upper = np.triu_indices(d, 1)
    kurtosis = np.where(varies, np.diag(sums.squares[0]) / n / (square / n) ** 2, 3.0)
    skewness = (sums.cubes / n - 3 * sums.totals / n * square / n) / root**3
    jarque_bera = n / 6 * (skewness**2 + (kurtosis - 3) ** 2 / 4)
    arch, volatility, shared, volatility_p = _volatility(sums, kurtosis, pairs, correlations)
    thirds, thirds_p = _thirds(sums, kurtosis)
    spread, spread_p = _spread(sums, kurtosis)
    return ResidualChecks(
        n=float(sums.counts[0]),
        autocorrelation=np.diag(correlations[1]).copy(),
        memory_p=min(1.0, len(each) * min(each)),
        echo=echo,
        dependence=float(np.max(np.abs(correlations[0][upper]), initial=0.0)),
        dependence_p=largest_z_p(z[0][upper]),
        kurtosis=kurtosis,
        skewness=skewness,
        tails_p=min(1.0, d * float(np.exp(-jarque_bera.max() / 2))),
        arch=arch,
        volatility=volatility,
        shared=shared,
        volatility_p=volatility_p,
        thirds=thirds,
        thirds_p=thirds_p,
        spread=spread,
        spread_p=spread_p,
    )


def _echoes(sums: ResidualSums, weights: FloatArray) -> FloatArray:
    """(2,) z-scores at lag 1 and at lag L; 0 where the network has no echo."""
    found = []
    for lag in (1, len(weights)):
        w = weights[lag - 1].T
        size = float((w**2 * sums.squares[lag]).sum())
        found.append(float((w * sums.products[lag]).sum()) / np.sqrt(size) if size > 0 else 0.0)
    return np.array(found)


def _volatility(
    sums: ResidualSums, kurtosis: FloatArray, pairs: FloatArray, correlations: FloatArray
) -> tuple[FloatArray, FloatArray, float, float]:
    """Own correlations of squares a row apart, mean products of squares, the mean correlation of those of a row, and the
    p-value that squares do not go together.

    The correlation of squares of independent residuals times the root of their number is standard normal. Where
    residuals themselves correlate by r, their squares do for that reason alone: a mean product of 1 + 2 r^2 is no more.
    """
    d = len(kurtosis)
    now, before = sums.now / pairs[:, None], sums.before / pairs[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = sums.squares / pairs[:, None, None] / (now[:, :, None] * before[:, None, :])
    # Only of correlations that are more than chance.
    explained = np.maximum(correlations**2 - 4.0 / pairs[:, None, None], 0.0)
    is_known = np.isfinite(ratio) & (pairs >= _ENOUGH_PAIRS)[:, None, None]
    ratio = np.where(is_known, ratio - 2.0 * explained, 1.0)
    spread = np.sqrt(np.maximum(kurtosis - 1.0, 1e-3))
    correlation = (ratio - 1.0) / np.outer(spread, spread)
    z = correlation * np.sqrt(pairs)[:, None, None]
    z = np.concatenate([z[0][np.triu_indices(d, 1)], z[1:].ravel()])
    p = min(1.0, 2 * float(chdtrc(z.size, float((z**2).sum()))), 2 * largest_z_p(z))
    # Causes of the same row are made of other residuals of that row, lagged ones of earlier residuals.
    ratio[0][np.diag_indices(d)] = 0.0
    volatility = ratio.sum(axis=(0, 2)) / (len(ratio) * d - 1)
    # Tails that are heavy by themselves make mean products vary much; a correlation knows how much.
    shared = float(correlation[0][~np.eye(d, dtype=bool)].mean()) if d > 1 else 0.0
    return np.diag(correlation[1]).copy(), volatility, shared, p


def _thirds(sums: ResidualSums, kurtosis: FloatArray) -> tuple[FloatArray, float]:
    count = np.maximum(sums.third_counts, 1.0)
    mean = sums.third_squares / count[:, None]
    overall = sums.third_squares.sum(axis=0) / max(float(count.sum()), 1.0)
    # A mean of m squares has the variance overall^2 (kurtosis - 1) / m.
    size = overall * np.sqrt(np.maximum(kurtosis - 1.0, 1e-3))
    chi = (count[:, None] * ((mean - overall) / np.maximum(size, 1e-300)) ** 2).sum(axis=0)
    return mean, min(1.0, len(kurtosis) * float(chdtrc(2, float(chi.max()))))


def _spread(sums: ResidualSums, kurtosis: FloatArray) -> tuple[FloatArray, float]:
    """Bartlett's test that recordings have one variance, its statistic divided for tails that are not Gaussian."""
    R, left, inverse = (float(value) for value in sums.recordings)
    d = len(kurtosis)
    if R < 2:
        return np.zeros(d), 1.0
    statistic = left * np.log(sums.within / left) - sums.log_variances
    statistic /= 1.0 + (inverse - 1.0 / left) / (3.0 * (R - 1))
    tails = np.maximum((kurtosis - 1.0) / 2.0, 1.0)
    # To second order the statistic is left / 2 times the variance of the log variances.
    spread = np.sqrt(np.maximum(2.0 * (statistic - (R - 1) * tails) / left, 0.0))
    return spread, min(1.0, d * float(chdtrc(R - 1, float((statistic / tails).max()))))


_REACH = 3.0
_EXPONENTIAL_INFORMATION = 0.419
"""Half the log of 2 pi e less the entropy of an exponential with variance 1."""


@dataclass(frozen=True)
class CurvatureSums:
    """(k, q, d) sums of ``u_j f(z_m)`` and of their squares, of every column m: squares, cubes, if asked changes."""

    products: FloatArray
    squares: FloatArray

    @staticmethod
    def length(q: int, d: int, *, changes: bool = False) -> int:
        """Length of `to_vector`."""
        return (6 if changes else 4) * q * d

    @classmethod
    def of_rows(
        cls,
        z: FloatArray,
        u: FloatArray,
        places: FloatArray | None = None,
        weights: FloatArray | None = None,
    ) -> CurvatureSums:
        """The sums of rows: (n, q) standardised columns and (n, d) standardised residuals."""
        return cls.of_lagged(z, u, 0, places, weights)

    @classmethod
    def of_lagged(
        cls,
        x: FloatArray,
        u: FloatArray,
        n_lags: int,
        places: FloatArray | None = None,
        weights: FloatArray | None = None,
    ) -> CurvatureSums:
        """The same of rows ``[x_t, ..., x_{t-p}]``, given (p + n, k) consecutive values.

        `places` (n,) are those of the rows in their recording (`row_places`); None: changes are not asked for.
        """
        c = np.clip(x, -_REACH, _REACH)
        u = np.clip(u, -LARGEST_RESIDUAL, LARGEST_RESIDUAL)
        # Powers are products here, which take a tenth of the time; constant factors are left to the sums.
        quadratic = c * c
        cubic = quadratic - 3.0
        cubic *= c
        shapes, scaled = [quadratic, cubic], [u, u]
        if places is not None:
            shapes, scaled = [*shapes, c], [*scaled, u * places[:, None]]
        quadratic -= 1.0
        products = [
            _by_lag(shape, weighted(v, weights), n_lags) for shape, v in zip(shapes, scaled, strict=True)
        ]
        squares = [
            _by_lag(np.square(shape, out=shape), weighted(v * v, weights), n_lags)
            for shape, v in zip(shapes, scaled, strict=True)
        ]
        sizes = np.array([2.0, 6.0, 1.0])[: len(shapes), None, None]
        return cls(np.stack(products) / np.sqrt(sizes), np.stack(squares) / sizes)

    def to_vector(self) -> FloatArray:
        """One vector that adds up over recordings and sites."""
        return np.concatenate([self.products.ravel(), self.squares.ravel()])

    @classmethod
    def from_vector(cls, vector: FloatArray, q: int, d: int) -> CurvatureSums:
        """Inverse of `to_vector`, also for a sum of such vectors."""
        products, squares = vector.reshape(2, -1, q, d)
        return cls(products, squares)


def row_places(first: int, m: int, n: int) -> FloatArray:
    """(m,) places of the rows from number `first` on, of a recording of n: mean 0 and mean square 1 over all n."""
    places = (np.arange(first, first + m, dtype=np.float64) - (n - 1) / 2) * math.sqrt(
        12.0 / max(n * n - 1, 1)
    )
    return np.asarray(places)


def _by_lag(shape: FloatArray, u: FloatArray, n_lags: int) -> FloatArray:
    """(q, d) products of a shape of values (p + n, k), at every lag, with n residuals."""
    length, n = len(shape), len(u)
    at_lag = (shape[length - n - lag : length - lag] for lag in range(n_lags + 1))
    return np.concatenate([one.T @ u for one in at_lag])


def curvature_p(sums: CurvatureSums, support: BoolArray, before: BoolArray) -> float:
    """P-value that no effect is curved.

    Parameters
    ----------
    support
        (q, d) the edges of the network: where effects are, curvature is looked for by a chi-square over all of them.
    before
        (q, d) which columns come before which residual, in time or in the order; among them a single one may stick out.
    """
    q, d = support.shape
    products, squares = sums.products[:2], sums.squares[:2]
    acts = squares.any(axis=(0, 1))
    if q > d and acts.any():
        # The same values, a row or more later, come before every residual: the mean over these is n times that of f^2.
        usual = squares[:, d:, acts].mean(axis=2).reshape(2, -1, d).mean(axis=1)
        squares = np.maximum(squares, np.tile(usual, q // d)[:, :, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.nan_to_num(products / np.sqrt(squares), posinf=0.0, neginf=0.0)
    edges, others = z[:, support & before], z[:, before]
    overall = float(chdtrc(edges.size, float((edges**2).sum()))) if edges.size else 1.0
    return min(1.0, 2.0 * min(overall, largest_z_p(others)))


@dataclass(frozen=True)
class WeightChange:
    """An effect of column `source` on the variable `target` that changes over time.

    Attributes
    ----------
    first, second
        The weight in the first and in the second half of the recordings, if it changes between them.
    evidence
        The e-value: at least x with a probability of at most 1 / x where nothing changes.
    """

    source: int
    target: int
    first: float
    second: float
    evidence: float


def changing_weights(
    sums: CurvatureSums,
    n: float,
    covariances: FloatArray,
    scale: FloatArray,
    support: BoolArray,
    before: BoolArray,
) -> tuple[WeightChange, ...]:
    """The effects that change over time, the clearest first; the expected share of false ones is `FALSE_SHARE`.

    A weight ``b + c r`` adds ``c r z`` to the residual, so the sum of ``r z u`` has the mean ``n R c`` with the covariances R
    of the columns: c is estimated for all causes of a variable together, and for another column given these. Evidence and
    which effects are named: `core.statistics.evidence`.

    Parameters
    ----------
    n, covariances, scale
        Number of rows, (q, q) covariances of the columns, of which the first are the targets, and (q,) by what columns were
        divided.
    support, before
        (q, d) the edges of the network, and which columns come before which residual.
    """
    if n < 1 or len(sums.products) < 3 or not before.any():
        return ()
    products, squares = (part[2, : len(support)] / n for part in (sums.products, sums.squares))
    R = covariances / np.outer(scale, scale)
    variance = np.diag(R)
    drift, size, weights, by_half = np.zeros((4, *support.shape))
    for j in np.flatnonzero(squares.any(axis=0)):
        # By how much squares are larger than where variances are constant; never smaller, so rare large shocks do no harm.
        root = np.sqrt(np.maximum(squares[:, j] / np.maximum(variance, 1e-300), 1.0))
        spread, causes = R * np.outer(root, root), np.flatnonzero(support[:, j])
        inverse = np.linalg.pinv(R[np.ix_(causes, causes)], hermitian=True)
        among, beside = spread[np.ix_(causes, causes)], R[:, causes] @ inverse
        both = np.column_stack([products[:, j], R[:, j]])
        # Of another column, what the causes do not explain.
        left = variance - (beside * R[:, causes]).sum(axis=1)
        left = np.where(left > 1e-6 * variance, left, np.inf)
        each = np.diag(spread) + (beside * (beside @ among - 2 * spread[:, causes])).sum(axis=1)
        solved, size[:, j] = (both - beside @ both[causes]) / left[:, None], each / left**2
        solved[causes], size[causes, j] = inverse @ both[causes], (inverse * (inverse @ among)).sum(axis=1)
        drift[:, j], weights[:, j] = solved.T
        # From standardised columns and residuals to the units of the columns.
        by_half[:, j] = drift[:, j] * np.sqrt(max(variance[j] - weights[causes, j] @ R[causes, j], 0.0))
    precision = n / np.where(size > 0, size, np.inf)
    log_e = log_bayes_factor(precision, drift * precision, np.array(n), np.array(n))
    # The edges of the network and all other columns have one half of the false share each.
    m, n_edges = int(before.sum()), int((support & before).sum())
    worth = log_e + np.log(m / 2 / np.maximum(np.where(support, n_edges, m - n_edges), 1))
    places = np.argwhere(before)[is_alarm(worth[before], FALSE_SHARE)]
    named = sorted(places.tolist(), key=lambda place: -log_e[tuple(place)])
    # Columns that go along with one that is no cause yet: the clearest of each target becomes one, and is looked at again.
    first_of = {j: (m, j) for m, j in reversed(named) if not support[m, j]}
    if first_of:
        more = support.copy()
        more[tuple(zip(*first_of.values(), strict=True))] = True
        return changing_weights(sums, n, covariances, scale, more, before)
    units = scale[: support.shape[1]] / scale[:, None]
    first, second = ((weights + sign * 2 / np.sqrt(3.0) * by_half) * units for sign in (-1, 1))
    evidence = np.exp(np.minimum(log_e, 700.0))
    return tuple(
        WeightChange(m, j, float(first[m, j]), float(second[m, j]), float(evidence[m, j])) for m, j in named
    )


def information_of_shape(checks: ResidualChecks) -> float:
    """By how much residuals are less random than Gaussian ones of their variances, per row: what a shape of noise explains.

    Negentropy to fourth order, ``skewness^2 / 12 + (kurtosis - 3)^2 / 48`` a variable, at most that of an exponential.
    """
    each = checks.skewness**2 / 12 + (checks.kurtosis - 3) ** 2 / 48
    return float(np.minimum(each, _EXPONENTIAL_INFORMATION).sum())
