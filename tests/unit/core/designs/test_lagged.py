"""Lagged rows: column order, segments, chunks."""

from __future__ import annotations

import numpy as np
import pytest

from feddbn.core.designs.recordings import Block, lagged_rows


def test_columns_run_from_now_to_the_past() -> None:
    x = np.arange(8.0).reshape(4, 2)
    (z,) = lagged_rows([Block(x)], 2)
    assert z.tolist() == [[4, 5, 2, 3, 0, 1], [6, 7, 4, 5, 2, 3]]


def test_without_lags_the_rows_are_the_data() -> None:
    x = np.arange(6.0).reshape(3, 2)
    (z,) = lagged_rows([Block(x)], 0)
    np.testing.assert_array_equal(z, x)
    assert not np.shares_memory(z, x)


def test_a_new_segment_forgets_and_a_continued_one_remembers() -> None:
    a, b = np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]])
    apart = np.concatenate(list(lagged_rows([Block(a), Block(b)], 1)))
    joined = np.concatenate(list(lagged_rows([Block(a), Block(b, starts_segment=False)], 1)))
    assert apart.tolist() == [[2, 1], [4, 3]]
    assert joined.tolist() == [[2, 1], [3, 2], [4, 3]]


def test_blocks_shorter_than_the_lag_add_up() -> None:
    x = np.arange(7.0)[:, None]
    blocks = [Block(x[i : i + 1], starts_segment=i == 0) for i in range(7)]
    np.testing.assert_array_equal(
        np.concatenate(list(lagged_rows(blocks, 3))), np.concatenate(list(lagged_rows([Block(x)], 3)))
    )


def test_too_short_a_segment_yields_nothing() -> None:
    assert list(lagged_rows([Block(np.zeros((3, 2)))], 3)) == []
    assert list(lagged_rows([], 1)) == []


@pytest.mark.parametrize("chunk_rows", [1, 3, 1000])
def test_chunks_are_bounded_and_complete(chunk_rows: int) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    chunks = list(lagged_rows([Block(x)], 2, chunk_rows))
    assert max(len(chunk) for chunk in chunks) <= chunk_rows
    np.testing.assert_array_equal(np.concatenate(chunks), np.hstack([x[2:], x[1:-1], x[:-2]]))
