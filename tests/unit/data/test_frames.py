"""Frames of other kinds are read as the frame of pandas with the same rows."""

import subprocess
import sys
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr

import feddbn
from feddbn.data import read_sites
from feddbn.data.tables import plain_frame
from feddbn.errors import DataError, InputError
from support.files import in_files, in_memory
from support.saying import refused

N = 60


class Capsule:
    """Nothing but an Arrow C stream, which is read once."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._reader = pa.Table.from_pandas(frame, preserve_index=False).to_reader()

    def __arrow_c_stream__(self, requested_schema=None):
        return self._reader.__arrow_c_stream__(requested_schema)


def relation(frame: pd.DataFrame):
    made = duckdb.connect()
    made.register("given", frame)
    return made.sql("SELECT * FROM given")


KINDS = {
    "polars": pl.from_pandas,
    "lazy polars": lambda frame: pl.from_pandas(frame).lazy(),
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "arrow stream": Capsule,
    "duckdb": relation,
}


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    x = rng.standard_normal(N).cumsum()
    y = np.roll(x, 1) + 0.1 * rng.standard_normal(N)
    y[7] = np.nan
    when = pd.date_range("2024-01-01", periods=N, freq="h")
    return pd.DataFrame({"ward": np.repeat(["b", "a"], N // 2), "when": when, "x": x, "y": y})


def blocks(sites):
    """Segments of all recordings; batches that go on are put together."""
    found = {}
    for name, site in sites.items():
        mine = found[name] = []
        for b in (b for r in site.recordings() for b in r.blocks()):
            if b.starts_segment or not mine:
                mine.append((b.time, b.values))
            else:
                mine[-1] = (mine[-1][0], np.concatenate([mine[-1][1], b.values]))
    return found


def same(one, other):
    assert list(one) == list(other)
    for name, found in one.items():
        assert len(found) == len(other[name])
        for (time, values), (its_time, its_values) in zip(found, other[name], strict=True):
            assert time == its_time
            np.testing.assert_array_equal(values, its_values)


@pytest.mark.parametrize("kind", KINDS)
def test_sites_and_recordings_by_name(kind):
    frame = rows().drop(columns="ward")
    parts = [frame.iloc[: N // 2], frame.iloc[N // 2 :].reset_index(drop=True)]
    expected = read_sites({"s": parts, "t": frame}, time="when")
    found = read_sites({"s": [KINDS[kind](part) for part in parts], "t": KINDS[kind](frame)}, time="when")
    same(blocks(found), blocks(expected))


@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers_with_empty_cells_levels_and_truths(kind):
    frame = pd.DataFrame(
        {
            "visits": pd.array([1, None, 3, 4], dtype="Int64"),
            "ward": ["north", "south", None, "north"],
            "open": [True, False, True, True],
        }
    )
    options = {"kinds": {"ward": ["north", "south"]}, "missing": "keep"}
    same(blocks(read_sites(KINDS[kind](frame), **options)), blocks(read_sites(frame, **options)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_a_check_and_a_forecast(kind):
    noise = np.random.default_rng(6).standard_normal((200, 2))
    frame = pd.DataFrame({"x": noise[1:, 0], "y": noise[:-1, 0] + noise[1:, 1]})
    model, its_model = (feddbn.OneShotDBN().fit({"s": one}) for one in (frame, KINDS[kind](frame)))
    np.testing.assert_array_equal(model.dbn_.W, its_model.dbn_.W)
    np.testing.assert_array_equal(model.dbn_.A, its_model.dbn_.A)
    assert feddbn.check({"s": KINDS[kind](frame)}).codes == feddbn.check({"s": frame}).codes
    assert list(feddbn.check({"s": KINDS[kind](frame)})) == list(feddbn.check({"s": frame}))
    ahead, its_ahead = (model.dbn_.forecast(one, steps=3).mean for one in (frame, KINDS[kind](frame)))
    np.testing.assert_array_equal(np.asarray(ahead), np.asarray(its_ahead))
    np.testing.assert_array_equal(model.dbn_.residuals(frame), model.dbn_.residuals(KINDS[kind](frame)))


def test_what_is_no_frame_is_left_alone_and_refused_by_its_type():
    for value in (np.zeros((2, 2)), {"a": 1}, [1, 2], None):
        assert plain_frame(value) is value
    with refused(DataError, "Series"):
        read_sites({"s": pl.Series("x", [1.0, 2.0])})


@pytest.mark.slow
def test_without_pyarrow_a_frame_of_polars_says_what_to_install():
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import polars as pl\n"
        "from feddbn.data import read_sites\n"
        "from feddbn.errors import MissingExtra\n"
        "try:\n"
        "    read_sites({'s': pl.DataFrame({'x': [1.0, 2.0]})})\n"
        "except MissingExtra as error:\n"
        "    print('feddbn[parquet]' in str(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.promise
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz", ".parquet", ".feather", ".arrow"])
@pytest.mark.parametrize("kept", [in_memory, in_files])
def test_files_of_every_kind(tmp_path, ending, kept):
    frame, path = rows(), tmp_path / f"s{ending}"
    if ending.startswith((".csv", ".tsv")):
        frame.to_csv(path, index=False, sep="\t" if ending == ".tsv" else ",")
    elif ending == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_feather(path)
    read = {"series": "ward", "time": "when", "missing": "keep"}
    with kept():
        found = read_sites(path, **read)
        same(blocks(found), blocks(read_sites({"s": frame}, **read)))
    assert [r.name for r in found["s"].recordings()] == ["b", "a"]
    model = feddbn.OneShotDBN().fit({"s": frame[["x", "y"]].dropna()})
    ahead, its = (
        model.dbn_.forecast(one, steps=2).mean for one in (frame.tail(3), pd.DataFrame(frame.tail(3)))
    )
    np.testing.assert_array_equal(ahead, its)


def labelled():
    values = np.random.default_rng(2).standard_normal((3, 20, 2))
    names = {
        "patient": ["p", "q", "r"],
        "when": pd.date_range("2024-01-01", periods=20, freq="h"),
        "what": ["x", "y"],
    }
    return xr.DataArray(values, dims=list(names), coords=names)


@pytest.mark.promise
@pytest.mark.parametrize("shape", ["array", "turned", "dataset", "plain", "numpy"])
def test_recordings_rows_and_variables_in_one_array(shape):
    given = labelled()
    frames = [
        pd.DataFrame(
            one.values, columns=["x", "y"], index=pd.DatetimeIndex(given["when"].values, name="when")
        )
        for one in given
    ]
    read = {}
    if shape == "turned":
        given = given.transpose("when", "patient", "what")
    elif shape == "dataset":
        given = given.to_dataset(dim="what")
    elif shape in ("plain", "numpy"):
        frames = [frame.reset_index(drop=True) for frame in frames]
        given = xr.DataArray(given.values) if shape == "plain" else given.values
        read = {"variables": ["x", "y"]} if shape == "numpy" else {}
        frames = frames if shape == "numpy" else [one.set_axis(["x0", "x1"], axis=1) for one in frames]
    expected = read_sites({"s": frames})
    found = read_sites({"s": given}, **read)
    assert found["s"].variables == expected["s"].variables
    same(blocks(found), blocks(expected))


def test_dimensions_may_name_sites_and_recordings():
    given = labelled()
    expected = read_sites({str(one.patient.values): one.to_pandas() for one in given})
    same(blocks(read_sites(given, site="patient")), blocks(expected))
    by_name = read_sites(
        {"s": given.rename(when="hour").assign_coords(hour=np.arange(20))}, series="patient", time="hour"
    )
    assert [r.name for r in by_name["s"].recordings()] == ["p", "q", "r"]
    wide = xr.DataArray(np.zeros((2, 2, 5, 2)), dims=["ward", "patient", "t", "what"])
    with refused(DataError, "ward", "patient"):
        read_sites({"s": wide})


@pytest.mark.parametrize("kept", [in_memory, in_files])
@pytest.mark.parametrize("change", ["twice", "decimal", "text"])
def test_what_a_text_file_has_in_its_cells_is_said_with_row_and_value(tmp_path, change, kept):
    lines = ["when;temp;pulse", *(f"{k};36.{k};7{k}" for k in range(9))]
    if change == "twice":
        lines[0] = "when;temp;temp"
    lines[5] = "4;36,5;74" if change == "decimal" else "4;n.d.;74" if change == "text" else lines[5]
    path = tmp_path / "s.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    with refused(DataError, "temp", code="twice" if change == "twice" else "not-numeric") as caught, kept():
        read_sites(path, time="when", separator=";")
    if change != "twice":
        assert caught.value.values["row"] == 4
        assert caught.value.values["cell"] == ("36,5" if change == "decimal" else "n.d.")
    assert ("decimal=','" in str(caught.value)) == (change == "decimal")


def test_exact_decimals_and_truths_beside_empty_cells_are_numbers():
    texts = ["0.1", "2.675", None, "1234567.891"]
    exact = pa.table(
        {
            "x": pa.array([None if t is None else Decimal(t) for t in texts], pa.decimal128(18, 3)),
            "open": pa.array([True, None, False, True]),
        }
    )
    expected = [[0.1, 1.0], [2.675, np.nan], [np.nan, 0.0], [1234567.891, 1.0]]
    for one in (exact, pl.from_arrow(exact), exact.to_pandas()):
        ((_, values),) = blocks(read_sites({"s": one}, missing="keep"))["s"]
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(
    ("lines", "options", "names", "code"),
    [
        (["t,temp", "0,36,5", "1,36,6"], {}, ("separator=", "decimal="), "not-csv"),
        (["t,temp", "0,36", "1,36,6"], {}, ("separator=", "line 3"), "not-csv"),
        (["t;temp", "0;36"], {}, ("separator=';'",), "separator"),
        (["t;temp", "0;36"], {"separator": "|"}, ("separator=';'",), "separator"),
        (["t\ttemp", "0\t36"], {"separator": ";"}, ("separator='\\t'",), "separator"),
        (["t,temp", "0,36"], {"decimal": ","}, ("separator=", "decimal=','"), ""),
        (["t,temp", "0,36", "1,\xe4"], {}, ("encoding='latin-1'",), "not-text"),
        (["t,temp", "0,36", "1,\xe4"], {"encoding": "utf-8"}, ("encoding='latin-1'", "utf-8"), "not-text"),
        (["t,temp", "0,36"], {"encoding": "utf-9"}, ("encoding='utf-9'",), ""),
        (["t,temp", "0,36"], {"separator": ";;"}, ("separator=';;'",), ""),
        (["t,temp", "0,36"], {"decimal": "|"}, ("decimal='|'",), ""),
    ],
)
def test_a_text_file_that_is_written_otherwise_says_which_option_it_needs(
    tmp_path, lines, options, names, code
):
    path = tmp_path / "s.csv"
    path.write_text("\n".join(lines), encoding="latin-1")
    with refused(InputError, *names, code=code):
        read_sites(path, **options)


def test_text_of_numbers_is_text():
    with refused(DataError, "'x'", code="not-numeric"):
        read_sites({"s": pl.DataFrame({"x": ["1.5", "2"], "y": [1.0, 2.0]})})
