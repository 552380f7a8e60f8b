import numpy as np
import pytest

from feddbn.core.statistics.moments import sums_length
from feddbn.federation.guards.study_scope import largest_columns, size_in_words
from feddbn.federation.programs.bootstrap import FLOATS_PER_TASK
from feddbn.federation.programs.survey import SurveyQuestion
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Task
from support.sites import memory_site

NAMES = tuple(f"x{k}" for k in range(10))


def study(parameters, **more):
    given = {"name": "s", "method": "oneshot", "variables": NAMES, "sites": ("a", "b", "c")}
    return Study(**given, parameters={"n_lags": 1, **parameters}, **more)


@pytest.mark.parametrize(
    ("parameters", "columns"),
    [
        ({}, 20),
        ({"features": "spline"}, 140),
        ({"features": "quadratic"}, 40),
        ({"features": "quadratic", "interactions": True}, 85),
        ({"features": "spline", "n_lags": "auto", "max_lags": 2}, 210),
    ],
)
def test_columns_are_lines_curves_and_products(parameters, columns):
    assert largest_columns(study(parameters)) == columns


def test_resamples_are_counted_as_they_are_asked_for():
    one = size_in_words(study({"features": "spline"}))
    assert f"{sums_length(140):,} numbers" in one
    assert "140 columns" in one
    few = size_in_words(study({"features": "spline"}, goal="confidence", confidence={"replicates": 4}))
    assert f"{5 * sums_length(140):,} numbers" in few
    assert "5 resamples" in few
    many = size_in_words(study({"features": "spline"}, goal="confidence", confidence={"replicates": 5000}))
    at_once = FLOATS_PER_TASK // sums_length(140)
    assert f"{at_once} resamples" in many


def test_a_choice_of_lags_is_as_large_as_its_largest():
    chosen = study({}, goal="select", select={"grid": {"n_lags": [1, 3]}})
    assert largest_columns(chosen.model_copy(update={"method": "fdbnl"})) == 40


def test_a_check_is_as_large_as_its_survey():
    """Which is what a site answers: one row of numbers, whatever the columns of the method."""
    rows = np.random.default_rng(0).normal(size=(80, 10))
    site = Site("a", memory_site(rows))
    for sites, profiles in ((("a", "b", "c"), False), (("a", "b", "c", "d"), True)):
        plan = study({}, goal="check").model_copy(update={"sites": sites})
        answer = site.answer(Task(SurveyQuestion(n_lags=1, variables=NAMES, profiles=profiles)))
        assert f"{len(answer):,} numbers" in size_in_words(plan)
