"""Distributions of variables of any kind given their causes, and what one cause does on the natural scale of its target.

What the arrays W, A, intercept and noise_variances of a network hold where its variables have distributions of their own:

A weight is the coefficient on the scale of the link where cause and variable have one column each; else it is the Euclidean
norm of the matrix of effects, which has no sign. The intercept of L levels is 0 here (they have L-1), and the variance of
a variable that has no such parameter is 1.

A natural effect (`NaturalEffect`) is the mean over many rows of what is expected of the target if the source alone is set: of
its mean, of the probability of 1, of those of its levels. Intervals are those of the delta method.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import (
    betainc,
    betaln,
    gammaincinv,
    gammaln,
    log_expit,
    log_softmax,
    nbdtrik,
    ndtr,
    ndtri,
    pdtr,
    pdtrik,
)

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.kinds import Kind
from feddbn.errors import ParameterError
from feddbn.model.curves import normal_reach
from feddbn.settings import whole

__all__ = [
    "Conditional",
    "Law",
    "Levels",
    "NaturalEffect",
    "Normal",
    "Weights",
    "check_agreement",
    "checked_conditionals",
    "codes_of",
    "has_one_sign",
    "law_of",
    "link_scale",
    "meaning",
    "weights_of",
]

_HIGHEST = 1.0 - 2.0**-53
_LARGE = 1e7
# Above it a count is no longer an exact number.
_MOST = 1e15
_LOG_ROOT_2_PI = 0.5 * np.log(2 * np.pi)


class Law(Protocol):
    """What every distribution can be asked."""

    @property
    def mean(self) -> FloatArray:
        """(n,) expected values."""

    @property
    def variance(self) -> FloatArray:
        """(n,) variances."""

    def driven(self, z: FloatArray) -> FloatArray:
        """(n,) values that standard normal numbers stand for."""

    def log_density(self, x: FloatArray) -> FloatArray:
        """(n,) log density, or log probability, of values."""

    @property
    def is_certain(self) -> bool:
        """Whether there is no noise, and so no density: the value is what it is."""

    @property
    def probabilities(self) -> FloatArray | None:
        """(n, L) those of levels; None without levels."""

    def z(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        """(n,) what values stand for, standard normal if they are draws; those of counts and levels are partly drawn."""


class Normal:
    """Normal numbers with means (n,) and one variance."""

    probabilities = None

    def __init__(self, eta: FloatArray, dispersion: float) -> None:
        self.eta, self.sd = eta, float(np.sqrt(dispersion))

    @property
    def mean(self) -> FloatArray:
        """(n,) expected values."""
        return self.eta

    @property
    def variance(self) -> FloatArray:
        """(n,) variances."""
        return np.full(len(self.eta), self.sd**2)

    def driven(self, z: FloatArray) -> FloatArray:
        """(n,) values that standard normal numbers stand for."""
        return self.eta + self.sd * z

    def log_density(self, x: FloatArray) -> FloatArray:
        """(n,) log density of values."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(-_LOG_ROOT_2_PI - np.log(self.sd) - self.z(x) ** 2 / 2)

    @property
    def is_certain(self) -> bool:
        """Whether there is no noise."""
        return self.sd == 0

    def z(self, x: FloatArray, rng: np.random.Generator | None = None) -> FloatArray:
        """(n,) values in standard deviations from their means."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray((x - self.eta) / self.sd)


class _LogNormal:
    probabilities = None

    def __init__(self, eta: FloatArray, dispersion: float) -> None:
        self.log, self.dispersion = Normal(eta, dispersion), dispersion

    @property
    def mean(self) -> FloatArray:
        return np.asarray(np.exp(self.log.eta + self.dispersion / 2))

    @property
    def variance(self) -> FloatArray:
        return np.asarray(np.expm1(self.dispersion) * self.mean**2)

    def driven(self, z: FloatArray) -> FloatArray:
        return np.asarray(np.exp(self.log.driven(z)))

    def log_density(self, x: FloatArray) -> FloatArray:
        return self.log.log_density(np.log(x)) - np.log(x)

    @property
    def is_certain(self) -> bool:
        return self.log.is_certain

    def z(self, x: FloatArray, rng: np.random.Generator | None = None) -> FloatArray:
        return self.log.z(np.log(x))


class _Discrete:
    """Some single values have a probability: a value stands for a number drawn evenly from its part of the quantiles."""

    is_certain = False

    def below(self, x: FloatArray) -> FloatArray:
        """(n,) probability of less than the values."""
        raise NotImplementedError

    def upto(self, x: FloatArray) -> FloatArray:
        """(n,) probability of the values or less."""
        raise NotImplementedError

    def z(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        """(n,) numbers that are standard normal if the values are draws."""
        low, high = self.below(x), self.upto(x)
        u = low + rng.random(len(x)) * (high - low)
        return np.asarray(ndtri(np.clip(u, 1 - _HIGHEST, _HIGHEST)))


class _Count(_Discrete):
    probabilities = None

    def __init__(self, eta: FloatArray, dispersion: float) -> None:
        self.eta, self.dispersion = eta, dispersion
        self.mean: FloatArray = np.exp(eta)

    @property
    def variance(self) -> FloatArray:
        return np.asarray(self.mean + self.dispersion * self.mean**2)

    def driven(self, z: FloatArray) -> FloatArray:
        q, is_far = np.minimum(ndtr(z), _HIGHEST), ~(self.mean < _MOST)
        if is_far.any():
            return np.where(is_far, np.inf, 0.0)
        if (self.mean > _LARGE).any():
            is_large = self.mean > _LARGE
            small = _Count(np.where(is_large, 0.0, self.eta), self.dispersion).driven(z)
            return np.where(is_large, self._large(q), small)
        a = self.dispersion
        found = nbdtrik(q, 1 / a, self._share) if a else pdtrik(q, self.mean)
        # Without a whole number at which the distribution function is exactly q, the next one.
        up = np.ceil(np.where(np.isfinite(found), found, 0.0))
        down = np.maximum(up - 1, 0.0)
        return np.where(self.upto(down) >= q, down, np.where(self.upto(up) >= q, up, up + 1))

    def _large(self, q: FloatArray) -> FloatArray:
        """The same for large means, where gaps between numbers hardly matter: a gamma number of this mean and variance."""
        spread = 1 + self.dispersion * self.mean
        return np.rint(spread * gammaincinv(self.mean / spread, q))

    def log_density(self, x: FloatArray) -> FloatArray:
        a = self.dispersion
        if not a:
            return np.asarray(x * self.eta - self.mean - gammaln(x + 1))
        some = np.maximum(x, 1.0)
        # log of Gamma(x + r) / (Gamma(r) x!), without differences of large numbers; 0 at x = 0.
        ways = np.where(x > 0, -betaln(some, 1 / a) - np.log(some), 0.0)
        return np.asarray(ways - np.log1p(a * self.mean) * (1 / a + x) + x * (self.eta + np.log(a)))

    def below(self, x: FloatArray) -> FloatArray:
        return np.where(x > 0, self.upto(np.maximum(x - 1, 0.0)), 0.0)

    def upto(self, x: FloatArray) -> FloatArray:
        if not self.dispersion:
            return np.asarray(pdtr(x, self.mean))
        return np.asarray(betainc(1 / self.dispersion, x + 1, self._share))

    @property
    def _share(self) -> FloatArray:
        return np.asarray(1 / (1 + self.dispersion * self.mean))


class Levels(_Discrete):
    """Levels 0 to L-1 with probabilities (n, L)."""

    def __init__(self, log_probabilities: FloatArray) -> None:
        self.log_probabilities = log_probabilities
        self.probabilities: FloatArray = np.exp(log_probabilities)

    @property
    def mean(self) -> FloatArray:
        """(n,) mean position."""
        return np.asarray(self.probabilities @ np.arange(self.probabilities.shape[1]))

    @property
    def variance(self) -> FloatArray:
        """(n,) variance of the position."""
        return np.asarray(self.probabilities @ np.arange(self.probabilities.shape[1]) ** 2 - self.mean**2)

    def driven(self, z: FloatArray) -> FloatArray:
        """(n,) positions that standard normal numbers stand for."""
        steps = np.cumsum(self.probabilities, axis=1)[:, :-1]
        return np.asarray((ndtr(z)[:, None] > steps).sum(axis=1), dtype=np.float64)

    def log_density(self, x: FloatArray) -> FloatArray:
        """(n,) log of the probability of the levels at positions x."""
        return np.asarray(np.take_along_axis(self.log_probabilities, _columns(x), axis=1)[:, 0])

    def below(self, x: FloatArray) -> FloatArray:
        """(n,) probability of a lower position."""
        return self.upto(x) - np.exp(self.log_density(x))

    def upto(self, x: FloatArray) -> FloatArray:
        """(n,) probability of this position or a lower one."""
        return np.asarray(
            np.take_along_axis(np.cumsum(self.probabilities, axis=1), _columns(x), axis=1)[:, 0]
        )


def _columns(x: FloatArray) -> np.ndarray:
    return np.asarray(x, dtype=np.intp)[:, None]


def law_of(kind: str, intercept: FloatArray, slopes: FloatArray, dispersion: float) -> Law:
    """The law of n rows from what causes add, `slopes` (n, k), and the intercept of a kind."""
    if kind == "ordinal":
        return Levels(_ordinal(intercept - slopes))
    eta = intercept + slopes
    if kind == "categorical":
        return Levels(np.asarray(log_softmax(np.concatenate([np.zeros((len(eta), 1)), eta], axis=1), axis=1)))
    if kind == "binary":
        return Levels(np.asarray(np.concatenate([log_expit(-eta), log_expit(eta)], axis=1)))
    laws: dict[str, type[Normal | _LogNormal | _Count]] = {
        "continuous": Normal,
        "positive": _LogNormal,
        "count": _Count,
    }
    return laws[kind](eta[:, 0], dispersion)


def _ordinal(thresholds: FloatArray) -> FloatArray:
    """(n, L) log probabilities from (n, L-1) log odds of "this level or lower", ascending."""
    upto, above = log_expit(thresholds), log_expit(-thresholds)
    # P(k) = F(b) - F(a) = F(b) (1 - F(a)) (1 - exp(a - b)) for logistic F.
    between = upto[:, 1:] + above[:, :-1] + np.log(-np.expm1(thresholds[:, :-1] - thresholds[:, 1:]))
    return np.concatenate([upto[:, :1], between, above[:, -1:]], axis=1)


@dataclass(frozen=True, eq=False)
class Conditional:
    """How one variable depends on its causes.

    Methods take `codes` (n, w): the columns of its causes (`Kind.encode`), cause after cause.

    Attributes
    ----------
    kind
        Of the variable.
    parents
        (variable, lag) of each cause, lag 0 within the time step.
    intercept
        (m,) one number; for L levels L-1 thresholds (ordinal, ascending) or log odds against level 0 (categorical).
    effects
        For each cause a (width of its kind, k) matrix: k = 1, or L-1 for a categorical variable.
    dispersion
        Variance (continuous, positive), overdispersion (count), 1 otherwise.
    covariance
        Of the estimates: intercept first, then the effects of cause after cause, row by row; None or (0, 0) if unknown.
    """

    kind: Kind
    parents: tuple[tuple[int, int], ...]
    intercept: FloatArray
    effects: tuple[FloatArray, ...]
    dispersion: float = 1.0
    covariance: FloatArray | None = None

    def __post_init__(self) -> None:
        intercept = np.array(self.intercept, dtype=np.float64, ndmin=1)
        if intercept.shape != (self.n_intercepts,):
            raise ParameterError(
                f"intercept of a {self.kind.name} variable must be {self.n_intercepts} numbers, got {intercept.shape}."
            )
        effects = tuple(np.array(effect, dtype=np.float64) for effect in self.effects)
        if len(effects) != len(self.parents) or any(
            e.ndim != 2 or e.shape[1] != self.n_slopes for e in effects
        ):
            raise ParameterError(
                f"effects of a {self.kind.name} variable must be one matrix with {self.n_slopes} columns for each cause."
            )
        n_numbers = len(intercept) + sum(effect.size for effect in effects)
        covariance = np.array([] if self.covariance is None else self.covariance, dtype=np.float64)
        covariance = covariance.reshape(0, 0) if covariance.size == 0 else covariance
        if covariance.size and covariance.shape != (n_numbers, n_numbers):
            raise ParameterError(
                f"covariance of {n_numbers} numbers must have shape ({n_numbers}, {n_numbers}), got {covariance.shape}."
            )
        if not all(np.isfinite(array).all() for array in (intercept, covariance, *effects)):
            raise ParameterError(
                "a conditional distribution needs finite numbers; NaN or infinity was given."
            )
        if self.kind.name == "ordinal" and np.any(np.diff(intercept) <= 0):
            raise ParameterError(f"intercept of an ordinal variable must ascend, got {intercept.tolist()}.")
        dispersion = float(self.dispersion)
        if not (np.isfinite(dispersion) and dispersion >= 0):
            raise ParameterError(f"dispersion must be a number of at least 0, got {self.dispersion!r}.")
        parents = tuple(_place(parent) for parent in self.parents)
        if len(set(parents)) < len(parents):
            raise ParameterError(f"parents must name every cause once, got {list(parents)}.")
        for array in (intercept, covariance, *effects):
            array.setflags(write=False)
        for name, value in (
            ("parents", parents),
            ("intercept", intercept),
            ("effects", effects),
            ("dispersion", dispersion),
            ("covariance", covariance),
        ):
            object.__setattr__(self, name, value)

    @property
    def n_intercepts(self) -> int:
        """How many numbers its intercept has."""
        return self.kind.n_levels - 1 if self.kind.name in ("ordinal", "categorical") else 1

    @property
    def n_slopes(self) -> int:
        """How many linear predictors a cause moves."""
        return self.kind.n_levels - 1 if self.kind.name == "categorical" else 1

    @property
    def slopes(self) -> FloatArray:
        """(w, k) the effects of all causes, one below the other."""
        return np.concatenate([np.zeros((0, self.n_slopes)), *self.effects])

    @property
    def estimates(self) -> FloatArray:
        """Intercept and effects, in the order of `covariance`."""
        return np.concatenate([self.intercept, *(effect.ravel() for effect in self.effects)])

    def with_estimates(self, numbers: FloatArray) -> Conditional:
        """The same with other numbers for intercept and effects."""
        ends = np.cumsum([self.n_intercepts, *(effect.size for effect in self.effects)])
        intercept, *effects = np.split(np.asarray(numbers, dtype=np.float64), ends[:-1])
        shaped = tuple(new.reshape(old.shape) for new, old in zip(effects, self.effects, strict=True))
        return replace(self, intercept=intercept, effects=shaped)

    @property
    def has_covariance(self) -> bool:
        """Whether it is known how sure the numbers are."""
        return len(self._covariance) > 0

    @property
    def _covariance(self) -> FloatArray:
        return np.zeros((0, 0)) if self.covariance is None else self.covariance

    def law(self, codes: FloatArray) -> Law:
        """The distribution in each of n rows (`feddbn.model.conditionals`)."""
        x = np.asarray(codes, dtype=np.float64)
        slopes = self.slopes
        if x.ndim != 2 or x.shape[1] != len(slopes):
            raise ParameterError(
                f"codes must have {len(slopes)} columns, those of the causes, got shape {x.shape}."
            )
        return law_of(self.kind.name, self.intercept, x @ slopes, self.dispersion)

    def mean(self, codes: FloatArray) -> FloatArray:
        """(n,) expected values: P(1) of a binary variable, the mean position of an ordinal one."""
        if self.kind.name == "categorical":
            raise ParameterError("a categorical variable has no mean; use probabilities(codes).")
        return self.law(codes).mean

    def variance(self, codes: FloatArray) -> FloatArray:
        """(n,) variances of the values."""
        if self.kind.name == "categorical":
            raise ParameterError("a categorical variable has no variance; use probabilities(codes).")
        return self.law(codes).variance

    def probabilities(self, codes: FloatArray) -> FloatArray:
        """(n, L) probabilities of the levels; (n, 2) of a binary variable."""
        found = self.law(codes).probabilities
        if found is None:
            raise ParameterError(f"a {self.kind.name} variable has no levels; use mean(codes).")
        return found

    def sample(self, codes: FloatArray, rng: np.random.Generator) -> FloatArray:
        """(n,) values, one drawn for each row."""
        return self.law(codes).driven(rng.standard_normal(len(codes)))

    def log_density(self, values: FloatArray, codes: FloatArray) -> FloatArray:
        """(n,) log density of values (n,); of levels and counts the log of their probability."""
        x = np.asarray(values, dtype=np.float64)
        misfits = self.kind.misfits(x)
        if len(misfits) or np.isnan(x).any():
            what = f"{misfits[0]:g}" if len(misfits) else "an empty cell"
            raise ParameterError(f"values has {what}, which no {self.kind.name} variable can have.")
        return self.law(codes).log_density(x)


def _place(parent: tuple[int, int]) -> tuple[int, int]:
    try:
        variable, lag = (int(value) for value in parent)
        is_whole = all(
            value == given and value >= 0 for value, given in zip((variable, lag), parent, strict=True)
        )
    except (TypeError, ValueError):
        is_whole = False
    if not is_whole:
        raise ParameterError(
            f"parents must hold pairs (position of a variable, lag) of whole numbers from 0 on, got {parent!r}."
        )
    return variable, lag


def codes_of(nodes: Sequence[Conditional], rows: FloatArray, target: int) -> FloatArray:
    """(n, w) the columns of the causes of one variable in rows with their past (n, (p+1) d)."""
    columns = [nodes[i].kind.encode(rows[:, lag * len(nodes) + i]) for i, lag in nodes[target].parents]
    return np.concatenate([np.zeros((len(rows), 0)), *columns], axis=1)


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


_STEP = 1e-5
_RARE = (0.01, 0.99)


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
            low, high = np.quantile(self.values, _RARE)
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

    def _read(self, values: ArrayLike) -> FloatArray:
        found = []
        for value in np.atleast_1d(np.asarray(values, dtype=object)):
            position = self.cause.position(value)
            try:
                found.append(float(value if position is None else position))
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
        if law.probabilities is None:
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


_WITH_VARIANCE = ("continuous", "positive")


class Weights(NamedTuple):
    """The arrays of a network."""

    W: FloatArray
    A: FloatArray
    intercept: FloatArray
    noise_variances: FloatArray


def weights_of(conditionals: Sequence[Conditional], n_lags: int) -> Weights:
    """The arrays that stand for distributions."""
    d = len(conditionals)
    stack, intercept, variances = np.zeros((n_lags + 1, d, d)), np.zeros(d), np.ones(d)
    for j, node in enumerate(conditionals):
        for (i, lag), effect in zip(node.parents, node.effects, strict=True):
            stack[lag, i, j] = effect[0, 0] if effect.size == 1 else np.sqrt((effect**2).sum())
        if node.n_intercepts == 1:
            intercept[j] = node.intercept[0]
        if node.kind.name in _WITH_VARIANCE:
            variances[j] = node.dispersion
    return Weights(stack[0], stack[1:], intercept, variances)


def has_one_sign(conditionals: Sequence[Conditional], n_lags: int) -> BoolArray:
    """(p+1, d, d) whether an effect goes one way: it is one coefficient."""
    d = len(conditionals)
    found = np.ones((n_lags + 1, d, d), dtype=bool)
    for j, node in enumerate(conditionals):
        for (i, lag), effect in zip(node.parents, node.effects, strict=True):
            found[lag, i, j] = effect.size == 1
    return found


def checked_conditionals(given: Iterable[Conditional], d: int, n_lags: int) -> tuple[Conditional, ...]:
    """The distributions, one for each of d variables or none; ParameterError if they do not belong together."""
    nodes = tuple(given)
    for node in nodes:
        if not isinstance(node, Conditional):
            raise ParameterError(
                f"conditionals must hold objects of feddbn.model.conditionals.Conditional, got {node!r}."
            )
    if nodes and len(nodes) != d:
        raise ParameterError(f"conditionals must be {d}, one for each variable, or none, got {len(nodes)}.")
    for j, node in enumerate(nodes):
        for (i, lag), effect in zip(node.parents, node.effects, strict=True):
            where = f"conditionals[{j}] has the cause {i} at lag {lag}"
            if i >= d or lag > n_lags:
                raise ParameterError(f"{where}, but there are {d} variables and a longest lag of {n_lags}.")
            if lag == 0 and i == j:
                raise ParameterError(f"{where}, which is the variable itself; it needs a lag of at least 1.")
            if len(effect) != nodes[i].kind.width:
                raise ParameterError(
                    f"{where} with {len(effect)} rows of effects, but a {nodes[i].kind.name} cause has"
                    f" {nodes[i].kind.width} columns."
                )
    return nodes


def check_agreement(found: Weights, given: Weights) -> None:
    """Refuse arrays that are not those of the distributions."""
    for name, ours, theirs in zip(Weights._fields, found, given, strict=True):
        if not np.allclose(ours, theirs, rtol=1e-9, atol=1e-12):
            raise ParameterError(
                f"{name} is not what conditionals say; make the network by DBN.from_conditionals(conditionals, variables)."
            )
