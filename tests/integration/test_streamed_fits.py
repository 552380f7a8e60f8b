"""Default fits of sites on disk: the answers of sites in memory, in few readings, with one file open at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feddbn import AS_THEY_ARE, OneShotDBN
from feddbn.core.designs.recordings import CompleteRows, SiteData, stretches, usable_runs
from feddbn.data import ParquetSite, read_sites, summary
from feddbn.data.tables import ParquetTable

pytest.importorskip("pyarrow")


def _write(folder: Path, n_files: int = 2, n: int = 2500, trend: float = 0.0) -> list[Path]:
    rng = np.random.default_rng(0)
    paths = []
    for number in range(n_files):
        x = rng.normal(size=(n, 3))
        for t in range(1, n):
            x[t, 1] += 0.6 * x[t, 0] + 0.5 * x[t - 1, 1]
        x += trend * np.linspace(0, 1, n)[:, None]
        paths.append(folder / f"r{number}.parquet")
        # Columns of three kinds of numbers, which are read by different ways.
        pd.DataFrame(
            {"a": x[:, 0], "b": x[:, 1].astype(np.float32), "c": np.round(9 * x[:, 2]).astype(int)}
        ).to_parquet(paths[-1], row_group_size=900)
    return paths


def _answers(site: SiteData, **arguments: Any) -> tuple[OneShotDBN, list[tuple[str, np.ndarray]]]:
    asked: list[tuple[str, np.ndarray]] = []
    model = OneShotDBN(**arguments).fit(
        {"s": site}, observer=lambda task, answer: asked.append((task.question.name, np.array(answer.value)))
    )
    return model, asked


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("batch_rows", "trend"), [(499, 8.0), (1024, 0.0)])
def test_a_default_fit_gives_the_answers_of_a_site_in_memory_for_any_batch(
    tmp_path: Path, batch_rows: int, trend: float
) -> None:
    paths = _write(tmp_path, trend=trend)
    frames = [pd.read_parquet(path) for path in paths]
    expected, in_memory = _answers(read_sites({"s": frames})["s"])
    found, streamed = _answers(ParquetSite(paths, batch_rows=batch_rows))
    assert [name for name, _ in streamed] == [name for name, _ in in_memory]
    for (name, x), (_, y) in zip(streamed, in_memory, strict=True):
        if name == "survey.first":
            # Spectra are of batches; counts of rows, recordings, empty and far cells are not.
            x, y = (np.concatenate([v[:3], v[5 : 5 + 3 * 3]]) for v in (x, y))
            np.testing.assert_array_equal(x, y)
        if name == "gram.rows":
            # Shapes are a hint, of first batches: their number and two numbers for each variable.
            x, y = x[:-7], y[:-7]
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-11 * np.abs(y).max())
    np.testing.assert_allclose(found.W_, expected.W_, atol=1e-10)
    np.testing.assert_allclose(found.A_, expected.A_, atol=1e-10)
    assert found.W_[0, 1] != 0


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Counts readings of files, and how many are open at most."""
    count = {"now": 0, "most": 0, "readings": 0}
    plain = ParquetTable._rows

    def watched(self: ParquetTable, *given: Any) -> Iterator[pd.DataFrame]:
        count["readings"] += 1
        count["now"] += 1
        count["most"] = max(count["most"], count["now"])
        try:
            yield from plain(self, *given)
        finally:
            count["now"] -= 1

    monkeypatch.setattr(ParquetTable, "_rows", watched)
    return count


@pytest.mark.parametrize(
    ("arguments", "n_readings"), [({}, 7), ({"prepare": AS_THEY_ARE, "check_residuals": False}, 4)]
)
def test_every_file_is_read_seven_times_by_default_and_four_times_as_it_is(
    tmp_path: Path, opened: dict[str, int], arguments: dict[str, Any], n_readings: int
) -> None:
    site = ParquetSite(_write(tmp_path, 3), batch_rows=1000)
    model, _ = _answers(site, **arguments)
    assert model.n_samples_ == 3 * 2499
    # Looks at the first rows, to see whether there is anything to warn of, open files again.
    looks = opened["readings"] - 3 * n_readings
    assert 0 <= looks <= 9


def test_a_file_is_closed_when_it_ends(tmp_path: Path, opened: dict[str, int]) -> None:
    """An open file holds megabytes, so that memory would grow with the number of files."""
    site = ParquetSite(_write(tmp_path, 5, n=700), batch_rows=300)
    for recording in list(site.recordings()):
        assert sum(len(block.values) for block in recording.blocks()) == 700
    assert opened == {"now": 0, "most": 1, "readings": 5}
    assert summary({"s": site}, 1)["dropped_rows"].tolist() == [0]
    assert opened["readings"] == 10
    # A look at first rows leaves files in their middle.
    for recording in site.recordings():
        assert len(next(iter(recording.blocks())).values) == 300
    assert opened["most"] == 1


@pytest.mark.parametrize("missing", ["drop", "keep"])
@pytest.mark.parametrize("holes", [0, 3])
@pytest.mark.parametrize("batch_rows", [7, 64, 1000])
def test_segments_are_known_once_they_were_read(
    tmp_path: Path, missing: str, holes: int, batch_rows: int
) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    frame.insert(0, "t", np.arange(200) + 5 * (np.arange(200) >= 120))
    frame.loc[rng.choice(200, holes, replace=False), "a"] = np.nan
    frame.to_parquet(tmp_path / "r.parquet")
    site = ParquetSite(tmp_path / "r.parquet", time="t", missing=missing, batch_rows=batch_rows)
    first = next(site.recordings())
    assert first.known_segments() is None
    list(first.blocks())
    recording = CompleteRows(next(site.recordings()))
    known = recording.known_segments()
    assert (known is None) == (missing == "keep" and holes > 0)
    assert site.n_dropped_rows == (holes if missing == "drop" else 0)
    for p in (0, 1, 4):
        read = [part.time + np.arange(len(part.values) - p) for part in stretches(recording.blocks(), p)]
        runs = [time + np.arange(n) for time, n in usable_runs(recording, p)]
        np.testing.assert_array_equal(np.concatenate(runs), np.concatenate(read))
