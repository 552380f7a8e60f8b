"""The distribution of one variable given its causes, for variables of any kind.

    eta = intercept + sum over parents of  code(x_parent) @ effects_parent

    continuous    normal with mean eta and variance `dispersion`
    positive      log x is normal with mean eta and variance `dispersion`
    count         Poisson with mean exp(eta), or negative binomial with variance  mean + dispersion mean^2  if it is above 0
    binary        P(1) = 1 / (1 + exp(-eta))
    ordinal       P(x <= k) = 1 / (1 + exp(-(intercept_k - slope))),   slope = sum of effects alone, k = 0 .. L-2
    categorical   P(k) proportional to exp(eta_k),   eta_0 = 0, k = 0 .. L-1

Codes are those of `feddbn.core.kinds.Kind.encode`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.errors import ParameterError
from feddbn.model.laws import Law, Levels, law_of

__all__ = ["Conditional"]


@dataclass(frozen=True, eq=False)
class Conditional:
    """How one variable depends on its causes.

    Methods take `codes` (n, w): the columns of its causes (`Kind.encode`), cause after cause.

    Attributes
    ----------
    kind
        Of the variable.
    parents
        (variable, lag) of each cause, lag 0 within the moment.
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
    def form(self) -> tuple[object, ...]:
        """What must be the same for two of them to be compared by their numbers."""
        return "conditional", self.kind, self.parents, len(self._covariance)

    @property
    def numbers(self) -> FloatArray:
        """All its numbers, one after the other."""
        return np.concatenate([self.estimates, [self.dispersion], self._covariance.ravel()])

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
        """The distribution in each of n rows (`feddbn.model.laws`)."""
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
        law = self.law(codes)
        if not isinstance(law, Levels):
            raise ParameterError(f"a {self.kind.name} variable has no levels; use mean(codes).")
        return law.probabilities

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
