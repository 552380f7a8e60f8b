from __future__ import annotations

import numpy as np
import pytest

from feddbn import DBN, simulate
from feddbn.core.designs.lagged import Block
from feddbn.data import ArrayRecording, MemorySite, read_sites
from feddbn.errors import DataError, ParameterError
from feddbn.method_table import METHODS, available_methods, get_method
from feddbn.methods.comparison import compare, default_methods, fit_method, held_out_score, split_rows
from feddbn.methods.registry import make_estimator


def test_split_keeps_every_row_once_and_never_joins_segments():
    a, b = np.arange(20.0).reshape(10, 2), 100 + np.arange(10.0).reshape(5, 2)
    blocks = (Block(a[:6]), Block(a[6:], starts_segment=False), Block(b))
    learn, test = split_rows({"s": MemorySite(("u", "v"), [ArrayRecording("r", blocks)])}, 0.2)
    kept = [block.values for recording in learn["s"].recordings() for block in recording.blocks()]
    for first, last, whole in zip(kept, test["s"], (a, b), strict=True):
        np.testing.assert_array_equal(np.concatenate([first, last]), whole)
    assert [len(rows) for rows in test["s"]] == [2, 1]


def test_held_out_score_is_the_likelihood_at_the_rows_own_variances():
    rng = np.random.default_rng(0)
    W = np.array([[0, 0.7], [0, 0]])
    dbn = DBN(W, np.array([[[0.5, 0.0], [0.0, 0.2]]]), intercept=np.array([1.0, 0.0]))
    rows = rng.normal(size=(50, 2))
    residuals = dbn.residuals(rows)
    own = DBN(dbn.W, dbn.A, intercept=dbn.intercept, noise_variances=(residuals**2).mean(axis=0))
    expected = own.log_likelihood(rows) / (len(rows) - 1)
    assert held_out_score(dbn, {"s": [rows]}) == pytest.approx(expected, rel=1e-12)
    assert held_out_score({"s": dbn}, {"s": [rows]}) == pytest.approx(expected, rel=1e-12)


def test_held_out_score_charges_for_cycles():
    rows = np.random.default_rng(0).normal(size=(400, 2))
    cycle = DBN(np.array([[0, 0.9], [0.9, 0]]), np.zeros((0, 2, 2)))
    empty = DBN(np.zeros((2, 2)), np.zeros((0, 2, 2)))
    assert held_out_score(cycle, {"s": [rows]}) < held_out_score(empty, {"s": [rows]})


def test_held_out_score_prefers_the_truth_to_nothing():
    federation = simulate(d=5, n_sites=2, n_samples=400, random_state=0)
    test = {site: [frame.to_numpy() for frame in frames] for site, frames in federation.sites.items()}
    nothing = DBN(np.zeros((5, 5)), np.zeros((1, 5, 5)))
    assert held_out_score(federation.truth, test) > held_out_score(nothing, test) + 0.1


def test_held_out_segments_must_be_longer_than_the_lags():
    dbn = DBN(np.zeros((2, 2)), np.zeros((3, 2, 2)))
    with pytest.raises(DataError, match="no held-out segment is longer than n_lags"):
        held_out_score(dbn, {"s": [np.zeros((3, 2))]})


def test_each_method_takes_the_parameters_it_has():
    federation = simulate(d=3, n_sites=2, n_samples=80, random_state=0)
    methods = [get_method("fdbnl"), get_method("average")]
    started = []
    sites = read_sites(federation.sites)
    lines = list(compare(sites, methods, {"tol": 1e-3}, federation.truth, 0.2, start=started.append))
    assert started == ["FDBNL", "Ave"]
    for line in lines:
        assert line.estimator.tol == 1e-3
        assert line.scores is not None
        assert line.held_out is not None
        assert line.seconds > 0


def test_sites_with_their_own_truths_are_scored_against_these():
    federation = simulate(d=3, n_sites=2, n_samples=80, heterogeneity="independent", random_state=0)
    (line,) = compare(read_sites(federation.sites), [get_method("fdbnl")], {"tol": 1e-3}, federation.truths)
    assert line.scores is not None
    assert set(line.scores["W"]) >= {"shd", "tpr", "fdr"}


def test_defaults_leave_out_what_cannot_be_compared():
    truth = DBN(np.zeros((2, 2)), np.zeros((1, 2, 2)))
    names = {m.name for m in default_methods(None, personal=False)}
    assert "best-site" not in names
    assert "local" not in names
    assert "best-site" in {m.name for m in default_methods(truth, personal=False)}
    assert "local" in {m.name for m in default_methods(truth, personal=True)}


def test_the_best_site_needs_one_truth():
    with pytest.raises(ParameterError, match="chooses by the truth"):
        fit_method(get_method("best-site"), {}, {})


@pytest.mark.parametrize("method", [m.name for m in available_methods()])
def test_every_registered_method_exists_and_can_be_cloned(method):
    from sklearn.base import clone

    estimator = clone(make_estimator(method, {}))
    assert type(estimator).__name__ == METHODS[method].cls
    assert "n_lags" in METHODS[method].parameters()
    assert "federation" not in METHODS[method].parameters()


@pytest.mark.parametrize(
    ("name", "found"), [("FDBNL", "fdbnl"), ("Ave", "average"), ("best_site", "best-site")]
)
def test_methods_answer_to_the_papers_names(name, found):
    assert get_method(name).name == found


def test_an_unknown_method_lists_the_known_ones():
    with pytest.raises(ParameterError, match=r"method='x' is not known; choose one of .*fdbnl"):
        get_method("x")


def test_an_unknown_parameter_without_a_near_name_lists_the_known_ones():
    with pytest.raises(ParameterError, match="has no parameter 'qqq'; it has n_lags"):
        make_estimator("fdbnl", {"qqq": 1})


def test_held_out_rows_are_judged_at_their_recording_level():
    fed = simulate(d=4, n_sites=4, n_samples=1200, random_state=3)
    rng = np.random.default_rng(0)
    moved = {name: frames[0] + rng.normal(50, 20, 4) for name, frames in fed.sites.items()}
    methods = [get_method("fdbnl")]
    (plain,) = compare(read_sites(fed.sites), methods, {"center": "recording"}, held_out=0.3)
    (own,) = compare(read_sites(moved), methods, {}, held_out=0.3)
    assert own.estimator.center_ == "recording"
    assert own.held_out == pytest.approx(plain.held_out, abs=1e-6)
