import numpy as np
import pytest

from feddbn.errors import SiteRefused
from feddbn.federation.guards.site_guards import AuditGuard, BoundsGuard, PolicyGuard
from feddbn.federation.protocol.site import PLAIN, Channel, Site
from feddbn.federation.protocol.task import Task, texts
from feddbn.federation.sums.gram import GramQuestion
from feddbn.privacy.audit import parse_entries, verify_chain
from feddbn.privacy.integers import decode_fixed, encode_fixed, largest_summand
from feddbn.privacy.policy import SitePolicy
from support.questions import Values, make_question
from support.saying import refused

MASKED = Channel(masked=True)
Guarded = make_question(
    "guarded", lambda here, question: ({"n": np.ones(1)}, here.data.values), features=texts(default=())
)
Unheard = make_question("unheard-of")
POLICY = SitePolicy(tasks=("guarded",), max_rounds=2)


def _site(policy=POLICY, n_sites=5):
    lines = []
    audit = AuditGuard("clinic", lines.append, lambda: "2024-01-01T00:00:00+00:00")
    return Site("clinic", Values(np.array([3.0, 4.0])), (PolicyGuard(policy, n_sites), audit)), lines


def test_every_answer_is_written_before_it_leaves():
    site, lines = _site()
    site.answer(Task(Guarded()), MASKED)
    (entry,) = parse_entries(lines)
    assert (entry.event, entry.task, entry.asked_by, entry.protection) == (
        "sent",
        "guarded",
        "server",
        "masked",
    )
    assert (entry.length, entry.norm, entry.n_bytes, entry.epsilon) == (2, 5.0, 16, None)


def test_refusal_is_written_and_leaves_the_state_alone():
    site, lines = _site()
    with refused(SiteRefused, code="masking-required"):
        site.answer(Task(Guarded()), PLAIN)
    (entry,) = parse_entries(lines)
    assert (entry.event, entry.length, entry.code) == ("refused", 0, "masking-required")
    assert site.state == {}


def test_unknown_task_is_written_as_refused():
    site, lines = _site()
    with refused(Exception, code="unknown-task"):
        site.answer(Task(Unheard()), MASKED)
    assert parse_entries(lines)[0].event == "refused"


def test_answer_that_cannot_be_logged_does_not_leave():
    def full(line):
        raise OSError("disk full")

    site = Site("clinic", Values(np.ones(1)), (AuditGuard("clinic", full, lambda: "now"),))
    with pytest.raises(OSError, match="disk full"):
        site.answer(Task(Guarded()))
    assert site.state == {}


def test_a_log_that_could_not_be_written_once_goes_on_without_a_gap():
    lines, is_full = [], [True]

    def write(line):
        if is_full.pop():
            raise OSError("disk full")
        is_full.append(False)
        lines.append(line)

    site = Site("clinic", Values(np.ones(1)), (AuditGuard("clinic", write, lambda: "now"),))
    with pytest.raises(OSError, match="disk full"):
        site.answer(Task(Guarded()))
    is_full.append(False)
    for _ in range(2):
        site.answer(Task(Guarded()))
    assert verify_chain(lines).problem is None
    assert len(lines) == 2


def test_rounds_are_counted_and_survive_a_restart():
    site, lines = _site()
    for _ in range(2):
        site.answer(Task(Guarded()), MASKED)
    with refused(SiteRefused, 2, code="too-many-rounds"):
        site.answer(Task(Guarded()), MASKED)
    assert verify_chain(lines).n_entries == 3
    again = Site("clinic", Values(np.ones(1)), (PolicyGuard(POLICY, 5, answered={"guarded": 2}),))
    with refused(SiteRefused, 2, code="too-many-rounds"):
        again.answer(Task(Guarded()), MASKED)


@pytest.mark.parametrize(("n_sites", "participants"), [(2, None), (5, ("a", "b")), (5, ("a", "a", "b"))])
def test_sum_over_too_few_sites_is_refused(n_sites, participants):
    site, _ = _site(n_sites=n_sites)
    with refused(SiteRefused, 2, 3, code="few-sites"):
        site.answer(Task(Guarded(), participants), MASKED)


@pytest.mark.parametrize("features", [("squares",), ("linear", "squares")])
def test_feature_maps_are_checked(features):
    site, _ = _site()
    with refused(SiteRefused, "squares", code="features-not-allowed"):
        site.answer(Task(Guarded(features=features)), MASKED)
    site.answer(Task(Guarded(features=("linear",))), MASKED)
    site.answer(Task(Guarded()), MASKED)


MOMENTS = Task(GramQuestion(n_lags=1, variables=("u", "v")))
OF_THREE = Channel(masked=True, n_guaranteed=3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays(value):
    for channel in (PLAIN, OF_THREE):
        with refused(SiteRefused, "gram.rows", code="not-finite"):
            BoundsGuard(3).after(MOMENTS, np.array([1.0, value]), channel)


@pytest.mark.parametrize("n_sites", [3, 10, 200])
def test_a_number_too_large_to_mask_stays_and_the_largest_that_passes_can_be_added_up(n_sites):
    limit = largest_summand(n_sites)
    guard = BoundsGuard(n_sites)
    with refused(SiteRefused, n_sites, code="too-large"):
        guard.after(MOMENTS, np.array([0.0, -limit]), OF_THREE)
    guard.after(MOMENTS, np.array([limit]), PLAIN)
    largest = guard.after(MOMENTS, np.array([np.nextafter(limit, 0.0)]), OF_THREE)
    with np.errstate(over="ignore"):
        total = np.sum([encode_fixed(largest, n_sites)] * n_sites, axis=0, dtype=np.uint64)
    np.testing.assert_allclose(decode_fixed(total, n_sites), n_sites * largest)


def test_an_answer_up_to_the_declared_norm_leaves_as_it_is():
    guard = BoundsGuard(3, max_norm=5.0)
    vector = np.array([3.0, -4.0])
    assert guard.after(MOMENTS, vector, OF_THREE) is vector
    with refused(SiteRefused, "max_norm", 5, code="too-long") as caught:
        guard.after(MOMENTS, vector * 1.001, OF_THREE)
    assert "5.005" not in str(caught.value)
