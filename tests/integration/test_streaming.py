"""Sites on disk: the same statistics as in memory, in memory that does not grow with the rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feddbn.core.designs.recordings import SiteData, complete_blocks
from feddbn.core.statistics.moments import Moments
from feddbn.data import CsvSite, ParquetSite, read_sites, summary
from feddbn.errors import DataError
from support.saying import refused

MEASURE = """
import pathlib, resource, sys
import numpy as np
from feddbn.core.statistics.moments import Moments
from feddbn.data import ParquetSite

site = ParquetSite(sys.argv[1], [f"x{j}" for j in range(20)], time="t")
total = Moments.empty(40)
for recording in site.recordings():
    total = total.merge(Moments.of_blocks(recording.blocks(), 1, 20))
print(int(total.n), float(total.mean[0]), float(total.scatter[0, 0]), float(total.scatter[0, 20]))

# Linux lets ru_maxrss start at the size of the process that launched this one; VmHWM is this program's own.
status = pathlib.Path("/proc/self/status")
if status.exists():
    words = status.read_text().split()
    peak = int(words[words.index("VmHWM:") + 1]) * 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(peak)
"""


@pytest.mark.slow
def test_ten_million_rows_of_twenty_variables_stay_under_500_mb(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    rows_per_group, n_groups = 500_000, 20
    # The same group of float64 values is written twenty times with a running time column: real work to read,
    # quick to make.
    values = np.random.default_rng(0).integers(-8, 8, size=(rows_per_group, 20)).astype(float)
    path = tmp_path / "large.parquet"
    columns = {f"x{j}": pa.array(values[:, j]) for j in range(20)}
    schema = pa.schema([("t", pa.int64()), *((name, pa.float64()) for name in columns)])
    with pq.ParquetWriter(path, schema, compression="none") as writer:
        for group in range(n_groups):
            time = np.arange(group * rows_per_group, (group + 1) * rows_per_group)
            # One gap, between the two halves of the file.
            table = pa.table({"t": time + (group >= n_groups // 2) * 7, **columns}, schema=schema)
            writer.write_table(table, row_group_size=rows_per_group)
    try:
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(path)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
    finally:
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
    assert int(peak_bytes) < 500e6, f"peak {int(peak_bytes) / 1e6:.0f} MB"


def messy_frame(seed: int, n: int = 200, d: int = 3) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, d)) + 100
    values[rng.random((n, d)) < 0.01] = np.nan
    steps = rng.choice([1, 1, 1, 1, 1, 1, 1, 1, 1, 4], size=n)
    frame = pd.DataFrame(values, columns=list("abcdefgh"[:d]))
    frame.insert(0, "when", pd.Timestamp("2024-01-01") + pd.to_timedelta(np.cumsum(steps), unit="h"))
    frame.insert(0, "who", np.repeat(["r1", "r2", "r3", "r4"], n // 4))
    frame["phase"] = np.tile(["on", "off"], n // 2)
    return frame


def write(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")
    return path


def segments(site: SiteData) -> list[tuple[str, list[np.ndarray], list[list[object]]]]:
    """Name, joined segments and labels of each recording."""
    out = []
    for recording in site.recordings():
        pieces: list[list[np.ndarray]] = []
        labels: list[list[object]] = []
        for block in recording.blocks():
            if block.starts_segment:
                pieces.append([])
                labels.append([])
            pieces[-1].append(block.values)
            labels[-1].extend([] if block.labels is None else block.labels.tolist())
        out.append((recording.name, [np.concatenate(piece) for piece in pieces], labels))
    return out


def assert_same_site(one: SiteData, other: SiteData) -> None:
    assert one.variables == other.variables
    first, second = segments(one), segments(other)
    assert [name for name, _, _ in first] == [name for name, _, _ in second]
    for (_, a, la), (_, b, lb) in zip(first, second, strict=True):
        assert len(a) == len(b)
        assert la == lb
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
    for p in (0, 1, 3):
        d = len(one.variables)
        sums = []
        for site in (one, other):
            total = Moments.empty((p + 1) * d)
            for recording in site.recordings():
                total = total.merge(Moments.of_blocks(complete_blocks(recording.blocks()), p, d))
            sums.append(total)
        assert sums[0].n == sums[1].n
        np.testing.assert_allclose(sums[0].mean, sums[1].mean, rtol=1e-12)
        np.testing.assert_allclose(
            sums[0].scatter, sums[1].scatter, rtol=0, atol=1e-12 * np.abs(sums[0].scatter).max()
        )


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".tsv", ".csv.gz"])
@pytest.mark.parametrize("batch_rows", [7, 100_000])
def test_streamed_site_equals_memory_site(tmp_path: Path, suffix: str, batch_rows: int) -> None:
    frame = messy_frame(1)
    path = write(frame, tmp_path / f"B{suffix}")
    how = {"series": "who", "time": "when", "label": "phase", "missing": "drop"}
    memory = read_sites({"B": frame}, **how)["B"]
    cls = ParquetSite if suffix == ".parquet" else CsvSite
    streamed = cls(path, batch_rows=batch_rows, **how)
    if suffix == ".parquet":
        assert_same_site(memory, streamed)
    else:
        assert_same_site(read_sites(path, **how)["B"], streamed)
    assert streamed.n_dropped_rows == memory.n_dropped_rows > 0
    table = summary({"m": memory, "s": streamed}, n_lags=2)
    assert (table.loc["m"] == table.loc["s"]).all()


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_read_sites_streams_large_files_and_gives_the_same(tmp_path: Path, suffix: str) -> None:
    for name, seed in [("A", 2), ("B", 3)]:
        write(messy_frame(seed), tmp_path / f"{name}{suffix}")
    options = {"series": "who", "time": "when", "label": "phase"}
    memory = read_sites(tmp_path, **options)
    streamed = read_sites(tmp_path, **options, stream_bytes=0)
    assert {type(site).__name__ for site in streamed.values()} == {"FileSite"}
    assert {type(site).__name__ for site in memory.values()} == {"MemorySite"}
    assert list(memory) == list(streamed) == ["A", "B"]
    for name in memory:
        assert_same_site(memory[name], streamed[name])


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_long_file_streams_by_site(tmp_path: Path, suffix: str) -> None:
    frame = pd.concat([messy_frame(4).assign(place="B"), messy_frame(5).assign(place="A")], ignore_index=True)
    path = write(frame, tmp_path / f"all{suffix}")
    options = {"site": "place", "series": "who", "time": "when", "label": "phase"}
    memory, streamed = read_sites(path, **options), read_sites(path, **options, stream_bytes=0)
    assert list(memory) == list(streamed) == ["B", "A"]
    for name in memory:
        assert_same_site(memory[name], streamed[name])


def test_parquet_with_dates_in_its_index_streams_as_in_memory(tmp_path: Path) -> None:
    frame = messy_frame(6).drop(columns=["who", "phase"]).set_index("when")
    frame.to_parquet(tmp_path / "A.parquet")
    assert_same_site(read_sites(tmp_path)["A"], read_sites(tmp_path, stream_bytes=0)["A"])


def test_recordings_can_be_read_out_of_order_and_again(tmp_path: Path) -> None:
    path = write(messy_frame(8), tmp_path / "A.csv")
    site = CsvSite(path, series="who", time="when", batch_rows=16, label="phase")
    recordings = list(site.recordings())
    backward = [np.concatenate([b.values for b in r.blocks()]) for r in reversed(recordings)]
    forward = [np.concatenate([b.values for b in r.blocks()]) for r in site.recordings()]
    for a, b in zip(forward, reversed(backward), strict=True):
        np.testing.assert_array_equal(a, b)


def test_columns_of_a_streamed_site_are_aligned_by_name(tmp_path: Path) -> None:
    frame = messy_frame(9)[["a", "b", "c"]]
    streamed = CsvSite(write(frame[["c", "a", "b"]], tmp_path / "B.csv"))
    sites = read_sites({"A": frame, "B": streamed})
    assert sites["B"].variables == ("a", "b", "c")
    for (_, first, _), (_, second, _) in zip(segments(sites["A"]), segments(sites["B"]), strict=True):
        np.testing.assert_array_equal(np.concatenate(first), np.concatenate(second))
    assert sites["B"].n_dropped_rows == sites["A"].n_dropped_rows


def test_scattered_recording_in_a_large_file_is_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"who": ["a", "b", "a"], "x": [1.0, 2.0, 3.0]})
    site = CsvSite(write(frame, tmp_path / "S.csv"), series="who")
    with refused(DataError, "'a'", "S.csv", "'who'"):
        list(site.recordings())


def test_unsorted_time_across_batches_names_the_row(tmp_path: Path) -> None:
    frame = pd.DataFrame({"t": [0, 1, 2, 3, 3, 4], "x": np.arange(6.0)})
    site = ParquetSite(write(frame, tmp_path / "S.parquet"), time="t", batch_rows=4)
    with refused(DataError, "'S'", "'t'", "3 and 4"):
        list(next(site.recordings()).blocks())


def test_a_file_that_has_changed_since_it_was_opened_is_not_read(tmp_path):
    """F11: what names a version of data, and what is summed, are the same rows."""
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "1,2\n" * 50)
    site = CsvSite(path)
    assert sum(len(block.values) for one in site.recordings() for block in one.blocks()) == 50
    with open(path, "a", encoding="utf-8") as file:
        file.write("3,4\n")
    with pytest.raises(DataError):
        list(site.recordings())
