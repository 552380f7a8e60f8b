"""The table of edges that `feddbn confidence` and studies of confidence write, read for a report."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from feddbn.errors import FileError
from feddbn.model.csv_cells import unguarded

__all__ = ["read_edges"]

_WANTED = ("source", "target", "lag", "weight", "probability")


def read_edges(path: Path) -> pd.DataFrame:
    """The edge table in a CSV file, with names as they were before a spreadsheet was kept from running them."""
    try:
        table = pd.read_csv(path, converters={"source": unguarded, "target": unguarded})
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not CSV"
        raise FileError(f"the edge table {str(path)!r} cannot be read: {reason}.") from None
    missing = [name for name in _WANTED if name not in table]
    if missing:
        raise FileError(
            f"the edge table {str(path)!r} lacks the column {missing[0]!r}; write it with feddbn confidence."
        )
    return table
