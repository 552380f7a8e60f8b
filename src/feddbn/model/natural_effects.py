"""What an edge does on the natural scale of its target: to its mean, to the probability of 1, to those of its levels.

All other causes are as they usually are: an effect is the mean over many rows of what is expected of the target if the
source alone is set. Intervals are those of the delta method, from the covariance of the estimates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.errors import ParameterError
from feddbn.model.conditionals import Conditional, Levels, codes_of
from feddbn.model.dynamics import usual_lagged
from feddbn.model.inputs import Rows, level_position, normal_reach
from feddbn.model.network import Network, edge_at
from feddbn.model.residuals import rows_with_past
from feddbn.settings import whole

__all__ = ["NaturalEffect", "average_effects", "coefficient_table", "link_scale", "meaning", "natural_effect"]

_COLUMNS = (
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
_SCALES = {
    "continuous": "value",
    "positive": "log value",
    "count": "log rate",
    "binary": "log odds",
    "ordinal": "log odds",
    "categorical": "log odds",
}


def link_scale(kind: Kind) -> str:
    """On which scale causes add up: value, log value, log rate or log odds."""
    return _SCALES[kind.name]


def meaning(source: str, cause: Kind, row: int, target: str, kind: Kind, column: int) -> str:
    """What a coefficient says, in words: row and column are its place in the matrix of effects."""
    per = {
        "continuous": f"per unit of {source}",
        "positive": f"per factor e of {source}",
        "count": f"per factor e of 1 + {source}",
        "ordinal": f"per level of {source}",
    }.get(cause.name)
    if per is None:
        per = f"for {source}={cause.levels[row + 1]} against {cause.levels[0]}"
    what = {
        "continuous": f"change of {target}",
        "positive": f"log of the factor on {target}",
        "count": f"log of the rate ratio of {target}",
        "binary": f"log odds ratio of {target}={kind.levels[-1] if kind.levels else ''}",
        "ordinal": f"log odds ratio of a higher {target}",
    }.get(kind.name)
    if what is None:
        what = f"log odds ratio of {target}={kind.levels[column + 1]} against {kind.levels[0]}"
    return f"{what} {per}"


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
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def _require_kinds(dbn: Network, what: str, instead: str) -> None:
    if not dbn.conditionals:
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


_STEP = 1e-5
_REACH = (0.01, 0.99)


@dataclass(frozen=True, eq=False)
class NaturalEffect:
    """The effect of one edge on the scale of its target.

    Attributes
    ----------
    source, target, lag
        Which edge.
    cause, kind
        What the values of source and target are.
    node
        The distribution of the target.
    values
        (n,) values of the source in the rows that are averaged over.
    codes
        (n, w) columns of all causes in these rows.
    columns
        Which of them are those of the source.
    """

    source: str
    target: str
    lag: int
    cause: Kind
    kind: Kind
    node: Conditional
    values: FloatArray
    codes: FloatArray
    columns: slice

    @property
    def outcomes(self) -> tuple[str, ...]:
        """What is told: "mean", "P(level)" of the second level of a binary target, or of every level."""
        if self.kind.name == "binary":
            return (f"P({self.kind.levels[1]})",)
        return tuple(f"P({level})" for level in self.kind.levels) or ("mean",)

    def at(self, values: ArrayLike) -> FloatArray:
        """(m, k) what is expected of the target if the source has these m values (of levels: names, or positions)."""
        return np.stack([self._mean(self.node, self._set(x)) for x in self._read(values)])

    def band(self, values: ArrayLike, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """(m, k) bounds of that, pointwise; NaN if it is not known how sure the numbers are."""
        given = self._read(values)
        reach = normal_reach(level)
        middle = self.at(given)
        error = np.stack([self._error(self._set(x)) for x in given])
        return middle - reach * error, middle + reach * error

    def change(
        self, before: float | str, after: float | str, level: float = 0.95
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(k,) change if the source is `after` instead of `before`, and its bounds."""
        one, other = self._read([before])[0], self._read([after])[0]
        return self._change(self._set(one), self._set(other), level)

    def change_by(self, by: float, level: float = 0.95) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(k,) mean change if the source is larger by `by` in every row than it is there, and its bounds."""
        if self.cause.levels:
            raise ParameterError(f"{self.source!r} has levels; use change(before, after) with two of them.")
        return self._change(self.codes, self._with(self.cause.encode(self.values + by)), level)

    def to_frame(self, n: int = 41, level: float = 0.95) -> pd.DataFrame:
        """Frame value, outcome, expected, lower, upper: every level, or n values from rare to rare of the source."""
        n = whole(2).check("n", n)
        if self.cause.levels:
            values: FloatArray = np.arange(self.cause.n_levels, dtype=np.float64)
        else:
            low, high = np.quantile(self.values, _REACH)
            values = np.linspace(float(low), float(high), n)
            values = np.unique(np.round(values)) if self.cause.name == "count" else values
        middle, (lower, upper) = self.at(values), self.band(values, level)
        names = [self.cause.levels[int(x)] for x in values] if self.cause.levels else values
        k = len(self.outcomes)
        return pd.DataFrame(
            {
                "value": np.repeat(np.asarray(names, dtype=object if self.cause.levels else np.float64), k),
                "outcome": list(self.outcomes) * len(values),
                "expected": middle.ravel(),
                "lower": lower.ravel(),
                "upper": upper.ravel(),
            }
        )

    def table(self, n: int = 41, level: float = 0.95) -> pd.DataFrame:
        """The older name of `to_frame`."""
        return self.to_frame(n, level)

    def _read(self, values: ArrayLike) -> FloatArray:
        found = []
        for value in np.atleast_1d(np.asarray(values, dtype=object)):
            position = level_position(value, self.cause)
            try:
                found.append(float(value) if position is None else position)
            except (TypeError, ValueError):
                raise ParameterError(f"values has {value!r}, which {self.source!r} cannot have.") from None
        misfits = self.cause.misfits(np.array(found))
        if len(misfits) or not np.isfinite(found).all():
            raise ParameterError(f"values must be those of a {self.cause.name} variable, got {values!r}.")
        return np.array(found)

    def _set(self, value: float) -> FloatArray:
        return self._with(self.cause.encode(np.full(len(self.codes), value)))

    def _with(self, columns: FloatArray) -> FloatArray:
        codes = self.codes.copy()
        codes[:, self.columns] = columns
        return codes

    def _mean(self, node: Conditional, codes: FloatArray) -> FloatArray:
        law = node.law(codes)
        if not isinstance(law, Levels):
            return np.array([law.mean.mean()])
        shares = law.probabilities.mean(axis=0)
        return shares[1:] if self.kind.name == "binary" else np.asarray(shares)

    def _change(
        self, one: FloatArray, other: FloatArray, level: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        reach = normal_reach(level)
        middle = self._mean(self.node, other) - self._mean(self.node, one)
        error = self._error(other, one)
        return middle, middle - reach * error, middle + reach * error

    def _error(self, codes: FloatArray, less: FloatArray | None = None) -> FloatArray:
        """(k,) standard error of what is expected, or of its difference to other codes."""
        node = self.node
        if not node.has_covariance or node.covariance is None:
            return np.full(len(self.outcomes), np.nan)
        theta = node.estimates
        gradient = np.empty((len(theta), len(self.outcomes)))
        for k in range(len(theta)):
            moved = []
            for sign in (1.0, -1.0):
                near = theta.copy()
                near[k] += sign * _STEP
                there = node.with_estimates(near)
                value = self._mean(there, codes)
                moved.append(value if less is None else value - self._mean(there, less))
            gradient[k] = (moved[0] - moved[1]) / (2 * _STEP)
        variance = np.einsum("ik,ij,jk->k", gradient, node.covariance, gradient)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


def natural_effect(
    dbn: Network, source: str | int, target: str | int, lag: int, over: Rows | None = None
) -> NaturalEffect:
    """Return the effect of an edge, averaged over rows that the network visits by itself, or over rows given."""
    i, j, lag = edge_at(dbn, source, target, lag)
    node = dbn.conditionals[j]
    rows = usual_lagged(dbn) if over is None else rows_with_past(dbn, over)
    widths = [len(effect) for effect in node.effects]
    place = node.parents.index((i, lag))
    begin = sum(widths[:place])
    return NaturalEffect(
        dbn.variables[i],
        dbn.variables[j],
        lag,
        dbn.kinds[i],
        node.kind,
        node,
        rows[:, lag * dbn.d + i],
        codes_of(dbn.conditionals, rows, j),
        slice(begin, begin + widths[place]),
    )


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
    if by not in ("unit", "sd"):
        raise ParameterError(f"by must be 'unit' or 'sd', got {by!r}.")
    parts = []
    for j, node in enumerate(dbn.conditionals):
        for i, lag in node.parents:
            effect = natural_effect(dbn, i, j, lag, over)
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
