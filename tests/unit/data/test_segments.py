"""Blocks know when they were: a trend or cycle goes on in a gap."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from feddbn.core.designs.recordings import Block, held_out_part, training_part
from feddbn.data.memory import AlignedSite, ArrayRecording, MemorySite
from feddbn.data.segments import Segmenter
from feddbn.federation.sums.statistics import make_fold


def _blocks(ticks: np.ndarray | None, values: np.ndarray, cuts: list[int], step: int | None) -> list[Block]:
    segmenter = Segmenter("recording 'r'", ("x",), step)
    edges = [0, *cuts, len(values)]
    return [
        block
        for a, b in pairwise(edges)
        for block in segmenter.feed(values[a:b], None if ticks is None else ticks[a:b])
    ]


def test_time_is_counted_in_steps_from_the_first_row_whatever_the_batches() -> None:
    ticks = np.array([100, 110, 120, 150, 160, 200])
    values = np.arange(6.0)[:, None]
    for cuts in ([], [1], [2, 4], [3]):
        blocks = _blocks(ticks, values, cuts, step=10)
        times = np.concatenate([block.time + np.arange(len(block.values)) for block in blocks])
        assert times.tolist() == [0, 1, 2, 5, 6, 10]


def test_a_dropped_row_takes_its_time() -> None:
    values = np.array([0.0, 1.0, np.nan, 3.0, np.nan, np.nan, 6.0])[:, None]
    for cuts in ([], [3], [2, 5]):
        blocks = _blocks(None, values, cuts, step=None)
        for block in blocks:
            np.testing.assert_array_equal(block.values[:, 0], block.time + np.arange(len(block.values)))


def test_parts_and_reordered_columns_keep_the_time() -> None:
    x = np.arange(20.0)
    segments = (
        Block(np.column_stack([x[:8], -x[:8]]), time=0),
        Block(np.column_stack([x[12:], -x[12:]]), time=12),
    )
    recording = ArrayRecording("r", segments)
    site = MemorySite(("a", "b"), [recording])
    fold = make_fold(0, 1, 0.75)
    turned = next(iter(AlignedSite(("b", "a"), site).recordings()))
    for view in (training_part(recording, fold), held_out_part(recording, fold, 1), turned):
        for block in view.blocks():
            assert abs(block.values[0]).tolist() == [block.time] * 2
