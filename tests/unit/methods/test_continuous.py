"""ContinuousDBN: from readings at any times to rates, effects, forecasts, files and what is said."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import expm
from sklearn.base import clone

import feddbn
from feddbn import ContinuousDBN, RateNetwork
from feddbn.core.continuous import FittedMoments, Rates
from feddbn.errors import DataError, ParameterError
from feddbn.federation.protocol.site import Site
from feddbn.methods.continuous import _findings
from feddbn.report import plot_fit, plot_horizons, render_report
from feddbn.report.notebook import html_of
from feddbn.results.result import Result
from feddbn.runtime.simulated.private import private_federation
from feddbn.runtime.simulated.secure import secure_federation
from feddbn.words import say
from support.saying import refused

pytestmark = pytest.mark.promise

TRUTH = RateNetwork.driven(
    [[-0.5, 0.6, 0.0], [0.0, -1.0, -0.5], [0.4, 0.0, -0.8]],
    [1.0, 1.0, 1.0],
    ["a", "b", "c"],
    mean=[80.0, 10.0, 37.0],
    nugget=[0.1, 0.1, 0.1],
    step="1h",
)
SEED = 910


def tables(n_sites=3, n_recordings=6, n=250, clock="dates"):
    rng = np.random.default_rng(SEED)
    sites = {}
    for k in range(n_sites):
        parts = []
        for r in range(n_recordings):
            times = np.cumsum(rng.exponential(0.5, n))
            rows = TRUTH.sample(times, rng)
            rows = rows.where(rng.random(rows.shape) < [0.8, 0.5, 0.3]).reset_index(drop=True)
            dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(times, unit="h")
            parts.append(rows.assign(stay=f"r{r}", t=dates if clock == "dates" else times))
        sites[f"s{k}"] = pd.concat(parts, ignore_index=True)
    return sites


@pytest.fixture(scope="module")
def sites():
    return tables()


@pytest.fixture(scope="module")
def model(sites):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return ContinuousDBN().fit(sites, series="stay", time="t")


def test_it_finds_the_edges_and_their_rates(model):
    table = model.edges_
    between = {(s, t) for s, t in zip(table["source"], table["target"], strict=True) if s != t}
    assert between == {("a", "b"), ("b", "c"), ("c", "a")}
    assert model.rates_.loc["b", "c"] == pytest.approx(-0.5, abs=0.12)
    assert model.rates_.loc["a", "c"] == 0
    assert (np.abs(table["rate"] - [TRUTH.rates["abc".index(s), "abc".index(t)] for s, t in
            zip(table["source"], table["target"], strict=True)]) < 4 * table["error"]).all()  # fmt: skip
    assert model.edge_probabilities_["probability"].head(3).min() > 0.9
    assert model.edge_probabilities_["probability"].tail(3).max() < 0.5
    assert model.step_ == "1h"
    assert model.n_readings_["a"] > model.n_readings_["c"]
    assert model.findings_.codes == ()
    np.testing.assert_allclose(model.rate_network_.mean, TRUTH.mean, atol=0.3)


def test_effects_are_those_of_the_truth_within_their_intervals(model):
    A = TRUTH.rates.T
    for hours in (0.5, 2.0, 6.0):
        for i, source in enumerate("abc"):
            found = model.effect(source, "c", hours=hours, level=0.999)
            assert found.lower <= expm(A * hours)[2, i] <= found.upper
    assert model.effect("a", "c", steps=2) == model.effect("a", "c", hours=2)


def test_the_network_over_a_step_is_the_exponential(model):
    assert np.allclose(model.network_.A[0], expm(model.rates_.to_numpy().T).T)
    assert not model.W_.any()
    assert model.dbn_ is model.network_
    assert feddbn.score(TRUTH, model.rate_network_)["A"]["shd"] == 0


def test_forecasts_cover_what_comes(model):
    rng, inside = np.random.default_rng(1), []
    for _ in range(60):
        times = np.cumsum(rng.exponential(0.5, 40))
        rows = TRUTH.sample(times, rng)
        rows.index = pd.Timestamp("2024-01-01") + pd.to_timedelta(times, unit="h")
        ahead = model.forecast(rows.iloc[:30], times=rows.index[30:], interval=0.8)
        inside.append(((rows.iloc[30:] >= ahead.lower) & (rows.iloc[30:] <= ahead.upper)).to_numpy().mean())
    assert 0.74 < np.mean(inside) < 0.86
    with pytest.raises(AttributeError, match="use forecast"):
        _ = model.predict


def test_the_file_reads_back_bit_for_bit(model, tmp_path):
    result = Result.from_estimator(model)
    back = Result.load(result.save(tmp_path / "result.json"))
    assert back.to_dict() == result.to_dict()
    assert back.rates is not None
    assert back.rates.effect("a", "b", hours=3) == model.effect("a", "b", hours=3)
    assert {(e["source"], e["target"]) for e in back.edges if e["source"] != e["target"]} == {
        ("a", "b"), ("b", "c"), ("c", "a"),
    }  # fmt: skip
    assert len(back.diagnostics["fit"]) == len(model.fit_)
    assert (back.dbn.A == model.dbn_.A).all()


def test_pictures_page_and_card_show_rates(model):
    page, card = render_report(model), html_of(model)
    assert 'id="time"' in page
    assert '"unit":"h"' in page
    assert "rate per h" in card
    assert plot_fit(model.fit_, model.rate_network_).get_legend() is not None
    assert plot_horizons(model.rate_network_, [("a", "c")], horizon=5).figure is not None
    with pytest.raises(ParameterError):
        plot_horizons(model.rate_network_, [("a", "z")])
    with pytest.raises(ParameterError):
        plot_fit(model.fit_.drop(columns="error"), model.rate_network_)


def test_another_step_is_another_unit_of_the_same_rates(sites, model):
    half = ContinuousDBN(64, shortest=0.25, step="30min").fit(sites, series="stay", time="t")
    np.testing.assert_allclose(2 * half.rates_, model.rates_, rtol=1e-3, atol=1e-3)
    assert half.effect("a", "b", hours=3).value == pytest.approx(
        model.effect("a", "b", hours=3).value, rel=1e-3
    )
    assert half.effect("a", "b", hours=3).steps == 6


def test_masked_sums_give_the_same_network(sites, model):
    read = feddbn.data.read_sites(sites, series="stay", time="t", irregular="keep", missing="keep")
    federation = secure_federation({name: Site(name, one) for name, one in read.items()}, 3)
    masked = ContinuousDBN(step="1h", federation=federation).fit(None)
    np.testing.assert_allclose(masked.rates_, model.rates_, atol=1e-4)


def test_noise_is_refused_before_anything_is_asked(sites):
    read = feddbn.data.read_sites(sites, series="stay", time="t", irregular="keep", missing="keep")
    private = private_federation({name: Site(name, one) for name, one in read.items()}, 1.0)
    with refused(ParameterError, "ContinuousDBN", "gram.lags", "OneShotDBN", code="tasks-not-answered"):
        ContinuousDBN(step="1h", federation=private).fit(None)


def test_rows_without_times_are_said_to_be_one_step_apart():
    rng = np.random.default_rng(SEED)
    rows = TRUTH.sample(0.4 * np.arange(800), rng)
    found = ContinuousDBN().fit({"s": rows.reset_index(drop=True)})
    assert "rows-one-step-apart" in found.findings_.codes
    assert found.step_ is None
    with pytest.raises(ParameterError) as refused:
        found.effect("a", "b", hours=1)
    assert refused.value.code == "step-is-no-time"


def test_a_copy_has_the_arguments_and_nothing_learned(model):
    other = clone(ContinuousDBN(48, step="15min", random_state=3))
    assert other.get_params(deep=False)["longest"] == 48
    assert not hasattr(other, "rates_")
    assert repr(ContinuousDBN(longest=48)) == "ContinuousDBN(longest=48)"


@pytest.mark.parametrize(
    "given",
    [{"longest": 0}, {"longest": 2, "shortest": 3}, {"step": "soon"}, {"step": 5}],
)
def test_wrong_arguments_are_refused(given, sites):
    with pytest.raises(ParameterError):
        ContinuousDBN(**given).fit(sites, series="stay", time="t")


def test_a_variable_that_is_never_read_twice_is_named(sites):
    lone = {name: one.assign(c=one["c"].where(one.index == 0)) for name, one in sites.items()}
    with pytest.raises(DataError) as refused:
        ContinuousDBN().fit(lone, series="stay", time="t")
    assert "c" in str(refused.value)


def rates(**others):
    given = {
        "rates": np.diag([-0.5, -1.0]), "covariance": np.eye(4) * 0.01, "probabilities": np.eye(2),
        "stationary": np.eye(2), "noise": np.diag([1.0, 2.0]), "nugget": np.zeros(2), "levels": None,
        "mean": np.zeros(2), "misfit": 100.0, "df": 100, "evidence": 0.0, "shortest": np.array([0.1, 0.1]),
        "n_moments": 120, "n_sparse": 0,
    }  # fmt: skip
    return Rates(**{**given, **others})


def codes(found, off=0.0, n_left_out=0):
    network = replace(
        RateNetwork.driven(found.rates.T, np.diag(found.noise), ["p", "q"], step="1h"), longest=32.0
    )
    moments = FittedMoments(
        np.array([0, 1]), np.array([1, 1]), np.array([1.0, 2.0]), np.array([0.3, 0.2]), np.array([0.1, 0.1]),
        np.array([0.3, 0.2 + off]),
    )  # fmt: skip
    told = list(_findings(found, network, moments, n_left_out))
    for one in told:
        for audience in ("python", "cli", "lead"):
            assert one.code not in say(one, audience)
    return {one.code: one for one in told}


def test_what_is_found_against_a_fit():
    assert codes(rates()) == {}
    # A large misfit alone is what slow variables make.
    assert codes(rates(misfit=300.0)) == {}
    assert codes(rates(), off=0.2) == {}
    found = codes(rates(misfit=300.0), off=0.4)["rates-do-not-fit"]
    assert found.values["errors"] == pytest.approx(4.0)
    assert (found.about, found.values["steps"], found.level) == (("q",), 2.0, "warning")
    found = codes(rates(shortest=np.array([0.1, 3.0])))["too-fast-for-readings"]
    assert found.about == ("q",)
    found = codes(rates(rates=np.diag([-0.01, -1.0])))["slower-than-delays"]
    assert found.cure == {"longest": 200.0}
    found = codes(rates(n_sparse=7), n_left_out=2)["few-pairs"]
    assert (found.values["n"], found.values["n_moments"], found.values["n_hidden"]) == (7, 127, 2)
    found = codes(rates(levels=np.diag([1.0, 0.0])))["own-levels"]
    assert found.values["shares"] == {"p": 0.5}
    found = codes(rates(noise=np.array([[1.0, -0.7], [-0.7, 2.0]])))["correlated-noise"]
    assert found.values["pairs"][0][2] == pytest.approx(-0.7 / np.sqrt(2))
