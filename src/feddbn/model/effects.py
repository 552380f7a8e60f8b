"""What causes do: by value, over a horizon, and how strong effects are whatever the units.

Total, direct and mediated effects over a horizon are sums of path weights in the unrolled graph.
The effect of i on j at horizon h is what a one-moment rise of x_i by 1 adds to x_j h steps later: the sum,
over every directed path from (i, t) to (j, t+h), of the product of the path's weights (Wright's rule). For
an acyclic W it equals the structural impulse response. A path is mediated by a set M if it visits a
variable of M strictly between its ends.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.kinds import Kind
from feddbn.errors import CurvesWarning, ParameterError
from feddbn.model.conditionals import Conditional, codes_of, has_one_sign
from feddbn.model.curves import Curve, Product
from feddbn.model.dynamics import (
    columns_of,
    drawn_rows,
    drawn_windows,
    impact,
    indicators,
    innovation_covariance,
    last_state,
    outcome_columns,
    paths_from,
    ranges_seen,
    require_linear,
    spectral_radius,
    stationary_covariance,
    stationary_mean,
    usual,
    usual_lagged,
)
from feddbn.model.inputs import (
    RandomState,
    Rows,
    level_position,
    normal_reach,
    random_generator,
    rows_of,
    variable_index,
)
from feddbn.model.network import Network, edge_at
from feddbn.settings import is_number, nothing, number, whole

__all__ = [
    "Changes",
    "EdgeEffect",
    "average_slopes",
    "changes_by_variable",
    "changes_table",
    "curves_table",
    "direct_effects",
    "edge_effect",
    "effect_sizes",
    "effect_table",
    "expected_changes",
    "from_and_by",
    "has_sign",
    "mediated_effects",
    "origin_and_scale",
    "sizes_by_source",
    "standard_deviations",
    "standardised_effects",
    "standardised_weights",
    "total_effects",
]

_LOGISTIC = np.pi**2 / 3


def standardised_effects(dbn: Network) -> FloatArray:
    """(p+1, d, d) standard deviation of what a cause adds on the scale of the link over that of all that moves the variable
    there, W first; negative where a single coefficient is.

    What moves it is the spread of its predictor and, by its kind: the variance of noise (continuous, positive),
    ``pi^2/3`` (levels: the variance of a logistic number), ``log(1 + 1/mean + dispersion)`` (counts: the variance of the
    log of a number with their mean and variance). Spreads are those of rows that the network visits by itself; where
    it has no usual level, coefficients are given as they are.
    """
    found = dbn.adjacency_matrices
    try:
        with np.errstate(all="ignore"):
            rows = usual_lagged(dbn)
    except ParameterError:
        return found
    for j, node in enumerate(dbn.conditionals):
        codes = codes_of(dbn.conditionals, rows, j)
        total = (codes @ node.slopes).var(axis=0) + _own_variance(node, codes)
        begin = 0
        for (i, lag), effect in zip(node.parents, node.effects, strict=True):
            added = (codes[:, begin : begin + len(effect)] @ effect).var(axis=0)
            begin += len(effect)
            size = np.sqrt(added.sum() / total.sum()) if total.sum() > 0 else 0.0
            found[lag, i, j] = -size if effect.size == 1 and effect[0, 0] < 0 else size
    return found


def _own_variance(node: Conditional, codes: FloatArray) -> float:
    if node.kind.levels:
        return float(_LOGISTIC)
    if node.kind.name == "count":
        mean = max(float(node.mean(codes).mean()), 1e-12)
        return float(np.log1p(1 / mean + node.dispersion))
    return node.dispersion


_Z = np.linspace(-8.0, 8.0, 1601)
_DENSITY = np.exp(-(_Z**2) / 2)
_DENSITY /= _DENSITY.sum()
# Variance of the square of a standard normal.
_SQUARE = 2.0


def average_slopes(dbn: Network) -> FloatArray:
    """(p+1, d, d) average slope of every effect in its own units, W first.

    It is the weight, except for functions of a registered feature map that are not uncorrelated with the value. A product
    has no slope on average.
    """
    slopes = dbn.adjacency_matrices
    for curve in dbn.curves:
        if curve.basis not in ("spline", "quadratic"):
            # Stein: under a standard normal z, E h'(z) = E z h(z).
            values = curve.at(curve.origin + curve.scale * _Z)
            slopes[curve.lag, curve.source, curve.target] += (_DENSITY * _Z) @ values / curve.scale
    return slopes


def effect_sizes(dbn: Network, sd: FloatArray) -> FloatArray:
    """(p+1, d, d) standard deviation of every effect in the units of its target, negative where it falls (`has_sign`).

    A straight effect has ``weight * sd``, with the (d,) standard deviations `sd` of the sources. Functions are taken over a
    normal with their own origin and scale, and the two variables of a product as independent.
    """
    falls = has_sign(dbn) & (average_slopes(dbn) < 0)
    return np.asarray(np.where(falls, -1.0, 1.0) * np.sqrt(_variances(dbn, sd)))


def sizes_by_source(dbn: Network) -> FloatArray:
    """(p+1, d, d) size of every effect over the scale of its source: |weight| of a straight one."""
    scale = np.ones(dbn.d)
    for source, (_, unit) in dbn.units.items():
        scale[source] = unit
    return np.asarray(np.sqrt(_variances(dbn, scale)) / scale[:, None])


def has_sign(dbn: Network) -> BoolArray:
    """(p+1, d, d) whether an effect goes one way: its average slope makes up half of its variance or more.

    What rises and falls, and what depends on another variable, is neither positive nor negative.
    """
    if dbn.conditionals:
        return has_one_sign(dbn.conditionals, dbn.n_lags)
    if not dbn.bends:
        return np.ones(dbn.adjacency_matrices.shape, dtype=bool)
    return np.asarray(np.abs(average_slopes(dbn)) >= np.sqrt(0.5) * sizes_by_source(dbn))


def _variances(dbn: Network, sd: FloatArray) -> FloatArray:
    """(p+1, d, d) variances of the effects of sources with standard deviations `sd`."""
    weights = dbn.adjacency_matrices
    variances = (weights * sd[:, None]) ** 2
    for curve in dbn.curves:
        place = (curve.lag, curve.source, curve.target)
        values = weights[place] * curve.scale * _Z + curve.at(curve.origin + curve.scale * _Z)
        variances[place] = _DENSITY @ (values - _DENSITY @ values) ** 2
    for product in dbn.products:
        is_square = product.first == product.second
        for source in {product.first, product.second}:
            variances[product.lag, source, product.target] += (
                _SQUARE if is_square else 1.0
            ) * product.weight**2
    return np.asarray(variances)


def standard_deviations(dbn: Network) -> FloatArray:
    """(d,) standard deviations that the network itself implies; 1 for a variable that does not vary.

    They are those of the stationary process, with curves of simulated rows. Where there is none (shocks do not die out),
    those of one time step given the past; where W has a cycle without a solution or curves, those of the noise.
    """
    variances = dbn.noise_variances
    if dbn.conditionals:
        return _of_kinds(dbn)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        # Numbers beyond all bounds are no reason to have no edge table.
        warnings.simplefilter("ignore")
        try:
            is_stationary = dbn.bends or spectral_radius(dbn) < 1
            found = np.diag(stationary_covariance(dbn) if is_stationary else innovation_covariance(dbn))
            variances = found if np.all(np.isfinite(found)) else variances
        except (ParameterError, np.linalg.LinAlgError, ValueError):
            pass
    return np.sqrt(np.where(variances > 0, variances, 1.0))


def _of_kinds(dbn: Network) -> FloatArray:
    """Those of simulated rows; 1 for a categorical variable, whose positions have none."""
    try:
        variances = np.diag(usual(dbn).covariance)
    except ParameterError:
        return np.ones(dbn.d)
    plain = np.array([kind.name != "categorical" for kind in dbn.kinds])
    return np.sqrt(np.where(plain & (variances > 0), variances, 1.0))


def standardised_weights(dbn: Network, sd: ArrayLike | None = None) -> FloatArray:
    """(p+1, d, d) ``weight * sd_from / sd_to``, W first; of a curved effect its own standard deviation over ``sd_to``
    (`feddbn.model.effects.effect_sizes`), negative where it falls; with variables of other kinds
    `feddbn.model.effects.standardised_effects`.

    Parameters
    ----------
    dbn
        The network.
    sd
        (d,) standard deviations, for example of the rows it was learned from; those that it implies if None.
    """
    if dbn.conditionals:
        if sd is not None:
            raise ParameterError("sd has no meaning for variables of other kinds; leave it out.")
        return standardised_effects(dbn)
    if sd is None:
        scale = standard_deviations(dbn)
    else:
        scale = np.asarray(sd, dtype=np.float64)
        if scale.shape != (dbn.d,) or not (np.isfinite(scale).all() and (scale > 0).all()):
            raise ParameterError(f"sd must be {dbn.d} positive numbers, one for each variable, got {sd!r}.")
    with np.errstate(over="ignore", under="ignore"):
        if dbn.bends:
            return np.asarray(effect_sizes(dbn, scale) / scale)
        # No weight stays none, also where the ratio of two scales overflows.
        weights = dbn.adjacency_matrices
        return np.multiply(weights, scale[:, None] / scale, out=np.zeros_like(weights), where=weights != 0)


_REACH = 2.4
# How far beyond the range seen a table goes, so that it shows how the line goes on.
_MARGIN = 1.25
_COLUMNS = ["source", "target", "lag", "value", "effect", "lower", "upper", "inside"]


@dataclass(frozen=True)
class EdgeEffect:
    """The effect of one edge as a function of its source.

    Attributes
    ----------
    source, target, lag
        Which edge.
    weight
        Its straight part: the average slope.
    curve
        Its curved part, or None.
    squares
        Products of the source with itself at this lag. Products with others are 0 where those are at their origin, and
        are no part of this.
    origin, scale
        Where the effect is called 0, and what counts as one step away from there, in the units of the source.
    """

    source: str
    target: str
    lag: int
    weight: float
    curve: Curve | None
    squares: tuple[Product, ...]
    origin: float
    scale: float

    @property
    def range_seen(self) -> tuple[float, float]:
        """Between which values of the source the function is free; infinite for a straight line."""
        ranges = [both for part in (*self.squares, self.curve) if part for both in part.ranges.values()]
        return max((low for low, _ in ranges), default=-np.inf), min(
            (high for _, high in ranges), default=np.inf
        )

    @property
    def has_band(self) -> bool:
        """Whether it is known how sure the effect is."""
        return self.curve is not None and bool(self.curve.covariance) and not self.squares

    def at(self, values: ArrayLike) -> FloatArray:
        """What the target gains if the source has these values rather than its origin; same shape as `values`."""
        x = np.asarray(values, dtype=np.float64)
        effect = self.weight * (x - self.origin)
        if self.curve is not None:
            effect = effect + (self.curve.at(x) - self.curve.at(self.origin))
        for square in self.squares:
            effect = effect + (square.at(x, x) - square.at(self.origin, self.origin))
        # Exactly so, also where sums are rounded in another order.
        return np.where(x == self.origin, 0.0, effect)

    def band(self, values: ArrayLike, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bound of the effect at each value, pointwise; NaN if it is not known how sure the weights are."""
        sds = normal_reach(level)
        x = np.asarray(values, dtype=np.float64)
        effect = self.at(x)
        if not self.has_band or self.curve is None:
            unknown = np.full(x.shape, np.nan)
            return unknown, unknown.copy()
        h = self.curve.features(x) - self.curve.features(self.origin)
        columns = np.concatenate([(x - self.origin)[..., None], h], axis=-1)
        variance = ((columns @ np.array(self.curve.covariance)) * columns).sum(axis=-1)
        reach = sds * np.sqrt(np.maximum(variance, 0.0))
        return np.asarray(effect - reach), np.asarray(effect + reach)

    def to_frame(self, n: int = 41, level: float = 0.95) -> pd.DataFrame:
        """Frame value, effect, lower, upper, inside over n values, a quarter further than the range seen.

        `inside` is False beyond the range seen, where a straight line goes on.
        """
        n = whole(2).check("n", n)
        low, high = self.range_seen
        reach = _MARGIN * (
            min(self.origin - low, high - self.origin) if np.isfinite(high) else _REACH * self.scale
        )
        values = np.linspace(self.origin - reach, self.origin + reach, n)
        lower, upper = self.band(values, level)
        inside = (values >= low) & (values <= high)
        effect = self.at(values)
        return pd.DataFrame(
            {"value": values, "effect": effect, "lower": lower, "upper": upper, "inside": inside}
        )

    def table(self, n: int = 41, level: float = 0.95) -> pd.DataFrame:
        """The older name of `to_frame`."""
        return self.to_frame(n, level)


def edge_effect(dbn: Network, source: str | int, target: str | int, lag: int) -> EdgeEffect:
    """Return the effect of the edge source -> target at `lag`; ParameterError if there is none."""
    i, j, lag = edge_at(dbn, source, target, lag)
    names = dbn.variables
    place = (i, j, lag)
    curve = next((c for c in dbn.curves if (c.source, c.target, c.lag) == place), None)
    squares = tuple(p for p in dbn.products if p.first == p.second and (p.first, p.target, p.lag) == place)
    origin, scale = (curve.origin, curve.scale) if curve else origin_and_scale(dbn, i)
    weight = float(dbn.adjacency_matrices[lag, i, j])
    return EdgeEffect(names[i], names[j], lag, weight, curve, squares, origin, scale)


def curves_table(dbn: Network, n: int = 41, level: float = 0.95) -> pd.DataFrame:
    """Frame source, target, lag, value, effect, lower, upper, inside of every effect that is no straight line."""
    parts = []
    places = {(part.lag, part.sources[0], part.target) for part in dbn.parts if len(set(part.sources)) == 1}
    for lag, i, j in sorted(places):
        effect = edge_effect(dbn, i, j, lag)
        part = effect.to_frame(n, level)
        parts.append(part.assign(source=effect.source, target=effect.target, lag=lag)[_COLUMNS])
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=_COLUMNS)


def origin_and_scale(dbn: Network, source: int) -> tuple[float, float]:
    """Origin and scale of a variable: those of its functions; without any, its mean and standard deviation."""
    if source in dbn.units:
        return dbn.units[source]
    try:
        if dbn.conditionals:
            # Of a categorical variable these are numbers without a meaning; nobody asks for them.
            mean, variance = usual(dbn).mean[source], usual(dbn).covariance[source, source]
        else:
            mean, variance = stationary_mean(dbn)[source], stationary_covariance(dbn)[source, source]
    except ParameterError:
        return (1.0 if dbn.kinds[source].name == "positive" else 0.0), 1.0
    return float(mean), float(np.sqrt(variance)) if variance > 0 else 1.0


class Changes(NamedTuple):
    """Expected changes (horizon+1, m) of all outcomes (`feddbn.model.dynamics.outcome_columns`: all variables, if none has
    several levels), their Monte-Carlo standard errors, and from where to where.
    """

    mean: FloatArray
    error: FloatArray
    at: float
    by: float


def expected_changes(
    dbn: Network,
    source: str | int,
    horizon: int,
    *,
    at: float | str | None = None,
    by: float | str | None = None,
    n_paths: int = 2000,
    random_state: RandomState = None,
    history: Rows | None = None,
) -> Changes:
    """Return what setting `source` to ``at + by`` instead of `at`, for one time step, changes in every variable.

    Parameters
    ----------
    at, by
        In the units of the source; by default the origin and the scale of its functions. Levels may be named: from `at` (by
        default the first) to `by` (by default the next); numbers are their positions in `dbn.kinds`. A count changes by 1
        unless said otherwise.
    history
        Rows before that time step. Without them, pairs begin in states that the process visits by itself.
    """
    horizon = whole(0).check("horizon", horizon)
    n = whole(2).check("n_paths", n_paths)
    i = variable_index(source, dbn.variables, "source")
    begin, step = from_and_by(dbn, i, at, by)
    low, high = (bound[i] for bound in ranges_seen(dbn))
    if not low <= begin <= high or not low <= begin + step <= high:
        warnings.warn(
            f"{dbn.variables[i]!r} from {begin:.4g} to {begin + step:.4g} is not within the range seen,"
            f" {low:.4g} to {high:.4g}; the effect rests on straight lines drawn further.",
            CurvesWarning,
            stacklevel=4,
        )
    rng = random_generator(random_state)
    start = _starts(dbn, history, n, rng)
    shocks = dbn.mechanisms.shocks("gaussian", (n, horizon + 1), rng)
    held = np.full((horizon + 1, dbn.d), np.nan)
    held[0, i] = begin
    before = indicators(dbn, paths_from(dbn, start, shocks, held))
    held[0, i] = begin + step
    change = indicators(dbn, paths_from(dbn, start, shocks, held)) - before
    return Changes(change.mean(axis=0), change.std(axis=0) / np.sqrt(n), begin, step)


def changes_table(dbn: Network, target: str | int, changes: Changes) -> pd.DataFrame:
    """One row per horizon: at, by, total, error (Monte-Carlo standard error of the total) and cumulated total.

    Of a target with several levels one for each level, too: what changes is the probability of the `level`.
    """
    here = columns_of(dbn, variable_index(target, dbn.variables, "target"))
    mean, error = changes.mean[:, here], changes.error[:, here]
    levels = [outcome.level for outcome in outcome_columns(dbn)[here]]
    table = pd.DataFrame(
        {
            "horizon": np.repeat(np.arange(len(mean)), len(levels)),
            "at": changes.at,
            "by": changes.by,
            "total": mean.ravel(),
            "error": error.ravel(),
            "cumulative": np.cumsum(mean, axis=0).ravel(),
        }
    )
    if levels != [""]:
        table.insert(1, "level", levels * len(mean))
    return table


def changes_by_variable(dbn: Network, changes: Changes) -> FloatArray:
    """(horizon+1, d) one number per variable: the change of its value, of its mean position if it is ordinal; of a
    categorical one how much probability moves from some levels to others, which has no sign.
    """
    found = []
    for j, kind in enumerate(dbn.kinds):
        part = changes.mean[:, columns_of(dbn, j)]
        if kind.name == "categorical":
            found.append(np.abs(part).sum(axis=1) / 2)
        else:
            found.append(part @ np.arange(part.shape[1]) if kind.name == "ordinal" else part[:, 0])
    return np.stack(found, axis=1)


def from_and_by(dbn: Network, i: int, at: float | str | None, by: float | str | None) -> tuple[float, float]:
    """From which value a variable is changed, and by how much; levels may be named."""
    kind, name = dbn.kinds[i], dbn.variables[i]
    origin, scale = origin_and_scale(dbn, i) if not kind.levels else (0.0, 1.0)
    if kind.name == "count":
        origin, scale = float(round(origin)), 1.0
    place, to = level_position(at, kind), level_position(by, kind)
    begin = place if place is not None else origin if at is None else _finite(at, "at", kind)
    step = to - begin if to is not None else scale if by is None else _finite(by, "by", kind)
    if to is None and by is None and kind.levels and begin + step > kind.n_levels - 1:
        step = -1.0
    misfits = kind.misfits(np.array([begin, begin + step]))
    if len(misfits):
        choice = f"; its levels are {', '.join(kind.levels)}" if kind.levels else ""
        raise ParameterError(
            f"at={at!r} and by={by!r} set {name!r} to {misfits[0]:g}, which no {kind.name} variable can have{choice}."
        )
    return begin, step


def _starts(dbn: Network, history: Rows | None, n: int, rng: np.random.Generator) -> FloatArray:
    """(1 or n, p, d) rows before the time step in which the source is set."""
    p = dbn.n_lags
    if history is not None:
        rows = rows_of(history, dbn.variables, "history", dbn.kinds)
        return drawn_rows(dbn, last_state(dbn, rows), n, rng)
    return drawn_windows(dbn, n, rng) if p else np.zeros((1, 0, dbn.d))


def _finite(value: object, argument: str, kind: Kind) -> float:
    if not is_number(value):
        choice = f", one of its levels {', '.join(kind.levels)}" if kind.levels else ""
        raise ParameterError(f"{argument} must be a finite number{choice} or None, got {value!r}.")
    return float(value)  # type: ignore[arg-type]


def total_effects(dbn: Network, horizon: int) -> FloatArray:
    """(horizon+1, d, d): entry [h, i, j] sums every path from i to j of length h in time; [0, i, i] is 1."""
    require_linear(dbn, "total_effects", "dbn.effects(source, target, horizon, at=..., by=...)")
    total = _path_sums(dbn, whole(0).check("horizon", horizon), blocked=[])
    total[0] += np.eye(dbn.d)
    return total


def direct_effects(dbn: Network, horizon: int) -> FloatArray:
    """(horizon+1, d, d): the weight of the single edge from i to j at lag h (0 beyond the network's lags), its average
    slope if it is curved.
    """
    if dbn.conditionals:
        require_linear(dbn, "direct_effects", "dbn.average_effects()")
    horizon = whole(0).check("horizon", horizon)
    direct = np.zeros((horizon + 1, dbn.d, dbn.d))
    upto = min(horizon, dbn.n_lags) + 1
    direct[:upto] = dbn.adjacency_matrices[:upto]
    return direct


def mediated_effects(dbn: Network, mediators: Sequence[str | int] | None, horizon: int) -> FloatArray:
    """(horizon+1, d, d): the part of the total effect that passes through a mediator (None: any variable
    at all).
    """
    require_linear(dbn, "mediated_effects", "dbn.do with the mediators held, at two values of the source")
    if isinstance(mediators, str):
        raise ParameterError(
            f"mediators must be a list of variables, got the text {mediators!r}; write [{mediators!r}]."
        )
    chosen = (
        range(dbn.d)
        if mediators is None
        else [variable_index(m, dbn.variables, "mediators") for m in mediators]
    )
    horizon = whole(0).check("horizon", horizon)
    return _path_sums(dbn, horizon, blocked=[]) - _path_sums(dbn, horizon, blocked=list(chosen))


def effect_table(
    dbn: Network,
    source: str | int,
    target: str | int,
    horizon: int,
    mediators: Sequence[str | int] | None = None,
    *,
    at: float | str | None = None,
    by: float | str | None = None,
    n_paths: int = 2000,
    random_state: RandomState = None,
    history: Rows | None = None,
) -> pd.DataFrame:
    """Frame horizon, total, direct, mediated (through `mediators`, or through anything), cumulative for one pair of
    variables.

    They are for a rise of the source by 1, or by `by`; with `at` or `by` the table has both as columns. At which value a
    linear network is does not matter.

    With curves and other kinds an effect depends on the value: horizon, at, by, total, error, cumulative of setting the
    source to ``at + by`` instead of `at` (of levels: to `by` instead of `at`, by name) for one time step, by
    `n_paths` pairs of simulated paths. See `feddbn.model.effects.expected_changes`.
    """
    if dbn.bends:
        if mediators is not None:
            require_linear(dbn, "what passes through mediators", "dbn.do with the mediators held")
        changes = expected_changes(
            dbn, source, horizon, at=at, by=by, n_paths=n_paths, random_state=random_state, history=history
        )
        return changes_table(dbn, target, changes)
    i = variable_index(source, dbn.variables, "source")
    j = variable_index(target, dbn.variables, "target")
    for name, value in (("at", at), ("by", by)):
        (number() | nothing()).check(name, value)
    total = total_effects(dbn, horizon)[:, i, j]
    table = pd.DataFrame(
        {
            "horizon": np.arange(horizon + 1),
            "total": total,
            "direct": direct_effects(dbn, horizon)[:, i, j],
            "mediated": mediated_effects(dbn, mediators, horizon)[:, i, j],
            "cumulative": np.cumsum(total),
        }
    )
    if at is None and by is None:
        return table
    step = 1.0 if by is None else float(by)
    table[table.columns[1:]] *= step
    table.insert(1, "at", np.nan if at is None else float(at))
    table.insert(2, "by", step)
    return table


def _path_sums(dbn: Network, horizon: int, blocked: list[int]) -> FloatArray:
    # R_h = (G_h + sum_l R_{h-l} A'_l)(I - W')^{-1}: G holds first edges, W' and A' lack the edges out of
    # blocked variables, so a path may start or end in a blocked variable but not pass through one.
    W, A = dbn.W.copy(), dbn.A.copy()
    W[blocked] = 0.0
    A[:, blocked] = 0.0
    B = impact(W)
    first = direct_effects(dbn, horizon)
    sums = np.zeros_like(first)
    for h in range(horizon + 1):
        arriving = first[h].copy()
        for lag in range(1, min(h, dbn.n_lags) + 1):
            arriving += sums[h - lag] @ A[lag - 1]
        sums[h] = arriving @ B
    return sums
