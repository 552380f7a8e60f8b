"""Rows are read once: the same bits whatever holds them, in files of the owner's alone where they are many."""

from __future__ import annotations

import gc
import os
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import feddbn
from feddbn.data import SqlTable, read_site, read_sites
from feddbn.data.layout import Layout
from support.files import in_files, in_memory

pytestmark = pytest.mark.promise

READ = {"site": "ward", "series": "stay", "time": "at"}
LONG = {"names": "what", "values": "value", "irregular": "refuse", "variables": ["x", "y"]}


def rows(seed: int, n: int, gaps: float, empty: float) -> pd.DataFrame:
    """Rows of two wards with two stays each, one after the other, with gaps in time and empty cells."""
    rng, parts = np.random.default_rng(seed), []
    for ward in "vw":
        for stay in ("p", "q"):
            at = np.cumsum(np.where(rng.random(n) < gaps, 5, 1))
            x = rng.normal(size=(n, 2))
            x[rng.random((n, 2)) < empty] = np.nan
            # Of a row without any cell a table of readings has no line.
            x[np.isnan(x).all(axis=1), 0] = 1.5
            parts.append(pd.DataFrame({"ward": ward, "stay": stay, "at": at, "x": x[:, 0], "y": x[:, 1]}))
    return pd.concat(parts, ignore_index=True)


def bits(sites: dict[str, Any]) -> dict[str, list[Any]]:
    """Name, time and rows of each segment; batches that go on are put together."""
    found: dict[str, list[Any]] = {}
    for name, site in sites.items():
        mine = found.setdefault(name, [site.step])
        for recording in site.recordings():
            for block in recording.blocks():
                if block.starts_segment:
                    mine.append([recording.name, block.time, b""])
                mine[-1][2] += block.values.tobytes()
    return found


def sources(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_parquet(folder / "rows.parquet", index=False, row_group_size=29)
    frame.to_feather(folder / "rows.arrow")
    query = f"SELECT * FROM '{folder / 'rows.parquet'}'"
    return {
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "polars, lazily": pl.from_pandas(frame).lazy(),
        "arrow": pa.Table.from_pandas(frame, preserve_index=False),
        "stream": pa.Table.from_pandas(frame, preserve_index=False).to_reader(11),
        "duckdb": duckdb.sql(query),
        "sql": SqlTable(query),
        **{kind: folder / f"rows.{kind}" for kind in ("csv", "parquet", "arrow")},
    }


@pytest.mark.parametrize("kept", [in_memory, in_files])
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.sampled_from([0, 0.1]), st.sampled_from([0, 0.3]))
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_same_bits_whatever_holds_the_rows_long_or_wide(tmp_path, kept, seed, n, gaps, empty):
    wide = rows(seed, n, gaps, empty)
    long = wide.melt(["ward", "stay", "at"], ["x", "y"], "what", "value").dropna()
    long = long.sample(frac=1, random_state=seed % 1000)
    expected = bits(read_sites(wide, freq=1, **READ))
    with kept():
        for table, read in ((wide, READ), (long, {**READ, **LONG})):
            for name, source in sources(table, tmp_path).items():
                assert bits(read_sites(source, freq=1, **read)) == expected, name
        mixed = wide.sample(frac=1, random_state=1)
        mixed.to_csv(tmp_path / "rows.csv", index=False)
        found = bits(read_sites(tmp_path / "rows.csv", freq=1, sort=True, **READ))
        assert {name: {one[0] for one in parts[1:]} for name, parts in found.items()} == {
            name: {"p", "q"} for name in expected
        }
        assert {name: sorted(map(repr, parts)) for name, parts in found.items()} == {
            name: sorted(map(repr, parts)) for name, parts in expected.items()
        }


@pytest.fixture
def opened(monkeypatch):
    """How often each file's rows are read."""
    count: Counter[str] = Counter()
    parquet, text = pq.ParquetFile.iter_batches, pd.read_csv

    def of_parquet(self, *args, **options):
        count["parquet"] += 1
        return parquet(self, *args, **options)

    def of_text(path, **options):
        # Its first lines say how a text file is written.
        count["csv"] += "nrows" not in options
        return text(path, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", of_parquet)
    monkeypatch.setattr(pd, "read_csv", of_text)
    return count


@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("kept", [in_memory, in_files])
def test_a_fit_and_a_check_read_a_source_once(tmp_path, opened, kept, kind):
    source = sources(rows(1, 150, 0.02, 0.02), tmp_path)[kind]
    with kept():
        feddbn.OneShotDBN(n_lags=1).fit(source, **READ)
        assert opened == {kind: 1}
        feddbn.check(source, **READ)
        assert opened == {kind: 2}
        feddbn.check(source, site="ward", series="stay", time="x")
        assert opened == {kind: 3}


@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
def test_a_fit_of_rows_in_files_is_that_of_rows_in_memory(tmp_path):
    source = sources(rows(2, 900, 0, 0.02), tmp_path)["parquet"]
    expected = feddbn.OneShotDBN().fit(source, **READ)
    with in_files(500):
        found = feddbn.OneShotDBN().fit(source, **READ)
    np.testing.assert_allclose(found.W_, expected.W_, atol=1e-10)
    np.testing.assert_allclose(found.A_, expected.A_, atol=1e-10)
    assert found.findings_.codes == expected.findings_.codes


def test_files_of_rows_are_the_owners_alone_where_the_owner_says_and_go_away(tmp_path):
    source, place = sources(rows(3, 100, 0, 0), tmp_path)["csv"], tmp_path / "place"
    place.mkdir()
    with in_files():
        sites = read_sites(source, place=place, **READ)
        (folder,) = place.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        files = list(folder.iterdir())
        assert {stat.S_IMODE(one.stat().st_mode) for one in files} == {0o600}
        assert sum(one.stat().st_size for one in files) == 4 * 100 * 2 * 8
        assert (
            sum(len(b.values) for site in sites.values() for r in site.recordings() for b in r.blocks())
            == 400
        )
    del sites
    gc.collect()
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"x": np.inf}, "infinite"),
        ({"x": "?"}, "not-numeric"),
        ({"at": 1}, "same-time"),
        ({"at": "?"}, "no-times"),
    ],
)
@pytest.mark.parametrize("kept", [in_memory, in_files])
def test_reading_never_raises_about_rows_and_has_their_profile(tmp_path, kept, change, code):
    frame = rows(4, 100, 0, 0).query("ward == 'v'").drop(columns="ward").assign(**change)
    frame.to_parquet(tmp_path / "rows.parquet")
    with kept():
        site = read_site(tmp_path / "rows.parquet", Layout(series="stay", time="at"), "a")
    assert site.refused is not None
    assert (site.refused.code, list(site.recordings())) == (code, [])
    assert site.profile is not None
    assert (site.profile.n_rows, site.profile.columns) == (200, ("x", "y"))
    assert "y" in site.profile.numeric


MEASURE = """
import pathlib, sys
import feddbn
from feddbn.data import read_site
from feddbn.core.statistics.moments import Moments

site = read_site(sys.argv[1], feddbn.Layout(time="t"))
total = Moments.empty(40)
for recording in site.recordings():
    total = total.merge(Moments.of_blocks(recording.blocks(), 1, 20))
print(int(total.n), float(total.mean[0]), float(total.scatter[0, 0]), float(total.scatter[0, 20]))
words = pathlib.Path("/proc/self/status").read_text().split()
print(int(words[words.index("VmHWM:") + 1]) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are told by Linux")
def test_ten_million_rows_of_twenty_variables_stay_under_400_mb(tmp_path):
    a_group, n_groups = 500_000, 20
    # The same group of values twenty times with a running time: real work to read, quick to make.
    values = np.random.default_rng(0).integers(-8, 8, size=(a_group, 20)).astype(float)
    path = tmp_path / "large.parquet"
    columns = {f"x{j}": pa.array(values[:, j]) for j in range(20)}
    schema = pa.schema([("t", pa.int64()), *((name, pa.float64()) for name in columns)])
    with pq.ParquetWriter(path, schema, compression="none") as writer:
        for group in range(n_groups):
            # One gap, between the two halves of the file.
            time = np.arange(group * a_group, (group + 1) * a_group) + (group >= n_groups // 2) * 7
            writer.write_table(pa.table({"t": time, **columns}, schema=schema), row_group_size=a_group)
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **threads},
    )
    path.unlink()
    assert done.returncode == 0, done.stderr
    first, peak_bytes = done.stdout.strip().splitlines()
    n, mean, scatter, lagged = (float(word) for word in first.split())
    assert n == 10_000_000 - 2
    x = values[:, 0]
    total = n_groups * x.sum() - x[0] * 2
    assert mean == pytest.approx(total / n, rel=1e-9)
    assert scatter == pytest.approx(n_groups * (x**2).sum() - 2 * x[0] ** 2 - total**2 / n, rel=1e-9)
    products = n_groups * (x[1:] * x[:-1]).sum() + (n_groups - 2) * x[0] * x[-1]
    before = n_groups * x.sum() - 2 * x[-1]
    assert lagged == pytest.approx(products - total * before / n, rel=1e-7)
    assert int(peak_bytes) < 400e6, f"peak {int(peak_bytes) / 1e6:.0f} MB"
