"""What is asked of any array: rows changed by one row, and whether a cell may be missing."""

from __future__ import annotations

import numpy as np
import pytest

from feddbn.core.arrays import by_row, may_lack_cells


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (85, 3), (86, 3), (1000, 7), (4, 300), (5, 0)])
def test_one_row_is_applied_to_all_rows(shape):
    rng = np.random.default_rng(0)
    rows, row = rng.normal(size=shape), rng.normal(size=shape[1])
    for given in (rows, np.asfortranarray(rows), np.concatenate([rows, rows], axis=1)[:, : shape[1]]):
        np.testing.assert_array_equal(by_row(np.subtract, given, row), rows - row)
    out = rows.copy()
    assert by_row(np.divide, out, row, out) is out
    np.testing.assert_array_equal(out, rows / row)


def test_only_a_missing_cell_makes_a_total_missing():
    values = np.random.default_rng(0).normal(size=(50, 3))
    assert not may_lack_cells(values)
    assert not may_lack_cells(np.full((3, 2), 1e308))
    values[17, 2] = np.nan
    assert may_lack_cells(values)
