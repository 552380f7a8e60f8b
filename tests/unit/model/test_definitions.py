"""Formulas of variables: how they are read, what is refused, and that learning leaves them out and forecasts show them."""

from __future__ import annotations

import math
import shlex
import tomllib

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.analysis.comparison import compare
from feddbn.cli.options import parse_params
from feddbn.data import read_sites
from feddbn.errors import FileError, ParameterError
from feddbn.method_table import get_method
from feddbn.model.definitions import defined, read_definitions, without_defined
from feddbn.model.trends import fit_trend
from feddbn.words import setting
from support.saying import only

pytestmark = [
    pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning"),
    pytest.mark.filterwarnings("ignore::feddbn.errors.HistoryWarning"),
]
MAP = {"map": "(sbp + 2 dbp) / 3"}


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("(sbp + 2 dbp) / 3", "(a + 2 * b) / 3"),
        ("1/3 sbp + 2/3*dbp - 4.5e1", "1/3 * a + 2/3 * b - 45"),
        ("-sbp - -.5(dbp + 1)", "-a + .5 * (b + 1)"),
        ("`sbp` / dbp / 2", "a / b / 2"),
        ("2 log(sbp) - exp(dbp / 100)", "2 * math.log(a) - math.exp(b / 100)"),
        ("log(2) sbp", "math.log(2) * a"),
        ("(sbp) (dbp)", "a * b"),
    ],
)
def test_a_formula_is_what_python_makes_of_it(text, python):
    formula = read_definitions({"x": text})["x"]
    for a, b in ((120.0, 70.0), (90.5, 61.25)):
        found = formula({"sbp": np.array(a), "dbp": np.array(b)})
        assert found == pytest.approx(eval(python, {"a": a, "b": b, "math": math}), rel=1e-14)


@pytest.mark.parametrize(
    "given",
    [
        {"map": "sbp dbp"},
        {"map": "sbp +"},
        {"map": "(sbp"},
        {"map": "sbp)"},
        {"map": "log sbp"},
        {"map": "sbp ^ 2"},
        {"map": "__import__('os')"},
        {"map": "sbp.real"},
        {"map": "2"},
        {"map": ""},
        {"map": 3},
        {"map": "(" * 500 + "sbp" + ")" * 500},
        {"map": "-" * 5000 + "sbp"},
        {"map": "map + 1"},
        {"map": "pulse", "pulse": "map"},
        ["map"],
    ],
)
def test_bad_formulas_are_refused_with_a_sentence_that_names_the_argument(given):
    with pytest.raises(ParameterError, match="definitions"):
        feddbn.Prepare(definitions=given)


def test_definitions_may_use_each_other_and_come_in_any_order():
    formulas = read_definitions({"c": "2 b", "b": "a * a", "e": "a + 1"})
    found = defined(formulas, {"a": np.array([1.0, 3.0])})
    assert found["c"].tolist() == [2.0, 18.0]
    assert without_defined({"c": "2 b", "b": "a * a"}, ("a", "b", "c", "d")) == ("a", "d")
    with pytest.raises(ParameterError, match="'z'"):
        without_defined({"c": "z"}, ("a", "c"))
    with pytest.raises(ParameterError, match="'z'"):
        without_defined({"z": "a"}, ("a", "c"))


def vitals(n: int = 600, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = np.zeros((n, 3))
    for t in range(1, n):
        x[t, 0] = 0.6 * x[t - 1, 0] + rng.normal()
        x[t, 1] = 0.5 * x[t, 0] + 0.3 * x[t - 1, 1] + rng.normal()
        x[t, 2] = 0.7 * x[t - 1, 1] + rng.normal()
    frame = pd.DataFrame(x * [12, 8, 9] + [120, 65, 80], columns=["sbp", "dbp", "pulse"])
    frame.insert(1, "map", (frame["sbp"] + 2 * frame["dbp"]) / 3 + rng.normal(size=n))
    return frame


@pytest.mark.slow
@pytest.mark.parametrize("method", [feddbn.OneShotDBN, feddbn.FDBNL, feddbn.ChangingDBN, feddbn.PFDBNL])
def test_learning_is_as_if_the_variable_had_not_been_there(method):
    frame = vitals()
    data = {"a": frame[:300], "b": frame[300:]}
    model = method(prepare=feddbn.Prepare(definitions=MAP)).fit(data)
    plain = method().fit({name: one.drop(columns="map") for name, one in data.items()})
    assert tuple(model.dbn_.variables) == ("sbp", "dbp", "pulse")
    assert model.W_.tolist() == plain.W_.tolist()
    assert model.A_.tolist() == plain.A_.tolist()
    assert "near-identity" not in model.findings_.codes
    assert model.dbn_.definitions == MAP


@pytest.mark.slow
def test_it_is_the_same_on_a_federation_and_for_confidence_and_comparison():
    frame = vitals()
    data = {"a": frame[:300], "b": frame[300:]}
    prepare = feddbn.Prepare(definitions=MAP)
    model = feddbn.OneShotDBN(prepare=prepare).fit(data)
    there = feddbn.OneShotDBN(prepare=prepare, federation=feddbn.simulated(data)).fit(None)
    np.testing.assert_allclose(there.W_, model.W_, rtol=1e-9)
    table = feddbn.confidence(feddbn.OneShotDBN(prepare=prepare, features="linear"), data, n_replicates=4)
    assert "map" not in {*table["source"], *table["target"]}
    methods = [get_method("oneshot"), get_method("fdbnl")]
    lines = compare(read_sites(data), methods, {"prepare": prepare}, held_out=0.2)
    assert all(np.isfinite(line.held_out) for line in lines)


def test_what_is_no_variable_is_refused():
    for wrong in ({"mpa": "sbp"}, {"map": "sbp + typo"}):
        with pytest.raises(ParameterError, match="definitions"):
            feddbn.OneShotDBN(prepare=feddbn.Prepare(definitions=wrong)).fit({"a": vitals()})


def test_a_definition_that_is_far_from_the_records_is_said():
    frame = vitals()
    for formula, is_far in (("(sbp + 2 dbp) / 3", False), ("sbp + 2 dbp", True)):
        model = feddbn.OneShotDBN(prepare=feddbn.Prepare(definitions={"map": formula})).fit({"a": frame})
        assert ("definition-far" in model.findings_.codes) is is_far
    found = only(model.findings_, "definition-far")
    rest = frame["map"] - frame["sbp"] - 2 * frame["dbp"]
    spread = ((frame["map"] - frame["map"].mean()) ** 2).sum()
    assert found.values["explained"] == pytest.approx(1 - (rest**2).sum() / spread)


@pytest.mark.parametrize("audience", ["cli", "lead"])
def test_the_cure_is_written_so_that_it_can_be_typed(audience):
    written = setting("prepare.definitions", MAP, audience)
    if audience == "cli":
        flag, typed = shlex.split(written)
        assert (flag, parse_params([typed])) == ("-p", {"prepare.definitions": MAP})
    else:
        assert tomllib.loads(written) == {"prepare": {"definitions": MAP}}


def network(**more) -> feddbn.DBN:
    W = np.array([[0, 0.5, 0], [0, 0, 0], [0, 0.2, 0]])
    A = np.array([[[0.6, 0.1, 0], [0, 0.3, 0.7], [0, 0, 0.2]]])
    names = ["sbp", "dbp", "pulse"]
    return feddbn.DBN(W, A, names, [48.0, -20.0, 30.0], [16.0, 9.0, 4.0], **more)


def test_a_weighted_sum_is_forecast_exactly():
    dbn = network(definitions=MAP)
    past = vitals()[["sbp", "dbp", "pulse"]]
    found = dbn.forecast(past, steps=3, interval=0.9, random_state=0, n_paths=40_000)
    assert list(found.mean.columns) == ["sbp", "dbp", "pulse", "map"]
    assert found.mean["map"].to_numpy() == pytest.approx((found.mean["sbp"] + 2 * found.mean["dbp"]) / 3)
    # One step: noise through the contemporaneous effects; and three steps by many paths.
    B = np.linalg.inv(np.eye(3) - dbn.W)
    cov = B.T @ np.diag(dbn.noise_variances) @ B
    w = np.array([1 / 3, 2 / 3, 0])
    sd = np.sqrt(w @ cov @ w)
    assert found.sd["map"].iloc[0] == pytest.approx(sd, rel=0.015)
    assert found.upper["map"].iloc[0] == pytest.approx(found.mean["map"].iloc[0] + 1.645 * sd, abs=0.05 * sd)
    plain = network().forecast(past, steps=3, interval=0.9)
    for part in ("mean", "sd", "lower", "upper"):
        assert getattr(found, part)[list(dbn.variables)].equals(getattr(plain, part))
    assert set(found.to_frame()["variable"]) == {"sbp", "dbp", "pulse", "map"}
    assert dbn.do({"dbp": 60.0}, past, 2).mean["map"].to_numpy() == pytest.approx(
        (dbn.do({"dbp": 60.0}, past, 2).mean["sbp"] + 120) / 3
    )


def test_other_formulas_are_forecast_by_paths():
    dbn = network(definitions={"ratio": "log(sbp / dbp)"})
    past = vitals()[["sbp", "dbp", "pulse"]]
    found = dbn.forecast(past, 1, 0.9, random_state=0, n_paths=50_000)
    rng = np.random.default_rng(1)
    B = np.linalg.inv(np.eye(3) - dbn.W)
    last = past.to_numpy()[-1]
    rows = (dbn.intercept + last @ dbn.A[0] + rng.normal(size=(50_000, 3)) * [4, 3, 2]) @ B
    ratio = np.log(rows[:, 0] / rows[:, 1])
    assert found.mean["ratio"].iloc[0] == pytest.approx(ratio.mean(), abs=5 * ratio.std() / np.sqrt(50_000))
    assert found.lower["ratio"].iloc[0] == pytest.approx(np.quantile(ratio, 0.05), rel=0.01)


def test_along_a_course_the_formula_is_of_the_values_themselves():
    past = vitals()[["sbp", "dbp", "pulse"]]
    course = fit_trend(past)
    both = {**MAP, "ratio": "sbp / dbp"}
    found = network(definitions=both).forecast(past, 2, 0.9, random_state=0, trend=course)
    plain = network().forecast(past, 2, 0.9, trend=course)
    assert found.mean[["sbp", "dbp", "pulse"]].equals(plain.mean)
    assert found.mean["map"].to_numpy() == pytest.approx((plain.mean["sbp"] + 2 * plain.mean["dbp"]) / 3)
    assert found.mean["ratio"].to_numpy() == pytest.approx(plain.mean["sbp"] / plain.mean["dbp"], rel=0.05)


def test_definitions_are_stored_with_the_network():
    dbn = network(definitions=MAP)
    assert feddbn.DBN.from_json(dbn.to_json()).definitions == MAP
    assert "definitions" not in network().to_dict()
    damaged = {**dbn.to_dict(), "definitions": {"map": "sbp +"}}
    with pytest.raises(FileError):
        feddbn.DBN.from_dict(damaged)
    with pytest.raises(ParameterError, match="definitions"):
        network(definitions={"sbp": "dbp"})
