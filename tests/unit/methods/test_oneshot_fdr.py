"""Several modules: a fit with `fdr` keeps discoveries, says what that rests on, and goes through files as any other."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

import feddbn
from feddbn.core.statistics.moments import Moments
from feddbn.errors import ParameterError, ResultWarning
from feddbn.federation.programs.oneshot import with_discoveries
from feddbn.federation.programs.residual_checks import ResidualReport
from feddbn.methods.oneshot import OneShotDBN
from feddbn.results.result import Result
from support.saying import only

pytestmark = [
    pytest.mark.promise,
    pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning"),
]


def weak(seed=0, **more):
    given = {"d": 5, "n_sites": 5, "n_samples": 500, "mean_degree": 1.5, "w_range": (0.1, 0.4), **more}
    return feddbn.simulate(random_state=seed, **given)


@pytest.fixture(scope="module")
def fitted():
    data = weak()
    return data, OneShotDBN(fdr=0.2).fit(data.sites)


def test_the_edges_are_those_with_a_q_value_up_to_the_level(fitted):
    data, model = fitted
    table = model.edge_probabilities_
    small = table[table["q_value"] <= 0.2]
    assert (table.loc[table["weight"] != 0, "q_value"] <= 0.2).all()
    lagged = small[small["lag"] > 0]
    assert (lagged["weight"] != 0).all()
    # A link has one q-value, and one of its two directions in the network.
    links = small[small["lag"] == 0]
    assert 2 * (links["weight"] != 0).sum() == len(links) > 0
    by_score = OneShotDBN().fit(data.sites)
    assert "q_value" not in by_score.edge_probabilities_
    assert "discoveries" not in by_score.findings_.codes
    told = only(model.findings_, "discoveries")
    assert (told.level, told.values["because"]) == ("note", [])
    assert told.values["n_lagged"] == len(lagged)
    assert told.values["n_links"] == len(links) // 2
    assert told.values["n_tested"] == 25 + 10
    assert told.values["n"] <= 500
    # No question more; resamples are asked before sites compare themselves.
    assert model.n_rounds_ == by_score.n_rounds_


def test_it_goes_through_a_file_and_comes_again(fitted, tmp_path):
    data, model = fitted
    result = Result.from_estimator(model)
    path = tmp_path / "result.json"
    result.save(path)
    read = Result.load(path)
    assert read.edges == result.edges
    assert all(edge["q_value"] <= 0.2 for edge in read.edges)
    again = OneShotDBN(fdr=0.2).fit(data.sites)
    np.testing.assert_array_equal(again.A_, model.A_)
    assert again.edge_probabilities_.equals(model.edge_probabilities_)


def test_tests_count_the_rows_that_are_independent(fitted):
    data, model = fitted
    rows = [frame.to_numpy() for frames in data.sites.values() for frame in frames]
    moments = Moments.of_rows(np.vstack([np.hstack([x[1:], x[:-1]]) for x in rows]))
    learner = OneShotDBN(fdr=0.2)
    learner.fit_moments(moments, model.dbn_.variables)
    told = only(learner.findings_, "discoveries")
    assert (told.level, told.values["n"]) == ("unknown", 250)
    outcome = OneShotDBN()
    outcome._begin()
    outcome._set_variables(tuple(model.dbn_.variables))
    found, limits = outcome._of_moments(moments)[0], outcome._constraints()
    report = ResidualReport(None, n_effective=250.0)
    fewer = with_discoveries(replace(found, dispersion=2.0), report, limits, 0.2)
    assert fewer.n_tested == 125
    assert fewer.learned.support.sum() <= learner.dbn_.is_edge.sum()


def test_constraints_hold_required_edges_are_not_tested_and_what_they_contradict_is_said():
    data = weak(3)
    first, second = list(data.truth.variables)[:2]
    model = OneShotDBN(
        fdr=0.95,
        required_edges=[(first, second, 1)],
        forbidden_edges=[(second, first, 1), (first, "*", 0)],
    )
    with pytest.warns(ResultWarning):
        model.fit(data.sites)
    table = model.edge_probabilities_.set_index(["source", "target", "lag"])
    assert table.loc[(first, second, 1), "weight"] != 0
    assert np.isnan(table.loc[[(first, second, 1), (second, first, 1)], "q_value"]).all()
    assert not model.W_[0].any()
    # What the constraints direct has a direction, however weak it is.
    assert len(model.dbn_.open_edges) > 0
    assert (model.W_[:, 0] != 0).sum() >= 3
    assert all(target != first for _, target in model.dbn_.open_edges)
    # Residuals remember what the forbidden edges do not explain.
    told = only(model.findings_, "discoveries")
    assert (told.level, told.values["because"]) == ("warning", ["memory"])


def test_few_rows_find_nothing_and_say_so():
    data = weak(n_samples=10, n_sites=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = OneShotDBN(fdr=0.1, n_lags=2, check_residuals=False).fit(data.sites)
    assert not model.dbn_.is_edge.any()
    assert only(model.findings_, "discoveries").level == "warning"


@pytest.mark.parametrize("fdr", [0, 1, -0.1, "a", True, float("nan")])
def test_a_level_is_between_0_and_1(fdr):
    with pytest.raises(ParameterError, match=r"fdr=.*\(0, 1\)"):
        OneShotDBN(fdr=fdr).fit(weak(n_samples=50).sites)


def test_only_straight_lines_are_tested():
    with pytest.raises(ParameterError, match="features='spline'"):
        OneShotDBN(fdr=0.1, features="spline").fit(weak(n_samples=50).sites)


def test_the_share_of_false_edges_of_learned_orders():
    """Free variances leave directions open; 20 networks of moments alone."""
    shares, found = {"lagged": [], "links": []}, []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        d, n = 6, 300
        W = np.triu(np.where(rng.random((d, d)) < 0.3, 0.4, 0.0), 1)
        A = np.where(rng.random((d, d)) < 0.15, 0.3, 0.0)
        past, noise = rng.standard_normal((n, d)), rng.standard_normal((n, d)) * rng.uniform(0.6, 1.6, d)
        rows = np.hstack([(past @ A + noise) @ np.linalg.inv(np.eye(d) - W), past])
        model = OneShotDBN(fdr=0.2, noise_variance="free", n_restarts=0)
        dbn = model.fit_moments(Moments.of_rows(rows), [f"x{k}" for k in range(d)])
        links, lagged = dbn.is_edge[0] | dbn.is_edge[0].T, dbn.is_edge[1]
        shares["lagged"].append((lagged & (A == 0)).sum() / max(lagged.sum(), 1))
        shares["links"].append((links & (W + W.T == 0)).sum() / max(links.sum(), 1))
        found.append((lagged & (A != 0)).sum() / max((A != 0).sum(), 1))
    for each in shares.values():
        assert np.mean(each) < 0.2 + 2 * np.std(each) / np.sqrt(len(each))
    assert np.mean(found) > 0.8
