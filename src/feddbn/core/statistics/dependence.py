"""Which columns follow exactly from others, by their sums of squares and products alone.

Theory of operation: columns are taken one after another. A column that those before leave next to nothing of
(`COLLINEAR` of its variance) is dependent; it is left out, so that the ones after are compared with independent
columns only. On clean data one Cholesky factor per question shows that there is nothing to look for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.scaling import correlations

__all__ = ["COLLINEAR", "Dependence", "dependences", "independent", "is_regular"]

COLLINEAR = 1e-9
"""A column of which the others leave less than this share of its variance carries nothing but rounding."""
_SHOWN = 4
_ROUNDED = 1e-3


def independent(R: FloatArray) -> list[int]:
    """The columns of a correlation matrix that do not follow from those before them."""
    rest, kept = R.copy(), []
    for m in range(len(R)):
        pivot = float(rest[m, m])
        if pivot > COLLINEAR:
            kept.append(m)
            row = rest[m].copy()
            rest -= np.outer(row, row / pivot)
    return kept


@dataclass(frozen=True)
class Dependence:
    """A variable that follows from other columns.

    Attributes
    ----------
    column
        Position of the variable.
    others
        The columns it follows from, largest part first.
    weights
        Their weights in the units of the data.
    """

    column: int
    others: tuple[int, ...]
    weights: tuple[float, ...]

    def sentence(self, variables: Sequence[str]) -> str:
        """Say so, with the cure."""
        d = len(variables)
        shown = [f"{variables[m % d]}{f' at lag {m // d}' if m >= d else ''}" for m in self.others[:_SHOWN]]
        more = len(self.others) - len(shown)
        names = ", ".join(shown) + (f" and {more} more" if more else "")
        ones = max(abs(weight - 1) for weight in self.weights) < _ROUNDED
        if len(self.others) == 1:
            what = "a copy of" if ones else "a multiple of"
        else:
            what = "the sum of" if ones else "a linear combination of"
        cure = "leave one of them out" if self.others[0] < d else f"leave {variables[self.column]} out"
        return (
            f"{variables[self.column]} is {what} {names} (up to a constant and rounding), so edges among "
            f"them cannot be told apart: {cure} with variables=."
        )


def dependences(scatter: FloatArray, n: float, d: int, inputs: Sequence[int] = ()) -> list[Dependence]:
    """The variables (the first d columns) that follow from others of their moment or, if not, also from lags.

    Too few rows make all columns dependent; nothing is said then. `inputs` may be any signal, also one that goes on as it
    began: of them only is said which follow from other inputs of the same moment.
    """
    if inputs:
        return _with_inputs(scatter, n, d, inputs)
    R, root = correlations(scatter)
    q = len(R)
    found: dict[int, Dependence] = {}
    lags_first = np.r_[d:q, :d]
    for columns in (np.arange(d), lags_first) if q > d else (np.arange(d),):
        if n - 1 <= len(columns) or is_regular(R[np.ix_(columns, columns)]):
            continue
        known = [m for m in columns.tolist() if m not in found]
        kept = [known[k] for k in independent(R[np.ix_(known, known)])]
        for m in sorted(set(range(d)) & set(known) - set(kept)):
            before = [k for k in kept if known.index(k) < known.index(m)]
            dependence = _explained(R, root, m, before)
            if dependence is not None:
                found[m] = dependence
    return [found[m] for m in sorted(found)]


def _with_inputs(scatter: FloatArray, n: float, d: int, inputs: Sequence[int]) -> list[Dependence]:
    """The same with inputs taken first, so that what follows from them is said to, and not the other way round."""
    first = [*inputs, *(j for j in range(d) if j not in inputs)]
    order = [lag * d + j for lag in range(len(scatter) // d) for j in first]
    found = []
    for one in dependences(scatter[np.ix_(order, order)], n, d):
        others = tuple(order[m] for m in one.others)
        if order[one.column] not in inputs or set(others) <= set(inputs):
            found.append(Dependence(order[one.column], others, one.weights))
    return sorted(found, key=lambda one: one.column)


def is_regular(R: FloatArray) -> bool:
    """Whether no column of a correlation matrix follows from those before it."""
    factor, failed = dpotrf(R, lower=1)
    return not failed and float(np.diag(factor).min()) ** 2 > COLLINEAR


def _explained(R: FloatArray, root: FloatArray, column: int, others: list[int]) -> Dependence | None:
    """The column as a combination of others; None if it is none, as noise on the sums can make it look."""
    beta = np.linalg.lstsq(R[np.ix_(others, others)], R[others, column], rcond=None)[0]
    left = 1.0 - 2.0 * float(beta @ R[others, column]) + float(beta @ R[np.ix_(others, others)] @ beta)
    if abs(left) > 10 * COLLINEAR:
        return None
    # What a weight of this size contributes is rounding.
    parts = [k for k in np.argsort(-np.abs(beta), kind="stable") if abs(beta[k]) > 1e-4]
    chosen = [others[k] for k in parts]
    weights = [float(beta[k] * root[column] / root[others[k]]) for k in parts]
    return Dependence(column, tuple(int(m) for m in chosen), tuple(weights)) if parts else None
