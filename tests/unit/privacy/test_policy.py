import pytest

from feddbn.errors import FileError, SiteRefused
from feddbn.privacy.policy import SitePolicy, policy_from_toml


def test_default_policy_is_strict():
    policy = policy_from_toml("")
    assert policy.require_masking
    assert policy.min_sites == 3
    assert policy.features == ("linear",)
    with pytest.raises(SiteRefused, match="only under secure aggregation"):
        policy.check_task("moments", [], 1, masked=False)
    policy.check_task("moments", ["linear"], 1, masked=True)


def test_policy_file_changes_what_it_names():
    policy = policy_from_toml('tasks = ["moments"]\nmin_sites = 5\nmax_epsilon = 4.0\nunit = "row"\n')
    assert (policy.tasks, policy.min_sites, policy.max_epsilon, policy.unit) == (("moments",), 5, 4.0, "row")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("min_sites = 1", "wrong entry 'min_sites': Input should be greater than or equal to 2"),
        ("min_site = 4", "wrong entry 'min_site': Extra inputs are not permitted"),
        ('unit = "person"', "wrong entry 'unit'"),
        ("tasks = [", "the policy is not valid TOML"),
        ("max_epsilon = 0", "wrong entry 'max_epsilon'"),
    ],
)
def test_policy_that_is_not_understood_is_an_error(text, sentence):
    with pytest.raises(FileError, match=sentence):
        policy_from_toml(text)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("rows", [], 1, True),
            "does not allow the task 'rows'; its policy lists tasks = survey, spikes, pairs, moments, ",
        ),
        (
            ("moments", ["squares"], 1, True),
            "does not allow the feature map 'squares'; its policy lists features = linear",
        ),
        (("moments", [], 301, True), "answers task 'moments' at most 300 times in a run"),
        (("moments", [], 1, False), "answers task 'moments' only under secure aggregation"),
    ],
)
def test_everything_else_is_refused_with_a_sentence(arguments, sentence):
    with pytest.raises(SiteRefused, match=sentence):
        SitePolicy().check_task(*arguments)


def test_empty_list_allows_nothing_and_says_so():
    with pytest.raises(SiteRefused, match="its policy lists tasks = none"):
        SitePolicy(tasks=()).check_task("moments", [], 1, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("Lasso", 5, True, None), "does not allow the method 'Lasso'"),
        (("FDBNL", 2, True, None), "over 2 sites; this site joins sums of at least 3"),
        (("FDBNL", 5, False, None), "takes part only under secure aggregation"),
    ],
)
def test_study_is_refused_before_it_begins(arguments, sentence):
    with pytest.raises(SiteRefused, match=sentence):
        SitePolicy().check_study(*arguments)


def test_study_must_announce_an_epsilon_within_the_budget():
    policy = SitePolicy(max_epsilon=2.0)
    policy.check_study("FDBNL", 3, True, 2.0)
    with pytest.raises(
        SiteRefused, match="announces no noise at all; this site allows epsilon up to 2 for each recording"
    ):
        policy.check_study("FDBNL", 3, True, None)
    with pytest.raises(SiteRefused, match=r"announces epsilon = 2\.5; this site allows epsilon up to 2"):
        policy.check_study("FDBNL", 3, True, 2.5)
    policy.check_study("FDBNL", 3, True, 2.0, "recording")
    with pytest.raises(SiteRefused, match="epsilon for each row; this site's budget is for each recording"):
        policy.check_study("FDBNL", 3, True, 2.0, "row")
    SitePolicy().check_study("FDBNL", 3, True, 2.0, "row")
    SitePolicy().check_study("FDBNL", 3, True, None)
    SitePolicy(require_masking=False).check_study("FDBNL", 3, False, None)


def test_a_policy_of_before_allows_no_task_that_came_later():
    for task in ("survey", "spikes", "pairs", "residual-checks"):
        with pytest.raises(SiteRefused, match=f"does not allow the task '{task}'"):
            SitePolicy(tasks=("moments", "residual-features")).check_task(task, [], 1, True)
        SitePolicy().check_task(task, [], 1, True)


def test_comparing_sites_has_to_be_allowed_by_name():
    """Whoever makes up the sums to compare with decides who answers the next question with zeros."""
    with pytest.raises(SiteRefused, match="does not allow the task 'agreement'"):
        SitePolicy().check_task("agreement", [], 1, True)
    SitePolicy(tasks=(*SitePolicy().tasks, "agreement")).check_task("agreement", [], 1, True)
