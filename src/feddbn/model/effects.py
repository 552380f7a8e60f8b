"""What causes do: by value, over a horizon, and how strong effects are whatever the units.

The effect of i on j at horizon h is what a rise of x_i by 1 for one time step adds to x_j h steps later. In a linear network
it is the structural impulse response: the sum, over every directed path from (i, t) to (j, t+h) of the unrolled graph, of
the product of the path's weights (Wright's rule).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.kinds import Kind
from feddbn.errors import CurvesWarning, ParameterError
from feddbn.model.dynamics import (
    columns_of,
    drawn_rows,
    drawn_windows,
    impulse_responses,
    indicators,
    innovation_covariance,
    last_state,
    outcome_columns,
    paths_from,
    ranges_seen,
    rows_with_past,
    spectral_radius,
    stationary_covariance,
    stationary_mean,
    stationary_sample,
    visited_rows,
)
from feddbn.model.network import (
    Network,
    RandomState,
    Rows,
    edge_at,
    random_generator,
    rows_of,
    variable_index,
)
from feddbn.model.nodes import LINKS, Node, known
from feddbn.settings import is_number, nothing, number, whole

_STEP = 1e-5
_RARE = (0.01, 0.99)
_BEYOND = 2.4
# How far beyond the range seen a table goes, so that it shows how the line goes on.
_MARGIN = 1.25


def normal_reach(level: float) -> float:
    """How many standard deviations to each side hold a share `level` of a normal distribution."""
    return float(ndtri(0.5 + number(above=0, below=1).check("level", level) / 2))


# One edge, by value --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Effect:
    """What one edge does: what is expected of its target if its source alone is set, as a mean over rows.

    In a network of numbers it is told against the source at its `origin`, with all others at theirs. With variables of
    other kinds it is the mean, the probability of 1 or those of all levels. Intervals are those of the delta method.

    Attributes
    ----------
    source, target, lag
        Which edge.
    node
        What the target does.
    kinds
        Of all variables.
    place
        The column of the source in `rows`.
    rows
        (n, (p+1) d) rows with their past that are averaged over.
    origin
        What the effect is told against; None: against nothing.
    scale
        What counts as one step of the source.
    """

    source: str
    target: str
    lag: int
    node: Node
    kinds: tuple[Kind, ...]
    place: int
    rows: FloatArray
    origin: float | None
    scale: float

    @property
    def cause(self) -> Kind:
        """What the values of the source are."""
        return self.kinds[self.place % len(self.kinds)]

    @property
    def kind(self) -> Kind:
        """What the values of the target are."""
        return self.node.kind

    @property
    def outcomes(self) -> tuple[str, ...]:
        """What is told: "mean", "P(level)" of the second level of a binary target, or of every level."""
        if self.kind.name == "binary":
            return (f"P({self.kind.levels[1]})",)
        return tuple(f"P({level})" for level in self.kind.levels) or ("mean",)

    @property
    def weight(self) -> float:
        """Its straight part."""
        edge = self.place % len(self.kinds), self.lag
        return sum(float(b[0, 0]) for term, b in self.node.parts if term.is_straight and term.edge == edge)

    @property
    def range_seen(self) -> tuple[float, float]:
        """Between which values of the source its functions are free; infinite for a straight line."""
        edge = self.place % len(self.kinds), self.lag
        ranges = [both for term in self.node.terms if term.edge == edge for both in term.ranges.values()]
        return max((low for low, _ in ranges), default=-np.inf), min(
            (high for _, high in ranges), default=np.inf
        )

    def at(self, values: ArrayLike) -> FloatArray:
        """(m, k) what is told of k outcomes if the source has these m values (of levels: names, or positions)."""
        return self._told(self._columns(values), self._less, None)[0]

    def band(self, values: ArrayLike, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """(m, k) bounds of that, pointwise; NaN if it is not known how sure the numbers are."""
        return self._told(self._columns(values), self._less, level)[1:]

    def change(
        self, before: float | str, after: float | str, level: float = 0.95
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(k,) change if the source is `after` instead of `before`, and its bounds."""
        middle, lower, upper = self._told(self._columns([after]), self._columns([before]), level)
        return middle[0], lower[0], upper[0]

    def to_frame(self, n: int = 41, level: float = 0.95) -> pd.DataFrame:
        """Frame value, outcome, effect, lower, upper, inside: of every level of the source, or of n values.

        They go a quarter further than the range seen, where `inside` is False and a straight line goes on; with variables of
        other kinds from rare to rare value of the source.
        """
        n = whole(2).check("n", n)
        low, high = self.range_seen
        if self.cause.levels:
            values: FloatArray = np.arange(self.cause.n_levels, dtype=np.float64)
        elif self.origin is not None:
            reach = min(self.origin - low, high - self.origin) if np.isfinite(high) else _BEYOND * self.scale
            values = np.linspace(self.origin - _MARGIN * reach, self.origin + _MARGIN * reach, n)
        else:
            rare = np.quantile(self.rows[:, self.place], _RARE)
            values = np.linspace(float(rare[0]), float(rare[1]), n)
            values = np.unique(np.round(values)) if self.cause.name == "count" else values
        middle, (lower, upper) = self.at(values), self.band(values, level)
        names = [self.cause.levels[int(x)] for x in values] if self.cause.levels else values
        k = len(self.outcomes)
        return pd.DataFrame(
            {
                "value": np.repeat(np.asarray(names, dtype=object if self.cause.levels else np.float64), k),
                "outcome": list(self.outcomes) * len(values),
                "effect": middle.ravel(),
                "lower": lower.ravel(),
                "upper": upper.ravel(),
                "inside": np.repeat((values >= low) & (values <= high), k),
            }
        )

    def _read(self, values: ArrayLike) -> FloatArray:
        found = []
        for value in np.atleast_1d(np.asarray(values, dtype=object)).ravel():
            position = self.cause.position(value)
            try:
                found.append(float(value if position is None else position))
            except (TypeError, ValueError):
                raise ParameterError(f"values has {value!r}, which {self.source!r} cannot have.") from None
        misfits = self.cause.misfits(np.array(found))
        if len(misfits) or not np.isfinite(found).all():
            raise ParameterError(f"values must be those of a {self.cause.name} variable, got {values!r}.")
        return np.array(found)

    def _columns(self, values: ArrayLike) -> FloatArray:
        """(m, n, w) columns of all causes in all rows, the source at each of m values."""
        x = self._read(values)
        rows = np.tile(self.rows, (len(x), 1, 1))
        rows[:, :, self.place] = x[:, None]
        flat = self.node.columns(rows.reshape(-1, rows.shape[2]), self.kinds)
        return flat.reshape(*rows.shape[:2], -1)

    @property
    def _less(self) -> FloatArray | None:
        return None if self.origin is None else self._columns([self.origin])

    def _told(
        self, columns: FloatArray, less: FloatArray | None, level: float | None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(m, k) means over rows of what is expected given columns (m, n, w), less that of others (1, n, w), and bounds."""
        node = self.node
        if less is not None and node.kind.name == "continuous":
            # The intercept is in both terms of the difference, and need not be known.
            means = (columns - less).mean(axis=1)
            middle = means @ node.slopes
            gradient: FloatArray | None = np.concatenate([np.zeros((len(means), 1)), means], axis=1)[
                :, :, None
            ]
        else:

            def expected(node: Node) -> FloatArray:
                found = self._expected(node, columns)
                return found if less is None else found - self._expected(node, less)

            middle = expected(node)
            gradient = None if level is None or node.covariance is None else _gradient(node, expected)
        if level is None or gradient is None or node.covariance is None:
            reach: FloatArray | float = np.nan
        else:
            # What is not moved needs no covariance.
            moves = (gradient != 0).any(axis=(0, 2))
            some = gradient[:, moves]
            variance = np.einsum("mik,ij,mjk->mk", some, node.covariance[np.ix_(moves, moves)], some)
            reach = normal_reach(level) * np.sqrt(np.maximum(variance, 0.0))
        return middle, middle - reach, middle + reach

    def _expected(self, node: Node, columns: FloatArray) -> FloatArray:
        m, n, w = columns.shape
        law = node.law(columns.reshape(-1, w))
        told = law.mean[:, None] if law.probabilities is None else law.probabilities
        found = told.reshape(m, n, -1).mean(axis=1)
        return found[:, 1:] if self.kind.name == "binary" else np.asarray(found)


def _gradient(node: Node, expected: Callable[[Node], FloatArray]) -> FloatArray:
    """(m, estimates, k) of what is expected of a node, by differences."""
    theta, ends = node.estimates, np.cumsum([node.n_intercepts, *(b.size for b in node.coefficients)])

    def at(estimates: FloatArray) -> FloatArray:
        intercept, *parts = np.split(estimates, ends[:-1])
        shaped = (part.reshape(b.shape) for part, b in zip(parts, node.coefficients, strict=True))
        return expected(replace(node, intercept=intercept, coefficients=tuple(shaped), covariance=None))

    steps = _STEP * np.eye(len(theta))
    return np.stack([(at(theta + step) - at(theta - step)) / (2 * _STEP) for step in steps], axis=1)


def edge_effect(
    dbn: Network, source: str | int, target: str | int, lag: int, over: Rows | None = None
) -> Effect:
    """What one edge does by value: ``dbn.effect("x", "y", 1).to_frame()`` or ``.at(values)``, ``.band(values)``.

    With variables of other kinds it is averaged `over` rows, by default those that the network visits by itself.
    """
    i, j, lag = edge_at(dbn, source, target, lag)
    origin, scale = None, 1.0
    if not dbn.has_kinds:
        own = [term.units[i] for term in dbn.node(j).terms if term.edge == (i, lag) and term.units]
        origin, scale = own[0] if own else origin_and_scale(dbn, i)
        at = [dbn.units[k][0] if k in dbn.units else 0.0 for k in range(dbn.d)]
        rows = np.tile(at, dbn.n_lags + 1)[None]
    else:
        rows = visited_rows(dbn) if over is None else rows_with_past(dbn, over)
    names = dbn.variables
    return Effect(names[i], names[j], lag, dbn.node(j), dbn.kinds, lag * dbn.d + i, rows, origin, scale)


# How strong edges are ------------------------------------------------------------------------------------------------------
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
            if not dbn.is_linear:
                found = stationary_sample(dbn).var(axis=(0, 1))
            else:
                is_stationary = spectral_radius(dbn) < 1
                found = np.diag(stationary_covariance(dbn) if is_stationary else innovation_covariance(dbn))
            variances = found if np.all(np.isfinite(found)) else variances
        except (ParameterError, np.linalg.LinAlgError, ValueError):
            pass
    # Positions of categorical levels have none.
    plain = np.array([kind.name != "categorical" for kind in dbn.kinds])
    return np.sqrt(np.where(plain & (variances > 0), variances, 1.0))


_N_SIZED = 5000


def _sizes(dbn: Network) -> tuple[FloatArray, FloatArray]:
    """(p+1, d, d) standard deviations of what edges add to the predictors of their targets, and (d,) of all that moves a
    target on its own scale, over rows that the network visits by itself; ParameterError if it has no usual level.
    """
    added, target = np.zeros((dbn.n_lags + 1, dbn.d, dbn.d)), np.ones(dbn.d)
    with np.errstate(all="ignore"):
        rows = visited_rows(dbn, _N_SIZED)
    for j, node in enumerate(dbn.nodes):
        columns = node.columns(rows, dbn.kinds)
        own = _own_variance(node, columns)
        target[j] = np.sqrt(((columns @ node.slopes).var(axis=0) + own).sum()) or 1.0
        mine = np.split(columns, np.cumsum([len(b) for b in node.coefficients])[:-1], axis=1)
        for cause in node.causes:
            parts = zip(mine, node.parts, strict=True)
            total = sum(x @ b for x, (term, b) in parts if cause in term.sources)
            added[cause[1], cause[0], j] = np.sqrt(np.var(total, axis=0).sum())
    return added, target


def _straight(dbn: Network) -> tuple[FloatArray, BoolArray]:
    """(p+1, d, d) coefficients of straight effects that have one, and where an effect is more than that."""
    straight, other = np.zeros((dbn.n_lags + 1, dbn.d, dbn.d)), np.zeros_like(dbn.is_edge)
    for j, node in enumerate(dbn.nodes):
        for term, b in node.parts:
            for i, lag in term.sources:
                if term.is_straight and b.size == 1:
                    straight[lag, i, j] = b[0, 0]
                else:
                    other[lag, i, j] = True
    return straight, other


def signs(dbn: Network) -> BoolArray:
    """(p+1, d, d) whether an effect goes one way: it is one coefficient, or its straight part makes up half of its variance.

    What rises and falls, and what depends on another variable or on levels, is neither positive nor negative.
    """
    straight, other = _straight(dbn)
    if not other.any():
        return ~other
    try:
        half = 2 * (straight * standard_deviations(dbn)[:, None]) ** 2 >= _sizes(dbn)[0] ** 2
    except ParameterError:
        return ~other
    return np.asarray(~other | (half & (straight != 0)))


def shapes(dbn: Network) -> NDArray[np.object_]:
    """(p+1, d, d) linear, curved or product; with variables of other kinds the scale on which an effect adds up."""
    found = np.full((dbn.n_lags + 1, dbn.d, dbn.d), "linear", dtype=object)
    if dbn.has_kinds:
        found[:] = [LINKS[kind.name] for kind in dbn.kinds]
    for part in sorted(dbn.parts, key=lambda part: part.term.edge is None):
        for i, lag in part.term.sources:
            found[lag, i, part.target] = "curved" if part.term.edge else "product"
    return found


def standardised_weights(dbn: Network) -> FloatArray:
    """(p+1, d, d) ``weight * sd_from / sd_to``, W first; of effects that are not straight the standard deviation of what they
    add over ``sd_to``, negative where they fall.

    With variables of other kinds that is on the scale of the link, and ``sd_to`` is that of all that moves the variable
    there: the spread of its predictor and, by its kind, the variance of noise (continuous, positive), ``pi^2/3`` (levels: the
    variance of a logistic number), ``log(1 + 1/mean + dispersion)`` (counts: the variance of the log of a number with their
    mean and variance). Spreads are those of rows that the network visits by itself; where it has no usual level, those of the
    noise.
    """
    with np.errstate(over="ignore", under="ignore"):
        scale = standard_deviations(dbn)
        # No weight stays none, also where the ratio of two scales overflows.
        weights = dbn.adjacency_matrices
        straight = np.multiply(
            weights, scale[:, None] / scale, out=np.zeros_like(weights), where=weights != 0
        )
        if dbn.is_linear:
            return straight
        try:
            added, target = _sizes(dbn)
        except ParameterError:
            return straight
        sizes = np.where(signs(dbn) & (weights < 0), -added, added) / (target if dbn.has_kinds else scale)
        return sizes if dbn.has_kinds else np.where(_straight(dbn)[1], sizes, straight)


_LOGISTIC = np.pi**2 / 3


def _own_variance(node: Node, columns: FloatArray) -> float:
    dispersion = known(node.dispersion, "noise_variances")
    if node.kind.levels:
        return float(_LOGISTIC)
    if node.kind.name == "count":
        return float(np.log1p(1 / max(float(node.law(columns).mean.mean()), 1e-12) + dispersion))
    return dispersion


_COLUMNS = ["source", "target", "lag", "value", "effect", "lower", "upper", "inside"]


def curves_table(dbn: Network, n: int = 41, level: float = 0.95) -> pd.DataFrame:
    """Frame source, target, lag, value, effect, lower, upper, inside of every effect that is no straight line."""
    tables = []
    places = {(part.term.edge[1], part.term.edge[0], part.target) for part in dbn.parts if part.term.edge}
    for lag, i, j in sorted(places):
        effect = edge_effect(dbn, i, j, lag)
        table = effect.to_frame(n, level)
        tables.append(table.assign(source=effect.source, target=effect.target, lag=lag)[_COLUMNS])
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=_COLUMNS)


def origin_and_scale(dbn: Network, source: int) -> tuple[float, float]:
    """Origin and scale of a variable: those of its functions; without any, its mean and standard deviation."""
    if source in dbn.units:
        return dbn.units[source]
    try:
        # Of a categorical variable it is a number without a meaning; nobody asks for it.
        sample = stationary_mean(dbn) if dbn.is_linear else stationary_sample(dbn).mean(axis=(0, 1))
    except ParameterError:
        return (1.0 if dbn.kinds[source].name == "positive" else 0.0), 1.0
    return float(sample[source]), float(standard_deviations(dbn)[source])


# Over a horizon ------------------------------------------------------------------------------------------------------------
class Changes(NamedTuple):
    """Expected changes (horizon+1, m) of all outcomes (`feddbn.model.dynamics.outcome_columns`: all variables, if none has
    several levels), their Monte-Carlo standard errors (0 where formulas tell), and from where to where.
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
        In the units of the source; by default the origin and the scale of its functions, in a linear network anywhere and one
        standard deviation. Levels may be named: from `at` (by default the first) to `by` (by default the next); numbers are
        their positions in `dbn.kinds`. A count changes by 1 unless said otherwise.
    history
        Rows before that time step. Without them, pairs begin in states that the process visits by itself.
    """
    horizon = whole(0).check("horizon", horizon)
    i = variable_index(source, dbn.variables, "source")
    begin, step = from_and_by(dbn, i, at, by)
    if dbn.is_linear:
        total = impulse_responses(dbn, horizon)[:, i] * step
        return Changes(total, np.zeros_like(total), begin, step)
    n = whole(2).check("n_paths", n_paths)
    low, high = (bound[i] for bound in ranges_seen(dbn))
    if not low <= begin <= high or not low <= begin + step <= high:
        warnings.warn(
            f"{dbn.variables[i]!r} from {begin:.4g} to {begin + step:.4g} is not within the range seen,"
            f" {low:.4g} to {high:.4g}; the effect rests on straight lines drawn further.",
            CurvesWarning,
            stacklevel=4,
        )
    rng = random_generator(random_state)
    if history is None:
        start = drawn_windows(dbn, n, dbn.n_lags, rng) if dbn.n_lags else np.zeros((1, 0, dbn.d))
    else:
        known_rows = rows_of(history, dbn.variables, "history", dbn.kinds)
        start = drawn_rows(dbn, last_state(dbn, known_rows), n, rng)
    shocks = dbn.steps.shocks("gaussian", (n, horizon + 1), rng)
    held = np.full((horizon + 1, dbn.d), np.nan)
    held[0, i] = begin
    before = indicators(dbn, paths_from(dbn, start, shocks, held))
    held[0, i] = begin + step
    change = indicators(dbn, paths_from(dbn, start, shocks, held)) - before
    return Changes(change.mean(axis=0), change.std(axis=0) / np.sqrt(n), begin, step)


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
    """From which value a variable is changed, and by how much; levels may be named. In a linear network the value does not
    matter (NaN, unless it is given), and a variable is raised by one standard deviation unless said otherwise.
    """
    if dbn.is_linear:
        begin, step = ((number() | nothing()).check(name, value) for name, value in (("at", at), ("by", by)))
        sd = standard_deviations(dbn)[i] if step is None else step
        return float(np.nan if begin is None else begin), float(sd)
    kind, name = dbn.kinds[i], dbn.variables[i]
    origin, scale = origin_and_scale(dbn, i) if not kind.levels else (0.0, 1.0)
    if kind.name == "count":
        origin, scale = float(round(origin)), 1.0
    place, to = kind.position(at), kind.position(by)
    begin = float(place) if place is not None else origin if at is None else _finite(at, "at", kind)
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


def _finite(value: object, argument: str, kind: Kind) -> float:
    if not is_number(value):
        choice = f", one of its levels {', '.join(kind.levels)}" if kind.levels else ""
        raise ParameterError(f"{argument} must be a finite number{choice} or None, got {value!r}.")
    return float(value)  # type: ignore[arg-type]


def effect_table(
    dbn: Network,
    source: str | int,
    target: str | int,
    horizon: int,
    *,
    at: float | str | None = None,
    by: float | str | None = None,
    n_paths: int = 2000,
    random_state: RandomState = None,
    history: Rows | None = None,
) -> pd.DataFrame:
    """Frame horizon, at, by, total, error, cumulative of setting the source to ``at + by`` instead of `at` for one time step
    (`expected_changes`); of a target with several levels one row for each `level`, whose probability changes.

    In a linear network the value does not matter, and `at` is there only if it was given. `by` is one standard deviation by
    default (`standard_deviations`), since a rise by 1 may be far beyond what a variable ever does.
    """
    i, j = variable_index(source, dbn.variables, "source"), variable_index(target, dbn.variables, "target")
    changes = expected_changes(
        dbn, i, horizon, at=at, by=by, n_paths=n_paths, random_state=random_state, history=history
    )
    here = columns_of(dbn, j)
    mean = changes.mean[:, here]
    levels = [outcome.level for outcome in outcome_columns(dbn)[here]]
    columns: dict[str, Any] = {"horizon": np.repeat(np.arange(len(mean)), len(levels))}
    if levels != [""]:
        columns["level"] = levels * len(mean)
    if not np.isnan(changes.at):
        columns["at"] = changes.at
    columns |= {"by": changes.by, "total": mean.ravel(), "error": changes.error[:, here].ravel()}
    return pd.DataFrame(columns | {"cumulative": np.cumsum(mean, axis=0).ravel()})


# Coefficients --------------------------------------------------------------------------------------------------------------
_ENDS = ["source", "source_level", "target", "target_level", "lag"]
_NUMBERS = ["coefficient", "error", "lower", "upper", "ratio", "scale"]


def coefficient_table(dbn: Network, level: float = 0.95) -> pd.DataFrame:
    """Frame source, source_level, target, target_level, lag, coefficient, error, lower, upper, ratio, scale of all straight
    effects.

    On the `scale` of the target (value, log value, log rate, log odds), per unit of a number, factor e of a positive number
    or of 1 + a count, step of an ordinal variable, or of `source_level` against the first level. `ratio` is
    ``exp(coefficient)``: an odds ratio, a rate ratio or a factor; NaN where the target is continuous. `error` and the bounds
    are NaN where it is not known how sure the numbers are.
    """
    names, reach, found = dbn.variables, normal_reach(level), []
    for j, name in enumerate(names):
        node = dbn.node(j)
        for (term, b), errors in zip(node.parts, node.errors, strict=True):
            if not term.is_straight:
                continue
            (i, lag), *_ = term.sources
            by_level = dbn.kinds[i].name in ("binary", "categorical")
            for (r, c), value in np.ndenumerate(b):
                with np.errstate(over="ignore"):
                    ratio = np.nan if node.kind.name == "continuous" else float(np.exp(value))
                of = dbn.kinds[i].levels[r + 1] if by_level else ""
                on = node.kind.levels[c + 1] if node.kind.name == "categorical" else ""
                error, b_rc = float(errors[r, c]), float(value)
                numbers = (b_rc, error, b_rc - reach * error, b_rc + reach * error, ratio)
                found.append((names[i], of, name, on, lag, *numbers, LINKS[node.kind.name]))
    return pd.DataFrame(found, columns=_ENDS + _NUMBERS)
