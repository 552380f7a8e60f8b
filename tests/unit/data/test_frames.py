"""Frames of other kinds are read as the frame of pandas with the same rows."""

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import feddbn
from feddbn.data import read_sites
from feddbn.data.preflight import preflight
from feddbn.data.tables import plain_frame
from feddbn.errors import DataError
from support.saying import refused

N = 60
KINDS = {
    "polars": pl.from_pandas,
    "lazy polars": lambda frame: pl.from_pandas(frame).lazy(),
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    x = rng.standard_normal(N).cumsum()
    y = np.roll(x, 1) + 0.1 * rng.standard_normal(N)
    y[7] = np.nan
    when = pd.date_range("2024-01-01", periods=N, freq="h")
    return pd.DataFrame({"ward": np.repeat(["b", "a"], N // 2), "when": when, "x": x, "y": y})


def blocks(sites):
    return {
        name: [(b.time, b.values) for r in site.recordings() for b in r.blocks()]
        for name, site in sites.items()
    }


def same(one, other):
    assert list(one) == list(other)
    for name, found in one.items():
        assert len(found) == len(other[name])
        for (time, values), (its_time, its_values) in zip(found, other[name], strict=True):
            assert time == its_time
            np.testing.assert_array_equal(values, its_values)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_table_of_all_sites(kind):
    frame = rows()
    expected = read_sites(frame, site="ward", time="when", missing="keep")
    found = read_sites(KINDS[kind](frame), site="ward", time="when", missing="keep")
    same(blocks(found), blocks(expected))


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
    other = KINDS[kind](frame)
    model, its_model = (feddbn.OneShotDBN().fit({"s": one}) for one in (frame, other))
    np.testing.assert_array_equal(model.dbn_.W, its_model.dbn_.W)
    np.testing.assert_array_equal(model.dbn_.A, its_model.dbn_.A)
    assert preflight({"s": other}).codes == preflight({"s": frame}).codes
    ahead, its_ahead = (model.dbn_.forecast(one, steps=3).mean for one in (frame, other))
    np.testing.assert_array_equal(np.asarray(ahead), np.asarray(its_ahead))
    np.testing.assert_array_equal(model.dbn_.residuals(frame), model.dbn_.residuals(other))


def test_what_is_no_frame_is_left_alone_and_refused_by_its_type():
    for value in (np.zeros((2, 2)), {"a": 1}, [1, 2], None):
        assert plain_frame(value) is value
    with refused(DataError, "Series"):
        read_sites({"s": pl.Series("x", [1.0, 2.0])})


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
