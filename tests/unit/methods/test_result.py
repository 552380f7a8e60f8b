from __future__ import annotations

import json

import numpy as np
import pytest

from feddbn import DBN, FDBNL, Average, LocalOnly, simulate
from feddbn.core.graphs.status import Status
from feddbn.errors import FileError, ParameterError
from feddbn.methods.result import FORMAT, VERSION, Result, plain, write_json
from feddbn.methods.truth import read_estimate, read_truth, write_truth


@pytest.fixture(scope="module")
def fitted():
    federation = simulate(d=4, n_sites=2, n_samples=120, mean_degree=2, random_state=3)
    return FDBNL(tol=1e-4).fit(federation.sites), federation


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
    again = FDBNL(tol=1e-4).fit(federation.sites)
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
    assert stored["parameters"]["tol"] == 1e-4
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


def test_personal_networks_are_kept_and_are_what_is_scored(fitted, tmp_path):
    model, federation = fitted
    model = FDBNL(tol=1e-4).fit(federation.sites)
    model.dbns_ = dict.fromkeys(federation.sites, federation.truth)
    path = Result.from_estimator(model).save(tmp_path / "r.json")
    found = read_estimate(path)
    assert set(found) == set(federation.sites)
    assert bits(found["site-1"]) == bits(federation.truth)


def test_a_static_network_reads_back(tmp_path):
    federation = simulate(d=3, n_lags=0, n_sites=2, n_samples=80, random_state=0)
    model = FDBNL(n_lags=0, tol=1e-4).fit(federation.sites)
    loaded = Result.load(Result.from_estimator(model).save(tmp_path / "r.json"))
    assert loaded.dbn.A.shape == (0, 3, 3)
    assert loaded.raw is not None
    assert loaded.raw.A.shape == (0, 3, 3)


def test_warnings_travel_with_the_result():
    federation = simulate(d=3, n_sites=2, n_samples=60, random_state=0)
    model = FDBNL(schedule="rounds", max_rounds=3).fit(federation.sites)
    result = Result.from_estimator(model)
    assert result.status["converged"] is False
    assert result.findings == model.findings_
    assert result.warnings == model.warnings_
    stored = result.to_dict()
    assert [one["code"] for one in stored["findings"]] == list(model.findings_.codes)
    assert Result.from_dict(stored).findings.codes == model.findings_.codes
    # A file of version 0.2 has sentences only.
    old = Result.from_dict({**{k: v for k, v in stored.items() if k != "findings"}, "warnings": ["mind it."]})
    assert (old.findings.codes, old.warnings) == (("text",), ["mind it."])
    later = Result.from_dict(
        {**stored, "findings": [{"code": "not-yet", "level": "note", "values": {"n": 3}}]}
    )
    assert "n 3" in later.warnings[0]


def test_a_method_without_a_shared_network_is_refused():
    federation = simulate(d=3, n_sites=2, n_samples=60, random_state=0)
    model = LocalOnly(tol=1e-3).fit(federation.sites)
    with pytest.raises(ParameterError, match="LocalOnly has no shared network, which a result needs"):
        Result.from_estimator(model)
    assert Result.from_estimator(Average(tol=1e-3).fit(federation.sites)).method == "Average"


def damaged(stored, **changes):
    return json.dumps({**stored, **changes})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: damaged(s)[:-40], "is not readable JSON; it may be damaged or cut off"),
        (lambda s: "[" * 100_000, "is not readable JSON"),
        (lambda s: "3", "holds no object with a 'format'"),
        (lambda s: damaged(s, format="other"), "is not a result: its format is 'other'"),
        (lambda s: damaged(s, version=2), "is a result of version 2, but this feddbn reads up to 1; upgrade"),
        (lambda s: damaged(s, version="1"), "is a damaged result: its version is '1'"),
        (lambda s: damaged(s, version=True), "is a damaged result: its version is True"),
        (lambda s: damaged({k: v for k, v in s.items() if k != "method"}), "it lacks 'method'"),
        (lambda s: damaged(s, dbn=[1]), "is a damaged result"),
        (lambda s: damaged(s, dbn={**s["dbn"], "W": [[1]]}), "is a damaged result"),
        (lambda s: damaged(s, edges=[1]), "a part has the wrong type or shape"),
        (lambda s: damaged(s, raw={"W": [[0]], "A": []}), "is a damaged result"),
    ],
)
def test_a_damaged_file_is_refused_with_a_sentence(fitted, tmp_path, change, sentence):
    stored = Result.from_estimator(fitted[0]).to_dict()
    path = tmp_path / "r.json"
    path.write_text(change(stored))
    with pytest.raises(FileError, match=r"file '.*r\.json'") as refusal:
        Result.load(path)
    assert sentence in str(refusal.value)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(FileError, match="does not exist; check the path"):
        Result.load(tmp_path / "nothing.json")
    with pytest.raises(FileError, match="cannot be read"):
        Result.load(tmp_path)
    (tmp_path / "image.json").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(FileError, match="is not UTF-8 text"):
        Result.load(tmp_path / "image.json")


def test_a_failed_write_leaves_the_old_file_and_no_litter(fitted, tmp_path, monkeypatch):
    result = Result.from_estimator(fitted[0])
    path = result.save(tmp_path / "r.json")
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(FileError, match="cannot be written: No space left on device"):
        result.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_a_directory_is_not_overwritten(fitted, tmp_path):
    with pytest.raises(FileError, match="it is a directory; give the name of a file"):
        Result.from_estimator(fitted[0]).save(tmp_path)


def test_plain_turns_everything_into_json():
    value = {
        "a": np.arange(2),
        "b": (np.float32(0.5), np.nan, np.inf),
        3: {Status.EXACT},
        "c": np.bool_(True),
    }
    assert plain(value) == {"a": [0, 1], "b": [0.5, None, None], "3": ["EXACT"], "c": True}


@pytest.mark.parametrize("heterogeneity", [0.0, "independent"])
def test_truths_read_back(tmp_path, heterogeneity):
    federation = simulate(d=3, n_sites=2, n_samples=40, heterogeneity=heterogeneity, random_state=0)
    truth = read_truth(write_truth(federation, tmp_path / "truth.json"))
    if heterogeneity == 0:
        assert isinstance(truth, DBN)
        assert bits(truth) == bits(federation.truth)
    else:
        assert {site: bits(dbn) for site, dbn in truth.items()} == {
            site: bits(dbn) for site, dbn in federation.truths.items()
        }


@pytest.mark.parametrize(
    ("stored", "sentence"),
    [
        ({"format": "feddbn-truths", "version": 1}, "it has no 'sites'"),
        ({"format": "feddbn-truths", "version": 2, "sites": {}}, "its version is 2"),
        ({"format": "feddbn-truths", "version": 1, "sites": {"a": {}}}, "holds no true network"),
        ({}, "holds no true network"),
    ],
)
def test_a_damaged_truth_is_refused(tmp_path, stored, sentence):
    (tmp_path / "t.json").write_text(json.dumps(stored))
    with pytest.raises(FileError, match=r"t\.json") as refusal:
        read_truth(tmp_path / "t.json")
    assert sentence in str(refusal.value)
