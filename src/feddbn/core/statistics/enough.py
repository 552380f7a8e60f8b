"""Whether sums can carry a network: rows for the columns of a lagged row, and variables that vary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import DataError, Given
from feddbn.findings import Level

__all__ = ["ROWS_PER_COLUMN", "check_variances", "rows_doubt", "rows_level"]

ROWS_PER_COLUMN = 10.0
"""With fewer rows for each column a regression on all of them is mostly chance."""


def check_variances(
    variables: Sequence[str], variances: FloatArray, means: FloatArray | None = None, rtol: float = 1e-13
) -> None:
    """Raise DataError if a variable is constant over the whole federation.

    A variance counts as zero if it is at most ``rtol * mean**2``, which is what rounding leaves of a constant when a variance
    is computed from totals of squares.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.core.statistics.enough import check_variances
    >>> check_variances(["x", "y"], np.array([1.0, 0.0]))
    Traceback (most recent call last):
        ...
    feddbn.errors.DataError: 'y' is constant over all sites, so no edge can be learned; choose other columns with variables=.
    """
    floor = 0.0 if means is None else rtol * np.square(means)
    constant = [name for name, flat in zip(variables, ~(np.asarray(variances) > floor), strict=True) if flat]
    if constant:
        more = f" and {len(constant) - 10} more" if len(constant) > 10 else ""
        names = ", ".join(map(repr, constant[:10])) + more
        raise DataError(
            f"{names} {'is' if len(constant) == 1 else 'are'} constant over all sites, so no edge can be learned; choose "
            f"other columns with {Given('variables')}.",
            columns=tuple(constant),
        )


def rows_level(usable: float, columns: int) -> Level:
    """Return how much a number of usable rows matters for so many columns of a lagged row (variables now and at each lag).

    "error": no more rows than columns, which explain each other exactly, whatever the data. "warning": fewer than
    `ROWS_PER_COLUMN` for each. "note": enough.

    Examples
    --------
    >>> [rows_level(usable, 8) for usable in (8, 79, 80)]
    ['error', 'warning', 'note']
    """
    if usable <= columns:
        return "error"
    return "warning" if usable < ROWS_PER_COLUMN * columns else "note"


def rows_doubt(usable: float, columns: int) -> float:
    """Return how far too few rows speak against all edges: 1 up to two rows a column, 0 from five on.

    Pure noise of 4 variables at lag 1, three sites, six seeds, edges shown in all: 28 with 9 rows for 8 columns, 17 with 12,
    2 with 15.
    """
    return float(np.clip((5.0 - usable / columns) / 3.0, 0.0, 1.0))
