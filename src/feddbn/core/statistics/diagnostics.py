"""What second moments say beside and before a network: nuisances of recordings, inputs, noise, slow levels, hidden causes.

Nuisances, from one Gram matrix for each answer:

    common   x_t = c        + x_{t-1} B_1 + ... + u_t          one intercept c for all rows
    own      x_t = b_r(t)   + x_{t-1} B_1 + ... + u_t          b_r: a mean, a line, a cycle of recording r

What recordings have of their own is random, with a variance for each variable and kind of nuisance. Off it, the lagged
Gram matrix tells B and the variance s_j of u_j; what it took off tells the power of u_j along the r nuisance parameters of
all recordings. E_j is that power for each parameter over s_j: about 1 where there is nothing but noise. With n rows, the
restricted likelihood (REML) of a variance is better than that of none by

    (n - 1) log(1 + r (E_j - 1) / (n - 1)) - r log E_j          for E_j > 1

given B, or by less where a common mean is better off with another B. The evidence is the sum of what is left of these, if
anything is, after 2 log n for each. Short recordings do not pay for each of their levels, as they would if these were
fixed: what is priced is one variance.

Known inputs only act on others. An input has no noise that a model would explain: what is done to a system may be a step,
a pulse, or any other signal. So likelihoods are those of the other variables, the outputs, given the inputs of the same
row and all lags; columns of inputs stand among the lagged ones.

    output_columns   scatter with the outputs first, inputs and lags after
    noise_level      mean noise variance of the outputs, whatever their network is
    neutral_inputs   moments in which every input varies as much as the outputs' noise does, so that a sum of residual
                     variances over all variables does not read an order off the inputs

How far noise must differ, whatever the network is, so that one penalty cannot serve all variables: in every acyclic
network the noise of a variable varies at least as much as the variable does given all others and the lags, and at most as
much as it does given the lags alone. So the noise of i varies at least ``low_i / high_j`` times as much as that of j.
With equal noise variances this is at most 1 for every pair, up to the error of the sums, which is allowed for. Where it
is clearly more, units or noise differ, and weights that stand for equally strong effects differ as much.

That is for one network. The sums of sites with different networks are those of no network, and the bound may be passed
with equal noise: by up to 15 with strong weights and a third of the edges different, by up to 1.25 with weights below .5.

Known weakness: rows that are too few for the regressions tell nothing, and units stay unnoticed. To compare variances
instead would be wrong: with strong weights they differ 150-fold in networks with equal noise.

Levels near a unit root: each variable is regressed on its own p lags, which the lagged Gram matrix holds already:

    x_t = c + phi_1 x_{t-1} + ... + phi_p x_{t-p} + u_t,      rho = phi_1 + ... + phi_p

rho is the part of a level that stays (1: a random walk), and ``t = (rho - 1) / se(rho)`` is the augmented Dickey-Fuller
statistic. Slow levels share few independent ups and downs, so that regressions among them find partners by chance and
edge probabilities near 0 and 1 promise too much. A rho of 0.95 is enough for that, however many rows show that it is
below 1; with fewer rows rho comes out too small, so that one of 0.9 counts where a unit root cannot be excluded.

Noise that remembers itself, taken off second moments: if ``x_t = x_t W + sum_l x_{t-l} A_l + u_t`` and every noise has
the same memory, ``u_t = rho u_{t-1} + v_t``, then ``y_t = x_t - rho x_{t-1}`` follows the same network with the white
noise v (Cochrane and Orcutt 1949). The moments of ``[y_t, ..., y_{t-p}]`` are linear in those of ``[x_t, ...,
x_{t-p-1}]``, so a server can change to y without any row.

How strong a hidden cause would have to be to explain an effect away (Cinelli and Hazlett 2020): a regression weight with
t statistic t and `left` degrees of freedom has ``f^2 = t^2 / left``. A hidden common cause that explains a share RV of
what is left of both the cause and the target, and no less, brings it to nothing:

    RV = (sqrt(f^4 + 4 f^2) - f^2) / 2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.statistics.moments import Moments, correlations
from feddbn.findings import Finding
from feddbn.settings import word

_RIDGE = 1e-10
_ROWS_PER_WEIGHT = 8


def evidence_for_nuisances(
    common: FloatArray,
    own: FloatArray,
    n: float,
    rank: float,
    d: int,
    known: float = 1.0,
    whole: FloatArray | None = None,
    *,
    refit: bool = True,
) -> float:
    """Return the evidence above: positive if recordings have these nuisances, 0 if there are too few rows to tell.

    Parameters
    ----------
    common, own
        (q, q) scatter of lagged rows about their common mean, and off the nuisances of their recordings.
    n, rank
        Number of rows, and of nuisance parameters of one variable over all recordings.
    d
        Number of variables: the first d columns are the present time step.
    known
        Number of such parameters that `common` is off already: of one mean, or of nuisances that `own` has, too.
    whole
        What tells B and s: `own` with what nuisances took along of the series (`core.designs.gram.restored`). By default
        `own`, with which the evidence is larger where recordings are short.
    refit
        Whether without levels B is that of `common`. Products of pairs of cells that are both there are no products of
        rows: then one B serves both.
    """
    n_lagged, more, free = len(common) - d, rank - known, n - known
    if more < 1 or n - rank <= max(_ROWS_PER_WEIGHT * n_lagged, d):
        return 0.0
    R, norm = correlations(own if whole is None else whole)
    C, D = common / np.outer(norm, norm), (common - own) / np.outer(norm, norm)
    weights, left = _regressed(R, d)
    left *= (n - rank) / n / (n - rank - n_lagged)
    # Errors of B, which have the variance `left` over the products of the past, let the past add to it.
    along = np.einsum("ij,ik,kj->j", weights, D, weights)
    along -= left * np.trace(np.linalg.lstsq(R[d:, d:], D[d:, d:], rcond=_RIDGE)[0])
    unit = np.where(left > _RIDGE / n, left, np.inf)
    power = np.maximum(along / more / unit, 1.0)
    better = free * np.log1p(more * (power - 1.0) / free)
    if refit:
        lost = _regressed(C, d)[1] / (free - n_lagged) / unit
        better = np.minimum(better, free * np.log(np.maximum(lost, 1.0)))
    gains = better - more * np.log(power) - 2.0 * np.log(n)
    return float(gains[gains > 0].sum() if gains.max() > 0 else gains.max())


def _regressed(products: FloatArray, d: int) -> tuple[FloatArray, FloatArray]:
    """(q, d) weights of residuals of the first d columns given all others, and the (d,) sums of their squares."""
    past = products[d:, d:] + _RIDGE * np.eye(len(products) - d)
    weights = np.vstack([np.eye(d), -np.linalg.solve(past, products[d:, :d])])
    return weights, np.einsum("ij,ik,kj->j", weights, products, weights)


def log_det_of_residuals(scatter: FloatArray, d: int) -> float:
    """Return log det of what is left of the present time step after a regression on all lags."""
    R, norm = correlations(scatter)
    past = R[d:, d:] + _RIDGE * np.eye(len(R) - d)
    left = R[:d, :d] - R[:d, d:] @ np.linalg.solve(past, R[d:, :d])
    return float(np.linalg.slogdet(left + _RIDGE * np.eye(d))[1] + 2.0 * np.log(norm[:d]).sum())


def outputs_of(d: int, inputs: Sequence[int]) -> list[int]:
    """Positions of the variables that are no inputs."""
    return [j for j in range(d) if j not in inputs]


def output_columns(scatter: FloatArray, d: int, inputs: Sequence[int]) -> tuple[FloatArray, int]:
    """The (q, q) scatter with the columns of outputs first, then inputs of the same row, then lags; number of outputs."""
    if not inputs:
        return scatter, d
    first = outputs_of(d, inputs)
    order = [*first, *inputs, *range(d, len(scatter))]
    return scatter[np.ix_(order, order)], len(first)


def noise_level(moments: Moments, d: int, inputs: Sequence[int]) -> float:
    """Geometric mean of the outputs' noise variances.

    The determinant of their covariance given inputs and lags is the product of their noise variances in every acyclic
    network, so no order is needed.
    """
    scatter, m = output_columns(moments.scatter, d, inputs)
    free = max(moments.n - 1 - (len(scatter) - m), 1.0)
    return float(np.exp(log_det_of_residuals(scatter, m) / m)) / free


def neutral_inputs(moments: Moments, d: int, inputs: Sequence[int]) -> tuple[Moments, float]:
    """Moments in which every input varies as much as the outputs' noise; the logarithm of that variance (0 without inputs).

    What an input adds to a score is the same for every network then, and about what one more output would.
    """
    if not inputs:
        return moments, 0.0
    level = noise_level(moments, d, inputs)
    divisors = np.ones(d)
    places = list(inputs)
    divisors[places] = np.sqrt(np.diag(moments.scatter)[places] / moments.n / level)
    return moments.scaled(np.tile(divisors, moments.q // d)), float(np.log(level))


NOISE_FACTOR = 1.5
"""Noise that differs by this factor in standard deviation, whatever the network: at d = 20 scaled variables are then
better than the given units, at d = 8 about as good; with equal noise variances 1.2 was not exceeded in 120 networks."""
DIFFERENT_NETWORKS_FACTOR = 20.0
"""The same where sites may have different networks."""
_STANDARD_ERRORS = 3.0
_LEAST_FREEDOM = 10


@dataclass(frozen=True)
class Spread:
    """The two variables that differ most.

    Attributes
    ----------
    factor
        How many times as large the noise of `large` is at least as that of `small` (standard deviations), less what
        chance may add.
    large, small
        Positions of the variables.
    """

    factor: float
    large: int
    small: int


def noise_spread(scatter: FloatArray, n: float, d: int) -> Spread | None:
    """How far noise differs at least, from the (q, q) scatter of ``[x_t, ..., x_{t-p}]``.

    None if there are too few rows for the regressions, or noise has made the sums those of no rows.
    """
    R, root = correlations(scatter)
    q = len(R)
    free_low, free_high = n - q, n - 1 - (q - d)
    if free_low < _LEAST_FREEDOM or d < 2:
        return None
    # A column that follows from others is left next to nothing, and is never the one with the most noise.
    R = R + _RIDGE * np.eye(q)
    try:
        factor, of_lags = np.linalg.cholesky(R), np.linalg.cholesky(R[d:, d:])
    except np.linalg.LinAlgError:
        return None
    inverse = np.linalg.solve(factor, np.eye(q))
    low = 1.0 / (inverse * inverse).sum(axis=0)[:d] * root[:d] ** 2 / free_low
    explained = np.linalg.solve(of_lags, R[d:, :d])
    high = (np.diag(R)[:d] - (explained * explained).sum(axis=0)) * root[:d] ** 2 / free_high
    if not (high.min() > 0 and np.isfinite(low).all()):
        return None
    large, small = int(np.argmax(low)), int(np.argmin(high))
    # A standard deviation has half the relative error of its square.
    chance = np.exp(-_STANDARD_ERRORS * 0.5 * np.sqrt(2 / free_low + 2 / free_high))
    return Spread(float(np.sqrt(low[large] / high[small]) * chance), large, small)


CENTERS = ("auto", "none", "recording")
SCALES = ("auto", "none", "federated")


@dataclass(frozen=True)
class ColumnStatistics:
    """Federation-wide count, means (q,), variances (q,) and lag-1 autocorrelations (d,)."""

    n: float
    mean: FloatArray
    variance: FloatArray
    autocorrelation: FloatArray


@dataclass(frozen=True)
class Units:
    """What columns z are brought to where penalties act: ``(z - center) / scale``, both (q,); `summary` explains why."""

    center: FloatArray
    scale: FloatArray
    center_rule: str
    summary: ColumnStatistics

    @property
    def variance(self) -> FloatArray:
        """(q,) mean squares of the prepared columns."""
        offset = self.summary.mean - self.center
        return (self.summary.variance + offset * offset) / self.scale**2

    @property
    def metric(self) -> FloatArray:
        """(q,) `variance`, bounded from below: a variable that hardly varies must not make a metric singular."""
        variance = self.variance
        return np.maximum(variance, 1e-9 * float(variance.mean()))


def autocorrelation(lagged: FloatArray, variance: FloatArray) -> FloatArray:
    """Return lag-1 autocorrelations from lag-1 covariances and variances; 0 for a constant."""
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.where(variance > 0, lagged / variance, 0.0)
    return np.clip(r, -0.99, 0.99)


def summary_of_moments(moments: Moments, d: int) -> ColumnStatistics:
    """Return the same summary from whole moments."""
    n = moments.n
    variance = np.diag(moments.scatter) / n
    lagged = np.diag(moments.scatter, k=d)[:d] / n if moments.q > d else np.zeros(d)
    return ColumnStatistics(n, moments.mean, variance, autocorrelation(lagged, variance[:d]))


def units_of(summary: ColumnStatistics, d: int, center: str, scale: str) -> Units:
    """Choose centre and scale from sums only.

    ``center="none"`` is one mean for all rows, which is taken off. ``center="auto"`` does so unless every variable's mean is
    within four standard errors of zero, with standard errors inflated for lag-1 autocorrelation: series that were simulated
    or already centred stay as they are.
    """
    word(*CENTERS).check("center", center)
    word("none", "federated").check("scale", scale)
    # Recordings that were centred on their own means have a mean of zero, or that of the average recording.
    middle = summary.mean
    if center == "auto":
        r = np.maximum(summary.autocorrelation, 0.0)
        error = np.sqrt(summary.variance[:d] * (1 + r) / (1 - r) / summary.n)
        middle = middle if np.any(np.abs(middle[:d]) > 4.0 * error) else np.zeros(len(middle))
    q, rule = len(middle), "recording" if center == "recording" else "none"
    factor = np.tile(np.sqrt(summary.variance[:d]), q // d) if scale == "federated" else np.ones(q)
    return Units(middle, factor, rule, summary)


@dataclass(frozen=True)
class ScaleChoice:
    """Which units penalties and thresholds act on.

    Attributes
    ----------
    rule
        "none": those of the data; "federated": every variable scaled to unit variance over all sites.
    spread
        How far the noise of variables differs, where that was looked at.
    one_network
        Whether all sites have one network, so that the spread is a bound.
    """

    rule: str
    spread: Spread | None = None
    one_network: bool = True

    def finding(self, variables: Sequence[str]) -> Finding | None:
        """What was decided and why; None where nothing was, or the data stay as they are."""
        if self.spread is None or self.rule == "none":
            return None
        names = variables[self.spread.large], variables[self.spread.small]
        values = {"factor": self.spread.factor, "is_bound": self.one_network}
        return Finding("variables-scaled", "note", values, names, {"prepare.scale": "none"})


def choose_scale(
    scale: str, d: int, moments: Moments, *, one_network: bool = True, inputs: Sequence[int] = ()
) -> ScaleChoice:
    """Decide about ``scale="auto"`` by how far noise must differ; `one_network` says whether sites share one.

    `inputs` are positions of variables that only act on others, and have no noise.
    """
    if scale != "auto":
        return ScaleChoice(scale, one_network=one_network)
    scatter, m = output_columns(moments.scatter, d, inputs)
    spread = noise_spread(scatter, moments.n, m)
    if spread is not None and inputs:
        outputs = outputs_of(d, inputs)
        spread = replace(spread, large=outputs[spread.large], small=outputs[spread.small])
    limit = NOISE_FACTOR if one_network else DIFFERENT_NETWORKS_FACTOR
    rule = "federated" if spread is not None and spread.factor > limit else "none"
    return ScaleChoice(rule, spread, one_network)


_SLOW = 0.95
_PERHAPS_SLOW = 0.9
_NOT_EXCLUDED = -2.86
"""The statistic's 5 % point with a constant and many rows (MacKinnon 2010)."""


@dataclass(frozen=True)
class SlowLevels:
    """How slowly variables move.

    Attributes
    ----------
    persistence
        (d,) rho: the part of a level that stays from row to row.
    statistic
        (d,) augmented Dickey-Fuller statistic; a unit root is excluded at 5 % below -2.86.
    n
        Number of rows.
    """

    persistence: FloatArray
    statistic: FloatArray
    n: float

    @property
    def slow(self) -> list[int]:
        """Positions of the variables near a unit root, the slowest first."""
        near = (self.persistence >= _SLOW) | (
            (self.persistence >= _PERHAPS_SLOW) & (self.statistic > _NOT_EXCLUDED)
        )
        return [int(j) for j in np.argsort(-self.persistence, kind="stable") if near[j]]

    @property
    def independent_rows(self) -> FloatArray:
        """(d,) as many independent values tell as much about a mean: ``n (1 - rho) / (1 + rho)``, at least 1."""
        rho = np.clip(self.persistence, 0.0, 1.0)
        return np.maximum(self.n * (1 - rho) / (1 + rho), 1.0)

    def finding(self, variables: Sequence[str]) -> Finding | None:
        """Which variables these are; None if there are none."""
        slow = self.slow
        if not slow:
            return None
        values = {
            "n": self.n,
            "persistence": self.persistence[slow].tolist(),
            "independent": self.independent_rows[slow].tolist(),
        }
        return Finding(
            "slow-levels", "warning", values, tuple(variables[j] for j in slow), {"n_lags": "auto"}
        )


def slow_levels(moments: Moments, d: int) -> SlowLevels | None:
    """Return how slowly d variables move, from moments of ``[x_t, ..., x_{t-p}]``; None without lags or rows to tell."""
    n_lags = moments.q // d - 1
    left = moments.n - 1 - n_lags
    if n_lags < 1 or left < 1:
        return None
    R, root = correlations(moments.scatter)
    persistence, statistic = np.zeros(d), np.full(d, -np.inf)
    for j in range(d):
        own = np.arange(1, n_lags + 1) * d + j
        # Lags of a variable that has hardly moved yet may be copies of each other.
        inverse = np.linalg.pinv(R[np.ix_(own, own)], hermitian=True)
        scale = root[j] / root[own]
        phi = inverse @ R[own, j] * scale
        residual = max(float(R[j, j] - R[own, j] @ inverse @ R[own, j]), 0.0) / left
        spread = float(np.sqrt(residual * float(scale @ inverse @ scale)))
        persistence[j] = float(phi.sum())
        if spread > 0:
            statistic[j] = (persistence[j] - 1.0) / spread
    return SlowLevels(persistence, statistic, moments.n)


def slow_findings(
    moments: Moments, variables: Sequence[str], inputs: Sequence[int] = ()
) -> tuple[Finding, ...]:
    """Levels near a unit root, if there are any; `inputs` (positions) may be as slow as they are."""
    d = len(variables)
    outputs = outputs_of(d, inputs)
    kept = np.array([lag * d + j for lag in range(moments.q // d) for j in outputs], dtype=int)
    levels = slow_levels(moments.select(kept), len(outputs))
    found = None if levels is None else levels.finding([variables[j] for j in outputs])
    return () if found is None else (found,)


_LARGEST_MEMORY = 0.98


def memory_filter(rho: float, n_lags: int, d: int) -> FloatArray:
    """((p+2) d, (p+1) d) matrix F: ``[y_t, ..., y_{t-p}] = [x_t, ..., x_{t-p-1}] F``."""
    lags = np.eye(n_lags + 2, n_lags + 1) - rho * np.eye(n_lags + 2, n_lags + 1, k=-1)
    return np.asarray(np.kron(lags, np.eye(d)), dtype=np.float64)


def without_memory(moments: Moments, rho: float, d: int) -> Moments:
    """Moments of y over lags 0..p from those of x over lags 0..p+1."""
    F = memory_filter(rho, moments.q // d - 2, d)
    scatter = F.T @ moments.scatter @ F
    return Moments(moments.n, moments.mean @ F, (scatter + scatter.T) / 2)


def memory_of_noise(moments: Moments, d: int, inputs: Sequence[int] = ()) -> float:
    """The rho of largest likelihood if every variable depends on all earlier ones, from moments over lags 0..p+1.

    `inputs` are positions of variables that only act on others: the likelihood is that of the others given them.
    """
    R, root = correlations(moments.scatter)
    plain = Moments(
        moments.n, np.zeros(len(R)), R * np.outer(root, root) / np.outer(_tiled(root, d), _tiled(root, d))
    )

    def loss(rho: float) -> float:
        S, m = output_columns(without_memory(plain, rho, d).scatter, d, inputs)
        past = S[m:, m:] + _RIDGE * np.trace(S[m:, m:]) / len(S) * np.eye(len(S) - m)
        left = S[:m, :m] - S[:m, m:] @ np.linalg.solve(past, S[m:, :m]) if len(S) > m else S[:m, :m]
        return float(np.linalg.slogdet(left + _RIDGE * np.trace(left) / m * np.eye(m))[1])

    grid = np.linspace(-0.9, 0.9, 19)
    start = float(grid[int(np.argmin([loss(rho) for rho in grid]))])
    low, high = max(start - 0.1, -_LARGEST_MEMORY), min(start + 0.1, _LARGEST_MEMORY)
    return float(minimize_scalar(loss, bounds=(low, high), method="bounded").x)


def _tiled(root: FloatArray, d: int) -> FloatArray:
    """The scale of each variable, the same at every lag: a filter mixes lags, so they must be in the same units."""
    return np.tile(np.maximum(root[:d], 1e-300), len(root) // d)


_COLLINEAR = 1e-10
_LARGEST = 1e100


def robustness_value(t: FloatArray | float, left: float) -> FloatArray:
    """Share of what is left of cause and target that a hidden cause must explain, from a t statistic."""
    # The same as the formula above, without its cancellation and overflow for large t.
    f = np.minimum(np.abs(np.asarray(t, dtype=np.float64)) / np.sqrt(left), _LARGEST)
    return np.where(f > 0, 2.0 / (1.0 + np.sqrt(1.0 + np.square(2.0 / np.maximum(f, 1.0 / _LARGEST)))), 0.0)


def edge_robustness(moments: Moments, support: BoolArray) -> FloatArray:
    """(q, d) robustness values of the edges of a network: regressions of every variable on its causes; 0 elsewhere."""
    S, found = moments.scatter, np.zeros(support.shape)
    for j in range(support.shape[1]):
        on = np.flatnonzero(support[:, j])
        left = moments.n - 1 - len(on)
        if not len(on) or left < 1:
            continue
        inverse = np.linalg.pinv(S[np.ix_(on, on)], rcond=_COLLINEAR, hermitian=True)
        beta = inverse @ S[on, j]
        rss = max(float(S[j, j] - beta @ S[on, j]), 1e-300)
        t = beta / np.sqrt(np.maximum(np.diag(inverse) * rss / left, 1e-300))
        found[on, j] = robustness_value(t, left)
    return found
