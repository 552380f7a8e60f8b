"""Times as people write them: with fractions, not quite even, out of order, with the day first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.core.designs.recordings import SiteData
from feddbn.data import read_sites
from feddbn.data.preflight import preflight
from feddbn.data.times import Grid
from feddbn.errors import DataError, ParameterError


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
    assert read_sites({"A": table(times)}, time="t")["A"].remarks == ()


def test_a_step_can_be_given_as_a_fraction() -> None:
    assert cut([0.0, 0.5, 1.0, 2.0], freq=0.5) == [3, 1]
    assert cut([0.0, 1.01, 2.0, 3.5], freq=1) == [3, 1]
    assert cut([0, 1, 2], freq=0.5) == [1, 1, 1]


def test_whole_and_fractional_numbers_are_one_kind() -> None:
    sites = {"A": [table([0.0, 1.0, 2.0]), table([0.0, 0.5, 1.0, 1.5, 2.0])]}
    assert lengths(read_sites(sites, time="t")["A"]) == [1, 1, 1, 5]
    with pytest.raises(DataError, match=r"row every 0.72 units but site 'B' every 1 unit,"):
        read_sites({"A": table([0.0, 0.72, 1.44]), "B": table([0, 1, 2])}, time="t")


def test_small_jitter_is_snapped_and_said() -> None:
    rng = np.random.default_rng(0)
    hours = pd.Timestamp("2024-01-01") + pd.to_timedelta(
        np.r_[0:100, 105:200] * 3600 + rng.uniform(-5, 5, 195), unit="s"
    )
    site = read_sites({"A": table(hours)}, time="t")["A"]
    assert lengths(site) == [100, 95]
    (remark,) = site.remarks
    assert "the step of 0 days 01:00:00, by at most 0.3% of it" in remark.sentence
    assert remark.what == "uneven-times"
    assert "of the times in 't' are off the step" in remark.sentence
    block = list(next(iter(site.recordings())).blocks())[1]
    assert block.time == 105
    assert lengths(read_sites({"A": table(hours)}, time="t", freq="1h")["A"]) == [100, 95]
    assert read_sites({"A": table(hours)}, time="t", jitter=0.1)["A"].remarks == ()
    with pytest.raises(DataError, match=r"closer than the sampling step.*or allow uneven steps with jitter="):
        read_sites({"A": table(hours)}, time="t", freq="1h", jitter=0)


def test_large_jitter_must_be_asked_for() -> None:
    rng = np.random.default_rng(1)
    times = np.r_[0:300, 310:400] * 10.0 + rng.uniform(-1.2, 1.2, 390)
    with pytest.raises(DataError, match="closer than the sampling step"):
        cut(times)
    assert cut(times, jitter=0.25) == [300, 90]


def test_a_clock_that_runs_fast_is_regular() -> None:
    grid = Grid(1000, 0.05)
    ticks = np.arange(0, 10_010_000, 1001)
    assert np.array_equal(grid.snap(ticks), np.arange(len(ticks)) * 1000)


def test_the_grid_does_not_depend_on_batches() -> None:
    rng = np.random.default_rng(2)
    ticks = np.cumsum(rng.choice([1000, 1004, 996, 2500, 7000], 500)).astype(np.int64)
    whole = Grid(1000, 0.05).snap(ticks)
    grid = Grid(1000, 0.05)
    assert np.array_equal(np.concatenate([grid.snap(part) for part in np.split(ticks, [1, 7, 300])]), whole)
    assert (np.diff(whole) % 1000 == 0).all()


@pytest.mark.parametrize("jitter", [-0.1, 0.5, "much", True])
def test_impossible_jitter_is_refused(jitter: object) -> None:
    with pytest.raises(ParameterError, match=r"jitter=.* must be a share of the step"):
        cut([0, 1, 2], jitter=jitter)


def test_sorting_happens_on_request() -> None:
    mixed = table([3, 0, 2, 1, 6])
    with pytest.raises(
        DataError, match="earlier than the row before; sort the rows by 't' or give sort=True"
    ):
        read_sites({"A": mixed}, time="t")
    assert values(read_sites({"A": mixed}, time="t", sort=True)["A"]) == [[1, 3, 2, 0], [4]]
    with pytest.raises(ParameterError, match="sort=True needs times to sort by"):
        read_sites({"A": mixed.drop(columns="t")}, sort=True)
    with pytest.raises(DataError, match="has the same time"):
        read_sites({"A": table([1, 0, 1])}, time="t", sort=True)
    with pytest.raises(ParameterError, match="sort='yes' must be True or False"):
        read_sites({"A": mixed}, time="t", sort="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("stream_bytes", [2**20, 0])
def test_an_interleaved_long_table_is_read_whatever_its_order(tmp_path: Path, stream_bytes: int) -> None:
    rng = np.random.default_rng(3)
    rows = [(s, r, t, rng.normal()) for s in "AB" for r in "pq" for t in range(30)]
    tidy = pd.DataFrame(rows, columns=["s", "r", "t", "x"])
    tidy.sample(frac=1, random_state=4).to_csv(tmp_path / "long.csv", index=False)
    found = read_sites(
        tmp_path / "long.csv", site="s", series="r", time="t", sort=True, stream_bytes=stream_bytes
    )
    for name, site in found.items():
        for recording in site.recordings():
            (block,) = recording.blocks()
            own = tidy[(tidy["s"] == name) & (tidy["r"] == recording.name)]
            assert np.allclose(block.values[:, 0], own["x"])


def test_streamed_times_are_read_as_in_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    times = 0.72 * np.r_[0:200, 203:300] + rng.uniform(-0.01, 0.01, 297)
    table(times).to_csv(tmp_path / "a.csv", index=False)
    memory, disk = (read_sites(tmp_path / "a.csv", time="t", stream_bytes=n)["a"] for n in (2**20, 0))
    assert values(memory) == values(disk)
    assert memory.remarks == disk.remarks != ()
    whole = read_sites(tmp_path / "a.csv", time="t", freq=0.72, stream_bytes=0)["a"]
    assert values(whole) == values(memory)


DAYS = pd.date_range("2024-01-01", periods=40, freq="D")


@pytest.mark.parametrize(
    ("form", "day_first"),
    [
        ("%d.%m.%Y", True),
        ("%d/%m/%y", True),
        ("%m/%d/%Y", False),
        ("%d-%m-%Y %H:%M", True),
        ("%d.%m.%Y %H:%M:%S", True),
    ],
)
def test_dates_with_the_day_or_the_month_first(form: str, day_first: bool) -> None:
    text = DAYS.strftime(form)
    order = "day" if day_first else "month"
    assert cut(text.delete(10), day_first=day_first) == [10, 29]
    with pytest.raises(DataError, match=f"in which the {order} stands first; give day_first={day_first}"):
        cut(text)
    with pytest.raises(
        DataError, match=f"the {order} stands first; day_first={not day_first} cannot be right"
    ):
        cut(text, day_first=not day_first)
    assert cut(DAYS.strftime("%Y-%m-%d"), day_first=day_first) == [40]


def test_ambiguous_dates_are_said() -> None:
    text = pd.date_range("2024-01-01", periods=12, freq="D").strftime("%d/%m/%Y")
    with pytest.raises(
        DataError, match="day or month may stand first; give day_first=True or day_first=False"
    ):
        cut(text)
    assert cut(text, day_first=True) == [12]
    with pytest.raises(DataError, match="some have the day first and some the month"):
        cut(["13/01/2024", "01/14/2024"], day_first=True)
    with pytest.raises(DataError, match="not in the calendar"):
        cut(["30/02/2024", "01/03/2024"], day_first=True)


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
    assert any("were taken as even. Cure: jitter=0 refuses" in w for w in uneven.warnings_)
    assert not any(
        "taken as even" in w for w in feddbn.OneShotDBN(n_lags=1).fit(sites, time="t", jitter=0.1).warnings_
    )
    findings = preflight(shuffled, time="t", sort=True)
    assert [f.what for f in findings].count("uneven-times") == 2
    assert any(f.what == "refused" for f in preflight(shuffled, time="t"))
