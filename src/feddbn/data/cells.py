"""The cells of a table as numbers.

Cells of variables whose kinds are declared are positions of levels, 1 and 0 for True and False. A cell is looked for among
the names of the levels first. Where these are no numbers, whole numbers are positions: 0 is the first level. An empty cell
stays empty, and what is neither is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.data.kinds import refuse_misfits
from feddbn.data.times import are_dates
from feddbn.errors import DataError, Given

__all__ = ["names_of_keys", "positions", "read_cells", "with_levels"]


def with_levels(kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    """Those of them whose cells are levels."""
    return {name: kind for name, kind in kinds.items() if kind.levels}


def positions(column: pd.Series, kind: Kind) -> tuple[FloatArray, str | None]:
    """(n,) positions of levels, NaN where a cell is empty or no level; and the first cell that is none, or None."""
    codes, cells = pd.factorize(column)
    places = np.full(len(cells) + 1, np.nan)
    strange: str | None = None
    for k, cell in enumerate(cells):
        place = kind.position_in(str(cell))
        if place is not None:
            places[k] = place
        elif strange is None:
            strange = str(cell)
    # Empty cells have the code -1, which is the last place.
    return places[codes], strange


def read_cells(
    frame: pd.DataFrame, columns: Sequence[str], kinds: Mapping[str, Kind], where: str
) -> tuple[FloatArray, dict[int, pd.Series], list[DataError]]:
    """Return (n, k) cells, NaN where one is empty or no number; columns that hold text; and what is wrong with them.

    The index of the frame numbers its rows.
    """
    names = list(columns)
    chosen = frame if frame.columns.tolist() == names else frame[names]
    own = {name: kind for name, kind in kinds.items() if name in columns}
    texts: dict[int, pd.Series] = {}
    errors: list[DataError] = []
    if not with_levels(own) and all(
        isinstance(one, np.dtype) and one.kind in "fiub" for one in chosen.dtypes
    ):
        values = np.array(chosen.to_numpy(dtype=np.float64), order="C")
    else:
        values = np.empty(chosen.shape)
        for j, name in enumerate(names):
            column = chosen[name]
            if name in with_levels(own):
                values[:, j], strange = positions(column, own[name])
                errors += [] if strange is None else [_no_level(column, own[name], strange, where)]
            elif _is_number(column):
                numbers = column.astype(np.float64) if column.dtype == object else pd.to_numeric(column)
                values[:, j] = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
            else:
                numbers = pd.to_numeric(column.astype(object), errors="coerce")
                values[:, j], texts[j] = numbers.to_numpy(dtype=np.float64), column
    errors += [_no_numbers([*texts.values()], where)] if texts else []
    for name, kind in own.items():
        try:
            refuse_misfits(values[:, names.index(name)], name, kind, where)
        except DataError as error:
            errors.append(error)
    return values, texts, errors


def _is_number(column: pd.Series) -> bool:
    dtype = column.dtype
    is_number = pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype)
    if (is_number and dtype.kind != "c") or column.isna().all():
        return True
    # Exact decimals, and truths beside empty cells, are numbers, too.
    return pd.api.types.infer_dtype(column, skipna=True) in ("decimal", "boolean")


def _no_level(column: pd.Series, kind: Kind, strange: str, where: str) -> DataError:
    levels = ", ".join(map(repr, kind.levels))
    return DataError(
        f"{where} has {strange!r} in column {column.name!r}, which is none of its levels {levels}; correct such cells, "
        f"or declare the level in {Given('kinds')}."
    )


def _no_numbers(columns: Sequence[pd.Series], where: str) -> DataError:
    """What to say of columns that are not numeric, first of dates: a cell that is none, and what may be done."""
    dates = [column for column in columns if are_dates(column)]
    column = (dates or columns)[0]
    more = f" (and {len(columns) - 1} more)" if len(columns) > 1 else ""
    said = f"{where} has column {column.name!r}{more}, which"
    about: dict[str, Any] = {"columns": tuple(str(one.name) for one in columns)}
    if dates:
        about["cure"] = {"time": str(column.name)}
        said += f" holds dates; give {Given('time', str(column.name))} if it is the time of the rows, or leave it out with "
        return DataError(f"{said}{Given('variables')}.", code="not-numeric", **about)
    texts = column.dropna().astype(str)
    strange = texts[pd.to_numeric(texts, errors="coerce").isna()]
    cure = f"declare its levels with {Given('kinds')} for a method that knows kinds (MixedDBN)"
    said += " is not numeric"
    is_comma = len(strange) and re.fullmatch(r"\s*[-+]?[\d.]*,\d+\s*", strange.iloc[0])
    if is_comma or 0 < len(strange) < len(texts):
        about |= {"row": int(strange.index[0]), "cell": strange.iloc[0][:30]}
        said += f": row {about['row']} (counted from 0) has {about['cell']!r}"
        cure = (
            f"give {Given('decimal', ',')} if that is a decimal comma"
            if is_comma
            else "leave such cells empty"
        )
    said += f"; {cure}, leave it out with {Given('variables')}, or name its role with {Given('site')}, {Given('series')} or "
    return DataError(f"{said}{Given('time')}.", code="not-numeric", **about)


def names_of_keys(column: pd.Series, argument: str, where: str) -> NDArray[np.object_]:
    """(n,) text of a site or series column."""
    if column.isna().any():
        row = int(column.index[column.isna().to_numpy()][0])
        raise DataError(
            f"{where} has no value in column {column.name!r} ({Given(argument)}) at row {row} (counted from 0); "
            "fill it."
        )
    return np.asarray(column.astype(str).to_numpy(), dtype=object)
