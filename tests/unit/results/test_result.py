from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from feddbn import FDBNL, Average, ChangingDBN, LocalOnly, OneShotDBN, Rounds, simulate
from feddbn.core.penalised.path import Status
from feddbn.errors import FileError, ParameterError
from feddbn.results.result import FORMAT, VERSION, Result, write_json
from feddbn.results.text import by_strength, likely_edges, sign_words
from support.saying import refused


@pytest.fixture(scope="module")
def fitted():
    federation = simulate(d=4, n_sites=2, n_samples=120, mean_degree=2, random_state=3)
    return FDBNL(rounds=Rounds(tol=1e-4)).fit(federation.sites), federation


def bits(dbn):
    return [getattr(dbn, key).tobytes() for key in ("W", "A", "intercept", "noise_variances")]


def test_a_result_reads_back_bit_for_bit(fitted, tmp_path):
    model, federation = fitted
    result = Result.from_estimator(model, truth=federation.truth, privacy={"epsilon": np.float64(1.5)})
    loaded = Result.load(result.save(tmp_path / "r.json"))
    assert bits(loaded.dbn) == bits(model.dbn_)
    assert loaded.raw is not None
    assert loaded.raw.W.tobytes() == model.W_raw_.tobytes()
    assert loaded.raw.A.tobytes() == model.A_raw_.tobytes()
    assert loaded.to_dict() == result.to_dict()
    assert loaded.truth is not None
    assert bits(loaded.truth) == bits(federation.truth)
    assert loaded.privacy == {"epsilon": 1.5}


def test_the_same_fit_gives_the_same_file(fitted, tmp_path):
    model, federation = fitted
    again = FDBNL(rounds=Rounds(tol=1e-4)).fit(federation.sites)
    texts = []
    for estimator in (model, again):
        stored = Result.from_estimator(estimator).to_dict()
        for row in stored["history"]:
            row.pop("seconds")
        texts.append(write_json(stored, tmp_path / f"{len(texts)}.json").read_text())
    assert texts[0] == texts[1]


def test_a_result_says_what_was_done(fitted):
    model, federation = fitted
    stored = Result.from_estimator(model).to_dict()
    assert (stored["format"], stored["version"], stored["method"]) == (FORMAT, VERSION, "FDBNL")
    assert stored["parameters"]["rounds.tol"] == 1e-4
    assert "federation" not in stored["parameters"]
    assert stored["status"] == {
        "name": "CONVERGED",
        "message": Status.CONVERGED.message,
        "converged": True,
    }
    assert (stored["n_rounds"], len(stored["history"])) == (model.n_rounds_, len(model.history_))
    assert stored["history"][0]["primal"] is None
    assert [site["name"] for site in stored["sites"]] == list(federation.sites)
    assert sum(site["usable_rows"] for site in stored["sites"]) == 120
    assert len(stored["edges"]) == np.count_nonzero(model.W_) + np.count_nonzero(model.A_)
    assert stored["personal"] is None
    assert "truth" not in stored
    assert stored["diagnostics"]["largest_raw_weight"] == max(
        np.abs(model.W_raw_).max(), np.abs(model.A_raw_).max()
    )


def test_findings_travel_with_the_result():
    federation = simulate(d=3, n_sites=2, n_samples=60, random_state=0)
    model = FDBNL(schedule="paper", rounds=Rounds(max_rounds=3)).fit(federation.sites)
    result = Result.from_estimator(model)
    assert result.status["converged"] is False
    assert result.findings == model.findings_
    stored = result.to_dict()
    assert [one["code"] for one in stored["findings"]] == list(model.findings_.codes)
    assert Result.from_dict(stored).findings.codes == model.findings_.codes
    later = Result.from_dict(
        {**stored, "findings": [{"code": "not-yet", "level": "note", "values": {"n": 3}}]}
    )
    assert later.findings.codes == ("not-yet",)


def test_a_method_without_a_shared_network_is_refused():
    federation = simulate(d=3, n_sites=2, n_samples=60, random_state=0)
    model = LocalOnly(rounds=Rounds(tol=1e-3)).fit(federation.sites)
    with pytest.raises(ParameterError, match="LocalOnly"):
        Result.from_estimator(model)
    assert Result.from_estimator(Average(rounds=Rounds(tol=1e-3)).fit(federation.sites)).method == "Average"


def damaged(stored, **changes):
    return json.dumps({**stored, **changes})


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda s: "[" * 100_000, "not-json"),
        (lambda s: "3", "not-a-result"),
        (lambda s: damaged(s, version=2), "later-version"),
        (lambda s: damaged(s, version=True), "damaged-result"),
        (lambda s: damaged(s, dbn={**s["dbn"], "W": [[1]]}), "damaged-result"),
        (lambda s: damaged(s, edges=[1]), "damaged-result"),
        (lambda s: damaged(s, findings=[{"code": "text"}]), "damaged-result"),
    ],
)
def test_a_damaged_file_is_refused(fitted, tmp_path, change, code):
    path = tmp_path / "r.json"
    path.write_text(change(Result.from_estimator(fitted[0]).to_dict()))
    with refused(FileError, "r.json", code=code):
        Result.load(path)


def test_a_failed_write_leaves_the_old_file_and_no_litter(fitted, tmp_path, monkeypatch):
    result = Result.from_estimator(fitted[0])
    path = result.save(tmp_path / "r.json")
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with refused(FileError, "r.json"):
        result.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_writing_never_touches_the_umask_that_other_threads_write_by(tmp_path, monkeypatch):
    def touched(mask):
        raise AssertionError("os.umask")

    mask = os.umask(0o027)
    os.umask(mask)
    monkeypatch.setattr("os.umask", touched)
    path = write_json({"a": 1}, tmp_path / "a.json")
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_edges_are_in_the_order_of_their_size_in_standard_deviations():
    """No size at all is a size: it does not fall back to the weight in the units of the data."""
    edges = [
        {"weight": 900.0, "standardised": 0.0},
        {"weight": 0.1, "standardised": -0.9},
        {"weight": 5.0, "standardised": None},
        {"weight": 3.0, "standardised": 0.2},
    ]
    assert [one["weight"] for one in by_strength(edges)] == [0.1, 3.0, 900.0, 5.0]


@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
def test_an_edge_that_is_less_likely_than_not_is_not_shown_but_kept():
    fed = simulate(d=4, n_sites=2, n_samples=400, random_state=0)
    result = Result.from_estimator(OneShotDBN().fit(fed.sites))
    certain = [{**edge, "probability": 0.8, "presence": 0.9} for edge in result.edges]
    source, target = certain[0]["source"], certain[0]["target"]
    assert certain[0]["lag"] == 0
    certain[0] |= {"probability": 0.4}
    certain[1] |= {"probability": 0.3}
    directed = replace(result, edges=certain, dbn=replace(result.dbn, open_edges=()))
    is_open = replace(directed, dbn=replace(result.dbn, open_edges=((source, target),)))
    # Of a link whose direction is open it is the link that is likely.
    for one, hidden in ((directed, certain[:2]), (is_open, certain[1:2])):
        assert [edge for edge in certain if edge not in likely_edges(one)] == hidden
        assert len(one.edges) == len(certain)
    lines = directed.summary().splitlines()
    assert not any(line.split()[:4] == [source, "->", target, "0"] for line in lines)
    tested = replace(directed, edges=[{**edge, "q_value": 0.01} for edge in certain])
    assert len(likely_edges(tested)) == len(certain)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
def test_a_summary_shows_changes():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    x[300:, 1] += 0.9 * x[300:, 0]
    changing = ChangingDBN(n_lags=1, check_residuals=False).fit(pd.DataFrame(x, columns=["u", "v"]))
    assert len(changing.changes_)
    (row,) = (line.split() for line in changing.summary().splitlines() if line.split()[:3] == ["u", "v", "0"])
    assert row[-1] == f"{changing.changes_['probability'].iloc[0]:.3f}"


def test_what_curves_weigh_is_explained_where_it_stands():
    straight = [{"shape": "linear"}, {}]
    assert sign_words(straight) == ""
    assert sign_words([*straight, {"shape": "curved"}])
