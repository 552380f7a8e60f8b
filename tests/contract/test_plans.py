"""A program asks what its plan says: never more, and of clean data exactly that."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import feddbn
from feddbn import AS_THEY_ARE
from feddbn.analysis import studies  # noqa: F401 (registers the methods)
from feddbn.federation.guards.study_plan import plan_of
from feddbn.federation.protocol.study import Study, check_goal, study_method
from feddbn.federation.protocol.task import most_numbers, of_task, usual_numbers
from feddbn.federation.sums.in_view import with_what_is_in_view

pytestmark = pytest.mark.promise

D, SITES = 3, 5
MESS = ("clean", "gains", "trend", "cycles", "levels", "empty", "outliers", "memory", "bent", "laplace")


def recording(rng, n, mess):
    noise = rng.laplace(size=(n, D)) if "laplace" in mess else rng.normal(size=(n, D))
    x = np.zeros((n, D))
    for t in range(1, n):
        if "memory" in mess:
            noise[t] += 0.7 * noise[t - 1]
        x[t] = 0.4 * x[t - 1] + noise[t]
        x[t, 1:] += np.abs(x[t, :-1]) if "bent" in mess else 0.8 * x[t, :-1]
    t = np.arange(n)[:, None]
    if "gains" in mess:
        x *= np.exp(rng.normal(size=D))
    if "trend" in mess:
        x += 8 * rng.normal(size=D) * t / n
    if "cycles" in mess:
        x += sum(4 * np.sin(2 * np.pi * (t / period + rng.random())) for period in (4, 7, 12, 25))
    if "levels" in mess:
        x += 1e5 * (1 + rng.random())
    if "empty" in mess:
        x[rng.random(x.shape) < 0.03] = np.nan
    if "outliers" in mess:
        x[rng.random(x.shape) < 0.01] += 80.0
    return x


def asked_by(study, mess, seed=0, n=240):
    """Task -> lengths of the answers that a study asked for."""
    rng = np.random.default_rng(seed)
    data = {name: [recording(rng, n, mess) for _ in range(2)] for name in study.sites}
    inner, lengths = feddbn.simulated(data), {}

    class Counted:
        sites, variables = inner.sites, inner.variables
        answered_tasks, fewest_sites = None, 3

        def state_of(self, site):
            return inner.state_of(site)

        def sum(self, task):
            total = inner.sum(task)
            lengths.setdefault(task.name, []).append(len(total.value))
            return total

    federation = with_what_is_in_view(Counted(), 0)
    assert federation.variables == study.variables
    study_method(study.method).run_study(study, federation)
    return lengths


def study_of(method, parameters, **more):
    return Study(
        name="s",
        method=method,
        variables=tuple(f"x{j}" for j in range(D)),
        sites=tuple(f"s{i}" for i in range(SITES)),
        parameters=parameters,
        **more,
    )


def within(study, lengths):
    plan = plan_of(study)
    beyond = {
        task: (len(found), max(found), of_task(plan, task))
        for task, found in lengths.items()
        if len(found) > of_task(plan, task)[0] or max(found) > of_task(plan, task)[1]
    }
    assert beyond == {}
    assert sum(map(sum, lengths.values())) <= most_numbers(plan)


PREPARE = {
    "center": ("auto", "none", "recording"),
    "detrend": ("auto", 0, 1),
    "period": ("auto", 12),
    "gains": ("auto", "none", "site"),
    "robust": ("auto", "off"),
    "missing": ("auto", "fill", "drop"),
    "on_disagreement": ("auto", "exclude", "warn", "ignore"),
}
OF_METHOD = {
    "oneshot": {
        "n_lags": (0, 1, 2, "auto"),
        "use_nongaussian": (False, True, "auto"),
        "features": ("linear", "auto", "quadratic"),
    },
    "summary": {"n_lags": (0, 1, 2)},
    "latent": {"n_lags": (1,)},
    "fdbnl": {"n_lags": (1, 2), "weighting": ("samples", "sites"), "schedule": ("gram", "paper")},
    "pfdbnl": {"n_lags": (1,), "schedule": ("rounds", "paper")},
    "changing": {"n_lags": (1,), "blocks": ("auto", 16)},
}
ROUNDS = {"rounds.max_rounds": 5}


@st.composite
def studies_and_mess(draw):
    method = draw(st.sampled_from(sorted(OF_METHOD)))
    chosen = {name: draw(st.sampled_from(values)) for name, values in OF_METHOD[method].items()}
    prepare = {name: draw(st.sampled_from(values)) for name, values in PREPARE.items() if draw(st.booleans())}
    if method == "changing":
        prepare.pop("missing", None)
    if method == "pfdbnl" and prepare.get("on_disagreement") == "exclude":
        prepare["on_disagreement"] = "warn"
    rounds = ROUNDS if method in ("fdbnl", "pfdbnl") else {}
    study = study_of(method, {**chosen, **rounds, **({"prepare": prepare} if prepare else {})})
    return study, draw(st.sets(st.sampled_from(MESS), min_size=1, max_size=3))


@pytest.mark.hypothesis
@given(studies_and_mess(), st.integers(0, 2**16))
def test_no_study_asks_more_than_its_plan(drawn, seed):
    study, mess = drawn
    check_goal(study)
    try:
        lengths = asked_by(study, mess, seed)
    except feddbn.errors.DataError:
        return
    within(study, lengths)


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("oneshot", {}),
        ("oneshot", {"n_lags": 2, "prepare": dict(AS_THEY_ARE)}),
        ("oneshot", {"prepare.detrend": 1, "prepare.gains": "none"}),
        ("oneshot", {"features": "quadratic"}),
        ("summary", {"n_lags": 0}),
        ("latent", {}),
        ("fdbnl", {}),
        ("fdbnl", {"weighting": "sites", "prepare.on_disagreement": "warn"}),
    ],
)
def test_of_clean_data_a_study_asks_what_is_usual_and_no_more(method, parameters):
    study = study_of(method, parameters)
    lengths = asked_by(study, ("clean",), seed=3)
    within(study, lengths)
    assert sum(map(sum, lengths.values())) == usual_numbers(plan_of(study))


def test_cycles_that_spectra_show_are_in_the_plan_of_a_given_trend():
    study = study_of("oneshot", {"prepare.detrend": 1, "check_residuals": False})
    lengths = asked_by(study, ("cycles",), n=480)
    within(study, lengths)
    assert max(lengths["gram.rows"]) == of_task(plan_of(study), "gram.rows")[1]


def test_the_most_that_a_plan_has_is_reached():
    study = study_of("oneshot", {"n_lags": 1})
    plan, reached = plan_of(study), Counter()
    for seed, mess in enumerate(
        (("cycles",), ("cycles", "empty", "levels", "gains"), ("memory",), ("outliers",))
    ):
        for task, lengths in asked_by(study, mess, seed, n=480).items():
            reached[task] = max(reached[task], *lengths)
    most = {task: of_task(plan, task)[1] for task in reached}
    assert most == dict(reached)
