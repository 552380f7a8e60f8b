"""FDBNL, PFDBNL and Dynotears look at residuals and leave the network as it is."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from feddbn import AS_THEY_ARE, FDBNL, PFDBNL, Dynotears, Partial, Prepare, simulate
from feddbn.core.statistics.moments import Moments
from feddbn.data import read_sites
from feddbn.errors import ParameterError, ResidualsWarning
from feddbn.federation.protocol.site import Site
from feddbn.methods.result import Result
from feddbn.report.record import read_record
from feddbn.report.verdicts import verdicts
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.secure import secure_federation
from support.saying import only, refused

METHODS = pytest.mark.parametrize("method", [FDBNL, PFDBNL, Dynotears], ids=lambda method: method.__name__)


def made(mess=None, seed=30, **more):
    given = {"d": 5, "n_sites": 4, "n_samples": 1000, "mean_degree": 2.5, "random_state": seed, **more}
    return simulate(mess=mess, **given).sites


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
    sites = made()
    model, seen = quiet(method(), sites)
    plain, without = quiet(method(check_residuals=False), sites)
    assert seen == [*without, "residual-checks"]
    assert model.residuals_.violations == model.residuals_.acted_on == ()
    assert model.residuals_.n_rows == model.residuals_.n_effective == model.n_samples_
    assert plain.residuals_ is None
    assert model.findings_ == plain.findings_
    same_network(model, plain)


@METHODS
def test_effects_below_the_threshold_are_no_violation(method):
    model, _ = quiet(method(w_threshold=0.45, a_threshold=0.45), made(n_samples=4000))
    assert np.count_nonzero(model.W_) < np.count_nonzero(quiet(method(), made(n_samples=4000))[0].W_)
    assert model.residuals_.violations == ()


@METHODS
@pytest.mark.parametrize(
    ("mess", "violation"),
    [("autocorrelated-noise", "memory"), ("changing-noise", "volatility"), ("heavy-tails", "tails")],
)
def test_what_breaks_the_model_is_said_and_stored(method, mess, violation):
    sites = made(mess, n_samples=2000)
    model, _ = quiet(method(), sites)
    assert violation in model.residuals_.violations
    assert model.residuals_.looked_only
    assert model.residuals_.acted_on == ()
    assert f"residuals-{violation}" in model.findings_.codes
    stored = Result.from_estimator(model).to_dict()
    assert violation in stored["diagnostics"]["residuals"]["violations"]
    verdict = only(verdicts(read_record(stored)), "verdict-residuals")
    assert verdict.level == ("error" if violation == "memory" else "warning")
    same_network(model, quiet(method(check_residuals=False), sites)[0])


@METHODS
def test_memory_is_warned_of(method):
    with pytest.warns(ResidualsWarning, match="residuals"):
        method().fit(made("autocorrelated-noise", n_samples=2000))


@METHODS
@pytest.mark.parametrize(
    "given",
    [{"schedule": "paper", "rounds.max_rounds": 20}, {"prepare": AS_THEY_ARE}],
    ids=["paper", "as they are"],
)
def test_the_papers_schedule_and_rows_as_they_are_look_only_if_told(method, given):
    if method is Dynotears and "schedule" in given:
        pytest.skip("pooled rows have no schedule")
    sites = made()
    model, seen = quiet(method(**given), sites)
    assert model.residuals_ is None
    assert "residual-checks" not in seen
    told, seen = quiet(method(check_residuals=True, **given), sites)
    assert seen[-1] == "residual-checks"
    assert told.residuals_.violations == ()
    same_network(model, told)


@METHODS
def test_masks_change_nothing(method):
    here = {name: Site(name, data) for name, data in read_sites(made("autocorrelated-noise")).items()}
    plain, masked = (
        quiet(method(federation=make(here)), None)[0] for make in (InProcessFederation, secure_federation)
    )
    assert plain.residuals_.violations == masked.residuals_.violations
    assert masked.residuals_.memory_p == pytest.approx(plain.residuals_.memory_p, rel=1e-3, abs=1e-12)


def test_own_means_of_short_recordings_are_no_memory():
    sites = made(n_recordings=10, seed=31)
    given = {"prepare": replace(AS_THEY_ARE, center="recording"), "check_residuals": True}
    for method in (FDBNL, PFDBNL):
        assert quiet(method(**given), sites)[0].residuals_.violations == ()


def test_networks_without_lags_and_inputs_are_looked_at():
    sites = made(n_lags=0)
    for method in (FDBNL, PFDBNL, Dynotears):
        assert quiet(method(n_lags=0), sites)[0].residuals_.violations == ()
    rng = np.random.default_rng(0)
    pushed = {}
    for name, (frame,) in made().items():
        pulse = (rng.random(len(frame)) < 0.05).astype(float)
        push = np.concatenate([[0.0], pulse[:-1]])
        pushed[name] = [frame.assign(x0=frame["x0"] + 2.0 * push, pulse=pulse)]
    for method in (FDBNL, PFDBNL, Dynotears):
        found = quiet(method(prepare=Prepare(exogenous=["pulse"])), pushed)[0].residuals_
        # A pulse has heavy tails; an input has no residual.
        assert "tails" not in found.violations
        assert found.kurtosis < 6


def test_personal_networks_that_differ_are_no_violation():
    sites = made(heterogeneity="independent", n_samples=2000)
    assert quiet(PFDBNL(), sites)[0].residuals_.violations == ()
    # One network for all is wrong for most of them.
    assert quiet(FDBNL(prepare=Prepare(on_disagreement="ignore")), sites)[0].residuals_.violations


def test_sites_with_few_rows_say_nothing_and_that_is_said():
    sites = made(n_sites=20, n_samples=200)
    model, seen = quiet(PFDBNL(), sites)
    assert seen[-1] == "residual-checks"
    assert model.residuals_ is None
    told = only(model.findings_, "own-residuals-not-looked-at").values
    assert told == {"rows_a_column": 10, "n_columns": 10}
    sites["long"] = made(n_samples=400, n_sites=1)["site-0"]
    model, _ = quiet(PFDBNL(), sites)
    assert model.residuals_.n_rows == 400


def test_sites_with_other_variables_are_not_asked():
    sites = {name: [frame.drop(columns=f"x{k}")] for k, (name, (frame,)) in enumerate(made().items())}
    model, seen = quiet(PFDBNL(partial=Partial(different_variables=True)), sites)
    assert model.residuals_ is None
    assert "residual-checks" not in seen
    for given in ({"different_variables": True}, {"site_lags": {"site-0": 0}}):
        with refused(ParameterError, "check_residuals=True"):
            PFDBNL(check_residuals=True, partial=Partial(**given)).fit(sites)


def test_learning_from_moments_has_no_residuals():
    x = pd.DataFrame(made()["site-0"][0])
    model = Dynotears()
    model.fit_moments(Moments.of_rows(np.hstack([x[1:], x[:-1]])), tuple(x.columns))
    assert model.residuals_ is None


def test_without_a_look_at_residuals_nobody_knows_of_hidden_causes():
    made = simulate(d=4, n_sites=3, n_samples=300, mean_degree=2, random_state=0)
    table = FDBNL(check_residuals=False).fit(made.sites).hidden_
    assert len(table)
    assert table["could_be_hidden"].isna().all()
    assert table["robustness"].between(0.01, 1).all()
