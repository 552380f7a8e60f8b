from __future__ import annotations

import numpy as np
import pytest

from feddbn.core.statistics.survey import looks_binary, objections


def test_objections_are_those_of_single_cells_wherever_they_are():
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.poisson(2.0, 400), rng.integers(0, 2, 400), rng.normal(size=400)]).astype(
        float
    )
    assert objections(values).tolist() == [[False, False, True], [True, False, True]]
    for row in (3, 15, 16, 399):
        for cell, expected in (
            (0.5, [True, True]),
            (-1.0, [True, True]),
            (2.0, [False, True]),
            (np.nan, [False, False]),
        ):
            other = values.copy()
            other[row, 1] = cell
            assert objections(other)[:, 1].tolist() == expected


def test_empty_cells_and_no_rows_object_to_nothing():
    assert not objections(np.full((5, 2), np.nan)).any()
    assert objections(np.empty((0, 3))).shape == (2, 3)


def test_only_zeros_and_ones_have_the_variance_of_their_mean():
    rng = np.random.default_rng(1)
    for seed in range(200):
        x = np.random.default_rng(seed).normal(0.5, 0.5, 50)
        assert not looks_binary(np.array([x.mean()]), np.array([x.var()]))[0]
    x = (rng.random((1000, 3)) < [0.01, 0.5, 0.9]).astype(float)
    assert looks_binary(x.mean(axis=0), x.var(axis=0)).all()
    assert not looks_binary(np.array([0.0, 1.0]), np.zeros(2)).any()
    # Counts have the same sum and another sum of squares.
    counts = rng.poisson(0.5, 1000)
    assert not looks_binary(np.array([counts.mean()]), np.array([counts.var()]))[0]


@pytest.mark.parametrize("n", [1, 16, 17])
def test_short_and_long_rows_are_looked_at_alike(n):
    values = np.ones((n, 1))
    values[-1] = 0.25
    assert objections(values).all()
