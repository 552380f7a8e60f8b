from dataclasses import replace

import numpy as np
import pytest

from feddbn import AS_THEY_ARE
from feddbn.core.designs.cells import CELL_MAPS
from feddbn.core.designs.parts import N_PARTS
from feddbn.core.statistics.moments import sums_length
from feddbn.errors import SiteRefused
from feddbn.federation.guards.study_plan import (
    Asked,
    ScopeGuard,
    check_tasks,
    plan_of,
    scope_of,
    tasks_of,
)
from feddbn.federation.protocol.site import PLAIN as IN_THE_CLEAR
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Task, of_task
from feddbn.federation.sums.in_view import LEAST, CountsQuestion
from feddbn.federation.sums.survey import SurveyQuestion
from feddbn.privacy.policy import ALWAYS_ALLOWED, TRANSFORMATIONS, SitePolicy
from support.saying import refused

PLAIN = {f"prepare.{name}": value for name, value in dict(AS_THEY_ARE).items() if name != "on_disagreement"}


FOUR = {"sites": ("z", "y", "x", "w")}


def study(method="oneshot", parameters=None, **more):
    values = {"name": "s", "method": method, "variables": ("a", "b"), "sites": ("z", "y", "x")}
    return Study(**{**values, "parameters": parameters or {}, **more})


@pytest.mark.parametrize(
    ("method", "parameters", "more", "tasks"),
    [
        ("oneshot", {}, {}, "survey.first+gram.pairs+gram.rows+residuals.checks+loss.alone+gram.parts"),
        ("oneshot", {**PLAIN, "check_residuals": False}, {}, "gram.rows+gram.parts"),
        (
            "oneshot",
            {**PLAIN, "use_nongaussian": "auto"},
            {},
            "gram.rows+residuals.checks+residuals.shapes+loss.alone+gram.parts",
        ),
        (
            "oneshot",
            {"features": "spline"},
            {},
            "survey.first+gram.pairs+gram.rows+gram.functions+residuals.functions+gram.parts",
        ),
        ("oneshot", {}, {"privacy": {"epsilon": 1.0}}, "gram.rows+counts.norms"),
        ("oneshot", {}, {"privacy": {"epsilon": 1.0, "clip": 2.0}}, "gram.rows"),
        ("oneshot", {"features": "auto"}, {"privacy": {"epsilon": 1.0, "clip": 2.0}}, "gram.rows"),
        ("oneshot", PLAIN, {"goal": "confidence"}, "gram.rows+residuals.checks+gram.parts"),
        (
            "oneshot",
            {**PLAIN, "features": "spline", "use_nongaussian": "auto"},
            {"goal": "confidence"},
            "gram.rows+gram.functions+residuals.functions+gram.parts",
        ),
        ("changing", {}, {}, "survey.first+gram.rows+gram.blocks+residuals.blocks"),
        ("changing", {"check_residuals": False}, {}, "survey.first+gram.rows+gram.blocks"),
        ("changing", PLAIN, {}, "survey.first+gram.rows+gram.blocks"),
        (
            "changing",
            {"prepare.on_disagreement": "warn"},
            FOUR,
            "survey.first+gram.rows+agree+gram.blocks+residuals.blocks",
        ),
        ("mixed", {"kinds": {"a": "count"}}, {}, "gram.kinds+newton"),
        ("mixed", {"kinds": {"a": {"ordinal": 3}}}, {}, "counts.levels+gram.kinds+newton"),
        ("fdbnl", PLAIN, {}, "gram.rows"),
        ("fdbnl", {**PLAIN, "weighting": "sites"}, {}, "gram.rows+step.fdbnl"),
        ("fdbnl", {**PLAIN, "schedule": "paper", "prepare.scale": "none"}, {}, "gram.diagonal+step.fdbnl"),
        (
            "fdbnl",
            {**PLAIN, "prepare.on_disagreement": "warn"},
            FOUR,
            "survey.first+agree+gram.rows+residuals.checks+loss.alone",
        ),
        ("fdbnl", {**PLAIN, "n_lags": "auto"}, {}, "gram.rows+loss.rows+loss.sums"),
        (
            "pfdbnl",
            PLAIN,
            {},
            "gram.rows+step.personal+step.finish",
        ),
        ("somebody-elses", {}, {}, ""),
    ],
)
def test_tasks_follow_from_method_and_parameters(method, parameters, more, tasks):
    found = {*tasks_of(study(method, parameters, **more))}
    assert found - {*ALWAYS_ALLOWED} == {*filter(None, tasks.split("+"))}
    # What is in view is counted first, where no noise hides it.
    assert ("counts.variables" in found) == (method != "somebody-elses" and "privacy" not in more)


@pytest.mark.parametrize(
    ("method", "parameters", "lags"),
    [
        ("oneshot", {"n_lags": 2}, [2, 3]),
        ("oneshot", {"n_lags": 2, "check_residuals": False}, [2]),
        ("oneshot", {"n_lags": "auto"}, [0, 1, 2, 3, 4, 5]),
        ("fdbnl", {"n_lags": 0, "check_residuals": False}, [0]),
        ("fdbnl", {"check_residuals": False}, [0, 1, 2, 3, 4]),
    ],
)
def test_lags_are_the_studys_or_what_the_site_allows(method, parameters, lags):
    assert list(scope_of(study(method, parameters), 4).lags) == lags


def test_what_may_be_done_to_rows_is_what_a_study_leaves_open():
    few, enough = scope_of(study(), 4).transformations, scope_of(study(**FOUR), 4).transformations
    assert enough == tuple(t for t in TRANSFORMATIONS if t not in ("abstain", *CELL_MAPS))
    assert {*enough} - {*few} == {"scales"}
    assert scope_of(study(parameters=PLAIN), 4).transformations == ()
    private = {unit: study(privacy={"epsilon": 1.0, "unit": unit}) for unit in ("row", "recording")}
    assert scope_of(private["row"], 4).transformations == ("means", "trends", "cycles")
    assert scope_of(private["recording"], 4).transformations == ("means", "trends", "cycles", "robust")
    scope = scope_of(
        study(parameters={"prepare": {"detrend": 2, "period": [7.0, 30.0], "exogenous": ["b"]}}), 4
    )
    assert (scope.degrees, scope.most_cycles, scope.inputs) == ((0, 2), 2, (1,))
    assert scope.sites == ("x", "y", "z")


def test_rows_are_held_out_only_where_something_is_chosen_by_them():
    assert scope_of(study("fdbnl", {"mu": 1.0}), 4).folds == ()
    assert scope_of(study("fdbnl", {"lambda_w": "auto"}), 4).folds == ((0, 2, 300), (1, 2, 300))


def test_a_method_of_another_package_is_bounded_by_the_policy_alone():
    scope = scope_of(study("somebody-elses"), 4)
    assert scope.plan is None
    scope.check_task("anything")


def test_a_study_that_is_sure_to_ask_for_what_is_not_listed_does_not_begin():
    with refused(SiteRefused, code="tasks-not-allowed"):
        check_tasks(SitePolicy(), study(parameters={"features": "spline"}))
    listed = SitePolicy(tasks=(*SitePolicy().tasks, "gram.functions", "residuals.functions"))
    with refused(SiteRefused, "spline", code="features-not-allowed"):
        check_tasks(listed, study(parameters={"features": "spline"}))
    check_tasks(SitePolicy(), study())


def test_sites_take_part_in_turns_only_if_the_study_says_so():
    scope = scope_of(study("pfdbnl", {"participation": 0.7}), 4)
    scope.check_participants("step.personal", ("x", "y"))
    with refused(SiteRefused, code="some-sites-only"):
        scope.check_participants("step.personal", ("x", "somebody"))
    with refused(SiteRefused, code="some-sites-only"):
        scope_of(study("pfdbnl"), 4).check_participants("step.personal", ("x", "y"))


NAMES = tuple(f"x{k}" for k in range(10))


@pytest.mark.parametrize(
    ("parameters", "columns"),
    [
        ({"features": "spline"}, 140),
        ({"features": "quadratic"}, 40),
        ({"features": "quadratic", "interactions": True}, 85),
        ({"features": "spline", "n_lags": "auto", "max_lags": 2}, 210),
    ],
)
def test_columns_are_lines_curves_and_products(parameters, columns):
    planned = plan_of(study(parameters={"n_lags": 1, **parameters}, variables=NAMES))
    assert of_task(planned, "gram.functions") == (1, sums_length(columns))


def test_parts_are_counted_whatever_the_number_of_resamples():
    for replicates in (4, 5000):
        given = {"goal": "confidence", "confidence": {"replicates": replicates}, "variables": NAMES}
        planned = plan_of(study(parameters={"features": "spline"}, **given))
        # Of lagged rows, also where networks are of curves.
        assert of_task(planned, "gram.parts") == (1, N_PARTS * sums_length(2 * len(NAMES)))


def test_what_is_asked_twice_is_no_other_and_what_is_not_planned_is_refused():
    planned, asked = plan_of(study(parameters={"n_lags": 1})), Asked()
    survey = SurveyQuestion(n_lags=1, variables=("a", "b"))
    for _ in range(3):
        asked.check_plan(Task(survey), planned)
    with refused(SiteRefused, code="beyond-plan"):
        asked.check_plan(Task(replace(survey, n_lags=2)), planned)


def test_an_answer_has_no_more_numbers_than_the_plan_says():
    one = study()
    guard, task = (
        ScopeGuard(scope_of(one, 3), SitePolicy()),
        Task(SurveyQuestion(n_lags=1, variables=("a", "b"))),
    )
    (most,) = {of_task(plan_of(one), "survey.first")[1]}
    guard.after(task, np.zeros(most), IN_THE_CLEAR)
    with refused(SiteRefused, most + 1, code="beyond-plan"):
        guard.after(task, np.zeros(most + 1), IN_THE_CLEAR)


def test_what_counts_as_varying_is_no_choice_of_the_server():
    scope = scope_of(study(parameters={"n_lags": 1}), 4)
    CountsQuestion(n_lags=1, variables=("a", "b"), least=LEAST).check_scope(scope)
    with refused(SiteRefused, "'least' is 1", code="not-in-study"):
        CountsQuestion(n_lags=1, variables=("a", "b"), least=1).check_scope(scope)
