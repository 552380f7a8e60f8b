"""What people hold in files and frames, as they give it: nothing is left out, and a calendar is a calendar."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.analysis import history
from feddbn.data import read_sites
from feddbn.errors import DataError, FileError
from tests.support.files import in_files, in_memory
from tests.support.saying import only, refused


def table(n: int = 60, **columns: object) -> pd.DataFrame:
    values = np.random.default_rng(n).normal(size=(n, 2))
    return pd.DataFrame({**columns, "x": values[:, 0], "y": values[:, 1]})


def written(path: Path, frame: pd.DataFrame) -> Path:
    path.parent.mkdir(exist_ok=True)
    frame.to_csv(path, index=False)
    return path


def cut(data: object, **options: object) -> list[int]:
    (site,) = read_sites(data, **options).values()  # type: ignore[arg-type]
    return [len(block.values) for one in site.recordings() for block in one.blocks()]


def step(data: object, **options: object) -> str | None:
    (site,) = read_sites(data, **options).values()  # type: ignore[arg-type]
    return site.step  # type: ignore[attr-defined,no-any-return]


def test_a_folder_never_loses_a_table_that_no_description_names(tmp_path: Path) -> None:
    written(tmp_path / "north.csv", table())
    (tmp_path / "n.toml").write_text('data = "north.csv"\n')
    assert list(read_sites(tmp_path)) == ["n"]
    written(tmp_path / "south.csv", table())
    written(tmp_path / "east" / "a.csv", table())
    with refused(FileError, "'south.csv'", "'east'", "n.toml", code="left-out"):
        read_sites(tmp_path)
    with refused(FileError, "'south.csv'", code="left-out"):
        feddbn.OneShotDBN().fit(tmp_path)
    with refused(FileError, "'south.csv'", code="left-out"):
        feddbn.check(tmp_path)
    (tmp_path / "s.toml").write_text('data = "south.csv"\n')
    (tmp_path / "e.toml").write_text('data = "./east/a.csv"\n')
    assert list(read_sites(tmp_path)) == ["e", "n", "s"]


def test_tables_that_a_query_names_are_no_sites(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    for name in ("part-1.csv", "part-2.csv", "stays.csv"):
        written(tmp_path / name, table())
    query = "SELECT v.x, v.y FROM 'part-*.csv' v, (SELECT max(x) AS top FROM 'stays.csv') ORDER BY v.x"
    (tmp_path / "clif.toml").write_text(f'data = {{sql = "{query}"}}\n')
    assert list(read_sites(tmp_path)) == ["clif"]


def test_what_is_given_is_given_also_where_it_is_the_default(tmp_path: Path) -> None:
    rows = table(40, t=range(40))
    rows.loc[[10, 20], "x"] = np.nan
    written(tmp_path / "n.csv", rows.iloc[::-1])
    path = tmp_path / "n.toml"
    path.write_text('data = "n.csv"\ntime = "t"\nmissing = "drop"\nsort = true\n')
    assert cut(path) == [10, 9, 19]
    assert cut(path, missing="keep") == [40]
    assert cut(path, missing="drop") == [10, 9, 19]
    assert cut({"one": path}, layout=feddbn.Layout(missing="keep")) == [40]
    with refused(DataError, "'t'", code="earlier"):
        read_sites(path, sort=False)
    assert cut(written(tmp_path / "plain.csv", rows), time="t") == [40]


def test_one_column_stays_one_column_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("temp|C\n" + "".join(f"{20 + k / 10:.1f}\n" for k in range(30)))
    (site,) = read_sites(path).values()
    assert tuple(site.variables) == ("temp|C",)
    (site,) = read_sites(path, separator=",").values()
    assert tuple(site.variables) == ("temp|C",)
    path.write_text("a|b\n" + "1|2\n" * 30)
    (site,) = read_sites(path, separator="|").values()
    assert tuple(site.variables) == ("a", "b")


CALENDARS = [
    ("MS", "M", "1MS"),
    ("ME", "M", "1MS"),
    ("QS", "Q", "3MS"),
    ("QE", "Q", "3MS"),
    ("YS", "Y", "12MS"),
    ("YE", "Y", "12MS"),
]


@pytest.mark.parametrize(("freq", "period", "expected"), CALENDARS)
@pytest.mark.parametrize("zone", [None, "Europe/Zurich"])
def test_months_quarters_and_years_are_steps(
    freq: str, period: str, expected: str, zone: str | None, tmp_path: Path
) -> None:
    index = pd.date_range("1990-01-01", periods=30, freq=freq, tz=zone)
    whole = table(30).set_index(index)
    holed = whole.drop(whole.index[[7, 8]])
    for frame, lengths in ((whole, [30]), (holed, [7, 21])):
        assert cut(frame) == cut(frame, freq=freq) == lengths
        assert (step(frame), step(frame, freq=freq)) == (expected, expected)
        assert read_sites(frame)["site-0"].findings == ()  # type: ignore[attr-defined]
        periods = frame.set_index(frame.index.tz_localize(None).to_period(period))
        assert cut(periods) == cut(periods, freq=freq) == lengths
        assert step(periods) == expected
    if zone is None:
        path = written(tmp_path / "rows.csv", holed.rename_axis("date").reset_index())
        for kept in (in_files, in_memory):
            with kept():
                assert cut(path, time="date") == [7, 21]
        day = holed.reset_index(names="date")
        assert cut(day.assign(date=day["date"].dt.strftime("%d.%m.%Y")), time="date", day_first=True) == [
            7,
            21,
        ]


def test_steps_that_only_look_like_months_are_none() -> None:
    days = pd.Timestamp("2023-01-01") + pd.to_timedelta(30 * np.arange(40), unit="D")
    assert step(table(40).set_index(days)) == "30D"
    weeks = table(40).set_index(pd.date_range("2023-01-01", periods=40, freq="28D"))
    assert step(weeks) == "28D"
    days = pd.date_range("2023-01-01", periods=90, freq="D")
    sparse = table(90).set_index(days).iloc[[0, 1, 2, 31, 59]]
    assert step(sparse) == "1D"
    business = pd.date_range("2023-01-01", periods=40, freq="BME")
    with refused(DataError, "freq=", code="closer"):
        read_sites(table(40).set_index(business))
    assert cut(table(40).set_index(business), freq="MS") == [40]


def test_sites_of_one_calendar_go_together_whatever_their_days_and_years() -> None:
    months = [pd.date_range(day, periods=24, freq="MS") for day in ("2000-01-01", "2010-05-01")]
    frames = {
        f"s{k}": table(24).set_index(one + pd.Timedelta(14 * k, unit="D")) for k, one in enumerate(months)
    }
    frames["two rows"] = table(2).set_index(pd.DatetimeIndex(["2020-07-01", "2020-08-01"]))
    assert [site.step for site in read_sites(frames).values()] == ["1MS"] * 3  # type: ignore[attr-defined]
    frames["daily"] = table(24).set_index(pd.date_range("2000-01-01", periods=24, freq="D"))
    with refused(DataError, "1MS", "'daily'", code="two-steps"):
        read_sites(frames)


@pytest.mark.parametrize(("freq", "last"), [("ME", "2024-02-29"), ("MS", "2024-02-01"), ("QE", "2023-12-31")])
def test_what_goes_on_from_the_ends_of_months_stays_there(freq: str, last: str) -> None:
    index = pd.date_range(end=last, periods=40, freq=freq)
    past = history.read_history(table(40).set_index(index), ("x", "y"))
    assert past.times(3) == pd.date_range(last, periods=4, freq=freq)[1:].tolist()


def test_a_file_without_rows_and_one_without_names_are_said_to_be(tmp_path: Path) -> None:
    for text in ("", "\n\n"):
        (tmp_path / "empty.csv").write_text(text)
        with refused(FileError, "empty.csv", code="empty"):
            read_sites(tmp_path / "empty.csv")
    folder = tmp_path / "sites"
    written(folder / "a.csv", table(t=range(60)))
    table(t=range(60)).to_csv(folder / "b.csv", index=False, header=False)
    with refused(DataError, "b.csv", code="header"):
        read_sites(folder, time="t")
    with refused(DataError, "b.csv", code="header"):
        read_sites(folder, variables=["x"])
    with refused(DataError, "b.csv", code="header"):
        read_sites(folder)
    (folder / "a.csv").rename(folder / "c.csv")
    with refused(DataError, "b.csv", code="header"):
        read_sites(folder)
    (tmp_path / "twice.csv").write_text("0.5,0.0,0.0\n1.5,2.0,3.0\n")
    with refused(DataError, "twice.csv", code="header"):
        read_sites(tmp_path / "twice.csv")


def test_a_column_of_dates_is_to_be_named_as_the_time_first() -> None:
    hours = pd.date_range("2024-01-20", periods=60, freq="h")
    for form, also in (("%Y-%m-%d %H:%M", ()), ("%d.%m.%Y %H:%M", ("dates",))):
        rows = table(time=hours.strftime(form))
        with refused(DataError, "'time'", "time='time'", *also, code="not-numeric") as caught:
            read_sites(rows)
        sentence = str(caught.value)
        assert sentence.index("time='time'") < sentence.index("variables=")
        assert cut(rows, time="time", **({"day_first": True} if also else {})) == [60]


def test_a_column_of_text_is_refused() -> None:
    hours = pd.date_range("2024-01-01", periods=60, freq="h")
    for rows in (
        table(60, time=hours, ward=["a", "b"] * 30),
        table(60, ward=["a", "b"] * 30).drop(columns="y"),
        table(60, time=hours, note=[f"note {k}" for k in range(60)]).drop(columns="y"),
    ):
        with refused(DataError, code="not-numeric"):
            read_sites(rows)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
def test_a_fit_names_the_column_that_never_changes_at_one_site() -> None:
    sites = {name: table(n) for name, n in zip("abcd", (200, 210, 220, 230), strict=True)}
    sites["c"]["y"] = [7.0, np.nan] * 110
    assert only(feddbn.OneShotDBN().fit(sites).findings_, "constant").values["site"] == "c"
    sites["c"] = pd.concat([*[sites["c"]] * 12, table(9)], ignore_index=True)
    assert not feddbn.OneShotDBN().fit(sites).findings_.of("constant")
