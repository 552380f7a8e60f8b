"""Models of nodes given their parents, on the rows of a coded design, and what they come to in sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.designs.design import Design
from feddbn.core.glm.families import RowTerms, n_parameters, row_terms
from feddbn.core.kinds import Kind
from feddbn.core.statistics.moments import symmetric, upper_triangle

__all__ = ["ModelSums", "NodeModel", "columns_of", "model_rows", "values_of"]


@dataclass(frozen=True)
class NodeModel:
    """One node given its parents.

    Attributes
    ----------
    node
        Position of the variable.
    parents
        Rows of the stack ``[W; A_1; ...]``, ascending.
    family
        See `feddbn.core.glm.families`.
    """

    node: int
    parents: tuple[int, ...]
    family: str

    def n_parameters(self, design: Design) -> int:
        """How many numbers its theta has."""
        kind = design.codings[self.node].kind
        return n_parameters(self.family, len(columns_of(design, self.parents)), kind.n_levels)


def columns_of(design: Design, parents: Sequence[int]) -> IntArray:
    """Columns of the parents, one after the other."""
    return np.array([c for m in parents for c in design.groups[m].columns], dtype=np.int64)


def values_of(kind: Kind, columns: FloatArray) -> FloatArray:
    """(n,) the values that stand behind the columns (n, width) of a variable with a family of its own."""
    if kind.name == "categorical":
        return np.asarray(columns @ np.arange(1.0, kind.n_levels))
    return np.rint(np.expm1(columns[:, 0])) if kind.name == "count" else columns[:, 0]


def model_rows(
    model: NodeModel, design: Design, rows: FloatArray, standardised: FloatArray, theta: FloatArray
) -> RowTerms:
    """The terms of some rows of the design; theta is for standardised columns of parents."""
    kind = design.codings[model.node].kind
    y = values_of(kind, rows[:, list(design.groups[model.node].columns)])
    X = standardised[:, columns_of(design, model.parents)]
    return row_terms(model.family, y, X, theta, kind.n_levels)


@dataclass
class ModelSums:
    """Sums over rows for one model: they add up over chunks and over sites.

    Attributes
    ----------
    log_likelihood, gradient, information
        As in `RowTerms`.
    dispersion
        The same, or empty where nobody asks.
    """

    log_likelihood: float
    gradient: FloatArray
    information: FloatArray
    dispersion: FloatArray

    @classmethod
    def empty(cls, m: int, is_poisson: bool) -> ModelSums:
        """Sums over no rows."""
        return cls(0.0, np.zeros(m), np.zeros((m, m)), np.zeros(2 * is_poisson))

    def add(self, terms: RowTerms) -> None:
        """Add the terms of some rows."""
        self.log_likelihood += terms.log_likelihood
        self.gradient = self.gradient + terms.gradient
        self.information = self.information + terms.information
        self.dispersion = self.dispersion + np.array(terms.dispersion)[: len(self.dispersion)]

    def to_sums(self) -> FloatArray:
        """One vector that adds up."""
        return np.concatenate(
            [[self.log_likelihood], self.gradient, upper_triangle(self.information), self.dispersion]
        )

    @staticmethod
    def length(m: int, is_poisson: bool) -> int:
        """Length of `to_sums` for m parameters."""
        return 1 + m + m * (m + 1) // 2 + 2 * is_poisson

    @classmethod
    def from_sums(cls, vector: FloatArray, m: int, is_poisson: bool) -> ModelSums:
        """Inverse of `to_sums`."""
        if len(vector) != cls.length(m, is_poisson):
            raise ValueError(f"{len(vector)} sums do not belong to {m} parameters")
        triangle = m * (m + 1) // 2
        return cls(
            float(vector[0]),
            vector[1 : 1 + m],
            symmetric(vector[1 + m : 1 + m + triangle], m),
            vector[1 + m + triangle :],
        )
