"""The slow course of one recording: its mean, a trend, cycles; and forecasts that go on along it.

A network that was learned off means, trends and cycles of recordings says how rows move about these. To forecast one
recording its own course is fitted by least squares over its present cells, what is left of the rows is forecast, and the
course of the coming time steps is added.

Rules of the file
-----------------
- A cycle goes on for ever. A line goes on at most as far as the recording is long, and stays at that level then.
  Polynomials of a higher degree do not go on: outside the rows they were fitted to they mean nothing, so their last level
  is held.
- What is held back in this way is said (`Course.remarks`).
- A variable with too few cells for a course has its mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.design import Nuisance
from feddbn.data.tables import plain_frame
from feddbn.errors import DataError, ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.dynamics import require_linear
from feddbn.model.forecast import Forecast, Held
from feddbn.model.network import Rows, rows_of, variable_index
from feddbn.settings import is_number, whole

__all__ = ["Course", "fit_course", "forecast_along"]

_CELLS_PER_PARAMETER = 3


@dataclass(frozen=True, eq=False)
class Course:
    """A fitted course.

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
        """(n, d) the course at these times, in rows on the clock of the fit; beyond its end as the rules of this file say."""
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


def fit_course(
    rows: Rows,
    degree: int = 0,
    periods: Sequence[float] = (),
    *,
    times: Sequence[float] | FloatArray | None = None,
    variables: Sequence[str] | None = None,
) -> Course:
    """Fit a mean, a polynomial in time and cycles to the rows of one recording, variable by variable.

    Parameters
    ----------
    rows
        (n, d), oldest first; NaN where a cell is missing.
    degree, periods
        As in ``treatment_`` of a fitted method: ``fit_course(rows, t["degree"], t["periods"])``.
    times
        Times of the rows, in rows; by default 0, 1, 2, ...
    variables
        Names of the columns of an array; those of a frame by default.
    """
    rows = plain_frame(rows)
    if variables is None:
        variables = list(rows.columns) if isinstance(rows, pd.DataFrame) else range(np.shape(rows)[-1])  # type: ignore[assignment]
    assert variables is not None
    names = tuple(str(name) for name in variables)
    values = rows_of(rows, names, "rows")
    nuisance = Nuisance("recording", degree, tuple(periods))
    t = np.arange(len(values), dtype=np.float64) if times is None else np.asarray(times, dtype=np.float64)
    if t.shape != (len(values),) or not np.all(np.diff(t) > 0):
        raise ParameterError(f"times must be {len(values)} increasing numbers, one for each row.")
    there = np.isfinite(values)
    empty = [name for j, name in enumerate(names) if not there[:, j].any()]
    if empty:
        raise DataError(f"rows has no value of {empty[0]!r}; a course is fitted to present cells.")
    known = np.flatnonzero(there.any(axis=1))
    span = (float(t[known[0]]), float(t[known[-1]]))
    columns = np.column_stack([np.ones(len(t)), nuisance.columns(t, span)])
    coefficients = np.zeros((columns.shape[1], len(names)))
    for j in range(len(names)):
        here = there[:, j]
        if columns.shape[1] == 1 or here.sum() < _CELLS_PER_PARAMETER * columns.shape[1]:
            coefficients[0, j] = values[here, j].mean()
        else:
            coefficients[:, j] = np.linalg.lstsq(columns[here], values[here, j], rcond=None)[0]
    return Course(names, nuisance, span, coefficients)


def forecast_along(
    dbn: DBN,
    course: Course,
    history: Rows,
    steps: int,
    *,
    end: float | None = None,
    held: Held | None = None,
    **options: Any,
) -> Forecast:
    """Forecast what follows `history` about a course: `DBN.do` of what is left without it, the course added.

    Parameters
    ----------
    history
        The last rows of the recording that the course was fitted to, or all of them.
    end
        Time of the last row of `history` on the clock of the course; by default the course's last row.
    held
        Variable -> value for every step or one for each, in the units of `history`: held variables, or known inputs.
    options
        Those of `DBN.do`: interval, method, random_state, n_paths, noise.
    """
    if course.variables != dbn.variables:
        raise ParameterError(
            f"course is one of {', '.join(course.variables[:10])}, but the network has {', '.join(dbn.variables[:10])}."
        )
    steps = whole(1).check("steps", steps)
    if dbn.mechanisms.has_kinds:
        require_linear(dbn, "forecast_along", "dbn.do(held, history, steps)")
    rows = rows_of(history, dbn.variables, "history")
    last = course.span[1] if end is None else float(end)
    rest: Rows = rows - course.at(last - np.arange(len(rows), dtype=np.float64)[::-1])
    if isinstance(history, pd.DataFrame):
        rest = pd.DataFrame(rest, index=history.index, columns=list(dbn.variables))
    ahead = course.at(last + np.arange(1.0, steps + 1))
    if dbn.bends:
        return _about_a_level(dbn, course, history, steps, held or {}, options)
    # Off its course a recording has the level 0.
    off, level = _off(held or {}, ahead, dbn.variables), dbn.at_level(np.zeros(dbn.d))
    return level.do(off, rest, steps, **options, course=ahead, seen=rows)


def _about_a_level(
    dbn: DBN, course: Course, history: Rows, steps: int, held: Held, options: dict[str, Any]
) -> Forecast:
    """With curves rows keep their level, since a curve is a function of the value itself."""
    if course.nuisance.degree or course.nuisance.periods:
        raise ParameterError(
            "course has a trend or cycles, along which a network with curves cannot go on; fit one with degree=0 and no"
            " periods."
        )
    return dbn.at_level(course.coefficients[0]).do(held, history, steps, **options)


def _off(held: Held, ahead: FloatArray, variables: tuple[str, ...]) -> Held:
    """Held values without the course; what is no number or no series of them is left to `DBN.do` to refuse."""
    if not isinstance(held, Mapping):
        return held
    found: dict[str | int, Any] = {}
    for key, given in held.items():
        course = ahead[:, variable_index(key, variables, "an intervention")]
        is_fine = is_number(given) or np.shape(given) == course.shape
        found[key] = np.asarray(given, dtype=np.float64) - course if is_fine else given
    return found
