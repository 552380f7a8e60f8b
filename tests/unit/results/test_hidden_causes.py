"""Edges that a hidden cause could stand for: what a default fit says of them."""

from __future__ import annotations

import numpy as np
import pytest

from feddbn.errors import ResidualsWarning
from feddbn.report.record import read_record
from feddbn.report.verdicts import verdicts
from feddbn.results.result import Result
from support.corrupt_sites import corrupt, fitted
from support.saying import only


@pytest.mark.slow
def test_hidden_common_causes_are_warned_of_and_directions_between_their_effects_left_open():
    sites = corrupt({"hidden-causes": None}, 104).sites
    with pytest.warns(ResidualsWarning):
        model = fitted(sites)
    told = only(model.findings_, "residuals").values
    assert told["violations"][0] == "hidden"
    assert told["hidden"]["causes"] == [["x1", "x2", "x6"], ["x3", "x5", "x6"]]
    assert model.residuals_.violations[0] == "hidden"
    assert model.residuals_.hidden_causes == (("x1", "x2", "x6"), ("x3", "x5", "x6"))
    assert model.residuals_.hidden_gain > 50
    edges = {(a, b) for a, b in np.argwhere(model.W_).tolist() if {a, b} <= {1, 2, 6} or {a, b} <= {3, 5, 6}}
    assert edges
    assert {(f"x{a}", f"x{b}") for a, b in edges} <= set(model.dbn_.open_edges)
    stored = Result.from_estimator(model).to_dict()
    verdict = only(verdicts(read_record(stored)), "verdict-residuals")
    assert verdict.level == "error"
    doubted = model.hidden_[model.hidden_["could_be_hidden"]]
    truth = corrupt({"hidden-causes": None}, 104).truth
    true = {(*ends, 0) for ends in zip(*np.nonzero(truth.W), strict=True)}
    true |= {(i, j, 1) for _, i, j in zip(*np.nonzero(truth.A), strict=True)}
    names = list(truth.variables)
    wrong = [(names.index(e.source), names.index(e.target), e.lag) not in true for e in doubted.itertuples()]
    assert len(doubted) >= 6
    assert all(wrong)
    could = only(model.findings_, "could-be-hidden").values
    assert (len(could["edges"]), could["n_edges"]) == (len(doubted), len(model.hidden_))
    by_edge = [edge["could_be_hidden"] for edge in stored["edges"]]
    assert sum(by_edge) == len(doubted)
    plain = fitted(sites, check_residuals=False)
    assert plain.hidden_["could_be_hidden"].isna().all()


@pytest.mark.slow
def test_where_too_few_rows_are_complete_for_residuals_this_is_said():
    sites = {name: [frame.copy() for frame in frames] for name, frames in corrupt({}, 104).sites.items()}
    for k, frames in enumerate(sites.values()):
        for frame in frames:
            frame.mask(np.random.default_rng(k).random(frame.shape) < 0.3, inplace=True)
    model = fitted(sites)
    assert model.residuals_ is None
    (unknown,) = model.findings_.of("residuals-not-looked-at")
    assert unknown.level == "unknown"
    assert unknown.values["n"] < unknown.values["fewest"]
    level = only(verdicts(read_record(Result.from_estimator(model).to_dict())), "verdict-residuals").level
    assert level == "unknown"


@pytest.mark.parametrize(
    "corruption", [pytest.param("unequal-noise", marks=pytest.mark.slow), "unit-variance"]
)
def test_unequal_variances_alone_are_no_hidden_cause(corruption):
    model = fitted(corrupt({corruption: None}, 104).sites)
    assert model.noise_variance_ == "free"
    assert model.residuals_.hidden_causes == ()
    assert not {"residuals", "could-be-hidden"} & set(model.findings_.codes)
    assert not model.hidden_["could_be_hidden"].any()
    assert model.hidden_["robustness"].between(0.01, 1).all()
