"""How many rows a fit could use."""

from __future__ import annotations

import pandas as pd

from feddbn.data.preflight.finding import Finding

__all__ = ["few_usable"]


def few_usable(
    site: str, row: pd.Series, n_lags: int, share: float = 0.5, whole_rows: bool = True
) -> list[Finding]:
    """Return a finding if less than this share of a site's rows can be used; `row` is one of `feddbn.data.summary`.

    `whole_rows` says whether a row with a missing cell, or after one, is of no use.
    """
    rows = int(row["rows"] + row["dropped_rows"])
    usable = int(row["complete_rows" if whole_rows else "usable_rows"])
    if usable >= share * (rows - n_lags * int(row["recordings"])):
        return []
    before = "the row" if n_lags == 1 else f"the {n_lags} rows"
    needs = (
        f"a row needs all its cells, those of {before} before it, and no gap in time between them"
        if whole_rows
        else f"a row needs {before} before it, and no gap in time between them"
    )
    text = f"{usable} of {rows} rows can be used with n_lags={n_lags}: {needs}."
    cure = "fill short gaps, choose columns with few gaps by variables=, or give the right step with freq="
    return [Finding("usable-rows", "warning", text, cure, site)]
