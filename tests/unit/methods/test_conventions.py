"""Several modules: scikit-learn's conventions, by its own checks and ours; nothing is left of an earlier fit, and no rows."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

import feddbn
from feddbn import FDBNL, PFDBNL, Rounds
from feddbn.data import read_sites
from feddbn.errors import DataError, ParameterError
from feddbn.federation.protocol.site import Site
from feddbn.method_table import METHODS
from feddbn.runtime.simulated.in_process import InProcessFederation

pytestmark = [
    pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning"),
]


KINDS = {m.cls: m.load() for m in METHODS.values()}


def quick(name):
    cls = KINDS[name]
    return cls(**{"rounds.max_rounds": 30}) if "rounds" in cls().get_params() else cls()


EXPECTED_OF_ALL = {
    "check_complex_data": "refused, in our words: a column that is not numeric is named",
    "check_dtype_object": "columns of objects are refused, whatever is in them: reading never guesses a type",
    "check_estimators_empty_data_messages": "refused, in our words: no column is left for variables",
    "check_n_features_in_after_fitting": "`score` names the variable that is missing, in our words",
    "check_fit2d_1sample": "refused, in our words: the site, its longest segment and n_lags are named",
}


SLOW = {
    "OneShotDBN",
    "ChangingDBN",
    "PFDBNL",
    "MixedDBN",
    "LatentDBN",
    "Average",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in KINDS]
)
def test_the_checks_of_scikit_learn_pass_except_those_named(name):
    pytest.importorskip("sklearn", minversion="1.6")
    from sklearn.utils.estimator_checks import check_estimator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = check_estimator(quick(name), on_skip=None, on_fail=None)
    failed = {o["check_name"]: str(o["exception"]) for o in outcomes if o["status"] == "failed"}
    passed = {o["check_name"] for o in outcomes if o["status"] == "passed"} - set(failed)
    expected = dict(EXPECTED_OF_ALL)
    if not hasattr(KINDS[name], "score"):
        del expected["check_n_features_in_after_fitting"]
    if "prepare" in KINDS[name]().get_params():
        expected["check_parameters_default_constructible"] = "a default is a frozen Prepare()"
    assert {k: v for k, v in failed.items() if k not in expected} == {}
    assert passed & set(expected) == set(), "these pass: remove them from the expected failures"
    assert len(passed) > 25


MADE = feddbn.simulate(d=4, n_sites=3, n_samples=240, mean_degree=2, random_state=1)


def fitted(name, sites=MADE.sites):
    return quick(name).fit(sites)


@pytest.mark.parametrize("name", KINDS)
def test_nothing_can_be_read_before_a_fit(name):
    estimator = quick(name)
    for result in ("dbn_", "dbns_", "W_", "status_", "edge_probabilities_", "scores_", "selected_"):
        assert not hasattr(estimator, result)
        with pytest.raises(NotFittedError, match=f"{result}; "):
            getattr(estimator, result)
    with pytest.raises(NotFittedError):
        check_is_fitted(estimator)
    with pytest.raises(AttributeError, match="'nonsense'"):
        _ = estimator.nonsense


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::feddbn.errors.ResidualsWarning")
@pytest.mark.parametrize("name", KINDS)
def test_a_fit_that_fails_leaves_nothing_behind(name):
    estimator = fitted(name)
    check_is_fitted(estimator)
    with pytest.raises(DataError):
        estimator.fit({"a": np.zeros(5)})
    with pytest.raises(NotFittedError):
        check_is_fitted(estimator)


def test_wrong_arguments_leave_an_earlier_fit_as_it_was():
    model = FDBNL(rounds=Rounds(max_rounds=30)).fit(MADE.sites)
    W = model.W_
    with pytest.raises(ParameterError):
        model.set_params(lambda_w="much").fit(MADE.sites)
    assert model.W_ is W


def test_what_was_selected_does_not_survive_a_fit_without_selection():
    model = FDBNL(lambda_w="auto", rounds=Rounds(max_rounds=20)).fit(MADE.sites)
    assert set(model.selection_["parameter"]) == {"lambda_w"}
    model.set_params(lambda_w=0.05).fit(MADE.sites)
    assert model.selected_ == {}
    assert not hasattr(model, "selection_")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
@pytest.mark.parametrize("name", KINDS)
def test_a_stored_fit_holds_no_rows(name):
    def stored(n_rows):
        rng = np.random.default_rng(3)
        frames = {
            s: pd.DataFrame(rng.normal(size=(n_rows, 4)), columns=list("abcd")) for s in ("u", "v", "w")
        }
        return frames, pickle.dumps(clone(quick(name)).fit(frames))

    frames, small = stored(200)
    _, large = stored(4000)
    assert len(large) < len(small) + 4000
    for frame in frames.values():
        for value in frame.to_numpy()[50:150].ravel():
            assert value.tobytes() not in small


@pytest.mark.slow
def test_shared_edges_of_a_stored_fit_are_those_of_the_sums():
    drawn = feddbn.simulate(d=4, n_sites=4, n_samples=240, mean_degree=2, heterogeneity=0.3, random_state=3)
    model = PFDBNL(mu=0.3).fit(drawn.sites)
    again = pickle.loads(pickle.dumps(model))
    sites = {name: Site(name, data) for name, data in read_sites(drawn.sites).items()}
    asked = PFDBNL(mu=0.3, federation=InProcessFederation(sites)).fit(None)
    for options in ({}, {"min_count": 2}, {"opt_out": ["site-1"]}):
        left, right = again.shared_edges(**options), asked.shared_edges(**options)
        pd.testing.assert_frame_equal(left.table, right.table, rtol=1e-6)
        assert left.deviations.keys() == right.deviations.keys()
    specific = model.shared_edges().table
    assert len(model.shared_edges(opt_out=drawn.sites).table) < len(specific)


def test_a_clone_goes_to_the_same_federation():
    federation = InProcessFederation({"a": Site("a", next(iter(read_sites(MADE.sites).values())))})
    model = FDBNL(forbidden_edges=[("x0", "x1", 0)], federation=federation)
    copy = clone(model)
    assert copy.federation is federation
    assert copy.forbidden_edges == model.forbidden_edges
    assert copy.forbidden_edges is not model.forbidden_edges
