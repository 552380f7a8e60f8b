"""What is refused before a fit, and the table that describes sites."""

from __future__ import annotations

import numpy as np
import pandas as pd

from feddbn.core.designs.recordings import Block
from feddbn.data import Recording, Site, check_sites, read_sites, summary
from feddbn.errors import DataError, ParameterError
from support.saying import refused


def test_too_few_rows_name_the_site_and_the_need() -> None:
    sites = read_sites({"A": np.zeros((9, 2)), "B": [np.zeros((3, 2)), np.zeros((2, 2))]})
    check_sites(sites, 2)
    with refused(DataError, "'B'", "3 rows", "n_lags=5", "6"):
        check_sites(sites, 5)
    for missing in ("drop", "keep"):
        with refused(DataError, "'A'", "n_lags=0"):
            check_sites(read_sites({"A": np.full((4, 2), np.nan)}, missing=missing), 0)


def test_blocks_that_continue_count_as_one_segment() -> None:
    blocks = (Block(np.zeros((2, 1))), Block(np.zeros((2, 1)), starts_segment=False))
    check_sites({"A": Site(("x0",), (Recording("r", blocks),))}, 3)


def test_number_of_sites_lags_and_alignment_are_checked() -> None:
    sites = read_sites({"A": np.zeros((4, 2))})
    with refused(DataError, "(1)", "2"):
        check_sites(sites, 1, min_sites=2)
    for wrong in (-1, 1.5, True, "2"):
        with refused(ParameterError, f"n_lags={wrong!r}"):
            check_sites(sites, wrong)  # type: ignore[arg-type]
    other = Site(("x1", "x0"), sites["A"].items)
    with refused(DataError, "'B'", "'A'"):
        check_sites({**sites, "B": other}, 1)


def test_summary_counts_rows_that_a_lag_can_use() -> None:
    table = pd.DataFrame({"t": [0, 1, 2, 3, 6, 7], "a": [0, 1, 2, 3, np.nan, 5.0]})
    sites = read_sites({"A": [table, table], "B": table[:3]}, time="t")
    result = summary(sites, n_lags=2)
    assert result.index.name == "site"
    columns = [
        "recordings",
        "segments",
        "rows",
        "usable_rows",
        "dropped_rows",
        "complete_rows",
        "missing_percent",
    ]
    assert result[columns].to_numpy().tolist() == [[2, 4, 10, 4, 2, 4, 0], [1, 1, 3, 1, 0, 1, 0]]
