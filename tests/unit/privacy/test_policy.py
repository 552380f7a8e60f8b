import pytest

from feddbn.errors import FileError, SiteRefused
from feddbn.privacy.policy import SitePolicy, policy_from_toml
from support.saying import refused


def test_default_policy_is_strict():
    policy = policy_from_toml("")
    assert policy.require_masking
    assert policy.min_sites == 3
    assert policy.features == ("linear",)
    with refused(SiteRefused, code="masking-required"):
        policy.check_task("gram.rows", [], 1, masked=False)
    policy.check_task("gram.rows", ["linear"], 1, masked=True)


def test_policy_file_changes_what_it_names():
    policy = policy_from_toml('tasks = ["gram.rows"]\nmin_sites = 5\nmax_epsilon = 4.0\nunit = "row"\n')
    assert (policy.tasks, policy.min_sites, policy.max_epsilon, policy.unit) == (
        ("gram.rows",),
        5,
        4.0,
        "row",
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("min_sites = 1", "min_sites:"),
        ("min_site = 4", "min_site:"),
        ('unit = "person"', "unit:"),
        ("tasks = [", "TOML"),
        ("max_epsilon = 0", "max_epsilon:"),
    ],
)
def test_policy_that_is_not_understood_is_an_error(text, name):
    with refused(FileError, name):
        policy_from_toml(text)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("rows", [], 1, True), "tasks-not-allowed"),
        (("gram.rows", ["squares"], 1, True), "features-not-allowed"),
        (("gram.rows", [], 301, True), "too-many-rounds"),
        (("gram.rows", [], 1, False), "masking-required"),
    ],
)
def test_everything_else_is_refused_with_a_sentence(arguments, code):
    with refused(SiteRefused, code=code):
        SitePolicy().check_task(*arguments)


def test_empty_list_allows_nothing_and_says_so():
    with refused(SiteRefused, "tasks = none", code="tasks-not-allowed"):
        SitePolicy(tasks=()).check_task("gram.rows", [], 1, True)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("Lasso", 5, True, None), "methods-not-allowed"),
        (("FDBNL", 2, True, None), "few-sites"),
        (("FDBNL", 5, False, None), "masking-required"),
    ],
)
def test_study_is_refused_before_it_begins(arguments, code):
    with refused(SiteRefused, code=code):
        SitePolicy().check_study(*arguments)


def test_study_must_announce_an_epsilon_within_the_budget():
    policy = SitePolicy(max_epsilon=2.0)
    policy.check_study("FDBNL", 3, True, 2.0)
    with refused(SiteRefused, 2, code="epsilon-not-allowed"):
        policy.check_study("FDBNL", 3, True, None)
    with refused(SiteRefused, "epsilon = 2.5", 2, code="epsilon-not-allowed"):
        policy.check_study("FDBNL", 3, True, 2.5)
    policy.check_study("FDBNL", 3, True, 2.0, "recording")
    with refused(SiteRefused, code="other-unit"):
        policy.check_study("FDBNL", 3, True, 2.0, "row")
    SitePolicy().check_study("FDBNL", 3, True, 2.0, "row")
    SitePolicy().check_study("FDBNL", 3, True, None)
    SitePolicy(require_masking=False).check_study("FDBNL", 3, False, None)


def test_a_policy_allows_no_task_that_it_does_not_list():
    for task in ("survey.first", "gram.pairs", "residuals.checks"):
        with refused(SiteRefused, task, code="tasks-not-allowed"):
            SitePolicy(tasks=("gram.rows", "residuals.shapes")).check_task(task, [], 1, True)
        SitePolicy().check_task(task, [], 1, True)


def test_far_cells_are_bounded_only_where_the_policy_says_so():
    SitePolicy(transformations=("means", "robust")).check_transformations(["robust"])
    with refused(SiteRefused, "robust", code="transformations-not-allowed"):
        SitePolicy(transformations=("means",)).check_transformations(["robust"])


def test_comparing_sites_has_to_be_allowed_by_name():
    """Whoever makes up the sums to compare with decides who answers the next question with zeros."""
    with refused(SiteRefused, "agree", code="tasks-not-allowed"):
        SitePolicy().check_task("agree", [], 1, True)
    SitePolicy(tasks=(*SitePolicy().tasks, "agree")).check_task("agree", [], 1, True)
