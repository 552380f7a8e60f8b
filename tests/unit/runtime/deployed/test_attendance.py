import itertools

import pytest

from feddbn.errors import NotEnoughSites, SiteRefused
from feddbn.federation.protocol.study import Attendance
from feddbn.runtime.deployed.coordinator import MAX_BACKOFF, Roll
from support.saying import refused

SITES = ("a", "b", "c")


def patient(min_sites=1):
    return Roll(Attendance(when_missing="continue", min_sites=min_sites))


def test_a_site_that_stays_silent_is_asked_ever_more_rarely_and_at_once_again_when_it_returns():
    roll = patient()
    asked = []
    for seq in range(60):
        awake = roll.awake(SITES, seq)
        if "c" in awake:
            asked.append(seq)
        roll.note(("a", "b"), [site for site in awake if site == "c"], seq)
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert pauses[:4] == [1, 3, 5, 9]
    assert max(pauses) == MAX_BACKOFF + 1
    roll.note(SITES, (), asked[-1])
    assert roll.awake(SITES, asked[-1] + 1) == list(SITES)


def test_everybody_is_asked_when_those_awake_are_too_few_or_all_must_be_there():
    for roll in (patient(min_sites=3), Roll(Attendance(when_missing="wait"))):
        for seq in range(3):
            roll.note(("a", "b"), ("c",), seq)
        assert roll.awake(SITES, 3) == list(SITES)


def test_too_few_sites_are_named_with_their_own_reasons():
    roll = patient(min_sites=2)
    roll.require(("a", "b"), SITES, "task 3", {})
    with refused(NotEnoughSites, "task 3", "1 of the 2", "no.", code="too-few-sites") as error:
        roll.require(
            ("a",), SITES, "task 3", {"a": SiteRefused("present."), "c": SiteRefused("no.", code="tired")}
        )
    assert error.value.values == {"missing": ("b", "c"), "reasons": {"c": "tired"}}
    with refused(NotEnoughSites, "task 4", code="too-few-sites"):
        roll.require((), (), "task 4", {})


@pytest.mark.parametrize(
    ("rule", "insists", "patience_s"), [("wait", True, 7.0), ("continue", False, 0.0), ("abort", True, 0.0)]
)
def test_only_waiting_has_patience_and_only_going_on_does_without(rule, insists, patience_s):
    roll = Roll(Attendance(when_missing=rule, max_wait_s=7.0))
    assert (roll.insists, roll.patience_s) == (insists, patience_s)
