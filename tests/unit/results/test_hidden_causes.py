"""Edges that a hidden cause could stand for: what a default fit says of them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from feddbn import FDBNL, OneShotDBN
from feddbn.errors import ResidualsWarning
from feddbn.report.record import read_record
from feddbn.report.verdicts import verdicts
from feddbn.results.result import Result
from support.messy_sites import fitted, messy
from support.saying import only


@pytest.mark.slow
def test_hidden_common_causes_are_warned_of_and_directions_between_their_effects_left_open():
    sites = messy({"hidden-causes": None}, 104).sites
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
    truth = messy({"hidden-causes": None}, 104).truth
    true = {(*ends, 0) for ends in zip(*np.nonzero(truth.W), strict=True)}
    true |= {(i, j, 1) for _, i, j in zip(*np.nonzero(truth.A), strict=True)}
    names = list(truth.variables)
    wrong = [(names.index(e.source), names.index(e.target), e.lag) not in true for e in doubted.itertuples()]
    assert len(doubted) >= 8
    assert all(wrong)
    could = only(model.findings_, "could-be-hidden").values
    assert (len(could["edges"]), could["n_edges"]) == (len(doubted), len(model.hidden_))
    by_edge = [edge["could_be_hidden"] for edge in stored["edges"]]
    assert sum(by_edge) == len(doubted)
    plain = fitted(sites, check_residuals=False)
    np.testing.assert_array_equal(plain.W_, model.W_)
    assert plain.hidden_["could_be_hidden"].isna().all()


def with_a_slow_cause(n=1200, n_sites=3, empty=0.3):
    """c -> a and a -> d (lag 1); a hidden cause that remembers .7 of itself acts on a and b; cells are empty."""
    sites = {}
    for k in range(n_sites):
        rng = np.random.default_rng(k)
        x, h, e = np.zeros((n, 5)), 0.0, 0.8 * rng.standard_normal((n, 5))
        for t in range(1, n):
            h = 0.7 * h + 0.7 * rng.standard_normal()
            x[t] = [0.5, 0.5, 0.6, 0.4, 0.6] * x[t - 1] + e[t] + 0.7 * h * np.array([1, 1, 0, 0, 0])
            x[t, 0] += 0.45 * x[t, 2]
            x[t, 3] += 0.4 * x[t - 1, 0]
        x[rng.random(x.shape) < empty] = np.nan
        sites[f"s{k}"] = pd.DataFrame(x, columns=list("abcde"))
    return sites


def test_a_hidden_cause_with_a_memory_is_found_where_too_few_rows_are_complete_for_residuals():
    sites, true = with_a_slow_cause(), {("c", "a", 0), ("a", "d", 1), *((v, v, 1) for v in "abcde")}
    for estimator in (OneShotDBN(resamples=0), FDBNL()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = estimator.fit(sites)
        assert model.residuals_ is None
        (unknown,) = model.findings_.of("residuals-not-looked-at")
        assert unknown.level == "unknown"
        assert unknown.values["n"] < unknown.values["fewest"]
        assert only(model.findings_, "could-be-hidden").values["causes"] == [["a", "b"]]
        told = {(e.source, e.target, e.lag): e.could_be_hidden for e in model.hidden_.itertuples()}
        assert {edge for edge, doubted in told.items() if doubted} == told.keys() - true
        level = only(verdicts(read_record(Result.from_estimator(model).to_dict())), "verdict-residuals").level
        assert level == ("error" if isinstance(model, OneShotDBN) else "unknown")


@pytest.mark.parametrize("mess", [pytest.param("unequal-noise", marks=pytest.mark.slow), "unit-variance"])
def test_unequal_variances_alone_are_no_hidden_cause(mess):
    model = fitted(messy({mess: None}, 104).sites)
    assert model.noise_variance_ == "free"
    assert model.residuals_.hidden_causes == ()
    assert not {"residuals", "could-be-hidden"} & set(model.findings_.codes)
    assert not model.hidden_["could_be_hidden"].any()
    assert model.hidden_["robustness"].between(0.01, 1).all()
