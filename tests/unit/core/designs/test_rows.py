"""Rows of a design: where columns are, and that no cut of the stream changes them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from feddbn.core.designs.design import Basis, Design, design_rows
from feddbn.core.designs.features import DEFAULT_KNOTS, smooth
from feddbn.core.designs.recordings import Block, lagged_rows


def _design(d: int, n_lags: int, name: str, smoothing: float = 1.0, **public) -> Design:
    return Design.features([f"x{i}" for i in range(d)], n_lags, Basis(name, smoothing=smoothing), **public)


def _all(stream):
    return np.concatenate([chunk.values for chunk in stream])


@pytest.mark.parametrize("name", ["linear", "quadratic", "spline"])
@pytest.mark.parametrize("n_lags", [1, 3])
def test_blocks_that_continue_a_segment_give_the_rows_of_the_whole(name, n_lags):
    x = np.random.default_rng(1).standard_normal((41, 2))
    labels = np.arange(41)
    whole = [Block(x, labels=labels)]
    cuts = [0, 1, 2, 9, 9, 30, 41]
    pieces = [Block(x[a:b], starts_segment=a == 0 and b == 1, labels=labels[a:b]) for a, b in pairwise(cuts)]
    design = _design(2, n_lags, name, 0.5)
    one = list(design_rows(design, whole))
    many = list(design_rows(design, pieces, chunk_rows=4))
    np.testing.assert_allclose(_all(one), _all(many), atol=1e-13)
    for chunks in (one, many):
        np.testing.assert_array_equal(np.concatenate([c.labels for c in chunks]), labels[n_lags:])
        times = np.concatenate([c.time + np.arange(len(c.values)) for c in chunks])
        np.testing.assert_array_equal(times, labels[n_lags:])


def test_neither_lags_nor_smoothing_cross_into_a_new_segment():
    x = np.random.default_rng(2).standard_normal((20, 2))
    design = _design(2, 2, "quadratic", 0.3)
    together = _all(design_rows(design, [Block(x[:8]), Block(x[8:])]))
    apart = [_all(design_rows(design, [Block(part)])) for part in (x[:8], x[8:])]
    np.testing.assert_array_equal(together, np.concatenate(apart))
    assert len(together) == 6 + 10


def test_linear_features_without_smoothing_are_the_lagged_rows():
    x = np.random.default_rng(3).standard_normal((15, 3))
    rows = _all(design_rows(_design(3, 2, "linear"), [Block(x)]))
    lagged = np.concatenate(list(lagged_rows([Block(x)], 2)))
    np.testing.assert_array_equal(rows[:, :9], lagged)
    np.testing.assert_array_equal(rows[:, 9:], lagged[:, 3:])


def test_a_design_points_at_the_columns_it_names():
    x = np.random.default_rng(4).standard_normal((12, 3)) + 5.0
    origin, scale = np.array([5.0, 4.0, 5.5]), np.array([1.0, 2.0, 0.5])
    design = _design(3, 2, "quadratic", 0.7, origin=origin, scale=scale)
    rows = _all(design_rows(design, [Block(x)]))
    assert rows.shape == (10, design.q)
    z = (x - origin) / scale
    e = smooth(z, 0.7)
    np.testing.assert_allclose(rows[:, design.own(1)], np.column_stack([z[1:-1, 1], z[:-2, 1]]))
    columns = design.edge_columns
    np.testing.assert_allclose(rows[:, columns[2]], np.column_stack([e[1:-1, 2], e[1:-1, 2] ** 2]))
    np.testing.assert_allclose(rows[:, columns[3 + 1]], np.column_stack([e[:-2, 1], e[:-2, 1] ** 2]))


def test_knots_are_public_the_same_everywhere_and_used():
    x = np.random.default_rng(5).standard_normal((30, 2))
    bases = (Basis("spline"), Basis("spline", DEFAULT_KNOTS), Basis("spline", (-1.0, 0.0, 1.0)))
    default, named, other = (_all(design_rows(Design.features(("a", "b"), 1, b), [Block(x)])) for b in bases)
    np.testing.assert_array_equal(default, named)
    assert default.shape[1] == 2 * (1 + 1 + 3)
    assert other.shape[1] == 2 * (1 + 1 + 2)
