from __future__ import annotations

import numpy as np
import pytest

from feddbn.core.designs.recordings import Block
from feddbn.core.ranking import DirectionSums, direction_sums, score_pairs
from feddbn.errors import DataError, ParameterError
from support.saying import refused


def _chain(rng: np.random.Generator, noise: str, n: int = 3000, sign: float = 1.0) -> np.ndarray:
    """x0 -> x1 -> x2 within a time step, each with its own AR(1) memory."""
    draw = {"laplace": rng.laplace, "exponential": rng.exponential, "gaussian": rng.normal}[noise]
    u = draw(size=(n, 3))
    x = np.zeros((n, 3))
    order = np.array([[0, 0.7 * sign, 0], [0, 0, 0.7], [0, 0, 0]])
    reduce = np.linalg.inv(np.eye(3) - order)
    for t in range(1, n):
        x[t] = (0.5 * x[t - 1] + u[t]) @ reduce * 0.8
    return x


@pytest.mark.parametrize(("noise", "sign"), [("laplace", 1.0), ("laplace", -1.0), ("exponential", 1.0)])
def test_non_gaussian_noise_points_from_cause_to_effect(noise, sign):
    rng = np.random.default_rng([ord(noise[0]), int(sign > 0)])
    x = rng.laplace(size=(4000, 2)) if noise == "laplace" else rng.exponential(size=(4000, 2))
    x[:, 1] += sign * 0.6 * x[:, 0]
    scores = score_pairs(direction_sums(lambda: [Block(x)], 2))
    assert scores.direction[0, 1] > 0.99
    assert scores.direction[1, 0] < 0.01
    assert scores.score[0, 1] > scores.score[1, 0]
    assert np.sign(scores.partial_correlation[0, 1]) == sign


def test_a_chain_scores_its_two_edges_highest():
    x = _chain(np.random.default_rng(1), "laplace")
    scores = score_pairs(direction_sums(lambda: [Block(x)], 3)).score
    best = set(np.argsort(scores.ravel())[-2:].tolist())
    assert best == {0 * 3 + 1, 1 * 3 + 2}


def test_gaussian_noise_gives_direction_no_systematic_sign():
    z = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(400, 2))
        x[:, 1] += 0.6 * x[:, 0]
        z.append(score_pairs(direction_sums(lambda x=x: [Block(x)], 2)).direction[0, 1])
    assert 0.3 < np.mean(z) < 0.7


def test_sums_equal_the_definition_written_out():
    x = np.random.default_rng(2).laplace(size=(50, 3))
    a, b = x[1:] - x[1:].mean(0), x[:-1] - x[:-1].mean(0)
    w = a - (a * b).sum(0) / (b * b).sum(0) * b
    w = w / w.std(axis=0)
    D = w[:, :, None] * np.tanh(w)[:, None, :] - np.tanh(w)[:, :, None] * w[:, None, :]
    sums = direction_sums(lambda: [Block(x)], 3)
    assert sums.n == 49
    np.testing.assert_allclose(sums.products, w.T @ w, atol=1e-10)
    np.testing.assert_allclose(sums.asymmetry, D.sum(axis=0), atol=1e-10)
    np.testing.assert_allclose(sums.asymmetry_squares, (D**2).sum(axis=0), atol=1e-10)


def test_blocks_that_continue_a_segment_give_the_sums_of_the_whole():
    x = np.random.default_rng(3).laplace(size=(50, 3))
    whole = direction_sums(lambda: [Block(x)], 3)
    pieces = [Block(x[:7]), Block(x[7:8], starts_segment=False), Block(x[8:], starts_segment=False)]
    np.testing.assert_allclose(direction_sums(lambda: pieces, 3).to_sums(), whole.to_sums(), atol=1e-10)


def test_sums_survive_the_vector_and_add_up():
    x = np.random.default_rng(4).laplace(size=(90, 4))
    first, second = direction_sums(lambda: [Block(x[:40])], 4), direction_sums(lambda: [Block(x[40:])], 4)
    merged = first.merge(second)
    back = DirectionSums.from_sums(first.to_sums() + second.to_sums(), 4)
    for name in ("products", "asymmetry", "asymmetry_squares"):
        np.testing.assert_allclose(getattr(back, name), getattr(merged, name), atol=1e-10)


def test_a_constant_variable_has_no_edges_and_breaks_nothing():
    x = np.random.default_rng(5).laplace(size=(60, 3))
    x[:, 1] = 4.0
    scores = score_pairs(direction_sums(lambda: [Block(x)], 3)).score
    assert np.all(np.isfinite(scores))
    np.testing.assert_array_equal(scores[1], 0.0)
    np.testing.assert_array_equal(scores[:, 1], 0.0)


def test_a_recording_too_short_for_its_own_ar_fit_is_skipped_and_none_at_all_is_an_error():
    short = direction_sums(lambda: [Block(np.ones((4, 2)))], 2)
    assert short.n == 0
    with pytest.raises(DataError):
        score_pairs(short)
    with refused(ParameterError, 19, "(18,)"):
        DirectionSums.from_sums(np.zeros(18), 3)
