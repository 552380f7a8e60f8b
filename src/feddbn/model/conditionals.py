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

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.errors import ParameterError

__all__ = ["Conditional"]


@dataclass(frozen=True, eq=False)
class Conditional:
    """How one variable depends on its causes.

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
        Of the estimates: intercept first, then the effects of cause after cause, row by row; (0, 0) if unknown.
    """

    kind: Kind
    parents: tuple[tuple[int, int], ...]
    intercept: FloatArray
    effects: tuple[FloatArray, ...]
    dispersion: float = 1.0
    covariance: FloatArray | None = None

    def __post_init__(self) -> None:
        intercept = np.atleast_1d(np.asarray(self.intercept, dtype=np.float64))
        if intercept.shape != (self.n_intercepts,):
            raise ParameterError(
                f"intercept of a {self.kind.name} variable must be {self.n_intercepts} numbers, got {intercept.shape}."
            )
        effects = tuple(np.asarray(effect, dtype=np.float64) for effect in self.effects)
        if len(effects) != len(self.parents) or any(
            e.ndim != 2 or e.shape[1] != self.n_slopes for e in effects
        ):
            raise ParameterError(
                f"effects of a {self.kind.name} variable must be one matrix with {self.n_slopes} columns for each cause."
            )
        object.__setattr__(self, "intercept", intercept)
        object.__setattr__(self, "effects", effects)

    @property
    def n_intercepts(self) -> int:
        """How many numbers its intercept has."""
        return self.kind.n_levels - 1 if self.kind.name in ("ordinal", "categorical") else 1

    @property
    def n_slopes(self) -> int:
        """How many linear predictors a cause moves."""
        return self.kind.n_levels - 1 if self.kind.name == "categorical" else 1
