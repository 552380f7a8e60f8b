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
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.errors import CurvesWarning, ParameterError
from feddbn.model.conditionals import Conditional, NaturalEffect, link_scale, meaning
from feddbn.model.curves import EdgeEffect, normal_reach
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
    rows_with_past,
    spectral_radius,
    stationary_covariance,
    stationary_mean,
    usual,
    usual_lagged,
)
from feddbn.model.mechanisms import Mechanism, known
from feddbn.model.network import (
    Network,
    RandomState,
    Rows,
    edge_at,
    level_position,
    random_generator,
    rows_of,
    variable_index,
)
from feddbn.settings import is_number, nothing, number, whole, word

__all__ = [
    "Changes",
    "Usually",
    "average_effects",
    "changes_by_variable",
    "changes_table",
    "coefficient_table",
    "curves_table",
    "direct_effects",
    "edge_effect",
    "effect_table",
    "expected_changes",
    "from_and_by",
    "mechanism_of",
    "mediated_effects",
    "origin_and_scale",
    "rise",
    "standard_deviations",
    "standardised_weights",
    "total_effects",
]


class Usually(NamedTuple):
    """What a network implies about where it usually is (`feddbn.model.mechanisms.Implied`); effects are averaged `over` rows
    that are given, or that it visits by itself.
    """

    dbn: Network
    over: Rows | None = None

    def deviations(self) -> FloatArray:
        """(d,) standard deviations."""
        return standard_deviations(self.dbn)

    def origin_and_scale(self, variable: int) -> tuple[float, float]:
        """Those of a variable's functions; without any, its mean and standard deviation."""
        return origin_and_scale(self.dbn, variable)

    def rows(self) -> FloatArray:
        """(n, (p+1) d) rows with their past."""
        return usual_lagged(self.dbn) if self.over is None else rows_with_past(self.dbn, self.over)


def mechanism_of(dbn: Network, variable: str | int, over: Rows | None = None) -> Mechanism:
    """What one variable does given its causes: mean, sample, log density, effect of a cause."""
    j = variable_index(variable, dbn.variables, "variable")
    return Mechanism(dbn.mechanisms, j, dbn.variables, Usually(dbn, over))


def edge_effect(
    dbn: Network, source: str | int, target: str | int, lag: int, over: Rows | None = None
) -> EdgeEffect | NaturalEffect:
    """What one edge does by value: ``dbn.effect("x", "y", 1).to_frame()`` or ``.at(values)``, ``.band(values)``.

    Of variables of other kinds it is averaged `over` rows, by default those that the network visits by itself.
    """
    i, j, lag = edge_at(dbn, source, target, lag)
    return mechanism_of(dbn, j, over).effect(i, lag)


def standard_deviations(dbn: Network) -> FloatArray:
    """(d,) standard deviations that the network itself implies; 1 for a variable that does not vary.

    They are those of the stationary process, with curves of simulated rows. Where there is none (shocks do not die out),
    those of one time step given the past; where W has a cycle without a solution or curves, those of the noise.
    """
    variances = known(dbn.noise_variances, "noise_variances")
    with np.errstate(all="ignore"), warnings.catch_warnings():
        # Numbers beyond all bounds are no reason to have no edge table.
        warnings.simplefilter("ignore")
        try:
            if dbn.bends:
                found = np.diag(usual(dbn).covariance)
            else:
                is_stationary = spectral_radius(dbn) < 1
                found = np.diag(stationary_covariance(dbn) if is_stationary else innovation_covariance(dbn))
            variances = found if np.all(np.isfinite(found)) else variances
        except (ParameterError, np.linalg.LinAlgError, ValueError):
            pass
    # Positions of categorical levels have none.
    plain = np.array([kind.name != "categorical" for kind in dbn.kinds])
    return np.sqrt(np.where(plain & (variances > 0), variances, 1.0))


def standardised_weights(dbn: Network, sd: ArrayLike | None = None) -> FloatArray:
    """(p+1, d, d) ``weight * sd_from / sd_to``, W first; of a curved effect its own standard deviation over ``sd_to``,
    negative where it falls; with variables of other kinds the share of a cause on the scale of the link
    (`feddbn.model.mechanisms.Generalised.standardised`).

    Parameters
    ----------
    dbn
        The network.
    sd
        (d,) standard deviations, for example of the rows it was learned from; those that it implies if None.
    """
    scale = None if sd is None else np.asarray(sd, dtype=np.float64)
    if scale is not None and not (scale.shape == (dbn.d,) and np.isfinite(scale).all() and (scale > 0).all()):
        raise ParameterError(f"sd must be {dbn.d} positive numbers, one for each variable, got {sd!r}.")
    with np.errstate(over="ignore", under="ignore"):
        return dbn.mechanisms.standardised(scale, Usually(dbn))


_COLUMNS = ["source", "target", "lag", "value", "effect", "lower", "upper", "inside"]


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
        if dbn.bends:
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
    if dbn.mechanisms.has_kinds:
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
    """Frame horizon, by, total, direct, mediated (through `mediators`, or through anything), cumulative for one pair of
    variables.

    They are for a rise of the source by `by`, in its units; by default one standard deviation (`standard_deviations`), since
    a rise by 1 may be far beyond what a variable ever does. At which value a linear network is does not matter.

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
    origin = (number() | nothing()).check("at", at)
    step = rise(dbn, i, by)
    total = total_effects(dbn, horizon)[:, i, j] * step
    return pd.DataFrame(
        {
            "horizon": np.arange(horizon + 1),
            **({} if origin is None else {"at": float(origin)}),
            "by": step,
            "total": total,
            "direct": direct_effects(dbn, horizon)[:, i, j] * step,
            "mediated": mediated_effects(dbn, mediators, horizon)[:, i, j] * step,
            "cumulative": np.cumsum(total),
        }
    )


def rise(dbn: Network, source: int, by: float | str | None) -> float:
    """By how much a variable of a linear network is raised: as given, or one standard deviation."""
    given = (number() | nothing()).check("by", by)
    return float(standard_deviations(dbn)[source]) if given is None else float(given)


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


_COEFFICIENTS = (
    "source",
    "source_level",
    "target",
    "target_level",
    "lag",
    "coefficient",
    "error",
    "lower",
    "upper",
    "ratio",
    "scale",
    "meaning",
)


def coefficient_table(dbn: Network, level: float = 0.95) -> pd.DataFrame:
    """Frame source, source_level, target, target_level, lag, coefficient, error, lower, upper, ratio, scale, meaning.

    `ratio` is ``exp(coefficient)``: an odds ratio, a rate ratio or a factor; NaN where the target is continuous. `error`
    and the bounds are NaN where it is not known how sure the numbers are.
    """
    _require_kinds(dbn, "coefficients", "dbn.edges()")
    reach = normal_reach(level)
    rows = []
    for j, node in enumerate(dbn.conditionals):
        with np.errstate(over="ignore"):
            ratios = [np.exp(effect) for effect in node.effects]
        errors = _errors(node)
        for (i, lag), effect, error, ratio in zip(node.parents, node.effects, errors, ratios, strict=True):
            cause = dbn.kinds[i]
            for (r, c), b in np.ndenumerate(effect):
                rows.append(
                    {
                        "source": dbn.variables[i],
                        "source_level": cause.levels[r + 1]
                        if cause.name in ("binary", "categorical")
                        else "",
                        "target": dbn.variables[j],
                        "target_level": node.kind.levels[c + 1] if node.kind.name == "categorical" else "",
                        "lag": lag,
                        "coefficient": float(b),
                        "error": float(error[r, c]),
                        "lower": float(b - reach * error[r, c]),
                        "upper": float(b + reach * error[r, c]),
                        "ratio": np.nan if node.kind.name == "continuous" else float(ratio[r, c]),
                        "scale": link_scale(node.kind),
                        "meaning": meaning(dbn.variables[i], cause, r, dbn.variables[j], node.kind, c),
                    }
                )
    return pd.DataFrame(rows, columns=list(_COEFFICIENTS))


def _require_kinds(dbn: Network, what: str, instead: str) -> None:
    if not dbn.mechanisms.has_kinds:
        raise ParameterError(
            f"{what} is for variables of other kinds, and all of this network's are plain numbers; use {instead}."
        )


def _errors(node: Conditional) -> list[FloatArray]:
    """Standard errors in the shapes of the effects; NaN if unknown."""
    if not node.has_covariance or node.covariance is None:
        return [np.full(effect.shape, np.nan) for effect in node.effects]
    variances = np.maximum(np.diag(node.covariance), 0.0)[node.n_intercepts :]
    ends = np.cumsum([effect.size for effect in node.effects])
    parts = np.split(np.sqrt(variances), ends[:-1]) if len(ends) else []
    return [part.reshape(effect.shape) for part, effect in zip(parts, node.effects, strict=True)]


def average_effects(
    dbn: Network, over: Rows | None = None, *, by: str = "unit", level: float = 0.95
) -> pd.DataFrame:
    """Frame source, target, lag, from, to, outcome, change, lower, upper of all edges, on the scales of the targets.

    Parameters
    ----------
    over
        Rows to average over; without them those that the network visits by itself.
    by
        "unit": a source without levels is raised by 1 in every row; "sd": by its standard deviation in these rows. Binary
        and categorical sources go from the first level to each other one, ordinal ones from each level to the next.
    """
    _require_kinds(dbn, "average_effects", "dbn.edges(), whose weights are such changes")
    word("unit", "sd").check("by", by)
    parts = []
    for j, node in enumerate(dbn.conditionals):
        for i, lag in node.parents:
            effect = edge_effect(dbn, i, j, lag, over)
            assert isinstance(effect, NaturalEffect)
            for before, after, found in _changes(effect, by, level):
                for k, outcome in enumerate(effect.outcomes):
                    numbers = [float(part[k]) for part in found]
                    parts.append((effect.source, effect.target, lag, before, after, outcome, *numbers))
    columns = ["source", "target", "lag", "from", "to", "outcome", "change", "lower", "upper"]
    return pd.DataFrame(parts, columns=columns)


def _changes(
    effect: NaturalEffect, by: str, level: float
) -> list[tuple[str, str, tuple[FloatArray, FloatArray, FloatArray]]]:
    levels = effect.cause.levels
    if not levels:
        step = 1.0 if by == "unit" else float(effect.values.std())
        return [("x", f"x + {step:.4g}", effect.change_by(step, level))]
    first = effect.cause.name != "ordinal"
    pairs = [(levels[0 if first else k - 1], levels[k]) for k in range(1, len(levels))]
    return [(one, other, effect.change(one, other, level)) for one, other in pairs]
