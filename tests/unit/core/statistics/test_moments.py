"""Moments against numpy, and what happens with large means.

Standardising a Gram matrix.

Second moments where not everybody has measured everything.

Columns that follow from others are found and named, by second moments alone.
"""

import json

import numpy as np
import pytest

from feddbn.core.designs.recordings import Block, lagged_rows
from feddbn.core.statistics.moments import (
    Moments,
    as_of_rows,
    correlations,
    dependences,
    independent,
    nearest_positive,
    safe_roots,
    sums_length,
)
from support.simulated_moments import lagged_moments


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
def test_blocks_and_oracle_agree(n_lags: int, mean: float) -> None:
    rng = np.random.default_rng(n_lags)
    x = rng.normal(size=(60, 3)) + mean
    blocks = [Block(x[:20]), Block(x[20:22], False), Block(x[22:40], False), Block(x[40:])]
    z = np.concatenate(list(lagged_rows(blocks, n_lags)))
    rtol = 1e-12 if mean == 0 else 1e-10
    assert_close(Moments.of_blocks(blocks, n_lags, 3, chunk_rows=7), exact(z), rtol)
    assert_close(Moments.of_blocks(blocks, n_lags, 3), exact(z), rtol)


def test_a_jump_far_from_the_first_rows_does_not_cancel() -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(size=(3, 2)), rng.normal(size=(5000, 2)) + 1e6])
    blocks = [Block(x[:3]), Block(x[3:])]
    z = np.concatenate(list(lagged_rows(blocks, 1)))
    assert_close(Moments.of_blocks(blocks, 1, 2, chunk_rows=512), exact(z))


def test_results_are_exactly_symmetric_and_rows_are_not_changed() -> None:
    x = np.random.default_rng(2).normal(size=(300, 3)) + 7
    before, m = x.copy(), Moments.of_blocks([Block(x)], 2, 3, 64)
    np.testing.assert_array_equal(m.scatter, m.scatter.T)
    np.testing.assert_array_equal(x, before)


def test_nothing_is_neutral() -> None:
    z = np.random.default_rng(3).normal(size=(5, 2))
    m, empty = Moments.of_rows(z), Moments.empty(2)
    assert empty.merge(m) is m
    assert m.merge(empty) is m
    assert Moments.of_rows(np.empty((0, 2))).n == 0
    assert Moments.of_blocks([], 1, 2).n == 0
    assert Moments.from_sums(np.zeros(sums_length(2)), 2).n == 0


def test_origin_saves_large_means_from_cancelling() -> None:
    z = np.random.default_rng(6).normal(size=(1000, 2)) + 1e7
    m = Moments.of_rows(z)
    origin = np.full(2, 1e7)
    with_origin = Moments.from_sums(m.to_sums(origin), 2, origin)
    without = Moments.from_sums(m.to_sums(), 2)
    assert_close(with_origin, m)
    assert np.abs(without.scatter - m.scatter).max() > 1e-6 * np.abs(m.scatter).max()


def test_correlations_agree_with_numpy_whatever_the_units() -> None:
    x = np.random.default_rng(0).normal(size=(50, 4)) * [1e-6, 1.0, 1e3, 1e9]
    centred = x - x.mean(axis=0)
    R, root = correlations(centred.T @ centred)
    np.testing.assert_allclose(R, np.corrcoef(x.T), atol=1e-12)
    np.testing.assert_allclose(root, np.sqrt(50) * x.std(axis=0))


def test_a_constant_column_correlates_with_nothing() -> None:
    G = np.array([[4.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    R, root = correlations(G)
    assert root.tolist() == [2.0, 1.0, 1.0]
    assert R.tolist() == [[1.0, 0.0, 0.5], [0.0, 0.0, 0.0], [0.5, 0.0, 1.0]]
    assert safe_roots(np.array([-1e-20, 9.0])).tolist() == [1.0, 3.0]


def test_repairing_moments_leaves_a_constant_column_constant() -> None:
    F = np.array([[1.0, 0.9, 0.0], [0.9, 0.5, 0.0], [0.0, 0.0, 0.0]])
    fixed = nearest_positive(F)
    np.testing.assert_allclose(np.diag(fixed), np.diag(F))
    assert not fixed[2].any()
    assert np.linalg.eigvalsh(fixed[:2, :2])[0] > 0


def test_contradicting_moments_are_raised_to_the_size_of_the_contradiction() -> None:
    # Correlations .9, .9 and -.9 cannot hold together: the smallest eigenvalue is -.8.
    R = np.array([[1.0, 0.9, 0.9], [0.9, 1.0, -0.9], [0.9, -0.9, 1.0]])
    scale = np.array([1.0, 2.0, 3.0])
    F = R * np.outer(scale, scale)
    repaired = nearest_positive(F)
    assert np.allclose(np.diag(repaired), np.diag(F))
    correlations = repaired / np.outer(scale, scale)
    assert np.linalg.eigvalsh(correlations)[0] > 0.2
    assert np.all(np.sign(correlations) == np.sign(R))


NAMES = ("a", "b", "c", "e")


@pytest.fixture
def x():
    return np.random.default_rng(3).standard_normal((200, 4)) * [1.0, 20.0, 0.3, 1.0] + [0, 50, 0, 3]


def dependent(x, n_lags=1):
    moments = lagged_moments(x, n_lags)
    return [one.finding(NAMES) for one in dependences(moments.scatter, moments.n, x.shape[1])]


def test_clean_columns_and_few_rows_name_nothing(x):
    assert dependent(x) == dependent(x, n_lags=0) == dependent(x[:8]) == []


@pytest.mark.parametrize(
    ("change", "others", "weights"),
    [
        (lambda x: x[:, 0] + 1e-8 * x[:, 3], [["a", 0]], [1]),
        (lambda x: 7 - 2 * x[:, 1], [["b", 0]], [-2]),
        (lambda x: x[:, 0] + x[:, 2], [["a", 0], ["c", 0]], [1, 1]),
        (lambda x: x[:, 0] - 9 * x[:, 2], [["c", 0], ["a", 0]], [-9, 1]),
        (lambda x: np.r_[0.0, x[:-1, 0]], [["a", 1]], [1]),
    ],
)
def test_a_column_that_follows_from_others_is_named_once(x, change, others, weights):
    x[:, 3] = change(x)
    (found,) = dependent(x)
    assert (found.code, found.about, found.values["others"]) == ("dependent-column", ("e",), others)
    assert found.values["weights"] == pytest.approx(weights, abs=1e-6)


def test_sums_with_noise_that_are_not_positive_name_nothing(x):
    moments = lagged_moments(x)
    noisy = moments.scatter.copy()
    noisy[0, 3] = noisy[3, 0] = 1.2 * np.sqrt(noisy[0, 0] * noisy[3, 3])
    assert dependences(noisy, moments.n, 4) == []


def test_independent_columns_are_the_first_ones_of_their_span():
    x = np.random.default_rng(1).standard_normal((50, 5))
    x[:, 1], x[:, 4] = x[:, 0], x[:, 2] - x[:, 3]
    assert independent(np.corrcoef(x.T)) == [0, 2, 3]


def test_moments_of_no_rows_become_those_of_some():
    rng = np.random.default_rng(0)
    honest = Moments.of_rows(rng.normal(size=(50, 4)))
    assert as_of_rows(honest) is honest
    scatter = honest.scatter.copy()
    scatter[0, 1] = scatter[1, 0] = 1.2 * np.sqrt(scatter[0, 0] * scatter[1, 1])
    mended = as_of_rows(Moments(50.0, honest.mean, scatter))
    assert np.linalg.eigvalsh(mended.scatter)[0] > 0
    np.testing.assert_allclose(np.diag(mended.scatter), np.diag(scatter))


def test_stored_moments_read_back_bit_for_bit_through_json() -> None:
    moments = Moments.of_rows(np.random.default_rng(4).standard_normal((30, 3)) * (1e-8, 1.0, 1e9))
    read = Moments.from_dict(json.loads(json.dumps(moments.to_dict())), 3)
    assert read.n == moments.n
    np.testing.assert_array_equal(read.mean, moments.mean)
    np.testing.assert_array_equal(read.scatter, moments.scatter)


@pytest.mark.parametrize(
    "damage",
    [
        {"scatter": [1.0]},
        {"scatter": [1.0, 2.0]},
        {"mean": [0.0]},
        {"mean": [[0.0, 1.0]]},
        {"n": float("nan")},
        {"mean": [0.0, float("inf")]},
        {"n": [3.0]},
        {"scatter": "no numbers"},
    ],
)
def test_stored_moments_of_another_size_are_refused_not_stretched(damage) -> None:
    whole = {"n": 3.0, "mean": [0.0, 1.0], "scatter": [2.0, 1.0, 2.0]}
    assert Moments.from_dict(whole, 2).scatter.tolist() == [[2.0, 1.0], [1.0, 2.0]]
    with pytest.raises(ValueError):
        Moments.from_dict({**whole, **damage}, 2)
