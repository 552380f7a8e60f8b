import numpy as np
import pytest

from feddbn.core.designs.recordings import Block
from feddbn.data import Recording
from feddbn.errors import SiteRefused
from feddbn.federation.guards.disclosure import DisclosureGuard, counted_rows
from feddbn.federation.guards.row_set_guard import RowSetGuard
from feddbn.federation.guards.study_plan import Asked
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.privacy.policy import SitePolicy
from support.questions import give_values, make_question
from support.saying import refused
from support.sites import RowsInMemory, memory_site

NAMES = ("a", "b")


def site_of(values, policy=None, **study):
    recordings = values if isinstance(values, list) else [values]
    data, policy = memory_site(*recordings, names=NAMES), policy or SitePolicy()
    plan = Study(name="s", method="oneshot", variables=NAMES, sites=("one", "two", "three"), **study)
    return Site(
        "one", data, (RowSetGuard(RowsInMemory(data), policy.min_rows), DisclosureGuard(plan, policy))
    )


def moments(n_lags=0, **more):
    return Task(GramQuestion(n_lags=n_lags, variables=NAMES, **more))


def test_rows_are_counted_as_lagged_rows_that_no_gap_interrupts():
    rng = np.random.default_rng(0)
    for n_lags in (0, 1, 3):
        values = rng.normal(size=(40, 2))
        values[rng.random(values.shape) < 0.1] = np.nan
        blocks = (Block(values[:25]), Block(values[25:30]), Block(values[30:], starts_segment=False))
        segments = (values[:25], values[25:])
        windows = [part[t - n_lags : t + 1] for part in segments for t in range(n_lags, len(part))]
        complete = sum(not np.isnan(window).any() for window in windows)
        found = counted_rows([Recording("r", blocks)], n_lags)
        assert found == (complete, len(windows) - complete)


@pytest.mark.parametrize(
    ("n", "policy", "code"),
    [
        (9, {}, "few-rows"),
        (12, {"min_rows_per_parameter": 7.0}, "few-rows-per-parameter"),
        (12, {"max_share": 0.2}, "large-share"),
    ],
)
def test_small_or_large_sites_are_not_shown(n, policy, code):
    rows = np.random.default_rng(0).normal(size=(n, 2))
    with refused(SiteRefused, code=code):
        site_of(rows, SitePolicy(**policy), rows=50).answer(moments())


@pytest.mark.parametrize(("n", "is_large"), [(85, False), (95, True)])
def test_a_share_is_of_weighted_rows_where_sums_told_their_number(monkeypatch, n, is_large):
    monkeypatch.setattr(GramQuestion, "told_rows", 100 / 1.09)
    site = site_of(np.random.default_rng(0).normal(size=(n, 2)), privacy={"secure_aggregation": True})
    if is_large:
        with refused(SiteRefused, code="large-share"):
            site.answer(moments())
        return
    assert site.answer(moments())[0] == n


def test_the_rule_about_parameters_counts_lags():
    rows = np.random.default_rng(0).normal(size=(20, 2))
    site_of(rows).answer(moments(2))
    with refused(SiteRefused, 17, 8, code="few-rows-per-parameter"):
        site_of(rows).answer(moments(3))


def test_a_block_that_is_held_out_has_enough_rows_too():
    """Sums over the rows before the block and over those up to its end differ by the block."""
    rows = np.random.default_rng(0).normal(size=(60, 2))
    with refused(SiteRefused, 9, code="few-rows"):
        site_of(rows).answer(moments(fold=(0, 2, 300)))
    rows = np.random.default_rng(0).normal(size=(70, 2))
    assert site_of(rows).answer(moments(fold=(0, 2, 300)))[0] == 49


def test_few_incomplete_rows_are_left_out_and_many_are_used():
    rng = np.random.default_rng(1)
    model = np.vstack([np.zeros(2), np.eye(2)])
    for n_empty, counted in ((9, 91), (10, 100)):
        rows = rng.normal(size=(100, 2))
        rows[10 : 10 + n_empty, 0] = np.nan
        answer = site_of(rows).answer(moments(row_model=model))
        assert answer[0] == counted


def test_what_was_asked_is_written_down_before_it_is_answered():
    written = []
    asked = Asked(write=lambda *one: written.append(one))
    asked.check(moments())
    n = len(written)
    asked.check(moments())
    assert len(written) == n > 0
    again = Asked(written)
    again.check(moments())
    with refused(SiteRefused, code="changed-in-run"):
        again.check(moments(robust="site"))


def test_a_question_that_does_not_say_which_rows_it_rests_on_is_refused():
    kind = make_question("reads-and-does-not-say", give_values)
    site = site_of(np.ones((50, 2)))
    with refused(SiteRefused, code="view-not-said"):
        Site("one", site.data, site.guards[1:]).answer(Task(kind()))


@pytest.mark.parametrize(("n_different", "is_told"), [(0, True), (1, False), (9, False), (10, True)])
def test_a_column_differs_in_no_row_or_in_enough(n_different, is_told):
    rows = np.random.default_rng(0).normal(size=(100, 2))
    rows[:, 1] = 5.0
    rows[20 : 20 + n_different, 1] = 6.0
    if is_told:
        assert site_of(rows).answer(moments())[0] == 100
        return
    with refused(SiteRefused, n_different, code="few-rows-in-view"):
        site_of(rows).answer(moments())


def test_a_column_that_recordings_have_constant_differs_within_none_of_them():
    """About the means of recordings only the one row is left."""
    rows = [np.c_[np.random.default_rng(k).normal(size=50), np.full(50, float(k))] for k in range(3)]
    assert site_of(rows).answer(moments())[0] == 150
    rows[1][7, 1] += 1.0
    with refused(SiteRefused, 1, code="few-rows-in-view"):
        site_of(rows).answer(moments())
