"""Several modules: at every public door, wrong uses as people type them get one sentence that names what is wrong.

Kinds of mistakes stand here once. Rules of single settings: tests/unit/methods/test_parameters.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import feddbn
from feddbn import FDBNL, PFDBNL, Dynotears, MixedDBN, OneShotDBN, metrics
from feddbn.core.statistics.moments import Moments
from feddbn.data import read_sites
from feddbn.errors import DataError, FeddbnError, FileError, ParameterError
from feddbn.federation.protocol.site import Site
from feddbn.report import (
    plot_convergence,
    plot_process_graph,
    plot_site_differences,
    plot_truth_and_estimate,
    render_report,
    site_differences,
)
from feddbn.results.edge_table import pair_ranking
from feddbn.results.result import Result
from feddbn.runtime.simulated.in_process import InProcessFederation
from support.report_results import curved_dbn

pytestmark = pytest.mark.promise


@cache
def made() -> feddbn.SimulatedFederation:
    return feddbn.simulate(d=3, n_sites=3, n_samples=200, random_state=0)


@cache
def model() -> OneShotDBN:
    return OneShotDBN(noise_variance="free").fit(made().sites)


@cache
def curved() -> Any:
    return feddbn.simulate(d=3, n_sites=1, n_samples=20, random_state=1, effects="gp").truth


def marks(d: int, first: str = "") -> np.ndarray:
    found = np.full((d, d, 1), "", dtype=object)
    found[0, 1, 0] = first
    return found


def rows() -> pd.DataFrame:
    return made().sites["site-0"][0]


def answering(*tasks: str) -> InProcessFederation:
    """Sites that answer these questions only, and must not be asked anything."""

    class Careful(InProcessFederation):
        answered_tasks = frozenset(tasks) or None

        def sum(self, task: Any) -> Any:
            raise AssertionError("nothing may be asked")

    return Careful({name: Site(name, site) for name, site in read_sites(made().sites).items()})


def fit(estimator: Any, data: Any = None, **given: Any) -> Callable[[], Any]:
    return lambda: estimator().fit(made().sites if data is None else data, **given)


def at_sites(estimator: Any) -> Callable[[], Any]:
    return lambda: estimator().fit(None)


# Door: what a person does there, and what the sentence has to name.
DOORS: dict[str, list[tuple[Callable[[], Any], str]]] = {
    "settings that contradict each other": [
        (fit(lambda: FDBNL(schedule="paper", optimum="exact")), "optimum='exact'"),
        (fit(lambda: FDBNL(rounds=300)), "rounds=300"),
        (fit(lambda: FDBNL(rounds=feddbn.Rounds(rho2=2.0))), "rounds.rho2=2.0"),
        (fit(lambda: PFDBNL(mu=np.inf, schedule="paper")), "mu=inf"),
        (fit(lambda: OneShotDBN(interactions=True)), "interactions=True"),
        (fit(lambda: OneShotDBN(n_lags=0, interactions=True, features="spline")), "n_lags"),
        (fit(lambda: feddbn.LocalOnly(prepare=feddbn.Prepare(gains="site"))), "prepare.gains='site'"),
    ],
    "edges and variables that are not there": [
        (fit(lambda: FDBNL(forbidden_edges=[("x0", "y", 0)])), "'y'"),
        (fit(lambda: FDBNL(forbidden_edges=[("x0", "x1", 4)])), "n_lags=1"),
        (fit(lambda: FDBNL(required_edges=[(0, 1, 0), (1, 0, 0)])), "required_edges"),
        (fit(lambda: OneShotDBN(prepare=feddbn.Prepare(exogenous=["dose"]))), "dose"),
        (fit(lambda: OneShotDBN(prepare=feddbn.Prepare(exogenous=["x0", "x1", "x2"]))), "exogenous"),
        (lambda: feddbn.Prepare(exogenous="u"), "exogenous='u'"),
        (fit(lambda: MixedDBN(kinds={"z": "count"})), "'z'"),
        (fit(lambda: MixedDBN(kinds={"x0": "boolean"})), "'boolean'"),
    ],
    "data": [
        (fit(OneShotDBN, 5), "int"),
        (fit(OneShotDBN, {}), "site"),
        (fit(OneShotDBN, "no/such/path"), "no/such/path"),
        (fit(OneShotDBN, {"a": []}), "'a'"),
        (fit(OneShotDBN, {"a": pd.DataFrame({"x": ["u", "v"], "y": [1, 2]})}), "'x'"),
        (fit(OneShotDBN, {"a": np.zeros((9, 2)), "b": np.zeros((9, 3))}), "'x2'"),
        (fit(OneShotDBN, {"a": np.full((9, 2), np.nan)}), "'a'"),
        (lambda: FDBNL().fit({"a": rows().assign(x2=1.0)}), "'x2'"),
        (lambda: OneShotDBN().fit(made().sites, variables="x0"), "variables"),
        (lambda: OneShotDBN().fit(rows(), site="ward"), "ward"),
        (lambda: OneShotDBN().fit(rows()["x0"]), "Series"),
        (lambda: feddbn.ChangingDBN(blocks=256).fit(made().sites), "blocks=256"),
        (lambda: PFDBNL().fit({"a": rows(), "b": rows()[["x1", "x2"]]}), "'x0'"),
    ],
    "a federation": [
        (fit(lambda: FDBNL(federation=answering())), "federation="),
        (lambda: FDBNL(federation=answering()).fit(None, variables=["x0"]), "variables"),
        (lambda: FDBNL().fit(answering()), "FDBNL(federation=...)"),
        (at_sites(lambda: feddbn.ChangingDBN(federation=answering("gram.rows"))), "'gram.blocks'"),
        (at_sites(lambda: MixedDBN(federation=answering("gram.rows"))), "'newton'"),
        (fit(FDBNL, observer=3), "observer=3"),
    ],
    "confidence and selection": [
        (lambda: feddbn.confidence(OneShotDBN, made().sites), "OneShotDBN()"),
        (lambda: feddbn.confidence(OneShotDBN(), made().sites, level=90), "level=90"),
        (lambda: feddbn.confidence(OneShotDBN("auto"), made().sites), "n_lags='auto'"),
        (lambda: feddbn.confidence(FDBNL(schedule="paper"), made().sites), "FDBNL"),
        (lambda: feddbn.confidence(Dynotears(), made().sites, federation=answering()), "federation"),
        (lambda: feddbn.select(Dynotears, made().sites, {"lambda_w": [0.1]}), "Dynotears()"),
        (lambda: feddbn.select(Dynotears(), made().sites, {"lambda_w": 0.1}), "[0.1]"),
        (lambda: feddbn.select(FDBNL(), made().sites, {"mu": [0.1]}), "'mu'"),
        (lambda: feddbn.select(FDBNL(n_lags="auto"), made().sites, {"lambda_w": [0.1]}), "n_lags='auto'"),
        (lambda: feddbn.select(OneShotDBN(), made().sites, {"lambda_w": [0.1]}), "OneShotDBN"),
        (lambda: Dynotears(lambda_w="auto").fit_moments(Moments.of_rows(np.eye(4)), "ab"), "'auto'"),
    ],
    "comparing and scoring": [
        (lambda: feddbn.compare_methods(made().sites, []), "methods"),
        (lambda: feddbn.compare_methods(made().sites, ["nope"]), "method='nope'"),
        (lambda: feddbn.compare_methods(made().sites, ["oneshot"], truth=model()), "truth"),
        (lambda: feddbn.score(made().truth, model()), "estimate"),
        (lambda: feddbn.score(made().truth, feddbn.DBN(np.zeros((2, 2)), np.zeros((1, 2, 2)))), "truth"),
        (lambda: feddbn.score_by_kind(None, made().truth), "truth"),
        (lambda: feddbn.score_sites(made().truth, made().truth), "feddbn.score"),
        (lambda: feddbn.score_sites(made().truths, {"y": made().truth}), "estimates"),
        (lambda: metrics.edge_scores(np.zeros((3, 3)), np.zeros((4, 4))), "(4, 4)"),
        (lambda: metrics.edge_scores(np.eye(3), np.eye(3) * np.nan), "NaN"),
        (lambda: metrics.skeleton_scores(np.eye(3), np.eye(3), threshold=-1), "threshold"),
        (lambda: metrics.edge_scores(np.zeros((2, 3)), np.zeros((2, 3))), "(2, 3)"),
        (lambda: metrics.skeleton_scores(np.zeros((1, 3, 3)), np.zeros((1, 3, 3))), "(1, 3, 3)"),
        (lambda: metrics.mean_scores([]), "none"),
        (lambda: metrics.weight_error(np.eye(2), np.eye(3)), "(3, 3)"),
        (lambda: metrics.mark_scores(marks(3), marks(2)), "(3, 3, 1)"),
        (lambda: metrics.mark_scores(np.eye(3), marks(3)), "float64"),
        (lambda: metrics.mark_scores(marks(3), marks(3, "=>")), "'=>'"),
        (lambda: pair_ranking(model().edge_probabilities_, ("a", "b")), "'x0'"),
    ],
    "a network": [
        (lambda: feddbn.DBN("a", "b"), "W"),
        (lambda: made().truth.to_json("no/such/folder/n.json"), "no/such/folder"),
        (lambda: made().truth.to_json("/"), "folder"),
        (lambda: feddbn.DBN.from_dict({"W": []}), "format"),
        (lambda: feddbn.DBN.from_edges(pd.DataFrame({"a": [1]})), "source"),
        (lambda: model().dbn_.forecast(rows(), 0), "steps"),
        (lambda: model().dbn_.forecast(rows()[["x0"]], 3), "x1"),
        (lambda: model().dbn_.forecast(rows(), 3, interval=90), "90"),
        (lambda: model().dbn_.do("x0", rows(), 3), "interventions"),
        (lambda: model().dbn_.effects("x0", "nope", 3), "'nope'"),
        (lambda: model().dbn_.impulse_responses(3, "choleski"), "'choleski'"),
        (lambda: curved().impulse_responses(3), "effects"),
        (lambda: curved_dbn().spectral_radius, "spectral"),
        (lambda: curved_dbn().to_lingam(), "dbn.to_json"),
        (lambda: curved().effect("x9", "x0", 0), "x9"),
    ],
    "simulating": [
        (lambda: feddbn.simulate(d="three"), "'three'"),
        (lambda: feddbn.simulate(random_state=-1), "random_state"),
        (lambda: feddbn.simulate(effects="sine"), "effects"),
        (lambda: feddbn.simulate(kinds=["binary"], noise="laplace"), "noise='laplace'"),
        (lambda: feddbn.simulate(kinds={"y": "binary"}), "'y'"),
        (lambda: feddbn.simulate(d=0), "d"),
        (lambda: feddbn.simulate(n_samples=True), "n_samples"),
        (lambda: feddbn.simulate(w_range=(0.5, 0.3)), "w_range"),
        (lambda: feddbn.simulate(heterogeneity=1.5), "heterogeneity"),
        (lambda: feddbn.simulate(site_sizes=[5, 5]), "site_sizes"),
        (lambda: feddbn.simulate(n_latent=1, corruptions="spikes"), "n_latent=1"),
        (lambda: feddbn.simulate(corruptions="sunspots"), "'sunspots'"),
        (lambda: feddbn.simulate(corruptions={"missing": 2}), "0.95"),
        (lambda: feddbn.simulate(corruptions="mixed-columns", d=1), "d=1"),
    ],
    "a summary": [
        (lambda: feddbn.summary(made().sites, lags=1), "'lags'"),
        (lambda: feddbn.summary(made().sites).partial_correlation("x0", "x1"), "'x0'"),
        (lambda: feddbn.summary(made().sites).position(7), "7"),
    ],
    "pictures and reports": [
        (lambda: plot_process_graph(model()), "dbn.dbn_"),
        (lambda: plot_truth_and_estimate(made().truth, model()), "estimate"),
        (lambda: plot_site_differences(made().truth), "site_differences"),
        (lambda: plot_convergence(None), "history_"),
        (lambda: site_differences(made().truth, made().truth), "personal"),
        (lambda: render_report(OneShotDBN()), "OneShotDBN"),
        (lambda: Result.from_estimator(feddbn.FDBNL()), "fit"),
        (lambda: feddbn.Progress(total="x"), "total='x'"),
    ],
}


@pytest.mark.parametrize("door", DOORS)
def test_wrong_uses_get_one_sentence_that_names_what_is_wrong(door: str) -> None:
    for use, named in DOORS[door]:
        with pytest.raises(FeddbnError) as caught:
            use()
        sentence = str(caught.value)
        assert isinstance(caught.value, ParameterError | DataError | FileError), sentence
        assert named in sentence
        assert "\n" not in sentence
        assert sentence.endswith((".", "?"))


@pytest.mark.parametrize(
    "read",
    [
        *(feddbn.DBN.from_json, feddbn.DBN.from_csv, Result.load, feddbn.Summary.load),
    ],
)
def test_a_file_that_is_not_there_or_no_text_is_named(read: Any, tmp_path: Any) -> None:
    (tmp_path / "image.json").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "empty.json").write_bytes(b"")
    for name in ("none.json", "image.json", "empty.json"):
        with pytest.raises(FileError, match=name):
            read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("dbn", "dbn_"),
        ("edges", "dbn_.edges"),
        ("predict", "dbn_.forecast"),
        ("history_", "A_, A_raw_, W_"),
    ],
)
def test_a_wrong_attribute_says_where_to_look(name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=f"{name!r}; .*{instead}"):
        getattr(model(), name)


def test_a_misspelt_name_of_the_package_is_guessed() -> None:
    with pytest.raises(AttributeError, match=r"'FDBN'.*FDBNL\?"):
        _ = feddbn.FDBN


def test_before_a_fit_there_is_nothing_and_fit_is_the_cure() -> None:
    with pytest.raises(NotFittedError, match="dbn_"):
        _ = OneShotDBN().dbn_
    with pytest.raises(AttributeError, match=r"'nothing'\.$"):
        _ = OneShotDBN().nothing
    assert not hasattr(OneShotDBN(), "_no_such_private")
