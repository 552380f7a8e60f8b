"""Cells of CSV files that a spreadsheet takes for text: names come from other people, and a cell that begins with =, +, -,
@, a tab or a line break may be run as a formula when the file is opened.

Such a cell gets a ' in front, as OWASP advises. So does one that begins with ' before such a character: the way back
is then certain. Numbers are left alone.
"""

from __future__ import annotations

import re
from typing import TypeVar

import pandas as pd

__all__ = ["guarded", "guarded_frame", "unguarded"]

Cell = TypeVar("Cell")
# The wide forms of the signs count, too: some spreadsheets read them as the narrow ones.
_FORMULA = re.compile("'*[=+\\-@\t\r\n\0＝＋－＠]")


def guarded(value: Cell) -> Cell | str:
    """Return a cell as it is written: text that a spreadsheet would run as a formula gets a ' in front."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def unguarded(text: str) -> str:
    """Inverse of `guarded` for text."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def guarded_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table as it is written, names of columns included."""
    return frame.map(guarded).rename(columns=guarded)
