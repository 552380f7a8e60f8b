"""Times decide where a segment ends."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from feddbn.core.designs.recordings import SiteData
from feddbn.data import read_sites
from feddbn.errors import DataError, ParameterError


def cut(times: object, **options: object) -> list[int]:
    table = pd.DataFrame({"t": times, "a": np.arange(len(times), dtype=float)})  # type: ignore[arg-type]
    return lengths(read_sites({"A": table}, time="t", **options)["A"])  # type: ignore[arg-type]


def lengths(site: SiteData) -> list[int]:
    return [len(block.values) for recording in site.recordings() for block in recording.blocks()]


def test_integer_gap_starts_a_segment() -> None:
    assert cut([0, 1, 2, 5, 6]) == [3, 2]
    assert cut([0.0, 1.0, 2.0, 5.0]) == [3, 1]


def test_most_common_step_is_the_step_for_integers_too() -> None:
    assert cut([0, 10, 20, 40, 50]) == [3, 2]
    assert cut([0, 10, 20, 40, 50], freq=1) == [1, 1, 1, 1, 1]


def test_equally_common_steps_take_the_smaller() -> None:
    assert cut([0, 1, 3]) == [2, 1]


def test_datetime_gap_starts_a_segment() -> None:
    hours = pd.date_range("2024-01-01", periods=10, freq="h")
    assert cut(hours.delete([4, 5])) == [4, 4]
    assert cut(hours.delete(4).tz_localize("Europe/Zurich")) == [4, 5]
    assert cut(hours.delete(4).as_unit("s")) == [4, 5]
    assert cut(hours.delete(4).strftime("%Y-%m-%dT%H:%M")) == [4, 5]
    assert cut(hours.delete(4).strftime("%Y-%m-%dT%H:%M+02:00")) == [4, 5]


def test_gap_is_still_a_gap_when_the_row_is_missing_its_values() -> None:
    table = pd.DataFrame({"t": [0, 1, 2, 3, 4], "a": [0, 1, np.nan, 3, 4]})
    site = read_sites({"A": table}, time="t")["A"]
    assert lengths(site) == [2, 2]


def test_local_days_do_not_break_when_the_clocks_change() -> None:
    days = pd.date_range("2024-03-28", periods=6, freq="D", tz="Europe/Zurich")
    assert cut(days) == [6]
    assert cut(days, freq="D") == [6]
    assert cut(days.delete(2), freq="D") == [2, 3]


def test_calendar_steps_count_months_and_working_days() -> None:
    months = pd.date_range("2023-01-01", periods=14, freq="MS")
    assert cut(months, freq="MS") == [14]
    assert cut(months.delete(5), freq="ME") == [5, 8]
    assert cut(months[::3], freq="QS") == [5]
    assert cut(pd.bdate_range("2024-01-01", periods=12), freq="B") == [12]
    with pytest.raises(
        DataError, match=r"at rows 1 and 2 .* closer than the sampling step.*freq='MS' for months"
    ):
        cut(months)


def test_periods_are_counted() -> None:
    assert cut(pd.period_range("2023-01", periods=5, freq="M").delete(2)) == [2, 2]


def test_dates_in_the_index_are_times_and_other_indices_are_not() -> None:
    table = pd.DataFrame({"a": np.arange(5.0)}, index=pd.date_range("2024", periods=6, freq="D").delete(2))
    assert lengths(read_sites({"A": table})["A"]) == [2, 3]
    assert lengths(read_sites({"A": table.set_axis([0, 1, 5, 6, 7])})["A"]) == [5]
    named = table.set_axis([0, 1, 5, 6, 7]).rename_axis("t")
    assert lengths(read_sites({"A": named}, time="t")["A"]) == [2, 3]


def test_recordings_of_a_site_share_its_step() -> None:
    table = pd.DataFrame({"r": list("uuuuvv"), "t": [0, 1, 2, 3, 0, 2], "a": np.arange(6.0)})
    assert lengths(read_sites({"A": table}, series="r", time="t")["A"]) == [4, 1, 1]


def test_sites_with_different_steps_are_refused_unless_freq_says_so() -> None:
    one = pd.DataFrame({"t": [0, 1, 2], "a": [0.0, 1.0, 2.0]})
    two = one.assign(t=[0, 2, 4])
    with pytest.raises(
        DataError, match="site 'A' has a row every 1 unit but site 'B' every 2 units, so one lag would mean"
    ):
        read_sites({"A": one, "B": two}, time="t")
    assert lengths(read_sites({"A": one, "B": two}, time="t", freq=1)["B"]) == [1, 1, 1]


def test_duplicate_and_unsorted_times_name_site_recording_and_position() -> None:
    with pytest.raises(
        DataError,
        match=r"recording 'recording-0' of site 'A' has the same time in column 't' at rows 1 and 2 "
        r"\(counted from 0\)",
    ):
        cut([0, 1, 1, 2])
    with pytest.raises(
        DataError,
        match=r"has a time in column 't' at row 2 \(counted from 0\) that is earlier.*sort the rows by 't'",
    ):
        cut([0, 2, 1, 3])
    with pytest.raises(
        DataError, match=r"has times in column 't' at rows 2 and 3 .* that are closer than the sampling step"
    ):
        cut(
            pd.to_datetime(
                ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-03T12:00", "2024-01-04T12:00"],
                format="ISO8601",
            )
        )


def test_times_that_are_no_times_are_refused() -> None:
    with pytest.raises(
        DataError, match="in column 't' that are too large to have fractions; use whole numbers"
    ):
        cut([1.7e12, 1.7e12 + 0.5, 1.7e12 + 1])
    with pytest.raises(DataError, match="has an infinite time in column 't'"):
        cut([0.0, np.inf])
    with pytest.raises(DataError, match="has a missing time in column 't' at row 1"):
        cut([0.0, np.nan, 1.0])
    with pytest.raises(DataError, match="neither numbers nor dates; write dates as 2024-01-31"):
        cut(["one", "two"])
    with pytest.raises(DataError, match="has true/false values in time column 't'"):
        cut([True, False])
    with pytest.raises(
        DataError,
        match="has dates in time column 't', but freq= or another recording speaks of numbers",
    ):
        cut(pd.date_range("2024", periods=3), freq=1)
    with pytest.raises(
        DataError,
        match="has numbers in time column 't', but freq= or another recording speaks of dates",
    ):
        cut([0, 1, 2], freq="D")
    one = pd.DataFrame({"t": [0, 1], "a": [0.0, 1.0]})
    with pytest.raises(
        DataError, match=r"has numbers in time column 't' where others have dates|use one kind"
    ):
        read_sites({"A": [one, one.assign(t=pd.date_range("2024", periods=2))]}, time="t")


@pytest.mark.parametrize("freq", [0, -1, -1.5, float("inf"), True, "often", "-1h"])
def test_impossible_freq_is_refused(freq: object) -> None:
    with pytest.raises(ParameterError, match=f"freq={freq!r} is not a (supported )?step; "):
        cut([0, 1, 2], freq=freq)


@pytest.mark.parametrize("freq", ["1h", pd.Timedelta("1h"), np.timedelta64(1, "h"), pd.offsets.Hour(1)])
def test_freq_may_be_text_or_a_duration(freq: object) -> None:
    assert cut(pd.date_range("2024", periods=6, freq="2h"), freq=freq) == [1] * 6


def test_values_of_a_site_never_appear_in_messages() -> None:
    table = pd.DataFrame({"t": [7777, 8888, 8888], "a": [1234.5, 1234.5, np.inf]})
    with pytest.raises(DataError) as infinite:
        read_sites({"A": table}, time="t")
    with pytest.raises(DataError) as twice:
        read_sites({"A": table.assign(a=1234.5)}, time="t")
    for caught in (infinite, twice):
        assert not any(value in str(caught.value) for value in ("7777", "8888", "1234"))
