"""What is refused before a fit, and the table that describes sites."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from feddbn.core.designs.recordings import Block
from feddbn.data import ArrayRecording, MemorySite, check_sites, check_variances, read_sites, summary
from feddbn.errors import DataError, ParameterError


def test_too_few_rows_name_the_site_and_the_need() -> None:
    sites = read_sites({"A": np.zeros((9, 2)), "B": [np.zeros((3, 2)), np.zeros((2, 2))]})
    check_sites(sites, 2)
    with pytest.raises(
        DataError,
        match="site 'B' has only 3 rows in its longest segment; n_lags=5 needs at least 6: lower n_lags, "
        "fill its gaps",
    ):
        check_sites(sites, 5)


def test_site_without_any_row_is_refused_even_without_lags() -> None:
    with pytest.raises(DataError, match="site 'A' has no usable row; n_lags=0 needs at least 1"):
        check_sites(read_sites({"A": np.full((4, 2), np.nan)}), 0)


def test_blocks_that_continue_count_as_one_segment() -> None:
    blocks = (Block(np.zeros((2, 1))), Block(np.zeros((2, 1)), starts_segment=False))
    check_sites({"A": MemorySite(("x0",), (ArrayRecording("r", blocks),))}, 3)


def test_number_of_sites_lags_and_alignment_are_checked() -> None:
    with pytest.raises(DataError, match="data has 0 sites; this needs at least 1"):
        check_sites({}, 1)
    sites = read_sites({"A": np.zeros((4, 2))})
    with pytest.raises(DataError, match="data has 1 site; this needs at least 2"):
        check_sites(sites, 1, min_sites=2)
    for wrong in (-1, 1.5, True, "2"):
        with pytest.raises(ParameterError, match=f"n_lags={wrong!r} must be a whole number of at least 0"):
            check_sites(sites, wrong)  # type: ignore[arg-type]
    other = MemorySite(("x1", "x0"), sites["A"].items)
    with pytest.raises(
        DataError, match="site 'B' has other variables, or another order of them, than site 'A'"
    ):
        check_sites({**sites, "B": other}, 1)


def test_constant_variables_are_named() -> None:
    check_variances(["a", "b"], np.array([1.0, 1e-9]), np.array([0.0, 0.0]))
    with pytest.raises(
        DataError, match="variable 'b' is constant over all sites, so no edge can be learned; leave it out"
    ):
        check_variances(["a", "b"], np.array([1.0, 0.0]))
    with pytest.raises(DataError, match=r"variables 'a', 'c' are constant over all sites.*leave them out"):
        check_variances(["a", "b", "c"], np.array([1e-12, 1e-8, -1e-12]), np.array([1e4, 1.0, 0.0]))
    with pytest.raises(DataError, match="variable 'a' is constant"):
        check_variances(["a"], np.array([np.nan]))


def test_constant_is_found_from_sums_although_rounding_leaves_something() -> None:
    x = np.full(10_000, 273.15)
    variance = (x**2).mean() - x.mean() ** 2
    with pytest.raises(DataError, match="variable 't' is constant"):
        check_variances(["t"], np.array([abs(variance)]), np.array([x.mean()]))
    with pytest.raises(DataError, match="variable 't' is constant"):
        check_variances(["t"], np.array([1e-10]), np.array([273.15e3]))


def test_summary_counts_rows_that_a_lag_can_use() -> None:
    table = pd.DataFrame({"t": [0, 1, 2, 3, 6, 7], "a": [0, 1, 2, 3, np.nan, 5.0]})
    sites = read_sites({"A": [table, table], "B": table[:3]}, time="t")
    result = summary(sites, n_lags=2)
    assert result.index.name == "site"
    assert result.loc["A"].to_dict() == {
        "recordings": 2,
        "segments": 4,
        "rows": 10,
        "usable_rows": 4,
        "dropped_rows": 2,
        "complete_rows": 4,
        "missing_percent": 0.0,
    }
    assert result.loc["B"].to_dict() == {
        "recordings": 1,
        "segments": 1,
        "rows": 3,
        "usable_rows": 1,
        "dropped_rows": 0,
        "complete_rows": 1,
        "missing_percent": 0.0,
    }
