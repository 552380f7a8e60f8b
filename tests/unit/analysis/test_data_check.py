"""A check by sums finds what was put into the data of simulated sites, and says nothing else of clean ones."""

import numpy as np
import pandas as pd
import pytest

from feddbn import OneShotDBN, Prepare
from feddbn.analysis import studies  # noqa: F401 (registers the methods)
from feddbn.analysis.data_check import check_data
from feddbn.data.read import read_sites
from feddbn.federation.protocol.study import Study, study_method
from feddbn.methods.base import simulated

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
    return {one.code: one for one in check_data(estimator or OneShotDBN(), federation, observer)}


def test_clean_data_have_a_size_and_nothing_else():
    asked = []
    found = findings(clean(), observer=lambda task, answer: asked.append(task.name))
    assert list(found) == ["all-rows"]
    assert found["all-rows"].values.items() >= {"rows": 1500, "recordings": 5, "sites": 5}.items()
    assert found["all-rows"].level == "note"
    assert asked == ["survey.first", "agree"]


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
    assert found["empty-share"].values["share"] == pytest.approx(empty)
    assert found["outliers-somewhere"].about == ("c",)
    assert found["still"].about == ("stuck",)
    kinds = {"flag": "binary", "n": "count"}
    assert found["kinds-somewhere"].values["kinds"] == kinds
    # A method that drops rows with empty cells is proposed where there are few.
    assert found["kinds-somewhere"].cure == {}
    whole = findings({name: frame.fillna(0.1).replace(-999.0, 0.0) for name, frame in frames.items()})
    assert whole["kinds-somewhere"].cure == {"kinds": kinds}


def test_a_site_with_other_units_is_counted_and_not_named():
    frames = clean()
    frames["s3"]["a"] *= 50.0
    found = findings(frames)
    assert (found["scales"].level, found["scales"].about) == ("warning", ("a",))
    assert found["disagreement"].values == {"n": 1, "of": 5}
    assert "s3" not in str(found)


def test_a_course_of_the_day_shows():
    frames = clean()
    for frame in frames.values():
        frame["a"] += 3 * np.sin(2 * np.pi * np.arange(N) / 24)
    assert findings(frames)["cycles"].values["periods"][0] == pytest.approx(24, abs=0.5)


def test_sites_are_not_compared_where_they_are_few_or_nobody_wants_it():
    few = findings(clean(3))["not-compared"]
    assert (few.values, few.cure) == ({"fewest": 4}, {})
    plain = findings(clean(), OneShotDBN(prepare=Prepare(on_disagreement="ignore")))
    assert plain["not-compared"].cure == {"prepare.on_disagreement": "warn"}


def test_too_few_rows_are_a_warning_or_an_error():
    assert findings(clean(4, 12))["all-rows"].level == "warning"
    assert findings(clean(1, 6))["all-rows"].level == "error"


def test_a_study_finds_the_same_as_a_check_in_one_process():
    frames = clean()
    frames["s3"]["a"] *= 50.0
    study = Study(
        name="s",
        method="oneshot",
        goal="check",
        variables=("a", "b", "c"),
        sites=tuple(frames),
        parameters={"prepare.on_disagreement": "warn"},
    )
    federation = simulated(read_sites(frames, missing="keep"))
    result = study_method("oneshot").run_study(study, federation)
    expected = findings(frames, OneShotDBN(prepare=Prepare(on_disagreement="warn")))
    assert result.summary["findings"] == [one.to_dict() for one in expected.values()]
    assert result.arrays == {}
