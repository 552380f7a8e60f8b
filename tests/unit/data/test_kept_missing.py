"""Several modules: rows with missing cells stay in their segment; whoever cannot use them sees the rows of before."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from feddbn.core.designs.recordings import Block, complete_blocks, complete_rows, stretches
from feddbn.data import read_sites, summary
from feddbn.data.doubts import certain_doubts
from feddbn.data.segments import MOST_EMPTY
from feddbn.runtime.site.open_site import about_data
from support.files import in_files, in_memory

Row = tuple[int, float, float]


def _holey(n: int, seed: int) -> np.ndarray:
    """Rows with single missing cells, short and long runs of empty rows, also at both ends."""
    rng = np.random.default_rng(seed)
    values = np.column_stack([np.arange(float(n)), rng.normal(size=n)])
    values[rng.random((n, 2)) < 0.15] = np.nan
    for start in rng.integers(0, n, size=5):
        values[start : start + rng.integers(1, 2 * MOST_EMPTY)] = np.nan
    values[: rng.integers(0, 3)] = np.nan
    return values


def _segments(blocks: list[Block]) -> list[list[tuple[float, ...]]]:
    """Segments as lists of (time, values, label)."""
    found: list[list[tuple[float, ...]]] = []
    for block in blocks:
        if block.starts_segment:
            found.append([])
        for k, row in enumerate(block.values):
            assert block.time is not None
            label = () if block.labels is None else (float(block.labels[k]),)
            found[-1].append((block.time + k, *np.nan_to_num(row, nan=-1e9).tolist(), *label))
    return found


def _by_hand(values: np.ndarray, times: np.ndarray, unlabelled: np.ndarray) -> list[list[int]]:
    """Row numbers of the segments, row after row."""
    found: list[list[int]] = []
    current: list[int] = []
    waiting: list[int] = []
    for t, row in enumerate(values):
        is_gap = t > 0 and times[t] > times[t - 1] + 1
        if is_gap or unlabelled[t]:
            found, current, waiting = [*found, current] if current else found, [], []
        if unlabelled[t]:
            continue
        if np.isnan(row).all():
            waiting = [*waiting, t] if current else []
            if len(waiting) > MOST_EMPTY:
                found, current, waiting = [*found, current], [], []
        else:
            current, waiting = [*current, *waiting, t], []
    return [*found, current] if current else found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("with_times", [False, True])
@pytest.mark.parametrize("kept", [in_memory, in_files])
def test_segments_are_those_found_row_by_row_whatever_the_batches(tmp_path, kept, seed, with_times) -> None:
    rng = np.random.default_rng([seed, 1])
    n = 150
    values = _holey(n, seed)
    times = np.cumsum(np.where(rng.random(n) < 0.03, 3, 1)) if with_times else np.arange(n)
    unlabelled = rng.random(n) < 0.03
    labels = np.where(unlabelled, np.nan, np.arange(n))
    expected = [
        [
            (float(times[t] - times[0]), *np.nan_to_num(values[t], nan=-1e9).tolist(), labels[t])
            for t in segment
        ]
        for segment in _by_hand(values, times, unlabelled)
    ]
    table = pd.DataFrame(values, columns=["a", "b"]).assign(label=labels, t=7 * times)
    (table if with_times else table.drop(columns="t")).to_parquet(tmp_path / "a.parquet")
    with kept(13):
        site = read_sites(tmp_path, label="label", time="t" if with_times else None)["a"]
        assert _segments([b for r in site.recordings() for b in r.blocks()]) == expected
    assert site.n_dropped_rows == n - sum(map(len, expected))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("p", [0, 1, 3])
def test_without_incomplete_rows_kept_data_are_dropped_data(seed: int, p: int) -> None:
    table = pd.DataFrame(_holey(120, seed), columns=["a", "b"])
    kept = read_sites({"A": table})["A"]
    dropped = read_sites({"A": table}, missing="drop")["A"]
    ours = [s for r in map(complete_rows, kept.recordings()) for s in stretches(r.blocks(), p)]
    theirs = [s for r in dropped.recordings() for s in stretches(r.blocks(), p)]
    assert [s.time for s in ours] == [s.time for s in theirs]
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
        assert one.starts_segment == other.starts_segment


def test_blocks_that_go_on_are_cut_where_a_row_is_left_out() -> None:
    x = np.arange(12.0)[:, None]
    x[[3, 4, 8]] = np.nan
    labels = np.arange(12)
    blocks = [
        Block(x[:4], labels=labels[:4]),
        Block(x[4:5], False, labels[4:5]),
        Block(x[5:7], False, labels[5:7]),
        Block(x[7:], False, labels[7:]),
    ]
    found = list(complete_blocks(blocks))
    assert [b.values[:, 0].tolist() for b in found] == [[0, 1, 2], [5, 6], [7], [9, 10, 11]]
    assert [b.starts_segment for b in found] == [True, True, False, True]
    assert [b.time for b in found] == [0, 5, 7, 9]
    assert [b.labels.tolist() for b in found if b.labels is not None] == [[0, 1, 2], [5, 6], [7], [9, 10, 11]]
    whole = Block(np.ones((3, 1)))
    assert next(complete_blocks([whole])) is whole


def test_a_site_counts_what_is_missing() -> None:
    values = np.arange(20.0).reshape(10, 2)
    values[4, 1] = np.nan
    values[7] = np.nan
    values[9] = np.nan
    sites = read_sites({"A": values}, missing="keep")
    assert summary(sites, n_lags=1).loc["A"].to_dict() == {
        "recordings": 1,
        "segments": 1,
        "rows": 9,
        "usable_rows": 8,
        "dropped_rows": 1,
        "complete_rows": 4,
        "missing_percent": pytest.approx(100 * 3 / 18),
    }
    told = about_data(sites["A"]).values
    assert (told["rows"], told["left_out"], told["complete"]) == (9, 1, 7)
    assert told["missing_percent"] == pytest.approx(100 * 3 / 18)
    dropped = read_sites({"A": values}, missing="drop")
    assert summary(dropped, n_lags=1).loc["A", "complete_rows"] == 4
    told = about_data(dropped["A"]).values
    assert (told["rows"], told["left_out"]) == (7, 3)


def test_checks_of_a_fit_look_at_the_cells_that_are_there() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200, 4))
    values[rng.random(values.shape) < 0.3] = np.nan
    values[5:9, 1] = -999.0
    values[:, 0] = np.arange(200.0)
    sites = read_sites({"A": values}, missing="keep")
    table = summary(sites, 1)
    found = {one.code: one for one in certain_doubts(sites, table, 1)}
    assert found["sentinel"].values["value"] == -999
    assert found["undeclared-time"].about == ("x0",)
    assert "usable-rows" in found
    as_used = certain_doubts(sites, table, 1, False)
    assert {one.code for one in as_used} == {"sentinel", "undeclared-time"}
