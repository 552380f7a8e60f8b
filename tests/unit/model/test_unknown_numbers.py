"""Several modules: what a network does not know: no number stands for it, and what needs it is refused, until it is given."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from feddbn import DBN
from feddbn.errors import ParameterError
from support.saying import refused

NAMES = ("x", "y")
W, A = np.array([[0.0, 0.5], [0.0, 0.0]]), np.array([[[0.4, 0.0], [0.0, 0.3]]])
KNOWN = DBN(W, A, NAMES, np.array([3.0, -1.0]), np.array([400.0, 900.0]))


def read_back():
    marks = np.where(np.stack([W, A[0]], axis=2) != 0, "-->", "").astype("<U3")
    marks[1, 0, 0] = "<--"
    values = np.stack([W + W.T, A[0]], axis=2)
    return {
        "edges": DBN.from_edges(KNOWN.edges(), NAMES),
        "csv": DBN.from_csv(KNOWN.to_csv(), NAMES),
        "lingam": DBN.from_lingam(KNOWN.to_lingam(), NAMES),
        "tigramite": DBN.from_tigramite(marks, values, NAMES),
        "given": DBN(W, A, NAMES, None, None),
    }


@pytest.mark.parametrize("form", list(read_back()))
def test_edges_alone_tell_no_level_and_no_noise_and_say_how_to_give_them(form):
    dbn = read_back()[form]
    np.testing.assert_array_equal(dbn.adjacency_matrices, KNOWN.adjacency_matrices)
    assert dbn.intercept is None
    assert dbn.noise_variances is None
    history = pd.DataFrame([[1.0, 2.0]], columns=list(NAMES))
    for asked in (
        lambda: dbn.forecast(history, 2),
        lambda: dbn.do({"x": 1.0}, None, 2),
        lambda: dbn.simulate(5, 0),
        lambda: dbn.log_likelihood(np.zeros((5, 2))),
        lambda: dbn.residuals(np.zeros((5, 2))),
        lambda: dbn.stationary_mean(),
        lambda: dbn.stationary_covariance(),
        lambda: dbn.standard_errors(100),
        lambda: dbn.response_bands(2, 100),
        lambda: dbn.fevd(2),
        lambda: dbn.impulse_responses(2, sd=True),
        lambda: dbn.standardised_weights(),
    ):
        with refused(ParameterError, "dataclasses.replace", code="numbers-not-known"):
            asked()
    given = replace(dbn, intercept=KNOWN.intercept, noise_variances=KNOWN.noise_variances)
    assert given.equals(KNOWN)
    np.testing.assert_array_equal(given.forecast(history, 2).sd, KNOWN.forecast(history, 2).sd)


def test_what_weights_alone_tell_is_told():
    dbn = DBN(W, A, NAMES, None, None)
    np.testing.assert_array_equal(dbn.impulse_responses(3), KNOWN.impulse_responses(3))
    assert dbn.is_stationary
    assert dbn.edges()["weight"].tolist() == KNOWN.edges()["weight"].tolist()
    assert dbn.edges()["standardised"].isna().all()
    np.testing.assert_allclose(dbn.at_level([1.0, 2.0]).intercept, KNOWN.at_level([1.0, 2.0]).intercept)


@pytest.mark.parametrize("unknown", [{"intercept": None}, {"noise_variances": None}, {}])
def test_files_keep_what_is_not_known(unknown, tmp_path):
    dbn = replace(KNOWN, **unknown)
    again = DBN.from_json(dbn.to_json(tmp_path / "dbn.json"))
    assert again.equals(dbn)
    assert again.equals(KNOWN) == (not unknown)


def test_a_network_without_numbers_given_has_no_level_and_noise_of_one():
    dbn = DBN(W, A, NAMES)
    assert dbn.intercept.tolist() == [0.0, 0.0]
    assert dbn.noise_variances.tolist() == [1.0, 1.0]
