"""What a person may choose: every setting of every method has a rule, a wrong value is named, 16 parameters are the most."""

from __future__ import annotations

import inspect
from dataclasses import fields

import numpy as np
import pytest
from sklearn.base import clone

import feddbn
from feddbn.errors import ParameterError
from feddbn.method_table import METHODS, get_method, make_estimator
from feddbn.settings import (
    edges,
    flag,
    names_of_variables,
    number,
    share_or_count,
    whole,
    word,
)
from support.saying import refused

ESTIMATORS = [m.load() for m in METHODS.values()]
TRUTH = feddbn.DBN(np.zeros((3, 3)), np.zeros((1, 3, 3)))
DATA = {"a": np.random.default_rng(0).normal(size=(60, 3))}

# A rule, and what it has to refuse, whatever its type.
NUMBERS = ["0.1", None, [0.1], {}, True, float("nan"), -1.0, np.ones(2), object(), 1j]
RULES = {
    "number": (number(0), NUMBERS),
    "finite": (number(above=0), [*NUMBERS, 0, np.inf]),
    "whole": (whole(0), ["two", "1", None, 1.5, -1, True, [1], np.nan]),
    "word": (word("auto", "none"), ["nonsense", "", None, 1, 0.5, True, ["none"], b"none"]),
    "flag": (flag(), ["yes", "True", None, 1, 0.0, []]),
    "edges": (edges(), ["x0", 5, 1.5, True, {"x0": "x1"}]),
    "names": (names_of_variables(), ["u", 3, [1], ["u", "u"]]),
    "share": (share_or_count(), [*NUMBERS, 0, 0.0, 1.5]),
    "period": (feddbn.Prepare._rule("period"), ["day", 1, 1.5, -3, True, [24, 1], ["24"], np.nan]),
}


@pytest.mark.parametrize("kind", RULES)
def test_a_rule_names_what_it_refuses(kind):
    rule, wrong = RULES[kind]
    for value in wrong:
        with refused(ParameterError, "x=") as caught:
            rule.check("x", value)
        assert len(str(caught.value)) < 250


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_every_setting_has_a_rule_that_its_default_passes_and_an_explanation(cls):
    cls().check_parameters()
    for one in fields(cls.settings):
        assert one.metadata["rule"].holds(one.default)
        assert one.metadata["about"].endswith(".")
        assert f"    {one.name}\n" in cls.__doc__


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_the_signature_has_the_settings(cls):
    given = inspect.signature(cls).parameters
    assert set(given) == set(cls().get_params()) == {one.name for one in fields(cls.settings)}


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_a_wrong_value_is_named_by_a_fit_which_leaves_nothing_behind(cls):
    estimator = cls(**{"n_lags" if "n_lags" in cls.settings.given_names() else "federation": -1})
    with refused(ParameterError, "=-1"):
        estimator.fit(DATA)
    assert not [attribute for attribute in vars(estimator) if attribute.endswith("_")]


def test_dotted_and_nested_names_mean_the_same():
    wanted = feddbn.OneShotDBN(n_lags=2, prepare=feddbn.Prepare(center="none"))
    for given in ({"prepare.center": "none"}, {"prepare": {"center": "none"}}):
        assert make_estimator("oneshot", {"n_lags": 2, **given}).get_params() == wanted.get_params()
    assert feddbn.OneShotDBN(2).set_params(**{"prepare.center": "none"}).prepare == wanted.prepare
    assert clone(wanted).get_params() == wanted.get_params()
    assert repr(wanted) == "OneShotDBN(n_lags=2, prepare=Prepare(center='none'))"


def test_names_that_are_unknown_or_given_twice_are_refused():
    with refused(ParameterError, "n_lag", "n_lags", code="no-such-setting"):
        feddbn.OneShotDBN(n_lag=2)
    with refused(ParameterError, "prepare.centre", "prepare.center", code="no-such-setting"):
        make_estimator("oneshot", {"prepare.centre": "none"})
    with refused(ParameterError, "center", "prepare.center", code="no-such-setting"):
        feddbn.OneShotDBN(center="none")
    with refused(ParameterError, "center"):
        make_estimator("oneshot", {"prepare": {"center": "none"}, "prepare.center": "auto"})


def test_what_a_method_cannot_do_to_rows_is_refused():
    for cls, given in (
        (feddbn.LatentDBN, {"scale": "federated"}),
        (feddbn.LatentDBN, {"on_disagreement": "personal"}),
    ):
        (name, value), *_ = given.items()
        with refused(ParameterError, f"prepare.{name}={value!r}"):
            cls(prepare=feddbn.Prepare(**given)).check_parameters()


@pytest.mark.parametrize("name", ["average", "local"])
def test_fits_of_single_sites_have_no_setting_of_a_look_at_common_residuals(name):
    with refused(ParameterError, "check_residuals"):
        make_estimator(name, {"check_residuals": True})


@pytest.mark.parametrize("name", ["fdbnl", "dynotears", "average", "local"])
def test_where_nothing_is_random_there_is_no_seed(name):
    with refused(ParameterError, "random_state"):
        make_estimator(name, {"random_state": 1})
    assert "random_state" not in get_method(name).parameters()
