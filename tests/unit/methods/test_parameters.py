"""A wrong argument gets one sentence that names it, whatever its type; rules of their own."""

from __future__ import annotations

import numpy as np
import pytest

import feddbn
from feddbn.errors import ParameterError
from feddbn.method_table import METHODS
from feddbn.methods.edge_ranking import ContemporaneousEdgeRanker, LaggedEdgeRanker
from feddbn.methods.registry import make_estimator
from feddbn.settings import nothing, number, shown, whole, word

ESTIMATORS = [*(method.load() for method in METHODS.values()), LaggedEdgeRanker, ContemporaneousEdgeRanker]
DATA = {"a": np.random.default_rng(0).normal(size=(60, 3))}

# What is wrong for a parameter of that kind, whoever has it.
NUMBERS = ["0.1", None, [0.1], {}, True, float("nan"), -1.0, np.ones(2), object(), 1j]
WHOLE = ["two", "1", None, 1.5, -1, True, [1], np.nan]
WORDS = ["nonsense", "", None, 1, 0.5, True, ["none"], b"none"]
FLAGS = ["yes", "True", None, 1, 0.0, []]
EDGES = ["x0", 5, 1.5, True, {"x0": "x1"}, [("x0",)], ["x0"], [("x0", "x1", "1")], [("x0", "nobody", 1)], [5]]
WRONG = {
    "n_lags": WHOLE,
    "max_lags": WHOLE,
    "lambda_w": NUMBERS,
    "lambda_a": NUMBERS,
    "mu": [*NUMBERS, 0],
    "participation": [*NUMBERS, 0, 0.0, 1.5],
    "n_clusters": [*WHOLE, 0],
    "site_lags": ["a", 1, [1], {"a": "one"}, {"a": 1.5}, {"nobody": 1}, {1: 1}],
    "different_variables": FLAGS,
    "schedule": WORDS,
    "weighting": WORDS,
    "alpha": WORDS,
    "average": ["nonsense", None, 1, 0.5, []],
    "rho1": ["a", 0, -1.0, True, [1.0], np.inf, np.nan],
    "rho2": ["a", 0, -1.0, True, [1.0], 2.0],
    "phi1": ["a", 0.5, True, [1.0], np.inf],
    "phi2": ["a", 0.5, True, [1.0], 2.0],
    "max_rounds": [*WHOLE, 0],
    "h_tol": [*NUMBERS, 0, np.inf],
    "tol": [*NUMBERS, 0, np.inf],
    "w_threshold": [*NUMBERS, np.inf],
    "a_threshold": [*NUMBERS, np.inf],
    "refit": FLAGS,
    "forbidden_edges": EDGES,
    "required_edges": EDGES,
    "center": WORDS,
    "detrend": [*WHOLE, "linear"],
    "period": ["day", 1, 1.5, -3, True, [24, 1], ["24"], np.nan],
    "gains": WORDS,
    "spikes": WORDS,
    "missing": WORDS,
    "on_disagreement": WORDS,
    "exogenous": ["u", 3, [1], ["u", "u"]],
    "scale": WORDS,
    "acyclicity": WORDS,
    "device": [*WORDS, "gpu", "cuda:1"],
    "blocks": [None, 0, 25, -32, 2.5, "fortnight", "column:", {"row": 1}, "month from soon", [32]],
    "clock": ["no", 1, None],
    "drift": [*FLAGS, "maybe"],
    "optimum": WORDS,
    "kinds": ["count", 3, ["binary"], {"x0": "real"}],
    "level_rows": [*WHOLE, 0],
    "review": FLAGS,
    "max_changes": WHOLE,
    "change_penalty": NUMBERS,
    "random_state": ["a", -1, 1.5, True, [0]],
    "federation": ["here", 5, {}, DATA],
    "search": WORDS,
    "l1_penalty": NUMBERS,
    "noise_variance": WORDS,
    "criterion": WORDS,
    "penalty": ["a", 0, -1, True, [1.0], np.inf],
    "n_restarts": WHOLE,
    "use_nongaussian": ["yes", None, 1, []],
    "check_residuals": ["yes", None, 1, []],
    "features": [None, 5, ["linear"], ""],
    "interactions": [None, 1, "yes"],
    "smoothing": ["much", 0, 2.0, -0.5, True, [0.5]],
    "center_by": [5, True, ["u"], ""],
    "baseline": [["u"], {}, object()],
    "standardise": FLAGS,
    "knots": ["abc", None, 5, (0.0, 1.0), (0.0, 0.0, 1.0), (0, 1, "2"), (0, 1, np.nan), [[0], [1], [2]]],
    "edge_rate": ["a", 0, 1, 2.0, True, [0.5]],
    "n_hub_steps": WHOLE,
    "ridge": NUMBERS,
    "n_passes": [*WHOLE, 0],
    "max_conditions": ["two", "1", 1.5, -1, True, [1], np.nan],
}
TRUTH = feddbn.DBN(np.zeros((3, 3)), np.zeros((1, 3, 3)))
CASES = [(cls, name) for cls in ESTIMATORS for name in cls.rules]


@pytest.mark.parametrize(("cls", "name"), CASES, ids=[f"{cls.__name__}-{name}" for cls, name in CASES])
def test_a_wrong_value_gets_a_sentence_that_names_it(cls, name):
    extra = {"truth": TRUTH} if cls is feddbn.BestSite else {}
    for value in WRONG[name]:
        estimator = cls(**{name: value})
        with pytest.raises(ParameterError, match=name) as refusal:
            estimator.fit(None if name == "federation" else DATA, **extra)
        sentence = str(refusal.value)
        assert sentence.endswith("."), sentence
        assert "\n" not in sentence
        assert len(sentence) < 250
        assert not [attribute for attribute in vars(estimator) if attribute.endswith("_")]


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_every_argument_has_a_rule_that_its_default_passes(cls):
    estimator = cls()
    assert set(cls.rules) == set(estimator.get_params())
    estimator.check_parameters()


@pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning")
def test_numbers_of_numpy_are_numbers():
    made = feddbn.simulate(d=3, n_sites=2, n_samples=100, random_state=0).sites
    plain = feddbn.FDBNL(1, 0.05, 0.05, max_rounds=50).fit(made)
    typed = feddbn.FDBNL(np.int64(1), np.float32(0.05), np.float64(0.05), max_rounds=np.int32(50)).fit(made)
    np.testing.assert_allclose(typed.W_, plain.W_, atol=1e-6)
    feddbn.PFDBNL(np.float64(0.5), participation=np.int64(2), refit=np.True_, max_rounds=20).fit(made)
    feddbn.OneShotDBN(np.int64(1), n_restarts=np.int64(0), average=np.False_).fit(made)


def test_an_argument_that_was_renamed_is_refused_with_its_new_name():
    with pytest.raises(ParameterError, match="no argument 'lambda_' any more; it is called 'l1_penalty' now"):
        feddbn.OneShotDBN(lambda_=0.1)
    with pytest.raises(ParameterError, match="has no parameter 'lambda_'; did you mean 'l1_penalty'"):
        make_estimator("oneshot", {"lambda_": 0.1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'lamda'"):
        feddbn.OneShotDBN(lamda=0.1)


def test_the_words_of_rules_join():
    for rule, sentence in (
        (whole(1), "x=-2 must be a whole number of at least 1."),
        (number(0, most=1), "x=-2 must be a number in [0, 1]."),
        (number(above=2), "x=-2 must be a number above 2."),
        (word("a", "b", "c"), "x=-2 is not known; choose 'a', 'b' or 'c'."),
        (number(above=0) | word("auto") | nothing(), "x=-2 must be a positive number, 'auto' or None."),
    ):
        with pytest.raises(ParameterError) as refusal:
            rule.check("x", -2)
        assert str(refusal.value) == sentence
    assert shown(np.zeros((50, 50))).endswith("...")
