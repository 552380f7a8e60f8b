import numpy as np
import pytest

from feddbn.core.statistics.moments import (
    Moments,
    block_sizes,
    block_sums,
    choose,
    cube_root_length,
    resample_counts,
)


@pytest.mark.parametrize(
    ("n", "length", "expected"), [(10, 5, [5, 5]), (11, 5, [6, 5]), (3, 5, [3]), (0, 5, [])]
)
def test_blocks_cover_all_rows_in_nearly_equal_sizes(n: int, length: int, expected: list[int]) -> None:
    assert block_sizes(n, length).tolist() == expected


def test_cube_root_length_is_exact_for_cubes() -> None:
    assert [cube_root_length(n) for n in (0, 1, 8, 9, 27, 1000, 1001)] == [1, 1, 2, 3, 3, 10, 11]


def test_bootstrap_draws_as_many_blocks_as_there_are() -> None:
    rng = np.random.default_rng(0)
    draws = np.array([resample_counts(7, "bootstrap", False, rng) for _ in range(2000)])
    assert (draws.sum(axis=1) == 7).all()
    np.testing.assert_allclose(draws.mean(axis=0), 1.0, atol=0.1)
    np.testing.assert_allclose(draws.var(axis=0), 6 / 7, atol=0.1)


@pytest.mark.parametrize("n_blocks", [1, 2, 7, 8])
def test_half_samples_come_in_complementary_pairs(n_blocks: int) -> None:
    sizes = []
    for seed in range(200):
        first = resample_counts(n_blocks, "stability", False, np.random.default_rng(seed))
        second = resample_counts(n_blocks, "stability", True, np.random.default_rng(seed))
        np.testing.assert_array_equal(first + second, 1.0)
        sizes.append(first.sum())
    assert set(sizes) == {n_blocks // 2, (n_blocks + 1) // 2}


def test_block_sums_are_those_of_each_block_alone() -> None:
    rows = np.random.default_rng(0).normal(size=(23, 4)) + 3.0
    sizes, origin = block_sizes(23, 5), np.full(4, 2.5)
    found = block_sums(rows, sizes, origin)
    for block, ours in zip(np.split(rows, np.cumsum(sizes)[:-1]), found, strict=True):
        np.testing.assert_allclose(ours, Moments.of_rows(block).to_sums(origin), rtol=1e-10, atol=1e-10)


def test_simplest_candidate_within_one_standard_error_is_taken() -> None:
    loss, error = np.array([2.0, 1.05, 1.0, 1.2]), np.array([0.3, 0.1, 0.0, 0.1])
    assert choose(loss, error) == 1
    assert choose(loss, error, "best") == 2
