"""Residuals: what OneShotDBN does about them, and that FDBNL, PFDBNL and Dynotears only look."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

from feddbn import AS_THEY_ARE, FDBNL, PFDBNL, ChangingDBN, Dynotears, OneShotDBN, Prepare
from feddbn.data import read_sites
from feddbn.errors import ResidualsWarning
from feddbn.federation.protocol.site import Site
from feddbn.report.record import read_record
from feddbn.report.verdicts import verdicts
from feddbn.results.result import Result
from feddbn.runtime.simulated.private import private_federation
from reproduction.corruptions import simulate
from support.corrupt_sites import corrupt, fitted
from support.saying import only

pytestmark = pytest.mark.promise


def made(shocks, measured=0.0, n=300, n_sites=4, seed=1):
    """Sites that follow one network with these shocks, measured with errors of this size."""
    truth = simulate({}, d=5, n_sites=1, n_samples=10, mean_degree=2.5, random_state=seed).truth
    mixing, sites = np.linalg.inv(np.eye(5) - truth.W), {}
    for k in range(n_sites):
        rng = np.random.default_rng([seed, k])
        u, x = shocks(rng, n), np.zeros((n, 5))
        for t in range(1, n):
            x[t] = (x[t - 1] @ truth.A[0] + u[t]) @ mixing
        x += measured * x.std(axis=0) * rng.standard_normal(x.shape)
        sites[f"s{k}"] = [pd.DataFrame(x[20:], columns=list(truth.variables))]
    return sites, truth


def white(rng, n):
    return rng.standard_normal((n, 5))


def remembering(rng, n):
    u = rng.standard_normal((n, 5))
    for t in range(1, n):
        u[t] = 0.6 * u[t - 1] + 0.8 * u[t]
    return u


ABOUT_RESIDUALS = ("lag-added", "noise-memory-removed", "residuals")


def of_residuals(model):
    return [code for code in model.findings_.codes if code.startswith(ABOUT_RESIDUALS)]


def test_nothing_is_said_of_clean_data():
    sites, _ = made(white)
    model = fitted(sites)
    assert model.residuals_.violations == model.residuals_.acted_on == ()
    assert model.residuals_.n_effective == model.residuals_.n_rows == model.n_samples_
    assert of_residuals(model) == []
    plain = fitted(sites, check_residuals=False)
    assert plain.residuals_ is None
    np.testing.assert_array_equal(plain.W_, model.W_)
    pd.testing.assert_frame_equal(plain.edge_probabilities_, model.edge_probabilities_)


def test_the_memory_of_noise_is_taken_off_and_said():
    sites, truth = made(remembering)
    model, plain = fitted(sites), fitted(sites, check_residuals=False)
    np.testing.assert_array_equal(model.W_ != 0, truth.W != 0)
    np.testing.assert_array_equal(model.A_ != 0, truth.A != 0)
    assert (plain.A_ != 0).sum() > (truth.A != 0).sum() + 3
    assert of_residuals(model) == ["noise-memory-removed"]
    assert only(model.findings_, "noise-memory-removed").values["memory"] == pytest.approx(0.6, abs=0.06)
    # The variance of the noise is that of all of it, not of what is new in a row.
    np.testing.assert_allclose(model.dbn_.noise_variances, 1.0, rtol=0.2)
    stored = Result.from_estimator(model).to_dict()
    assert stored["diagnostics"]["residuals"]["acted_on"] == ["memory"]
    assert stored["diagnostics"]["residuals"]["noise_memory"] == pytest.approx(0.6, abs=0.06)
    verdict = only(verdicts(read_record(stored)), "verdict-residuals")
    assert verdict.level == "good"


def test_rows_taken_early_or_late_look_like_noise_with_a_memory_which_is_taken_off():
    fed = corrupt({"jitter": 0.3}, 113)
    model, plain = fitted(fed.sites), fitted(fed.sites, check_residuals=False)
    assert ((plain.A_ != 0) != (fed.truth.A != 0)).sum() > 3
    np.testing.assert_array_equal(model.A_ != 0, fed.truth.A != 0)
    assert model.residuals_.acted_on == ("memory",)


def test_errors_of_measurement_are_warned_of():
    sites, _ = made(white, measured=1.0, n=1500)
    with pytest.warns(ResidualsWarning):
        model = fitted(sites)
    assert only(model.findings_, "residuals").values["memory"]["echo"] > 3.7
    assert "memory" in model.residuals_.violations
    verdict = only(verdicts(read_record(Result.from_estimator(model).to_dict())), "verdict-residuals")
    assert verdict.level == "error"


def test_every_violation_is_told():
    def changing(rng, n):
        return rng.standard_t(3, (n, 5)) * np.where(np.arange(n) < n // 2, 1.0, 3.0)[:, None]

    sites, _ = made(changing)
    sites["s0"] = [sites["s0"][0] * 3]
    model = fitted(sites, prepare=AS_THEY_ARE)
    assert {"volatility", "thirds", "spread", "tails"} <= set(model.residuals_.violations)
    assert model.residuals_.n_effective < 0.8 * model.residuals_.n_rows
    told = only(model.findings_, "residuals").values
    assert of_residuals(model) == ["residuals"]
    assert set(told) == {"violations", *told["violations"]} == {"violations", *model.residuals_.violations}


def changing_half_way(n, n_recordings):
    """a -> b (lag 1) stops, a -> c falls from .6 to .3, b -> c (lag 1) begins."""
    sites = {}
    for k in range(3):
        rng, sites[f"s{k}"] = np.random.default_rng(k), []
        for _ in range(n_recordings):
            x = rng.standard_normal((n, 3))
            for t in range(1, n):
                late = t >= n // 2
                x[t, 0] += 0.4 * x[t - 1, 0]
                x[t, 1] += (not late) * 0.5 * x[t - 1, 0]
                x[t, 2] += (0.6 - 0.3 * late) * x[t, 0] + late * 0.5 * x[t - 1, 1]
            sites[f"s{k}"].append(pd.DataFrame(x, columns=list("abc")))
    return sites


def test_effects_that_stop_fall_or_begin_half_way_are_told_as_changing_dbn_finds_them():
    true = {("a", "b", 1): (0.5, 0.0), ("a", "c", 0): (0.6, 0.3), ("b", "c", 1): (0.0, 0.5)}
    for sites in (changing_half_way(600, 1), changing_half_way(25, 30)):
        for estimator in (OneShotDBN(), FDBNL()):
            with pytest.warns(ResidualsWarning):
                model = estimator.fit(sites)
            assert model.residuals_.violations == ("change",)
            told = only(model.findings_, "residuals")
            assert told.level == "warning"
            found = {(*edge[:2], edge[2]): edge[3:5] for edge in told.values["change"]["edges"]}
            assert found.keys() == true.keys()
            for edge, weights in true.items():
                assert found[edge] == pytest.approx(weights, abs=0.12)
            assert min(edge[5] for edge in told.values["change"]["edges"]) > 1e3
    cure = ChangingDBN().fit(sites)
    assert (
        set(zip(*(cure.changes_[name] for name in ("source", "target", "lag")), strict=True)) == true.keys()
    )
    stored = json.loads(json.dumps(Result.from_estimator(model).to_dict()))
    assert only(verdicts(read_record(stored)), "verdict-residuals").values["violations"] == ["change"]


@pytest.mark.filterwarnings("ignore:these data do not show")
def test_noise_leaves_it_out():
    sites, _ = made(remembering)
    here = {name: Site(name, data) for name, data in read_sites(sites).items()}
    noisy = private_federation(here, 50.0, clip=500.0, rng=np.random.default_rng(0))
    assert fitted(None, federation=noisy).residuals_ is None


METHODS = pytest.mark.parametrize("method", [FDBNL, PFDBNL, Dynotears], ids=lambda method: method.__name__)


def drawn(corruption=None, seed=30, **more):
    given = {"d": 5, "n_sites": 4, "n_samples": 1000, "mean_degree": 2.5, "random_state": seed, **more}
    return simulate({corruption: None} if corruption else {}, **given).sites


def quiet(model, sites):
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(sites, observer=lambda task, answer: seen.append(task.name))
    return model, seen


def same_network(one, other):
    np.testing.assert_array_equal(one.W_, other.W_)
    np.testing.assert_array_equal(one.A_, other.A_)
    assert len(one.history_) == len(other.history_)


@METHODS
def test_clean_data_cost_one_sum_and_nothing_is_said(method):
    sites = drawn()
    model, seen = quiet(method(), sites)
    plain, without = quiet(method(check_residuals=False), sites)
    more = set(seen) - set(without)
    assert {"residuals.checks"} <= more <= {"residuals.checks", "loss.alone"}
    assert len(seen) <= len(without) + 2
    assert model.residuals_.violations == model.residuals_.acted_on == ()
    assert model.residuals_.n_rows == model.residuals_.n_effective == model.n_samples_
    assert plain.residuals_ is None
    assert [one for one in model.findings_ if one.code != "alone"] == list(plain.findings_)
    same_network(model, plain)


@pytest.mark.parametrize("method", [FDBNL, PFDBNL])
def test_effects_below_the_threshold_are_no_violation(method):
    model, _ = quiet(method(w_threshold=0.45, a_threshold=0.45), drawn(n_samples=4000))
    assert np.count_nonzero(model.W_) < np.count_nonzero(quiet(method(), drawn(n_samples=4000))[0].W_)
    assert model.residuals_.violations == ()


@pytest.mark.parametrize(
    ("method", "corruption", "violation"),
    [
        (FDBNL, "autocorrelated-noise", "memory"),
        (PFDBNL, "changing-noise", "volatility"),
        (Dynotears, "heavy-tails", "tails"),
    ],
)
def test_what_breaks_the_model_is_said_and_stored(method, corruption, violation):
    sites = drawn(corruption, n_samples=2000)
    model, _ = quiet(method(), sites)
    assert violation in model.residuals_.violations
    assert model.residuals_.looked_only
    assert model.residuals_.acted_on == ()
    assert violation in only(model.findings_, "residuals").values["violations"]
    stored = Result.from_estimator(model).to_dict()
    assert violation in stored["diagnostics"]["residuals"]["violations"]
    verdict = only(verdicts(read_record(stored)), "verdict-residuals")
    assert verdict.level == ("error" if violation == "memory" else "warning")
    same_network(model, quiet(method(check_residuals=False), sites)[0])


@pytest.mark.parametrize(
    ("method", "given"),
    [(FDBNL, {"schedule": "paper", "rounds.max_rounds": 20}), (PFDBNL, {"prepare": AS_THEY_ARE})],
)
def test_the_papers_schedule_and_rows_as_they_are_look_only_if_told(method, given):
    sites = drawn()
    model, seen = quiet(method(**given), sites)
    assert model.residuals_ is None
    assert "residuals.checks" not in seen
    told, seen = quiet(method(check_residuals=True, **given), sites)
    assert seen[-1] == "residuals.checks"
    assert told.residuals_.violations == ()
    same_network(model, told)


def test_networks_without_lags_and_inputs_are_looked_at():
    sites = drawn(n_lags=0)
    for method in (FDBNL, PFDBNL, Dynotears):
        assert quiet(method(n_lags=0), sites)[0].residuals_.violations == ()
    rng = np.random.default_rng(0)
    pushed = {}
    for name, (frame,) in drawn().items():
        pulse = (rng.random(len(frame)) < 0.05).astype(float)
        push = np.concatenate([[0.0], pulse[:-1]])
        pushed[name] = [frame.assign(x0=frame["x0"] + 2.0 * push, pulse=pulse)]
    for method in (FDBNL, PFDBNL, Dynotears):
        found = quiet(method(prepare=Prepare(exogenous=["pulse"])), pushed)[0].residuals_
        # A pulse has heavy tails; an input has no residual.
        assert "tails" not in found.violations
        assert found.kurtosis < 6


def test_personal_networks_that_differ_are_no_violation():
    sites = drawn(heterogeneity="independent", n_samples=2000)
    assert quiet(PFDBNL(), sites)[0].residuals_.violations == ()
    # One network for all is wrong for most of them.
    assert quiet(FDBNL(prepare=Prepare(on_disagreement="ignore")), sites)[0].residuals_.violations


def test_sites_with_few_rows_say_nothing_and_that_is_said():
    sites = drawn(n_sites=20, n_samples=200)
    model, seen = quiet(PFDBNL(), sites)
    assert seen[-1] == "residuals.checks"
    assert model.residuals_ is None
    told = only(model.findings_, "own-residuals-not-looked-at").values
    assert told == {"rows_a_column": 10, "n_columns": 10}
    sites["long"] = drawn(n_samples=400, n_sites=1)["site-0"]
    model, _ = quiet(PFDBNL(), sites)
    assert model.residuals_.n_rows == 400


def test_without_a_look_at_residuals_nobody_knows_of_hidden_causes():
    drawn = simulate({}, d=4, n_sites=3, n_samples=300, mean_degree=2, random_state=0)
    table = FDBNL(check_residuals=False).fit(drawn.sites).hidden_
    assert len(table)
    assert table["could_be_hidden"].isna().all()
    assert table["robustness"].between(0.01, 1).all()
