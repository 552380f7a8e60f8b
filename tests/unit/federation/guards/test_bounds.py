import numpy as np
import pytest

from feddbn.errors import SiteRefused
from feddbn.federation.guards.site_guards import BoundsGuard
from feddbn.federation.programs.statistics import MomentsQuestion
from feddbn.federation.protocol.site import PLAIN, Channel
from feddbn.federation.protocol.task import Task
from feddbn.privacy.fixed_point import decode_fixed, encode_fixed, largest_summand
from support.saying import refused

TASK = Task(MomentsQuestion(n_lags=1, variables=("u", "v")))
MASKED = Channel(masked=True, n_guaranteed=3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays(value):
    for channel in (PLAIN, MASKED):
        with refused(SiteRefused, "moments", code="not-finite"):
            BoundsGuard(3).after(TASK, np.array([1.0, value]), channel)


@pytest.mark.parametrize("n_sites", [3, 10, 200])
def test_a_number_too_large_to_mask_stays_and_the_largest_that_passes_can_be_added_up(n_sites):
    limit = largest_summand(n_sites)
    guard = BoundsGuard(n_sites)
    with refused(SiteRefused, n_sites, code="too-large"):
        guard.after(TASK, np.array([0.0, -limit]), MASKED)
    guard.after(TASK, np.array([limit]), PLAIN)
    largest = guard.after(TASK, np.array([np.nextafter(limit, 0.0)]), MASKED)
    with np.errstate(over="ignore"):
        total = np.sum([encode_fixed(largest, n_sites)] * n_sites, axis=0, dtype=np.uint64)
    np.testing.assert_allclose(decode_fixed(total, n_sites), n_sites * largest)


def test_an_answer_up_to_the_declared_norm_leaves_as_it_is():
    guard = BoundsGuard(3, max_norm=5.0)
    vector = np.array([3.0, -4.0])
    assert guard.after(TASK, vector, MASKED) is vector
    with refused(SiteRefused, "max_norm", 5, code="too-long") as caught:
        guard.after(TASK, vector * 1.001, MASKED)
    assert "5.005" not in str(caught.value)
