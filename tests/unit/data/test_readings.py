"""Readings become rows: the answers are those of pandas, and the order of rows does not change a bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.data import PLAUSIBLE, SqlTable, read_sites
from feddbn.errors import DataError, ParameterError
from support.files import in_files

LONG = {"series": "stay", "time": "t", "names": "what", "values": "x"}


def table(seed: int = 0, n: int = 600) -> pd.DataFrame:
    """Readings of three variables in two stays at irregular times, some of them twice, in no order."""
    rng = np.random.default_rng(seed)
    minutes = rng.integers(0, 3000, n)
    return pd.DataFrame(
        {
            "stay": rng.choice(["b", "a"], n),
            "t": pd.Timestamp("2024-03-01 10:07", tz="UTC") + pd.to_timedelta(minutes, unit="min"),
            "what": rng.choice(["pulse", "map", "other"], n, p=[0.6, 0.3, 0.1]),
            "x": np.round(rng.normal(80, 10, n), 1),
        }
    )


def rows_of(site: object, name: str) -> list[tuple[int | None, np.ndarray]]:
    found = {one.name: one for one in site.recordings()}  # type: ignore[attr-defined]
    return [(block.time, block.values) for block in found[name].blocks()]


def bits(site: object) -> list[tuple[object, ...]]:
    return [
        (one.name, block.time, block.starts_segment, block.values.tobytes())
        for one in site.recordings()  # type: ignore[attr-defined]
        for block in one.blocks()
    ]


@pytest.mark.parametrize("freq", ["1h", "20min", "D"])
def test_a_step_has_the_mean_of_its_readings_as_pandas_says(freq: str) -> None:
    long = table()
    site = read_sites(long, freq=freq, variables=["pulse", "map"], missing="keep", **LONG)["site-0"]
    assert site.variables == ("pulse", "map")
    assert [one.name for one in site.recordings()] == ["a", "b"]
    for name, one in long.groupby("stay"):
        wide = one.assign(t=one["t"].dt.floor(freq)).pivot_table(
            index="t", columns="what", values="x", aggfunc="mean"
        )
        wide = wide[["pulse", "map"]].dropna(how="all").asfreq(freq)
        seen = np.zeros(len(wide), dtype=bool)
        for time, values in rows_of(site, str(name)):
            here = slice(time, time + len(values))
            np.testing.assert_allclose(values, wide.to_numpy()[here], rtol=1e-13)
            seen[here] = True
        assert wide[~seen].isna().all(axis=None)


def test_names_are_variables_in_the_order_of_the_alphabet() -> None:
    assert read_sites(table(), freq="1h", **LONG)["site-0"].variables == ("map", "other", "pulse")


def test_the_order_of_rows_changes_no_bit() -> None:
    long = table(n=2000)
    long["x"] += np.random.default_rng(1).normal(size=len(long))
    read = {"freq": "2h", "missing": "keep", **LONG}
    first = bits(read_sites(long, **read)["site-0"])
    for seed in range(3):
        assert bits(read_sites(long.sample(frac=1, random_state=seed), **read)["site-0"]) == first


def test_equal_readings_keep_their_value() -> None:
    long = pd.DataFrame({"t": [0, 0, 0, 1], "what": "a", "x": [0.1, 0.1, 0.1, 0.3]})
    site = read_sites(long, time="t", names="what", values="x", freq=1)["site-0"]
    (block,) = next(site.recordings()).blocks()
    assert block.values.tolist() == [[0.1], [0.3]]


def test_wide_rows_are_averaged_cell_by_cell() -> None:
    rows = pd.DataFrame({"t": [0.1, 0.2, 2.5], "x": [1.0, 3.0, 5.0], "y": [np.nan, 4.0, 6.0]})
    site = read_sites(rows, time="t", irregular="average", freq=1, missing="keep")["site-0"]
    (block,) = next(site.recordings()).blocks()
    np.testing.assert_array_equal(block.values, [[2, 4], [np.nan, np.nan], [5, 6]])
    assert site.step == "1"


def test_all_recordings_share_the_grid() -> None:
    rows = pd.DataFrame({"s": ["a", "a", "b", "b"], "t": [9, 10, 11, 20], "x": [1.0, 2.0, 3.0, 4.0]})
    site = read_sites(rows, series="s", time="t", irregular="average", freq=10)["site-0"]
    assert [[block.values[:, 0].tolist() for block in one.blocks()] for one in site.recordings()] == [
        [[1.0, 2.0]],
        [[3.0, 4.0]],
    ]


@pytest.mark.parametrize(("freq", "step"), [("MS", "1MS"), ("QS", "3MS"), ("B", "1B"), ("W", "7D")])
def test_calendar_steps(freq: str, step: str) -> None:
    days = pd.date_range("2024-01-01", "2024-12-30", freq="D")
    rows = pd.DataFrame({"t": days, "x": np.arange(len(days), dtype=float)})
    site = read_sites(rows, time="t", irregular="average", freq=freq)["site-0"]
    (block,) = next(site.recordings()).blocks()
    assert site.step == step
    if freq in ("MS", "QS"):
        expected = rows.set_index("t")["x"].resample(freq).mean()
        np.testing.assert_allclose(block.values[:, 0], expected)
    assert len(block.values) == {"MS": 12, "QS": 4, "B": 261, "W": 53}[freq]


def test_a_level_is_the_last_one_of_its_step() -> None:
    long = pd.DataFrame(
        {
            "t": [0.0, 0.2, 0.4, 1.0],
            "what": ["ward", "ward", "x", "ward"],
            "x": ["north", "south", "1.5", "north"],
        }
    )
    kinds = {"ward": {"binary": ["north", "south"]}}
    site = read_sites(long, time="t", names="what", values="x", freq=1, kinds=kinds, missing="keep")["site-0"]
    (block,) = next(site.recordings()).blocks()
    np.testing.assert_array_equal(block.values, [[1, 1.5], [0, np.nan]])


def test_units_change_before_limits_and_beyond_them_is_empty() -> None:
    wide = pd.DataFrame({"temp": [98.6, 212.0, 100.4], "pulse": [60.0, 61.0, 62.0]})
    given = {"units": {"temp": ("F", "C"), "pulse": 2}, "limits": {"temp": (30, 45)}, "missing": "keep"}
    (block,) = next(read_sites(wide, **given)["site-0"].recordings()).blocks()
    np.testing.assert_allclose(block.values, [[37, 120], [np.nan, 122], [38, 124]])
    long = wide.rename_axis("t").reset_index().melt("t", var_name="what", value_name="x")
    site = read_sites(long, time="t", names="what", values="x", freq=1, variables=["temp", "pulse"], **given)
    (block,) = next(site["site-0"].recordings()).blocks()
    np.testing.assert_allclose(block.values, [[37, 120], [np.nan, 122], [38, 124]])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"names": "what"}, "values"),
        ({"values": "x"}, "names"),
        ({"names": "what", "values": "what"}, "names"),
        ({"irregular": "guess"}, "irregular"),
        ({"limits": {"x": (3, 1)}}, "limits"),
        ({"limits": 3}, "limits"),
        ({"units": {"x": ""}}, "units"),
        ({"units": {"x": 0}}, "units"),
        ({"units": {"x": ("F", "kg")}}, "F"),
    ],
)
def test_what_a_layout_cannot_be_is_said(given: dict[str, object], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        feddbn.Layout(**given)


@pytest.mark.parametrize(
    ("change", "given", "code"),
    [
        ({"x": ["1", "high", "3", "4"]}, {}, "not-numeric"),
        ({"x": [1.0, np.inf, 3.0, 4.0]}, {}, "infinite"),
        ({}, {"variables": ["a", "z"]}, "no-source"),
    ],
)
def test_what_cannot_be_read_is_said(change: dict[str, object], given: dict[str, object], code: str) -> None:
    long = pd.DataFrame({"t": [0, 1, 2, 3], "what": "a", "x": 1.0}).assign(**change)
    with pytest.raises(DataError) as found:
        read_sites(long, time="t", names="what", values="x", freq=1, **given)
    assert found.value.code == code


@pytest.mark.parametrize(("given", "needs"), [({"freq": "1h"}, "time"), ({"time": "t"}, "freq")])
def test_readings_need_times_and_a_step(given: dict[str, str], needs: str) -> None:
    long = pd.DataFrame({"t": pd.date_range("2024", periods=3), "what": "a", "x": 1.0})
    with pytest.raises(ParameterError) as found:
        read_sites(long, names="what", values="x", **given)
    assert found.value.code == f"needs-{needs}"


def remarks(site: object, code: str) -> list[dict[str, object]]:
    return [dict(one.values) for one in site.findings if one.code == code]  # type: ignore[attr-defined]


def test_what_is_averaged_and_left_out_is_counted_for_each_site() -> None:
    long = pd.concat([table(1).assign(ward="w"), table(2).assign(ward="v")])
    read = {"site": "ward", "freq": "1h", "limits": {"pulse": (70, 200)}, **LONG}
    for name, site in read_sites(long, **read).items():
        mine = long[long["ward"] == name]
        is_beyond = (mine["what"] == "pulse") & (mine["x"] < 70)
        (beyond,) = remarks(site, "beyond-limits")
        assert beyond["cells"] == {"pulse": int(is_beyond.sum())}
        used = mine[~is_beyond]
        cells = used.assign(t=used["t"].dt.floor("1h")).drop_duplicates(["stay", "t", "what"])
        (averaged,) = remarks(site, "averaged")
        assert (averaged["n"], averaged["n_values"]) == (len(used), len(cells))
        share = 1 - (cells["what"] == "pulse").sum() / (used["what"] == "pulse").sum()
        assert averaged["shares"]["pulse"] == pytest.approx(share)  # type: ignore[index]


def test_limits_of_wide_rows_are_counted_and_ready_ones_have_a_word() -> None:
    rows = pd.DataFrame({"heart_rate": [60.0, 400.0, 80.0], "other": [1e9, 0.0, 1.0]})
    site = read_sites(rows, limits="adult-icu", missing="keep")["site-0"]
    (block,) = next(site.recordings()).blocks()
    np.testing.assert_array_equal(block.values, [[60, 1e9], [np.nan, 0], [80, 1]])
    assert remarks(site, "beyond-limits") == [{"cells": {"heart_rate": 1}}]
    assert all(low < high for low, high in PLAUSIBLE["adult-icu"].values())
    with pytest.raises(ParameterError, match="adult-icu"):
        feddbn.Layout(limits="icu")


@pytest.mark.parametrize("wide", [False, True])
def test_tables_of_any_size_give_the_bits_of_memory(tmp_path: Path, wide: bool) -> None:
    long = pd.concat([table(4, 900).assign(ward="w"), table(5, 700).assign(ward="v")], ignore_index=True)
    long = long.sample(frac=1, random_state=0)
    long["x"] += np.random.default_rng(1).normal(size=len(long))
    read = {
        "site": "ward",
        "irregular": "average",
        "freq": "1h",
        "missing": "keep",
        "limits": {"pulse": (60, 99)},
    }
    read |= {"series": "stay", "time": "t"} if wide else LONG
    if wide:
        long = long.assign(pulse=long["x"], map=-long["x"]).drop(columns=["what", "x"])
    memory = read_sites(long, **read)
    path = tmp_path / "all.parquet"
    long.to_parquet(path, index=False)
    for source in (path, SqlTable(f"SELECT * FROM '{path}' ORDER BY t, stay, ward")):
        with in_files():
            found = read_sites(source, **read)
            assert {name: joined_bits(site) for name, site in found.items()} == {
                name: joined_bits(site) for name, site in memory.items()
            }
        for name, site in found.items():
            assert site.step == memory[name].step
            assert {one.code: one.values for one in site.findings} == {
                one.code: one.values for one in memory[name].findings
            }


def joined_bits(site: object) -> list[tuple[object, ...]]:
    """Name, first time and rows of every segment, which batches cut elsewhere."""
    found: list[tuple[object, ...]] = []
    for one in site.recordings():  # type: ignore[attr-defined]
        pieces: list[list[object]] = []
        for block in one.blocks():
            if block.starts_segment:
                pieces.append([block.time, b""])
            pieces[-1][1] += block.values.tobytes()  # type: ignore[operator]
        found.append((one.name, *map(tuple, pieces)))
    return found
