from __future__ import annotations

import numpy as np
import pytest

from feddbn.model.dbn import DBN
from support.report_results import random_dbn


@pytest.mark.parametrize(
    ("name", "given", "value", "first"),
    [
        ("impulse_responses", (3,), "response", 0),
        ("impulse_responses", (3, "reduced"), "response", 0),
        ("fevd", (3,), "share", 1),
        ("total_effects", (3,), "effect", 0),
        ("direct_effects", (3,), "effect", 0),
        ("mediated_effects", (["x1"], 3), "effect", 0),
    ],
)
def test_every_cell_is_that_of_the_array(name, given, value, first):
    dbn = random_dbn(4, n_lags=2, seed=3)
    array, frame = getattr(dbn, name)(*given), getattr(dbn.frames, name)(*given)
    assert frame.columns.tolist() == ["source", "target", "step", value]
    assert len(frame) == array.size
    for row in frame.sample(20, random_state=0).to_dict("records"):
        i, j = dbn.variables.index(row["source"]), dbn.variables.index(row["target"])
        assert row[value] == array[row["step"] - first, i, j]


def test_weights_and_moments_have_names():
    dbn = random_dbn(4, n_lags=2, seed=3)
    weights = dbn.frames.standardised_weights().set_index(["source", "target", "lag"])["weight"]
    assert weights["x1", "x2", 1] == dbn.standardised_weights()[1, 1, 2]
    mean = dbn.frames.stationary_mean()
    assert mean.columns.tolist() == ["variable", "mean", "sd"]
    np.testing.assert_allclose(mean["sd"] ** 2, np.diag(dbn.stationary_covariance()))
    assert dbn.frames.stationary_covariance().loc["x0", "x3"] == dbn.stationary_covariance()[0, 3]


def test_residuals_have_columns():
    dbn = DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    rows = dbn.simulate(50, random_state=0)
    found = dbn.frames.residuals(rows)
    assert found.columns.tolist() == ["x", "y"]
    np.testing.assert_array_equal(found.to_numpy(), dbn.residuals(rows))


def test_an_edge_is_a_frame_by_the_same_word():
    dbn = random_dbn(4, n_lags=1, seed=3)
    edge = dbn.edges().iloc[0]
    effect = dbn.effect(edge.source, edge.target, edge.lag)
    assert effect.to_frame(5).equals(effect.table(5))
