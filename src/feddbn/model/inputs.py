"""What a caller may hand to a network: rows as arrays or frames, variables by name or position, seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import ndtri

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.data.tables import plain_frame
from feddbn.errors import DataError, ParameterError
from feddbn.settings import number, whole

__all__ = [
    "RandomState",
    "Rows",
    "level_position",
    "normal_reach",
    "random_generator",
    "rows_of",
    "segments_of",
    "variable_index",
]

Rows = pd.DataFrame | FloatArray
RandomState = int | np.random.Generator | None


def rows_of(data: Rows, variables: tuple[str, ...], argument: str, kinds: Sequence[Kind] = ()) -> FloatArray:
    """(n, d) rows with the columns in the order of `variables`; a frame is matched by name, an array by
    position.

    With `kinds`, names of levels in a frame become positions, values that a variable cannot have are refused, and levels
    that were put together become one.
    """
    data = plain_frame(data)
    if isinstance(data, pd.DataFrame):
        columns = [str(c) for c in data.columns]
        missing = [v for v in variables if v not in columns]
        if missing:
            raise DataError(
                f"{argument} lacks the column {missing[0]!r}; the network's variables are {_some(variables)}."
            )
        if len(set(columns)) != len(columns):
            raise DataError(f"{argument} has two columns of the same name; give every column its own name.")
        chosen = data.iloc[:, [columns.index(v) for v in variables]]
        if any(kind.levels for kind in kinds):
            chosen = _with_positions(chosen, variables, argument, kinds)
        try:
            values = chosen.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            raise DataError(f"{argument} has a column that is not numeric; convert it to numbers.") from None
    else:
        try:
            values = np.asarray(data, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"{argument} is not numeric; give a DataFrame or an array of numbers.") from None
        if values.ndim != 2 or values.shape[1] != len(variables):
            raise DataError(f"{argument} must have shape (n, {len(variables)}), got {values.shape}.")
    for name, kind, column in zip(variables, kinds, values.T, strict=bool(kinds)):
        seen = kind.as_recorded
        misfits = seen.misfits(column) if seen.name != "continuous" else column[:0]
        if len(misfits):
            raise DataError(
                f"{argument} has {misfits[0]:g} in {name!r}, which no {seen.name} variable {_of_levels(seen)}can have."
            )
    if any(kind.recorded for kind in kinds):
        return np.stack([kind.counted(column) for kind, column in zip(kinds, values.T, strict=True)], axis=1)
    return values


def _of_levels(kind: Kind) -> str:
    return f"with {kind.n_levels} levels " if kind.levels else ""


def _with_positions(
    frame: pd.DataFrame, variables: tuple[str, ...], argument: str, kinds: Sequence[Kind]
) -> pd.DataFrame:
    """The frame with positions in place of names of levels, in columns that hold text."""
    columns = {}
    for k, (name, kind) in enumerate(zip(variables, kinds, strict=True)):
        column, levels = frame.iloc[:, k], kind.as_recorded.levels
        if levels and not pd.api.types.is_numeric_dtype(column.dtype):
            place = {level: float(position) for position, level in enumerate(levels)}
            known = column.isna() | column.astype(str).isin(levels)
            if not known.all():
                raise DataError(
                    f"{argument} has {column[~known].iloc[0]!r} in {name!r}, whose levels are {_some(levels)}."
                )
            column = column.astype(str).map(place)
        columns[name] = column
    return pd.DataFrame(columns)


def level_position(value: object, kind: Kind) -> float | None:
    """Position of a level given by its name; None if it is not the name of one."""
    position = kind.position(value)
    return None if position is None else float(position)


def segments_of(
    data: Rows | Sequence[Rows], variables: tuple[str, ...], n_lags: int, kinds: Sequence[Kind] = ()
) -> list[FloatArray]:
    """Uninterrupted stretches of rows longer than `n_lags`; a list is one stretch an item, a lag never
    crosses them.
    """
    data = plain_frame(data)
    items: list[Rows] = [data] if isinstance(data, (pd.DataFrame, np.ndarray)) else list(data)
    segments = [rows_of(item, variables, "data", kinds) for item in items]
    for segment in segments:
        if not np.all(np.isfinite(segment)):
            raise DataError(
                "data contains NaN or infinity; drop or split at missing rows and pass a list of stretches."
            )
    usable = [segment for segment in segments if len(segment) > n_lags]
    if not usable:
        longest = max((len(s) for s in segments), default=0)
        raise DataError(f"data has no stretch longer than n_lags={n_lags} rows (the longest has {longest}).")
    return usable


def variable_index(value: str | int, variables: tuple[str, ...], argument: str) -> int:
    """Position of a variable given by name or position."""
    if isinstance(value, str) and value in variables:
        return variables.index(value)
    if whole(0, len(variables) - 1).holds(value):
        return int(value)
    raise ParameterError(
        f"{argument} names {value!r}, which is not a variable; the variables are {_some(variables)}."
    )


def normal_reach(level: float) -> float:
    """How many standard deviations to each side hold a share `level` of a normal distribution."""
    return float(ndtri(0.5 + number(above=0, below=1).check("level", level) / 2))


def random_generator(random_state: RandomState) -> np.random.Generator:
    """A generator from a seed, a generator (used as it is) or None (fresh entropy)."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None or whole(0).holds(random_state):
        return np.random.default_rng(random_state)
    raise ParameterError(
        f"random_state must be None, a non-negative integer or a Generator, got {random_state!r}."
    )


def _some(variables: tuple[str, ...]) -> str:
    return ", ".join(variables[:10]) + (", ..." if len(variables) > 10 else "")
