"""How a network moves: its reduced form, simulated paths, where it usually is, the state after a history, and how well rows
follow it (residuals, likelihood, checks).

With ``B = (I - W)^{-1}`` and ``P_l = A_l B`` a linear network reads ``x_t = c B + sum_l x_{t-l} P_l + u_t B``
(row vectors). Every matrix here is ``[from, to]``; statsmodels' ``coefs[l-1]`` is the transpose of ``P_l``. What a formula
gives for linear networks is taken from simulated paths for others.

In a linear network missing cells of a history have a normal distribution. In others they are drawn: many rows are
simulated on from where the history was complete, present cells are put in, and rows that explain these badly are
replaced by copies of rows that explain them well, in proportion to the density of what the noise must have been (a
particle filter).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.linalg

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.statistics.moments import correlations
from feddbn.errors import CurvesWarning, DataError, ParameterError
from feddbn.model.network import Network, RandomState, Rows, random_generator, segments_of
from feddbn.model.nodes import known
from feddbn.model.step import LinearSteps, companion, impact, run
from feddbn.settings import number, whole, word

_BOUND = 1e100
_N_PATHS, _BURN_IN, _N_ROWS = 50, 200, 200
# What a relaxation time of some 90 of the 200 steps gives.
_STUCK = 0.5


def paths_from(
    dbn: Network, start: FloatArray, shocks: FloatArray, held: FloatArray | None = None
) -> FloatArray:
    """(n_paths, steps, d) paths driven by `shocks` (n_paths, steps, d) from `start` (1 or n_paths, p, d).

    `held` (steps, d) has values that variables are held at, NaN where they are free.
    """

    def check(t: int, x: FloatArray) -> None:
        far = ~(np.abs(x) < _BOUND).all(axis=0)
        if far.any():
            name = dbn.variables[int(np.flatnonzero(far)[0])]
            raise ParameterError(
                f"simulated paths of {name!r} leave all bounds at step {t + 1}: the effects of this network are not stable;"
                " take fewer steps, or hold the variable."
            )

    return run(dbn.steps.step, dbn.n_lags, start, shocks, held, None if dbn.is_linear else check)


def ranges_seen(dbn: Network) -> tuple[FloatArray, FloatArray]:
    """(d,) and (d,) between which values the functions of each variable are free; infinite without such functions."""
    low, high = np.full(dbn.d, -np.inf), np.full(dbn.d, np.inf)
    for source, (begin, end) in (both for part in dbn.parts for both in part.term.ranges.items()):
        low[source], high[source] = max(low[source], begin), min(high[source], end)
    return low, high


_SAMPLES: WeakKeyDictionary[Network, FloatArray | str] = WeakKeyDictionary()


def stationary_sample(dbn: Network) -> FloatArray:
    """(50, 200, d) rows of a network that is not linear, from paths that have forgotten their start; always the same for a
    network.

    Raises ParameterError if the paths leave all bounds, or if they still spread or drift after 200 steps.
    """
    if dbn not in _SAMPLES:
        try:
            _SAMPLES[dbn] = _settled_rows(dbn)
        except ParameterError as error:
            _SAMPLES[dbn] = str(error)
    found = _SAMPLES[dbn]
    if isinstance(found, str):
        raise ParameterError(found)
    return found


def drawn_windows(dbn: Network, n: int, length: int, rng: np.random.Generator) -> FloatArray:
    """(n, length, d) stretches of rows that the process visits by itself."""
    rows = stationary_sample(dbn)
    path, last = rng.integers(rows.shape[0], size=n), rng.integers(length, rows.shape[1] + 1, size=n)
    return np.asarray(rows[path[:, None], last[:, None] + np.arange(-length, 0)])


def visited_rows(dbn: Network, n: int = 1000) -> FloatArray:
    """(n, (p+1) d) rows with their past that the process visits by itself; always the same for a network."""
    windows = drawn_windows(dbn, n, dbn.n_lags + 1, np.random.default_rng(0))
    return windows[:, ::-1].reshape(n, -1)


def _settled_rows(dbn: Network) -> FloatArray:
    """The rows; refused are variables that still drift or grow, or where means of paths differ as much as single rows do:
    these depend on where their path began.
    """
    # The seed is fixed: what a network implies does not change from call to call.
    rng = np.random.default_rng(0)
    shocks, start = dbn.steps.shocks("gaussian", (_N_PATHS, _BURN_IN + _N_ROWS), rng), first_rows(dbn)
    start = np.tile(start, (_N_PATHS, 1, 1))
    for j, kind in enumerate(dbn.kinds):
        if kind.levels:
            # Drawn evenly, so that no level is missed that is left rarely.
            start[:, :, j] = rng.integers(kind.n_levels, size=(_N_PATHS, 1))
    rows = paths_from(dbn, start, shocks)[:, _BURN_IN:].copy()
    early, late = (half.reshape(-1, dbn.d) for half in np.split(rows, [_N_ROWS // 2], axis=1))
    spread, between = rows.var(axis=(0, 1)), rows.mean(axis=1).var(axis=0)
    # What lies between quartiles, so that a few far rows do not count as growth.
    before, after = (np.subtract(*np.quantile(half, [0.75, 0.25], axis=0)) for half in (early, late))
    moving = (np.abs(late.mean(axis=0) - early.mean(axis=0)) > np.sqrt(spread)) | (after > 2 * before)
    moving |= between > _STUCK * spread
    moving &= spread > 1e-20 * (1 + early.mean(axis=0) ** 2)
    if moving.any():
        name = dbn.variables[int(np.flatnonzero(moving)[0])]
        raise ParameterError(
            f"this network has no usual level: simulated paths of {name!r} still move away, or apart, after {_BURN_IN} steps;"
            " pass a history, or rows to average over."
        )
    return rows


def first_rows(dbn: Network) -> FloatArray:
    """(1, p, d) where to begin: the origin of a variable's functions, 0 if it has none; 1 if it is positive."""
    origins = np.array([1.0 if kind.name == "positive" else 0.0 for kind in dbn.kinds])
    for source, (origin, _) in dbn.units.items():
        origins[source] = origin
    return np.tile(origins, (1, dbn.n_lags, 1))


class Outcome(NamedTuple):
    """What one column tells of."""

    variable: str
    level: str = ""

    @property
    def name(self) -> str:
        """The variable, or variable=level."""
        return f"{self.variable}={self.level}" if self.level else self.variable


def outcome_columns(dbn: Network) -> tuple[Outcome, ...]:
    """The columns, variable after variable."""
    found = []
    for name, kind in zip(dbn.variables, dbn.kinds, strict=True):
        found += [Outcome(name, level) for level in kind.levels] if kind.is_by_level else [Outcome(name)]
    return tuple(found)


def columns_of(dbn: Network, variable: int) -> slice:
    """Which of these columns are those of one variable."""
    widths = [kind.n_levels if kind.is_by_level else 1 for kind in dbn.kinds]
    begin = sum(widths[:variable])
    return slice(begin, begin + widths[variable])


def indicators(dbn: Network, values: FloatArray) -> FloatArray:
    """(..., m) the outcomes of values (..., d): values themselves, or 1 at the level that is there."""
    parts = []
    for j, kind in enumerate(dbn.kinds):
        column = values[..., j, None]
        parts.append((column == np.arange(kind.n_levels)) * 1.0 if kind.is_by_level else column)
    return np.concatenate(parts, axis=-1)


ResponseKind = Literal["structural", "reduced", "orthogonalised"]


def require_linear(dbn: Network, what: str, instead: str) -> None:
    """Refuse a network that is not linear, and say what to use instead."""
    if not dbn.is_linear:
        has = "variables of other kinds" if dbn.has_kinds else "curves or products"
        raise ParameterError(
            f"{what} is only defined for linear networks, and this one has {has}; use {instead}."
        )


def _require_means(dbn: Network, what: str) -> None:
    """Refuse variables whose positions of levels have no order, and so no mean."""
    for name, kind in zip(dbn.variables, dbn.kinds, strict=True):
        if kind.name == "categorical":
            raise ParameterError(
                f"{what} needs variables with a mean, and {name!r} is categorical; use dbn.forecast(None, 1), whose mean has"
                " the probabilities of its levels."
            )


def reduced_coefficients(dbn: Network) -> FloatArray:
    """(p, d, d) ``P_l = A_l B``."""
    require_linear(dbn, "the reduced form", "dbn.simulate, dbn.forecast or dbn.effects")
    return np.asarray(dbn.A @ impact(dbn.W))


def innovation_covariance(dbn: Network) -> FloatArray:
    """(d, d) covariance of ``u_t B``: ``B' diag(v) B``."""
    require_linear(dbn, "the covariance of innovations", "dbn.stationary_covariance()")
    B = impact(dbn.W)
    return np.asarray((B.T * known(dbn.noise_variances, "noise_variances")) @ B)


def spectral_radius(dbn: Network) -> float:
    """Largest absolute eigenvalue of the companion matrix; below 1 the process is stationary."""
    require_linear(
        dbn, "the spectral radius", "dbn.stationary_mean(), which says whether simulated paths settle"
    )
    return largest_eigenvalue(reduced_coefficients(dbn))


def largest_eigenvalue(coefficients: FloatArray) -> float:
    """The largest modulus of an eigenvalue of the companion matrix of (p, d, d) reduced coefficients; 0 without lags."""
    return float(np.abs(np.linalg.eigvals(companion(coefficients))).max()) if len(coefficients) else 0.0


def require_stationary(dbn: Network, what: str) -> None:
    """Raise unless the spectral radius is below 1."""
    radius = spectral_radius(dbn)
    if radius >= 1:
        raise ParameterError(
            f"{what} needs a stationary network, but its spectral radius is {radius:.3f}; pass a history."
        )


def stationary_mean(dbn: Network) -> FloatArray:
    """(d,) mean m of the process: ``m (I - W - sum_l A_l) = c``; with curves that of simulated rows (`stationary_sample`)."""
    if not dbn.is_linear:
        _require_means(dbn, "the mean of the process")
        return np.asarray(stationary_sample(dbn).mean(axis=(0, 1)))
    require_stationary(dbn, "the mean of the process")
    within = np.eye(dbn.d) - dbn.W - dbn.A.sum(axis=0)
    return np.asarray(np.linalg.solve(within.T, known(dbn.intercept, "intercept")))


def stationary_covariance(dbn: Network) -> FloatArray:
    """(d, d) covariance of x_t, from the discrete Lyapunov equation of the companion form; with curves of simulated rows."""
    if not dbn.is_linear:
        _require_means(dbn, "the covariance of the process")
        return np.cov(stationary_sample(dbn).reshape(-1, dbn.d).T, ddof=0).reshape(dbn.d, dbn.d)
    require_stationary(dbn, "the covariance of the process")
    return lagged_covariance(dbn)[: dbn.d, : dbn.d]


def lagged_covariance(dbn: Network) -> FloatArray:
    """((p+1) d, (p+1) d) covariance of x_t, ..., x_{t-p} of the stationary process."""
    P, innovation, p, d = reduced_coefficients(dbn), innovation_covariance(dbn), dbn.n_lags, dbn.d
    if not p:
        return innovation
    F = companion(P)
    Q = np.zeros_like(F)
    Q[:d, :d] = innovation
    past = np.asarray(scipy.linalg.solve_discrete_lyapunov(F.T, Q))
    now = P.reshape(p * d, d).T @ past
    return np.block([[past[:d, :d], now], [now.T, past]])


def moving_average(coefficients: FloatArray, horizon: int) -> FloatArray:
    """(horizon+1, d, d) ``Psi_0 = I``, ``Psi_h = sum_l Psi_{h-l} P_l``."""
    p, d = coefficients.shape[:2]
    psi = np.zeros((horizon + 1, d, d))
    psi[0] = np.eye(d)
    for h in range(1, horizon + 1):
        for lag in range(1, min(p, h) + 1):
            psi[h] += psi[h - lag] @ coefficients[lag - 1]
    return psi


def responses_of(W: FloatArray, A: FloatArray, horizon: int) -> FloatArray:
    """(horizon+1, d, d) ``B Psi_h``: responses to unit shocks of a network with these weights."""
    B = impact(W)
    return np.asarray(B @ moving_average(A @ B, horizon))


def impulse_responses(
    dbn: Network, horizon: int, kind: ResponseKind = "structural", *, sd: bool = False
) -> FloatArray:
    """(horizon+1, d, d): entry [h, i, j] is the response of j, h steps after a shock in i.

    - ``"structural"``: ``B Psi_h``, a unit shock in u_i (one standard deviation of u_i if `sd`).
    - ``"reduced"``: ``Psi_h``, a unit forecast error of x_i alone.
    - ``"orthogonalised"``: ``L' Psi_h`` with the Cholesky factor L of the innovation covariance, in the
      order of the variables. It equals the structural responses with `sd` if every edge of W goes from an
      earlier to a later variable.
    """
    horizon = whole(0).check("horizon", horizon)
    require_linear(dbn, "impulse_responses", "dbn.effects(source, target, horizon, at=..., by=...)")
    if kind == "structural" and not sd:
        return responses_of(dbn.W, dbn.A, horizon)
    psi = moving_average(reduced_coefficients(dbn), horizon)
    if kind == "reduced":
        return psi
    if kind == "structural":
        first = impact(dbn.W) * np.sqrt(known(dbn.noise_variances, "noise_variances"))[:, None]
    elif kind == "orthogonalised":
        try:
            first = np.asarray(np.linalg.cholesky(innovation_covariance(dbn)).T, dtype=np.float64)
        except np.linalg.LinAlgError:
            raise ParameterError(
                "orthogonalised responses need positive noise_variances, but one is 0."
            ) from None
    else:
        raise ParameterError(f"kind must be 'structural', 'reduced' or 'orthogonalised', got {kind!r}.")
    return np.asarray(first @ psi)


def response_bands(
    dbn: Network, horizon: int, n_rows: int, level: float = 0.9, n_draws: int = 300
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper (horizon+1, d, d) bounds of the structural `impulse_responses` of a network learned from `n_rows` rows.

    They are quantiles over networks with weights drawn from the sampling distribution of regressions on the causes found:
    ``N(w_j, v_j / n Sigma^-1)``, with the covariance Sigma of the causes that the network implies. They are given the edges
    found, and always drawn with the same random numbers.

    Examples
    --------
    >>> import feddbn
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> low, high = dbn.response_bands(2, n_rows=400)
    >>> bool((low < dbn.impulse_responses(2)).any() and (low <= high).all())
    True
    """
    horizon = whole(0).check("horizon", horizon)
    reach, rng = number(above=0, below=1).check("level", level) / 2, np.random.default_rng(0)
    drawn = np.tile(dbn.adjacency_matrices, (n_draws, 1, 1, 1))
    for j, lags, causes, spread in _sampling(dbn, n_rows):
        drawn[:, lags, causes, j] += rng.multivariate_normal(
            np.zeros(len(causes)), spread, size=n_draws, method="eigh"
        )
    found = [responses_of(weights[0], weights[1:], horizon) for weights in drawn]
    low, high = np.quantile(found, [0.5 - reach, 0.5 + reach], axis=0)
    return low, high


def standard_errors(dbn: Network, n_rows: int) -> FloatArray:
    """(p+1, d, d) standard errors of the weights of a network learned from `n_rows` rows, W first, given the edges found; 0
    where there is no edge. Those of regressions of each variable on its causes, whose covariance the network implies.
    """
    found = np.zeros((dbn.n_lags + 1, dbn.d, dbn.d))
    for j, lags, causes, spread in _sampling(dbn, n_rows):
        found[lags, causes, j] = np.sqrt(np.diag(spread))
    return found


def _sampling(dbn: Network, n_rows: int) -> Iterator[tuple[int, IntArray, IntArray, FloatArray]]:
    """Every variable that has causes: its place, their lags and places, and the covariance of its estimated weights."""
    n, d = whole(1).check("n_rows", n_rows), dbn.d
    noise = known(dbn.noise_variances, "noise_variances")
    require_stationary(dbn, "how sure weights are")
    covariance = lagged_covariance(dbn)
    for j in range(d):
        lags, causes = np.nonzero(dbn.is_edge[:, :, j])
        places = lags * d + causes
        if len(places):
            inner = np.linalg.pinv(covariance[np.ix_(places, places)], hermitian=True)
            yield j, lags, causes, noise[j] / n * inner


def fevd(
    dbn: Network, horizon: int, kind: Literal["structural", "orthogonalised"] = "structural"
) -> FloatArray:
    """(horizon, d, d): entry [h-1, i, j] is the share of the h-step forecast-error variance of j due to
    shocks in i.

    Every column sums to 1, except where j has no forecast error at all (then it is 0).
    """
    horizon = whole(1).check("horizon", horizon)
    require_linear(dbn, "fevd", "dbn.forecast, whose sd holds all shocks together")
    word("structural", "orthogonalised").check("kind", kind)
    squared = np.cumsum(impulse_responses(dbn, horizon - 1, kind, sd=True) ** 2, axis=0)
    total = squared.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(squared, total, out=np.zeros_like(squared), where=total > 0))


class State(NamedTuple):
    """The last p rows (p, d), oldest first; the (pd, pd) covariance of what is inferred, newest row first; cells inferred.

    With curves and missing cells, all rows as they are instead, NaN where a cell is missing.
    """

    rows: FloatArray
    covariance: FloatArray
    n_inferred: int = 0

    @property
    def is_anywhere(self) -> bool:
        """Whether nothing is known, so that paths begin where the process usually is."""
        return self.rows.size > 0 and bool(np.isnan(self.rows).all())


def known_state(rows: FloatArray) -> State:
    """The state of rows (p, d) that lack nothing; without lags there is nothing to know."""
    size = max(len(rows), 1) * rows.shape[1]
    return State(rows, np.zeros((size, size)))


def last_state(dbn: Network, rows: FloatArray) -> State:
    """Return the state after rows (n, d), oldest first, NaN where a cell is missing."""
    p = dbn.n_lags
    if len(rows) < p:
        raise DataError(f"history needs at least n_lags={p} rows, got {len(rows)}.")
    if np.any(np.isinf(rows)):
        raise DataError("history contains an infinite value; remove it or mark it as missing (NaN).")
    last = rows[len(rows) - p :]
    if not np.any(np.isnan(last)):
        return known_state(last)
    if np.all(np.isnan(rows)):
        raise DataError("history has no value at all; give rows of which at least some cells are present.")
    if not dbn.is_linear:
        # Without a formula for missing cells: they are drawn when paths are (`drawn_rows`).
        return State(rows, np.zeros((0, 0)), int(np.isnan(last).sum()))
    return _filtered(dbn, rows)


def _filtered(dbn: Network, rows: FloatArray) -> State:
    p, d, going, free = dbn.n_lags, dbn.d, dbn.steps, np.full(dbn.d, np.nan)
    assert isinstance(going, LinearSteps)
    begin = last_complete(np.asarray(~np.isnan(rows).any(axis=1)), p)
    if begin is None:
        try:
            mean = np.tile(stationary_mean(dbn), p)
        except ParameterError:
            whole = "one complete row" if p == 1 else f"{p} complete rows after each other"
            raise DataError(
                f"history lacks cells at its end and nowhere has {whole}, and the network is not stationary, so nothing "
                "says where it was before; fill the missing cells."
            ) from None
        P, begin = lagged_covariance(dbn)[d:, d:], 0
    else:
        mean = rows[begin - p : begin][::-1].ravel()
        P = np.zeros((p * d, p * d))
    for row in rows[begin:]:
        now = going.step(mean.reshape(1, p, d)[:, ::-1], np.zeros((1, d)), free)
        mean, P = np.concatenate([now[0], mean[:-d]]), going.spread(P, free)
        seen = np.flatnonzero(~np.isnan(row))
        if len(seen):
            gain = _gain(P, seen)
            mean = mean + (row[seen] - mean[seen]) @ gain
            P = P - P[:, seen] @ gain
            # Exactly so, also where noise_variances say that it could not have been.
            mean[seen] = row[seen]
            P[seen] = 0.0
            P[:, seen] = 0.0
            P = (P + P.T) / 2
    inferred = int(np.isnan(rows[len(rows) - p :]).sum())
    return State(mean.reshape(p, d)[::-1].copy(), np.asarray(P, dtype=np.float64), inferred)


def last_complete(complete: np.ndarray, p: int) -> int | None:
    """Where the last p complete rows in a row end; None if there are none."""
    missing_before = np.concatenate([[0], np.cumsum(~complete)])
    ends = np.flatnonzero(missing_before[p:] == missing_before[: len(missing_before) - p])
    return int(ends[-1]) + p if len(ends) else None


def _gain(P: FloatArray, seen: np.ndarray) -> FloatArray:
    """(m, pd) regression of the state on its cells `seen`; directions without variance tell nothing."""
    R, root = correlations(P[np.ix_(seen, seen)])
    inverse = np.linalg.pinv(R, rcond=1e-12, hermitian=True) / np.outer(root, root)
    return np.asarray(inverse @ P[seen])


# What lies further back hardly matters, and would cost its time.
_MOST_HISTORY = 200
_FEW_PARTICLES = 50


def drawn_rows(dbn: Network, start: State, n: int, rng: np.random.Generator) -> FloatArray:
    """(1 or n, p, d) rows to start n paths from: all the same unless some of their cells were missing."""
    if start.is_anywhere:
        return drawn_windows(dbn, n, dbn.n_lags, rng)
    if start.n_inferred == 0:
        return start.rows[None]
    if not dbn.is_linear:
        return _particles(dbn, start.rows, n, rng)
    e, V = np.linalg.eigh(start.covariance)
    draws = rng.normal(size=(n, len(e))) @ (V * np.sqrt(np.maximum(e, 0.0))).T
    return np.asarray(start.rows + draws.reshape(n, *start.rows.shape)[:, ::-1])


def _particles(dbn: Network, rows: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """(n, p, d) draws of the last p of rows (m, d), NaN where a cell is missing."""
    p, rows = dbn.n_lags, rows[-_MOST_HISTORY:]
    begin = last_complete(np.asarray(~np.isnan(rows).any(axis=1)), p)
    past = (
        drawn_windows(dbn, n, dbn.n_lags, rng)
        if begin is None
        else np.tile(rows[begin - p : begin], (n, 1, 1))
    )
    going, log_weights = dbn.steps, np.zeros(n)
    for row in rows[0 if begin is None else begin :]:
        x = going.step(past, going.shocks("gaussian", (n,), rng), row)
        seen = np.flatnonzero(~np.isnan(row)).tolist()
        past = np.concatenate([past, x[:, None]], axis=1)
        # What has no noise has no density, and does not count.
        log_weights += going.log_densities(past[:, ::-1].reshape(n, -1), seen).sum(axis=1)
        past = past[:, 1:]
        if seen:
            log_weights, past = _resampled(log_weights, past, rng)
    return past


def _resampled(
    log_weights: FloatArray, past: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Rows in proportion to their weights, each at distances of 1/n from a common random point."""
    top = log_weights.max()
    if not np.isfinite(top):
        raise DataError(
            "history has cells that the network says are impossible; check their units, or fill them."
        )
    weights = np.exp(log_weights - top)
    n = len(weights)
    if weights.sum() ** 2 / (weights**2).sum() < _FEW_PARTICLES:
        warnings.warn(
            "few simulated rows agree with the present cells of the history where others are missing, so the forecast rests"
            " on few; check the history, or fill its missing cells.",
            CurvesWarning,
            stacklevel=2,
        )
    steps = (rng.random() + np.arange(n)) / n
    chosen = np.searchsorted(np.cumsum(weights) / weights.sum(), steps)
    return np.zeros(n), past[np.minimum(chosen, n - 1)]


def with_past(rows: FloatArray, n_lags: int) -> FloatArray:
    """(n - p, (p+1) d) rows with their past ``[x_t, x_{t-1}, ..., x_{t-p}]``; none if there are too few."""
    n = max(len(rows), n_lags)
    return np.concatenate([rows[n_lags - lag : n - lag] for lag in range(n_lags + 1)], axis=1)


def stretches_with_past(dbn: Network, data: Rows | Sequence[Rows]) -> list[FloatArray]:
    """Rows with their past of each usable stretch."""
    return [with_past(rows, dbn.n_lags) for rows in segments_of(data, dbn.variables, dbn.n_lags, dbn.kinds)]


def rows_with_past(dbn: Network, data: Rows | Sequence[Rows]) -> FloatArray:
    """(n, (p+1) d) those of all usable stretches."""
    return np.concatenate(stretches_with_past(dbn, data))


def residuals(dbn: Network, data: Rows | Sequence[Rows]) -> FloatArray:
    """(n, d) residuals ``u_t = x_t - c - x_t W - sum_l x_{t-l} A_l``, less curves and products, of every usable row; a list
    is one uninterrupted stretch an item.

    Of a recording with a level of its own: ``dbn.at_level(rows.mean())``, here and in the two below.
    """
    return np.concatenate([dbn.steps.residuals(rows) for rows in stretches_with_past(dbn, data)])


def quantile_residuals(
    dbn: Network, data: Rows | Sequence[Rows], random_state: RandomState = None
) -> FloatArray:
    """(n, d) residuals that are standard normal if the network holds, whatever the kinds.

    Those of counts and levels are drawn (`random_state`) from the part of the quantiles that a value stands for; others are
    divided by their standard deviation.
    """
    rng = random_generator(random_state)
    return np.concatenate([dbn.steps.normal_residuals(rows, rng) for rows in stretches_with_past(dbn, data)])


def log_likelihood(dbn: Network, data: Rows | Sequence[Rows]) -> float:
    """Log-likelihood of every usable row given the n_lags rows before it.

    ``sum_t [ log|det(I - W)| - 1/2 sum_j (log 2 pi v_j + u_tj^2 / v_j) ]`` for numbers; the determinant is 1 if W is
    acyclic.
    """
    noise = known(dbn.noise_variances, "noise_variances")
    if any(
        v <= 0 and kind.name in ("continuous", "positive") for v, kind in zip(noise, dbn.kinds, strict=True)
    ):
        raise ParameterError(
            "log_likelihood needs positive noise_variances, but one of this network's is 0 or less."
        )
    rows = rows_with_past(dbn, data)
    return float(len(rows) * dbn.steps.log_jacobian + dbn.steps.log_densities(rows).sum())
