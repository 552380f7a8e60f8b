"""Moments of blocks of rows: against rows cut by hand, over sites, and added up."""

import numpy as np
import pandas as pd
import pytest

from feddbn.core.statistics.moments import Moments
from feddbn.data import read_sites
from feddbn.errors import DataError, ProtocolError
from feddbn.federation.programs.changing import block_moments_program
from feddbn.federation.protocol.task import Task, run_program
from feddbn.federation.sums.gram import GramQuestion
from support.files import in_files, in_memory
from support.saying import refused
from support.sites import federation_of

NAMES = ("a", "b", "c")


def federation(data):
    return federation_of(read_sites(data, variables=list(NAMES), missing="keep"))


def recordings(seed, lengths=(103, 97), d=3):
    rng = np.random.default_rng(seed)
    return {
        f"s{k}": pd.DataFrame(rng.normal(size=(n, d)).cumsum(axis=0) + 10 * k, columns=list(NAMES))
        for k, n in enumerate(lengths)
    }


def asked(data, **more):
    question = GramQuestion(n_lags=2, variables=NAMES, block_rows=16, n_blocks=5, **more)
    return run_program(block_moments_program(question), federation(data))


def same(one, other):
    assert one.n == other.n
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-9)
    np.testing.assert_allclose(one.scatter, other.scatter, rtol=1e-8, atol=1e-7)


def test_blocks_are_rows_cut_by_hand_and_lags_reach_back():
    data = recordings(0)
    blocks = asked(data)
    for b, (start, stop) in enumerate([(0, 16), (16, 32), (32, 48), (48, 64), (64, 200)]):
        total = Moments.empty(9)
        for frame in data.values():
            x = frame.to_numpy()
            rows = [
                np.concatenate([x[t], x[t - 1], x[t - 2]]) for t in range(max(start, 2), min(stop, len(x)))
            ]
            total = total.merge(Moments.of_rows(np.array(rows)))
        same(blocks[b], total)


@pytest.mark.parametrize(
    "treatment",
    [
        {},
        {"center": "recording"},
        {"center": "recording", "degree": 2, "periods": (12.0,)},
        {"origin": np.full(9, 7.0)},
    ],
)
def test_blocks_add_up_to_the_moments_of_all_rows(treatment):
    data = recordings(1)
    data["s0"].iloc[50, 1] = np.nan
    blocks = asked(data, **treatment)
    total = blocks[0]
    for one in blocks[1:]:
        total = total.merge(one)
    question = GramQuestion(n_lags=2, variables=NAMES, **treatment)
    answer = federation(data).sum(Task(question)).value
    expected = Moments.from_sums(answer, 9, treatment.get("origin"))
    same(total, expected)
    assert total.n == 103 + 97 - 4 - 3


def test_the_sum_of_sites_is_that_of_one_site_with_all_recordings():
    data = recordings(2)
    pooled = {"all": list(data.values())}
    for one, other in zip(asked(data), asked(pooled), strict=True):
        same(one, other)


def test_a_short_recording_has_no_rows_in_late_blocks():
    blocks = asked(recordings(3, (100, 45)))
    assert [block.n for block in blocks] == [14 + 14, 32, 16 + 13, 16, 36]


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"fold": (0, 2, 500)}, "'fold'"),
        ({"row_model": np.zeros((10, 9))}, "'row_model'"),
        ({"n_blocks": 61}, "n_blocks=61"),
        ({"calendar": "M"}, "'calendar'"),
        ({"block_rows": 20}, "'block_rows' is 20"),
    ],
)
def test_a_question_that_cannot_be_is_none(wrong, name):
    with refused(ProtocolError, name, code="bad-question"):
        GramQuestion(**{"n_lags": 2, "variables": NAMES, "block_rows": 16, "n_blocks": 5, **wrong})


def dated(n_rows, begins, step="D"):
    rng = np.random.default_rng(len(begins) + n_rows)
    frame = pd.DataFrame(rng.normal(size=(n_rows, 3)), columns=list(NAMES))
    return frame.set_index(pd.date_range(begins, periods=n_rows, freq=step))


@pytest.mark.parametrize(
    ("unit", "first", "step", "key"),
    [
        ("M", 648, "D", lambda day: (day.year - 1970) * 12 + day.month - 1),
        ("W", 2818, "D", lambda day: (day.toordinal() - 719160) // 7),
        ("h", 473352, "20min", lambda day: int(day.timestamp() // 3600)),
    ],
)
def test_blocks_of_the_calendar_are_rows_by_their_dates_wherever_recordings_begin(unit, first, step, key):
    # The first of January 2024 is a Monday, the 2818th since that of the week in which 1970 began.
    frames = {
        "a": dated(90, "2024-01-01", step),
        "b": dated(70, "2024-01-20" if step == "D" else "2024-01-01 05:00", step),
    }
    federation = federation_of(read_sites(frames, label="@time", missing="keep"))
    question = GramQuestion(
        n_lags=1, variables=NAMES, block_rows=0, n_blocks=30, calendar=unit, first_block=first
    )
    blocks = run_program(block_moments_program(question), federation)
    assert key(frames["a"].index[0]) == first
    for b, found in enumerate(blocks):
        rows = [
            np.concatenate([x[t], x[t - 1]])
            for frame in frames.values()
            for x in [frame.to_numpy()]
            for t in range(1, len(x))
            if key(frame.index[t]) - first == b
        ]
        assert found.n == len(rows)
        if rows:
            same(found, Moments.of_rows(np.array(rows)))
    assert sum(block.n for block in blocks) == 158


def test_times_with_a_zone_are_told_in_utc_and_streamed_files_like_frames(tmp_path):
    frame = dated(60, "2024-01-30", "8h")
    frame.index = frame.index.tz_localize("America/New_York")
    path = tmp_path / "s.csv"
    frame.rename_axis("t").reset_index().to_csv(path, index=False)
    read = {"time": "t", "label": "@time", "variables": list(NAMES), "missing": "keep"}
    question = GramQuestion(
        n_lags=0, variables=NAMES, block_rows=0, n_blocks=3, calendar="M", first_block=648
    )
    counts = []
    for kept in (in_memory, in_files):
        with kept():
            federation = federation_of(read_sites(path, **read))
            blocks = run_program(block_moments_program(question), federation)
        counts.append([block.n for block in blocks])
    # Midnight in New York is five o'clock in UTC: the row of 31 January, 16 h, is of that day, the next one of February.
    utc = frame.index.tz_convert("UTC")
    assert counts == [[int((utc.month == m).sum()) for m in (1, 2, 3)]] * 2


@pytest.mark.parametrize("labels", [["a", "b"], [0.5, 1.0], [-1, 0], [0, 60]])
def test_a_column_of_blocks_holds_small_whole_numbers(labels):
    frame = dated(20, "2024-01-01").reset_index(drop=True)
    frame["phase"] = np.repeat(np.array(labels, dtype=object if isinstance(labels[0], str) else float), 10)
    federation = federation_of(read_sites({"a": frame}, label="phase", missing="keep"))
    question = GramQuestion(n_lags=1, variables=NAMES, block_rows=0, n_blocks=9)
    with refused(DataError, 0, 59):
        run_program(block_moments_program(question), federation)


def test_blocks_in_pieces_are_those_of_whole_recordings(monkeypatch):
    data = recordings(5)
    treatment = {"center": "recording", "degree": 2, "periods": (12.0,)}
    whole = asked(data, **treatment)
    monkeypatch.setattr("feddbn.core.designs.design.CHUNK_ROWS", 7)
    for one, other in zip(asked(data, **treatment), whole, strict=True):
        same(one, other)
