"""What is one recording's own: its mean, a trend, cycles. A network that was learned off them says how rows move about them;
`DBN.forecast(history, steps, trend=fit_trend(...))` undoes this preparation.

Rules of the file
-----------------
- A cycle goes on for ever. A line goes on at most as far as the recording is long, and stays at that level then.
  Polynomials of a higher degree do not go on: outside the rows they were fitted to they mean nothing, so their last level
  is held. `Trend.remarks` says what is held back in this way.
- A variable with too few cells for a trend has its mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.design import Nuisance
from feddbn.data.tables import plain_frame
from feddbn.errors import DataError, ParameterError
from feddbn.model.network import Rows, rows_of

__all__ = ["Trend", "fit_trend"]

_CELLS_PER_PARAMETER = 3


@dataclass(frozen=True, eq=False)
class Trend:
    """A fitted mean, polynomial in time and cycles.

    Attributes
    ----------
    variables
        Names, in the order of the columns.
    nuisance
        Which polynomial and cycles it has.
    span
        Times of the first and the last row it was fitted to, in rows.
    coefficients
        (1 + k, d) weights of the constant and of the k columns of the nuisance.
    """

    variables: tuple[str, ...]
    nuisance: Nuisance
    span: tuple[float, float]
    coefficients: FloatArray

    def at(self, times: FloatArray) -> FloatArray:
        """(n, d) its values at these times, in rows on the clock of the fit; beyond its end as the rules of this file say."""
        times = np.asarray(times, dtype=np.float64)
        first, last = self.span
        reach = 2 * last - first if self.nuisance.degree == 1 else last
        slow = np.minimum(times, reach) if self.nuisance.degree else times
        polynomial = Nuisance("recording", self.nuisance.degree).columns(slow, self.span)
        cycles = Nuisance("recording", 0, self.nuisance.periods).columns(times, self.span)
        columns = np.concatenate([np.ones((len(times), 1)), polynomial, cycles], axis=1)
        return np.asarray(columns @ self.coefficients)

    def remarks(self, steps: int) -> list[str]:
        """What is not simply continued over the next `steps` rows, in sentences."""
        first, last = self.span
        if self.nuisance.degree > 1:
            return [
                f"the recording's slow changes (a polynomial of degree {self.nuisance.degree}) are not continued: their last "
                "level is held."
            ]
        if self.nuisance.degree == 1 and steps > last - first:
            return [
                f"the recording's trend goes on for {last - first:.0f} rows, as many as it has, and stays at its level then."
            ]
        return []


def fit_trend(
    rows: Rows,
    degree: int = 0,
    periods: Sequence[float] = (),
    *,
    times: Sequence[float] | FloatArray | None = None,
    variables: Sequence[str] | None = None,
) -> Trend:
    """Fit a mean, a polynomial in time and cycles to the rows of one recording by least squares, variable by variable.

    Parameters
    ----------
    rows
        (n, d), oldest first; NaN where a cell is missing.
    degree, periods
        As in ``treatment_`` of a fitted method: ``fit_trend(rows, t["degree"], t["periods"])``.
    times
        Times of the rows, in rows; by default 0, 1, 2, ...
    variables
        Names of the columns of an array; those of a frame by default.
    """
    rows = plain_frame(rows)
    of_rows = rows.columns if isinstance(rows, pd.DataFrame) else range(np.shape(rows)[-1])
    names = tuple(map(str, of_rows if variables is None else variables))
    values = rows_of(rows, names, "rows")
    nuisance = Nuisance("recording", degree, tuple(periods))
    t = np.arange(len(values), dtype=np.float64) if times is None else np.asarray(times, dtype=np.float64)
    if t.shape != (len(values),) or not np.all(np.diff(t) > 0):
        raise ParameterError(f"times must be {len(values)} increasing numbers, one for each row.")
    there = np.isfinite(values)
    empty = [name for j, name in enumerate(names) if not there[:, j].any()]
    if empty:
        raise DataError(f"rows has no value of {empty[0]!r}; a trend is fitted to present cells.")
    seen = np.flatnonzero(there.any(axis=1))
    span = (float(t[seen[0]]), float(t[seen[-1]]))
    columns = np.column_stack([np.ones(len(t)), nuisance.columns(t, span)])
    coefficients = np.zeros((columns.shape[1], len(names)))
    for own, y, here in zip(coefficients.T, values.T, there.T, strict=True):
        if columns.shape[1] == 1 or here.sum() < _CELLS_PER_PARAMETER * columns.shape[1]:
            own[0] = y[here].mean()
        else:
            own[:] = np.linalg.lstsq(columns[here], y[here], rcond=None)[0]
    return Trend(names, nuisance, span, coefficients)
