"""Blocks know when they were: a trend or cycle goes on in a gap."""

from __future__ import annotations

import numpy as np

from feddbn.core.designs.recordings import Block, held_out_part, training_part
from feddbn.data import Recording, Site
from feddbn.data.site import with_columns
from feddbn.federation.sums.statistics import make_fold


def test_parts_and_reordered_columns_keep_the_time() -> None:
    x = np.arange(20.0)
    segments = (
        Block(np.column_stack([x[:8], -x[:8]]), time=0),
        Block(np.column_stack([x[12:], -x[12:]]), time=12),
    )
    recording = Recording("r", segments)
    site = Site(("a", "b"), [recording])
    fold = make_fold(0, 1, 0.75)
    turned = next(iter(with_columns(site, ("b", "a")).recordings()))
    for view in (training_part(recording, fold), held_out_part(recording, fold, 1), turned):
        for block in view.blocks():
            assert abs(block.values[0]).tolist() == [block.time] * 2
