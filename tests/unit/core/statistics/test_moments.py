"""Moments against numpy, and what happens with large means."""

from __future__ import annotations

import numpy as np
import pytest

from feddbn.core.designs.recordings import Block, lagged_rows
from feddbn.core.statistics.moments import Moments, sums_length


def exact(z: np.ndarray) -> Moments:
    """Two passes in extended precision, as the slow oracle."""
    wide = z.astype(np.longdouble)
    mean = wide.mean(axis=0)
    centred = wide - mean
    scatter = sum(np.outer(row, row) for row in centred)
    return Moments(float(len(z)), mean.astype(float), np.asarray(scatter, dtype=float))


def assert_close(one: Moments, other: Moments, rtol: float = 1e-12) -> None:
    assert one.n == other.n
    np.testing.assert_allclose(one.mean, other.mean, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(
        one.scatter, other.scatter, rtol=0, atol=rtol * max(np.abs(other.scatter).max(), 1e-300)
    )


def test_rows_agree_with_numpy() -> None:
    z = np.random.default_rng(0).normal(size=(50, 4))
    m = Moments.of_rows(z)
    assert m.q == 4
    np.testing.assert_allclose(m.scatter / 49, np.cov(z.T))
    np.testing.assert_allclose(m.about(np.zeros(4)), z.T @ z)
    np.testing.assert_allclose(m.about(z[0]), (z - z[0]).T @ (z - z[0]))
    np.testing.assert_allclose(m.select(np.array([2, 0])).scatter / 49, np.cov(z[:, [2, 0]].T))
    np.testing.assert_allclose(m.scaled(np.array([1.0, 2, 4, 8])).scatter / 49, np.cov((z / [1, 2, 4, 8]).T))


@pytest.mark.parametrize("n_lags", [0, 1, 2, 5])
@pytest.mark.parametrize("mean", [0.0, 1e4])
def test_blocks_chunks_and_oracle_agree(n_lags: int, mean: float) -> None:
    rng = np.random.default_rng(n_lags)
    x = rng.normal(size=(60, 3)) + mean
    blocks = [Block(x[:20]), Block(x[20:22], False), Block(x[22:40], False), Block(x[40:])]
    z = np.concatenate(list(lagged_rows(blocks, n_lags)))
    q = 3 * (n_lags + 1)
    rtol = 1e-12 if mean == 0 else 1e-10
    assert_close(Moments.of_chunks(lagged_rows(blocks, n_lags, 7), q), exact(z), rtol)
    assert_close(Moments.of_blocks(blocks, n_lags, 3, chunk_rows=7), exact(z), rtol)
    assert_close(Moments.of_blocks(blocks, n_lags, 3), exact(z), rtol)


def test_a_jump_far_from_the_first_rows_does_not_cancel() -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(size=(3, 2)), rng.normal(size=(5000, 2)) + 1e6])
    blocks = [Block(x[:3]), Block(x[3:])]
    z = np.concatenate(list(lagged_rows(blocks, 1)))
    assert_close(Moments.of_blocks(blocks, 1, 2, chunk_rows=512), exact(z))
    assert_close(Moments.of_chunks(lagged_rows(blocks, 1, 512), 4), exact(z))


def test_results_are_exactly_symmetric() -> None:
    x = np.random.default_rng(2).normal(size=(300, 3)) + 7
    for m in (Moments.of_blocks([Block(x)], 2, 3, 64), Moments.of_chunks(lagged_rows([Block(x)], 2, 64), 9)):
        np.testing.assert_array_equal(m.scatter, m.scatter.T)


def test_nothing_is_neutral() -> None:
    z = np.random.default_rng(3).normal(size=(5, 2))
    m, empty = Moments.of_rows(z), Moments.empty(2)
    assert empty.merge(m) is m
    assert m.merge(empty) is m
    assert Moments.of_rows(np.empty((0, 2))).n == 0
    assert Moments.of_chunks([], 2).n == 0
    assert Moments.of_chunks([np.empty((0, 2)), z], 2).n == 5
    assert Moments.of_blocks([], 1, 2).n == 0
    assert Moments.from_sums(np.zeros(sums_length(2)), 2).n == 0


def test_input_rows_are_not_changed() -> None:
    x = np.random.default_rng(4).normal(size=(40, 2))
    before = x.copy()
    Moments.of_blocks([Block(x)], 1, 2)
    Moments.of_chunks([x], 2)
    np.testing.assert_array_equal(x, before)


def test_sums_have_their_stated_length_and_add_up() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(10, 3)), rng.normal(size=(20, 3)) + 2
    vector = Moments.of_rows(a).to_sums() + Moments.of_rows(b).to_sums()
    assert len(vector) == sums_length(3) == 10
    assert_close(Moments.from_sums(vector, 3), exact(np.concatenate([a, b])))


def test_origin_saves_large_means_from_cancelling() -> None:
    z = np.random.default_rng(6).normal(size=(1000, 2)) + 1e7
    m = Moments.of_rows(z)
    origin = np.full(2, 1e7)
    with_origin = Moments.from_sums(m.to_sums(origin), 2, origin)
    without = Moments.from_sums(m.to_sums(), 2)
    assert_close(with_origin, m)
    assert np.abs(without.scatter - m.scatter).max() > 1e-6 * np.abs(m.scatter).max()
