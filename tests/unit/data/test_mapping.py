"""A table that a TOML file describes: the same rows, whatever it is kept in and whatever a site calls its variables."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.analysis.history import read_history
from feddbn.data import SqlTable, read_sites
from feddbn.errors import DataError, FeddbnError, FileError, ParameterError
from support.files import in_files, in_memory

duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")

CONCEPTS = {"pulse": 3027018, "sbp": 3004249, "temp": 3020891}
READ = {"series": "stay", "time": "at", "names": "what", "values": "value", "freq": "1h"}
LIMITS = {"pulse": (10, 300), "temp": (25, 45)}


def readings(n_hours=60, n_stays=3, seed=0):
    """A long table: some readings an hour of each variable, in the order in which they were written down."""
    rng, parts = np.random.default_rng(seed), []
    for stay in range(n_stays):
        for k, name in enumerate(CONCEPTS):
            n = int(rng.integers(n_hours, 2 * n_hours))
            minutes = np.sort(rng.choice(60 * n_hours, n, replace=False))
            level = {"pulse": 80.0, "sbp": 120.0, "temp": 37.0}[name]
            values = np.round(level + rng.normal(size=n) + np.sin(minutes / 300 + k), 1)
            values[rng.random(n) < 0.02] = 801.0
            times = pd.Timestamp("2180-01-01", tz="UTC") + pd.to_timedelta(minutes, unit="min")
            parts.append(pd.DataFrame({"stay": f"{stay + 8}", "at": times, "what": name, "value": values}))
    table = pd.concat(parts, ignore_index=True).sort_values("at", kind="stable", ignore_index=True)
    return table


def blocks(site):
    return [
        (recording.name, block.time, block.values)
        for recording in site.recordings()
        for block in recording.blocks()
    ]


def assert_same_bits(one, other):
    assert tuple(one.variables) == tuple(other.variables)
    found, expected = blocks(one), blocks(other)
    assert [part[:2] for part in found] == [part[:2] for part in expected]
    for (*_, a), (*_, b) in zip(found, expected, strict=True):
        assert a.tobytes() == b.tobytes()


def written(folder, text, name="site.toml"):
    (folder / name).write_text(text)
    return folder / name


KEYS = 'series = "stay"\ntime = "at"\nnames = "what"\nvalues = "value"\nfreq = "1h"\n'
VARIABLES = "[variables]\npulse = {limits = [10, 300]}\nsbp = {}\ntemp = {limits = [25, 45]}\n"


@pytest.fixture
def long(tmp_path):
    table = readings()
    table.to_parquet(tmp_path / "vitals.parquet")
    return table


@pytest.fixture
def expected(long):
    return read_sites(long, variables=list(CONCEPTS), limits=LIMITS, missing="keep", **READ)["site-0"]


def omop(long, path, seed=1):
    """The same readings as the table `measurement`, in no order."""
    table = pd.DataFrame(
        {
            "person_id": long["stay"].astype(int),
            "measurement_datetime": long["at"].dt.tz_localize(None),
            "measurement_concept_id": long["what"].map(CONCEPTS),
            "value_as_number": long["value"],
        }
    ).sample(frac=1, random_state=seed)
    with duckdb.connect(str(path)) as file:
        file.register("rows", table)
        file.execute("CREATE TABLE measurement AS SELECT * FROM rows")


@pytest.mark.promise
def test_the_same_bits_from_frames_files_sql_and_a_table_of_concepts(long, expected, tmp_path):
    said = {"variables": {"pulse": {"limits": [10, 300]}, "sbp": {}, "temp": {"limits": [25, 45]}}, **READ}
    query = f"SELECT * FROM '{tmp_path / 'vitals.parquet'}'"
    sources = {
        "pandas": long,
        "polars": polars.from_pandas(long),
        "polars, lazily": polars.from_pandas(long).lazy(),
        "arrow": polars.from_pandas(long).to_arrow(),
        "duckdb": duckdb.sql(query),
        "sql": SqlTable(query),
        "parquet": tmp_path / "vitals.parquet",
    }
    for name, source in sources.items():
        (site,) = read_sites({name: source}, missing="keep", **said).values()
        assert_same_bits(site, expected)
    omop(long, tmp_path / "omop.duckdb")
    described = {
        "by path": 'data = "vitals.parquet"\n' + KEYS + VARIABLES,
        "by sql": "data = {sql = \"FROM 'vitals.parquet'\"}\n" + KEYS + VARIABLES,
        "omop": 'data = {sql = "FROM measurement", database = "omop.duckdb"}\nseries = "person_id"\n'
        'time = "measurement_datetime"\nnames = "measurement_concept_id"\nvalues = "value_as_number"\nfreq = "1h"\n'
        "[variables]\npulse = {name = 3027018, limits = [10, 300]}\nsbp = 3004249\n"
        "temp = {name = [3020891, 3016502], limits = [25, 45]}\n",
    }
    for text in described.values():
        for kept in (in_memory, partial(in_files, 1000)):
            with kept():
                (site,) = read_sites(written(tmp_path, text)).values()
                assert_same_bits(site, expected)


@pytest.mark.slow
def test_a_fit_on_mapped_tables_has_the_bits_of_a_fit_on_the_frames(long, tmp_path):
    other = readings(seed=5)
    other.to_csv(tmp_path / "other.csv", index=False)
    omop(long, tmp_path / "omop.duckdb")
    folder = tmp_path / "sites"
    folder.mkdir()
    written(
        folder,
        'data = {sql = "FROM measurement", database = "../omop.duckdb"}\nseries = "person_id"\n'
        'time = "measurement_datetime"\nnames = "measurement_concept_id"\nvalues = "value_as_number"\nfreq = "1h"\n'
        "[variables]\npulse = 3027018\nsbp = 3004249\ntemp = {name = 3020891, limits = [25, 45]}\n",
        "a.toml",
    )
    written(
        folder,
        'data = "../other.csv"\n' + KEYS + "[variables]\npulse = {}\nsbp = {}\ntemp = {limits = [25, 45]}\n",
        "b.toml",
    )
    frames = {"a": long, "b": other}
    one = feddbn.OneShotDBN(n_lags=1).fit(folder)
    two = feddbn.OneShotDBN(n_lags=1).fit(frames, variables=list(CONCEPTS), limits={"temp": (25, 45)}, **READ)
    assert one.dbn_.variables == two.dbn_.variables
    assert one.dbn_.W.tobytes() == two.dbn_.W.tobytes()
    assert one.dbn_.A.tobytes() == two.dbn_.A.tobytes()


def test_a_check_of_a_described_table_says_what_one_of_the_frame_says(long, tmp_path):
    described = feddbn.check(written(tmp_path, 'data = "vitals.parquet"\n' + KEYS + VARIABLES))
    plain = feddbn.check({"site": long}, variables=list(CONCEPTS), limits=LIMITS, **READ)
    assert {"beyond-limits", "averaged"} <= set(described.codes)
    assert [one.to_dict() for one in described] == [one.to_dict() for one in plain]


def test_a_forecast_goes_on_from_a_described_recording(long, tmp_path):
    one = long[long["stay"] == "8"]
    one.to_parquet(tmp_path / "vitals.parquet")
    path = written(tmp_path, 'data = "vitals.parquet"\n' + KEYS + VARIABLES)
    names = ("sbp", "pulse")
    found = read_history(path, names)
    plain = read_history(one, names, feddbn.Layout(limits=LIMITS, **READ))
    np.testing.assert_array_equal(found.rows, plain.rows)
    assert found.last == plain.last


def test_units_are_changed_before_limits(long, expected, tmp_path):
    table = long.assign(value=np.where(long["what"] == "temp", long["value"] * 9 / 5 + 32, long["value"]))
    table.loc[table["what"] == "sbp", "value"] /= 7.500615758456563
    table.to_parquet(tmp_path / "vitals.parquet")
    said = (
        "[variables]\npulse = {limits = [10, 300]}\nsbp = {unit = 'kPa', to = 'mmHg'}\n"
        "temp = {unit = 'F', to = 'C', limits = [25, 45]}\n"
    )
    (site,) = read_sites(
        written(tmp_path, 'data = "vitals.parquet"\n' + KEYS + said), missing="keep"
    ).values()
    for (*_, a), (*_, b) in zip(blocks(site), blocks(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


@pytest.mark.parametrize("kept", [in_memory, in_files])
def test_columns_of_a_wide_table_have_the_names_of_the_study(tmp_path, kept):
    rng = np.random.default_rng(0)
    wide = pd.DataFrame({"HR": 80 + rng.normal(size=50), "BT": 98 + rng.normal(size=50), "note": "x"})
    wide.to_csv(tmp_path / "wide.csv", index=False)
    said = {"variables": {"pulse": "HR", "temp": {"name": "BT", "unit": "F", "to": "C", "limits": [36, 38]}}}
    with kept(100):
        (site,) = read_sites(tmp_path / "wide.csv", **said).values()
        (found,) = [values for *_, values in blocks(site)]
    assert tuple(site.variables) == ("pulse", "temp")
    temp = (wide["BT"].to_numpy() - 32) * 5 / 9
    temp[(temp < 36) | (temp > 38)] = np.nan
    np.testing.assert_allclose(found, np.column_stack([wide["HR"], temp]), rtol=1e-9)


@pytest.mark.parametrize(
    ("text", "kind", "word"),
    [
        ("[variables]\npuls = {}\n", DataError, "pulse"),
        ("[variables]\nsbp = {unit = 'kpa', to = 'mmHg'}\n", ParameterError, "kPa"),
        ("[variables]\nsbp = {}\nother = 'sbp'\n", ParameterError, "twice"),
        ("[variables]\nsbp = {nme = 'sbp'}\n", ParameterError, "name"),
        ("[variables]\nsbp = {}\nsbp = {}\n", FileError, "TOML"),
        ("serie = 'stay'\n", ParameterError, "series"),
    ],
)
def test_a_bad_mapping_is_one_sentence(long, tmp_path, text, kind, word):
    path = written(tmp_path, 'data = "vitals.parquet"\n' + KEYS + text)
    with pytest.raises(kind) as refused:
        read_sites(path)
    assert word in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_name_that_no_site_of_a_table_has_is_refused_with_the_nearest(long):
    with pytest.raises(DataError, match="'pulse'") as refused:
        read_sites(long.assign(ward="a"), site="ward", variables=["puls", "sbp"], **READ)
    assert refused.value.code == "no-source"


def test_a_column_that_is_not_there_and_a_file_without_data_are_refused(long, tmp_path):
    text = ('data = "vitals.parquet"\n' + KEYS).replace('"at"', '"when"')
    with pytest.raises(DataError, match="when"):
        read_sites(written(tmp_path, text))
    with pytest.raises(ParameterError, match="data"):
        read_sites(written(tmp_path, KEYS))
    with pytest.raises(FeddbnError, match=r"no-such\.parquet"):
        read_sites(written(tmp_path, 'data = "no-such.parquet"\n'))


def test_a_folder_of_tables_with_some_other_toml_is_still_a_folder_of_tables(tmp_path):
    pd.DataFrame({"x": np.arange(9.0), "y": 1.0}).to_csv(tmp_path / "a.csv", index=False)
    written(tmp_path, 'name = "study"\n', "study.toml")
    assert list(read_sites(tmp_path)) == ["a"]


def test_what_is_said_by_name_is_said_instead_of_the_file(long, tmp_path):
    path = written(tmp_path, 'data = "vitals.parquet"\n' + KEYS + VARIABLES)
    (site,) = read_sites(path, freq="2h", variables=["sbp"]).values()
    assert tuple(site.variables) == ("sbp",)
    assert Path(path).exists()


@pytest.mark.parametrize("kept", [in_memory, in_files])
def test_irregular_rows_of_a_wide_table_have_the_names_of_the_study(tmp_path, kept):
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta([5, 50, 70, 130, 190, 200, 260], unit="min")
    wide = pd.DataFrame({"when": times, "HR": np.arange(60.0, 67.0), "BT": 98.6, "pulse": "no number"})
    wide.to_parquet(tmp_path / "wide.parquet")
    variables = {"pulse": "HR", "temp": {"name": "BT", "unit": "F", "to": "C"}}
    read = {"time": "when", "irregular": "average", "freq": "1h", "variables": variables}
    with kept():
        (site,) = read_sites(tmp_path / "wide.parquet", **read).values()
        (found,) = [values for *_, values in blocks(site)]
    np.testing.assert_allclose(found[:, 0], [60.5, 62, 63, 64.5, 66])
    np.testing.assert_allclose(found[:, 1], 37)
