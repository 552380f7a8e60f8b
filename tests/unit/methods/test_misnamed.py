"""Several modules: wrong uses as people type them in a notebook get one sentence with the cure."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import feddbn
from feddbn.errors import DataError, FeddbnError, FileError, ParameterError
from feddbn.methods.result import Result
from feddbn.report import (
    plot_convergence,
    plot_process_graph,
    plot_site_differences,
    plot_time_series_graph,
    plot_truth_and_estimate,
    plot_weights,
    render_report,
    site_differences,
)


@pytest.fixture(scope="module")
def data():
    return feddbn.simulate(d=3, n_sites=3, n_samples=200, random_state=0)


@pytest.fixture(scope="module")
def model(data):
    return feddbn.OneShotDBN(noise_variance="free").fit(data.sites)


@pytest.fixture(scope="module")
def released(data):
    return feddbn.summary(data.sites)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("dbn", "dbn_"),
        ("edges", "dbn_.edges"),
        ("predict", "dbn_.forecast"),
        ("history_", "A_, A_raw_, W_"),
    ],
)
def test_a_wrong_attribute_says_where_to_look(model, name, instead):
    with pytest.raises(AttributeError, match=f"{name!r}; .*{instead}"):
        getattr(model, name)


def test_a_misspelt_name_of_the_package_is_guessed():
    with pytest.raises(AttributeError, match=r"'FDBN'.*FDBNL\?"):
        _ = feddbn.FDBN


def test_before_a_fit_there_is_nothing_and_fit_is_the_cure():
    with pytest.raises(NotFittedError, match="dbn_"):
        _ = feddbn.OneShotDBN().dbn_
    with pytest.raises(AttributeError, match=r"'nothing'\.$"):
        _ = feddbn.OneShotDBN().nothing
    assert not hasattr(feddbn.OneShotDBN(), "_no_such_private")
    with pytest.raises(ParameterError, match="OneShotDBN"):
        render_report(feddbn.OneShotDBN())
    with pytest.raises(ParameterError, match="fit"):
        Result.from_estimator(feddbn.OneShotDBN())


def test_a_method_in_the_place_of_a_network_is_told_apart(data, model):
    for use in (plot_process_graph, plot_time_series_graph, plot_weights):
        with pytest.raises(ParameterError, match=r"dbn.*DBN.*OneShotDBN.*dbn\.dbn_"):
            use(model)
    for use in (feddbn.score, feddbn.score_by_kind, plot_truth_and_estimate):
        with pytest.raises(ParameterError, match=r"estimate.*DBN.*OneShotDBN"):
            use(data.truth, model)
        with pytest.raises(ParameterError, match=r"truth.*DBN.*NoneType"):
            use(None, data.truth)
    with pytest.raises(ParameterError, match=r"truth.*DBN"):
        feddbn.compare_methods(data.sites, ["oneshot"], truth=model)


def test_one_network_in_the_place_of_many_is_told_apart(data, model):
    with pytest.raises(ParameterError, match=r"truths.*feddbn\.score"):
        feddbn.score_sites(data.truth, data.truth)
    with pytest.raises(ParameterError, match=r"estimates.*DBN.*OneShotDBN"):
        feddbn.score_sites(data.truths, model)
    with pytest.raises(ParameterError, match="personal"):
        site_differences(data.truth, data.truth)
    with pytest.raises(ParameterError, match=r"make.*site_differences"):
        plot_site_differences(data.truth)
    with pytest.raises(DataError, match="history_"):
        plot_convergence(None)


def test_classes_lists_and_levels_are_told_apart(data):
    with pytest.raises(ParameterError, match=r"estimator.*OneShotDBN.*OneShotDBN\(\)"):
        feddbn.confidence(feddbn.OneShotDBN, data.sites)
    with pytest.raises(ParameterError, match="level='high'"):
        feddbn.confidence(feddbn.OneShotDBN(), data.sites, level="high")
    with pytest.raises(ParameterError, match=r"Dynotears\(\)"):
        feddbn.select(feddbn.Dynotears, data.sites, {"lambda_w": [0.1]})
    with pytest.raises(ParameterError, match=r"grid\['lambda_w'\]=0.1.*\[0.1\]"):
        feddbn.select(feddbn.Dynotears(), data.sites, {"lambda_w": 0.1})
    with pytest.raises(ParameterError, match="grid"):
        feddbn.select(feddbn.Dynotears(), data.sites, ["lambda_w"])
    with pytest.raises(ParameterError, match="methods"):
        feddbn.compare_methods(data.sites, [])


def test_a_summary_is_asked_with_nodes(data, released):
    with pytest.raises(ParameterError, match="'lags'"):
        feddbn.summary(data.sites, lags=1)
    with pytest.raises(ParameterError, match=r"'x0'.*'x0'.*0"):
        released.partial_correlation("x0", "x1")
    with pytest.raises(ParameterError, match=r"\['x0'\]"):
        released.only("x0")
    with pytest.raises(ParameterError, match=r"7.*0"):
        released.position(7)
    assert released.position(-1) == 2


def test_an_observer_is_a_function(data):
    with pytest.raises(ParameterError, match=r"observer=3.*feddbn\.Progress"):
        feddbn.FDBNL().fit(data.sites, observer=3)
    with pytest.raises(ParameterError, match="total='x'"):
        feddbn.Progress(total="x")


def test_numbers_and_files_that_are_none(tmp_path):
    with pytest.raises(ParameterError, match=r"^W .*str"):
        feddbn.DBN("a", "b")
    for read in (
        feddbn.DBN.from_json,
        feddbn.DBN.from_npz,
        feddbn.DBN.from_csv,
        Result.load,
        feddbn.Summary.load,
    ):
        with pytest.raises(FileError, match=r"none\.json"):
            read(tmp_path / "none.json")


def test_twenty_wrong_uses_are_errors_of_this_package(data, model):
    dbn, rows = model.dbn_, data.sites["site-0"][0]
    wrong = [
        lambda: feddbn.OneShotDBN().fit(None),
        lambda: feddbn.OneShotDBN().fit(5),
        lambda: feddbn.OneShotDBN().fit({}),
        lambda: feddbn.OneShotDBN().fit([]),
        lambda: feddbn.OneShotDBN().fit(rows["x0"]),
        lambda: feddbn.OneShotDBN().fit("no/such/path"),
        lambda: feddbn.OneShotDBN("x").fit(data.sites),
        lambda: feddbn.OneShotDBN().fit(data.sites, variables="x0"),
        lambda: feddbn.OneShotDBN().fit(rows, site="ward"),
        lambda: feddbn.OneShotDBN().fit({"a": rows * np.nan}),
        lambda: dbn.forecast(rows, 0),
        lambda: dbn.forecast(rows[["x0"]], 3),
        lambda: dbn.forecast(rows, 3, interval=90),
        lambda: dbn.do("x0", rows, 3),
        lambda: dbn.effects("x0", "nope", 3),
        lambda: dbn.frames.impulse_responses(3, "choleski"),
        lambda: dbn.frames.total_effects("ten"),
        lambda: feddbn.DBN.from_edges(pd.DataFrame({"a": [1]})),
        lambda: feddbn.select(feddbn.OneShotDBN(), data.sites, {"lambda_w": [0.1]}),
        lambda: feddbn.confidence(feddbn.FDBNL(), data.sites),
        lambda: feddbn.simulate(d="three"),
        lambda: feddbn.compare_methods(data.sites, ["nope"]),
    ]
    for use in wrong:
        with pytest.raises(FeddbnError) as caught:
            use()
        sentence = str(caught.value)
        assert "\n" not in sentence
        assert sentence.endswith(".")
