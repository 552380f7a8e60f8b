"""A check by sums finds what was put into the data of simulated sites, and says nothing else of clean ones."""

import numpy as np
import pandas as pd
import pytest

from feddbn import FDBNL, OneShotDBN, Prepare
from feddbn.data.read import read_sites
from feddbn.errors import ParameterError
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.study_methods import study_method
from feddbn.methods import studies  # noqa: F401 (registers the methods)
from feddbn.methods.base import simulated
from feddbn.methods.data_check import check_data

N = 300


def clean(n_sites=5, n=N):
    rng = np.random.default_rng(0)
    found = {}
    for k in range(n_sites):
        x = rng.normal(size=(n, 3))
        for t in range(1, n):
            x[t] += 0.4 * x[t - 1] + 0.5 * np.array([0, x[t, 0], 0])
        found[f"s{k}"] = pd.DataFrame(x, columns=list("abc"))
    return found


def findings(frames, estimator=None, observer=None):
    federation = simulated(read_sites(frames, missing="keep"))
    return {one.what: one for one in check_data(estimator or OneShotDBN(), federation, observer)}


def test_clean_data_have_a_size_and_nothing_else():
    asked = []
    found = findings(clean(), observer=lambda task, answer: asked.append(task.name))
    assert list(found) == ["rows"]
    assert found["rows"].sentence == "1500 rows in 5 recordings of 5 sites."
    assert found["rows"].severity == "note"
    assert asked == ["survey", "agreement"]


def test_what_was_put_in_is_found():
    frames = clean()
    for k, frame in enumerate(frames.values()):
        frame.loc[10:39, "b"] = np.nan
        frame.loc[::40, "c"] = -999.0
        frame["stuck"] = np.where(np.arange(N) < 20, np.random.default_rng(k).normal(size=N), 0.5)
        frame["flag"] = (np.random.default_rng(k).random(N) < 0.3).astype(float)
        frame["n"] = np.random.default_rng(k).poisson(3.0, N).astype(float)
    found = findings(frames)
    empty = np.mean([frame.isna().to_numpy().mean() for frame in frames.values()])
    assert found["missing"].sentence == f"{empty:.1%} of the cells are empty."
    assert found["far"].columns == ("c",)
    assert found["still"].columns == ("stuck",)
    assert found["kinds"].columns == ("flag", "n")
    assert "MixedDBN(kinds={'flag': 'binary', 'n': 'count'})" in found["kinds"].cure


def test_a_site_with_other_units_is_counted_and_not_named():
    frames = clean()
    frames["s3"]["a"] *= 50.0
    found = findings(frames)
    assert found["scales"].severity == "warning"
    assert found["disagreement"].sentence == "one of 5 sites does not fit the others; the owner is told why."
    assert all(one.site is None and "s3" not in one.sentence for one in found.values())


def test_a_course_of_the_day_shows():
    frames = clean()
    for frame in frames.values():
        frame["a"] += 3 * np.sin(2 * np.pi * np.arange(N) / 24)
    assert findings(frames)["cycles"].sentence.startswith("cycles of 24")


def test_sites_are_not_compared_where_they_are_few_or_nobody_wants_it():
    assert "4 or more" in findings(clean(3))["not-compared"].cure
    plain = findings(clean(), FDBNL(on_disagreement="ignore"))
    assert plain["not-compared"].cure.startswith("on_disagreement='warn' has sites compare themselves")


def test_too_few_rows_are_a_warning_or_an_error():
    assert findings(clean(4, 12))["rows"].severity == "warning"
    assert findings(clean(1, 6))["rows"].severity == "error"


def test_inputs_have_to_be_variables():
    with pytest.raises(ParameterError, match="exogenous contains 'z'"):
        findings(clean(), OneShotDBN(prepare=Prepare(exogenous=["z"])))


def test_a_study_finds_the_same_as_a_check_in_one_process():
    frames = clean()
    frames["s3"]["a"] *= 50.0
    study = Study(
        name="s",
        method="oneshot",
        goal="check",
        variables=("a", "b", "c"),
        sites=tuple(frames),
        parameters={"on_disagreement": "warn"},
    )
    federation = simulated(read_sites(frames, missing="keep"))
    result = study_method("oneshot").run_study(study, federation)
    expected = findings(frames, OneShotDBN(prepare=Prepare(on_disagreement="warn")))
    assert [one["what"] for one in result.summary["findings"]] == list(expected)
    assert [one["sentence"] for one in result.summary["findings"]] == [o.sentence for o in expected.values()]
    assert result.arrays == {}
