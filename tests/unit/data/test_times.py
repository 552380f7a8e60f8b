"""Times as people write them: with fractions, not quite even, out of order, with the day first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.core.designs.recordings import SiteData
from feddbn.data import read_sites
from feddbn.data.times import steps_between
from feddbn.errors import DataError, ParameterError
from support.files import in_files
from support.saying import refused


def table(times: object) -> pd.DataFrame:
    return pd.DataFrame({"t": times, "a": np.arange(len(times), dtype=float)})  # type: ignore[arg-type]


def lengths(site: SiteData) -> list[int]:
    return [len(block.values) for recording in site.recordings() for block in recording.blocks()]


def cut(times: object, **options: object) -> list[int]:
    return lengths(read_sites({"A": table(times)}, time="t", **options)["A"])  # type: ignore[arg-type]


def values(site: SiteData) -> list[list[float]]:
    return [b.values[:, 0].tolist() for r in site.recordings() for b in r.blocks()]


@pytest.mark.parametrize("step", [0.72, 1 / 3, 1e-3, 2.5, 1 / 44100])
def test_fractional_steps_are_steps(step: float) -> None:
    times = 5.0 + step * np.r_[0:500, 510:600]
    assert cut(times) == [500, 90]
    assert cut(times.round(9)) == [500, 90]
    assert read_sites({"A": table(times)}, time="t")["A"].findings == ()


def test_whole_and_fractional_numbers_are_one_kind() -> None:
    sites = {"A": [table([0.0, 1.0, 2.0]), table([0.0, 0.5, 1.0, 1.5, 2.0])]}
    assert lengths(read_sites(sites, time="t")["A"]) == [1, 1, 1, 5]
    with refused(DataError, "0.72", "'B'", "1", code="two-steps"):
        read_sites({"A": table([0.0, 0.72, 1.44]), "B": table([0, 1, 2])}, time="t")


def test_small_jitter_is_snapped() -> None:
    rng = np.random.default_rng(0)
    hours = pd.Timestamp("2024-01-01") + pd.to_timedelta(
        np.r_[0:100, 105:200] * 3600 + rng.uniform(-5, 5, 195), unit="s"
    )
    site = read_sites({"A": table(hours)}, time="t")["A"]
    assert lengths(site) == [100, 95]
    assert site.step == "1h"
    block = list(next(iter(site.recordings())).blocks())[1]
    assert block.time == 105
    assert lengths(read_sites({"A": table(hours)}, time="t", freq="1h")["A"]) == [100, 95]
    with refused(DataError, "jitter=", code="closer"):
        read_sites({"A": table(hours)}, time="t", freq="1h", jitter=0)


def test_large_jitter_must_be_asked_for() -> None:
    rng = np.random.default_rng(1)
    times = np.r_[0:300, 310:400] * 10.0 + rng.uniform(-1.2, 1.2, 390)
    with refused(DataError, code="closer"):
        cut(times)
    assert cut(times, jitter=0.25) == [300, 90]


def test_a_clock_that_runs_fast_is_regular() -> None:
    steps, is_close = steps_between(np.arange(0, 10_010_000, 1001), 1000, 0.05)
    assert (steps == 1).all()
    assert not is_close.any()


def test_sorting_happens_on_request() -> None:
    mixed = table([3, 0, 2, 1, 6])
    with refused(DataError, "'t'", "sort=True", code="earlier"):
        read_sites({"A": mixed}, time="t")
    assert values(read_sites({"A": mixed}, time="t", sort=True)["A"]) == [[1, 3, 2, 0], [4]]
    with refused(ParameterError, "sort=True"):
        read_sites({"A": mixed.drop(columns="t")}, sort=True)
    with refused(DataError, code="same-time"):
        read_sites({"A": table([1, 0, 1])}, time="t", sort=True)
    with refused(ParameterError, "sort='yes'"):
        read_sites({"A": mixed}, time="t", sort="yes")  # type: ignore[arg-type]


def test_streamed_times_are_read_as_in_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    times = 0.72 * np.r_[0:200, 203:300] + rng.uniform(-0.01, 0.01, 297)
    table(times).to_csv(tmp_path / "a.csv", index=False)
    memory = read_sites(tmp_path / "a.csv", time="t")["a"]
    with in_files(400):
        for read in ({}, {"freq": 0.72}):
            disk = read_sites(tmp_path / "a.csv", time="t", **read)["a"]
            assert values(memory) == values(disk)
            assert memory.step == disk.step or read


DAYS = pd.date_range("2024-01-01", periods=40, freq="D")


@pytest.mark.parametrize(
    ("form", "day_first"),
    [
        ("%d.%m.%Y", True),
        ("%m/%d/%Y", False),
        ("%d.%m.%Y %H:%M:%S", True),
    ],
)
def test_dates_with_the_day_or_the_month_first(form: str, day_first: bool) -> None:
    text = DAYS.strftime(form)
    assert cut(text.delete(10), day_first=day_first) == [10, 29]
    with refused(DataError, "day_first=True", "day_first=False", code="day-or-month"):
        cut(text)
    with refused(DataError, f"day_first={not day_first}", code="wrong-first"):
        cut(text, day_first=not day_first)
    assert cut(DAYS.strftime("%Y-%m-%d"), day_first=day_first) == [40]


def test_ambiguous_dates_are_said() -> None:
    text = DAYS[:12].strftime("%d/%m/%Y")
    with refused(DataError, "day_first=True", "day_first=False", code="day-or-month"):
        cut(text)
    assert cut(text, day_first=True) == [12]
    for wrong in (["13/01/2024", "01/14/2024"], ["30/02/2024", "01/03/2024"]):
        with refused(DataError, code="wrong-first"):
            cut(wrong, day_first=True)


def test_fit_and_check_take_the_same_arguments() -> None:
    fed = feddbn.simulate(d=3, n_lags=1, n_sites=2, n_samples=200, random_state=0)
    rng = np.random.default_rng(0)
    sites = {}
    for name, recordings in fed.sites.items():
        frame = pd.DataFrame(np.asarray(recordings[0]), columns=list("abc"))
        frame["t"] = 0.72 * np.arange(len(frame)) + rng.uniform(-0.01, 0.01, len(frame))
        sites[name] = frame
    even = feddbn.OneShotDBN(n_lags=1).fit({k: v[list("abc")] for k, v in sites.items()})
    shuffled = {name: frame.sample(frac=1, random_state=1) for name, frame in sites.items()}
    uneven = feddbn.OneShotDBN(n_lags=1).fit(shuffled, time="t", sort=True)
    assert np.array_equal(even.W_, uneven.W_)
    assert np.array_equal(even.A_, uneven.A_)
    assert not feddbn.check(shuffled, time="t", sort=True).of("refused")
    assert feddbn.check(shuffled, time="t").of("refused")


def test_datetime_gap_starts_a_segment() -> None:
    hours = pd.date_range("2024-01-01", periods=10, freq="h")
    assert cut(hours.delete([4, 5])) == [4, 4]
    assert cut(hours.delete(4).tz_localize("Europe/Zurich")) == [4, 5]
    assert cut(hours.delete(4).as_unit("s")) == [4, 5]
    assert cut(hours.delete(4).strftime("%Y-%m-%dT%H:%M")) == [4, 5]
    assert cut(hours.delete(4).strftime("%Y-%m-%dT%H:%M+02:00")) == [4, 5]


def test_gap_is_still_a_gap_when_the_row_is_missing_its_values() -> None:
    table = pd.DataFrame({"t": [0, 1, 2, 3, 4], "a": [0, 1, np.nan, 3, 4]})
    site = read_sites({"A": table}, time="t", missing="drop")["A"]
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
    assert cut(months) == [14]
    with refused(DataError, "row 2", "freq=", code="closer"):
        cut(months + pd.to_timedelta(np.arange(14) % 2, unit="D"))


def test_periods_are_counted() -> None:
    assert cut(pd.period_range("2023-01", periods=5, freq="M").delete(2)) == [2, 2]


def test_dates_in_the_index_are_times_and_other_indices_are_not() -> None:
    table = pd.DataFrame({"a": np.arange(5.0)}, index=pd.date_range("2024", periods=6, freq="D").delete(2))
    assert lengths(read_sites({"A": table})["A"]) == [2, 3]
    assert lengths(read_sites({"A": table.set_axis([0, 1, 5, 6, 7])})["A"]) == [5]
    named = table.set_axis([0, 1, 5, 6, 7]).rename_axis("t")
    assert lengths(read_sites({"A": named}, time="t")["A"]) == [2, 3]


def test_sites_with_different_steps_are_refused_unless_freq_says_so() -> None:
    one = pd.DataFrame({"t": [0, 1, 2, 3], "a": [0.0, 1.0, 2.0, 3.0]})
    two = one.assign(t=[0, 2, 4, 6])
    with refused(DataError, "'A' has a row every 1 ", "'B' every 2,", code="two-steps"):
        read_sites({"A": one, "B": two}, time="t")
    read = read_sites({"A": one, "B": two}, time="t", freq=1)
    assert lengths(read["B"]) == [1, 1, 1, 1]
    both = read_sites({"A": one, "B": two}, time="t", freq=2, irregular="average")
    assert [values(both[name]) for name in "AB"] == [[[0.5, 2.5]], [[0.0, 1.0, 2.0, 3.0]]]


NEAR = ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-03T12:00", "2024-01-04T12:00"]


@pytest.mark.parametrize(
    ("times", "options", "names", "code"),
    [
        ([0, 1, 1, 2], {}, ("'recording-0' of site 'A'", "row 2"), "same-time"),
        ([0, 2, 1, 3], {}, ("row 2",), "earlier"),
        (pd.to_datetime(NEAR, format="ISO8601"), {}, ("row 3",), "closer"),
        ([0.0, np.nan, 1.0], {}, ("row 1",), ""),
        (["one", "two"], {}, ("2024-01-31",), "no-times"),
        ([0, 1, 2], {"freq": "D"}, ("freq=",), ""),
    ],
)
def test_times_that_are_none_or_out_of_order_name_recording_column_and_row(
    times, options, names, code
) -> None:
    with refused(DataError, "'t'", *names, code=code):
        cut(times, **options)


@pytest.mark.parametrize("freq", ["1h", pd.Timedelta("1h"), np.timedelta64(1, "h"), pd.offsets.Hour(1)])
def test_freq_may_be_text_or_a_duration(freq: object) -> None:
    assert cut(pd.date_range("2024", periods=6, freq="2h"), freq=freq, missing="drop") == [1] * 6


def test_values_of_a_site_never_appear_in_messages() -> None:
    table = pd.DataFrame({"t": [7777, 8888, 8888], "a": [1234.5, 1234.5, np.inf]})
    with pytest.raises(DataError) as infinite:
        read_sites({"A": table}, time="t")
    with pytest.raises(DataError) as twice:
        read_sites({"A": table.assign(a=1234.5)}, time="t")
    for caught in (infinite, twice):
        assert not any(value in str(caught.value) for value in ("7777", "8888", "1234"))
