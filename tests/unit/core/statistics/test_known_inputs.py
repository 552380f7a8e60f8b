"""Known inputs in moments of lagged rows."""

import numpy as np
import pytest

from feddbn.core.statistics.diagnostics import (
    memory_of_noise,
    neutral_inputs,
    noise_level,
    output_columns,
    slow_warnings,
)
from feddbn.core.statistics.moments import Moments, dependences


def rows(n: int = 20_000, memory: float = 0.0) -> np.ndarray:
    """``[x_t, x_{t-1}]`` of an input (column 0) that jumps, and of two variables with noise variances 4 and 1."""
    rng = np.random.default_rng(0)
    u = 7.0 * (np.cumsum(rng.random(n) < 0.02) % 2)
    noise = rng.normal(size=(n, 2)) * [2.0, 1.0]
    for t in range(1, n):
        noise[t] += memory * noise[t - 1]
    a = 0.5 * u + noise[:, 0]
    x = np.column_stack([u, a, 0.9 * a + noise[:, 1]])
    return np.hstack([x[1:], x[:-1]])


def test_the_noise_level_is_the_mean_of_the_others_whatever_their_network():
    moments = Moments.of_rows(rows())
    assert noise_level(moments, 3, [0]) == pytest.approx(2.0, rel=0.03)
    assert noise_level(moments.scaled(np.tile([0.01, 1.0, 1.0], 2)), 3, [0]) == pytest.approx(
        noise_level(moments, 3, [0])
    )


def test_inputs_are_neutral_when_they_vary_as_the_noise_does():
    moments = Moments.of_rows(rows())
    found, level = neutral_inputs(moments, 3, [0])
    assert found.scatter[0, 0] / found.n == pytest.approx(np.exp(level))
    assert np.array_equal(found.scatter[1:3, 1:3], moments.scatter[1:3, 1:3])
    assert neutral_inputs(moments, 3, []) == (moments, 0.0)


def test_outputs_come_first():
    scatter, m = output_columns(np.arange(36.0).reshape(6, 6), 3, [1])
    assert m == 2
    assert np.diag(scatter).tolist() == [0.0, 14.0, 7.0, 21.0, 28.0, 35.0]


def test_a_step_is_neither_slow_nor_memory_of_the_noise():
    plain = Moments.of_rows(rows())
    assert slow_warnings(plain, ["u", "a", "b"], [0]) == []
    assert "u" in slow_warnings(plain, ["u", "a", "b"])[0]
    assert memory_of_noise(plain, 3, [0]) == pytest.approx(0.0, abs=0.03)
    assert memory_of_noise(Moments.of_rows(rows(memory=0.6)), 3, [0]) == pytest.approx(0.6, abs=0.03)


def test_what_follows_from_an_input_is_said_to_and_the_input_is_not():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 3))
    x[:, 2] = 3.0 * x[:, 0]
    moments = Moments.of_rows(x)
    assert [one.column for one in dependences(moments.scatter, moments.n, 3)] == [2]
    (one,) = dependences(moments.scatter, moments.n, 3, [2])
    assert (one.column, one.others) == (0, (2,))
    # An input that follows from its own past, as a ramp does, is no trouble.
    ramp = np.column_stack([np.arange(1.0, 201), x[:, 0], np.arange(200.0), x[:, 1]])
    moments = Moments.of_rows(ramp)
    assert len(dependences(moments.scatter, moments.n, 2)) == 1
    assert dependences(moments.scatter, moments.n, 2, [0]) == []
