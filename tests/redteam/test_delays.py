"""Products of readings by the time between them: no bin, no difference of two sums and no choice of units shows a reading."""

from dataclasses import replace

import numpy as np
import pytest

from feddbn.core.designs.lags import lag_sums
from feddbn.core.designs.recordings import Block
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.errors import SiteRefused
from feddbn.federation.guards.disclosure import LagGuard
from feddbn.federation.guards.row_set_guard import RowSetGuard
from feddbn.federation.guards.study_plan import Asked
from feddbn.federation.protocol.site import Channel, Here, site_task
from feddbn.federation.protocol.task import Scope, Task
from feddbn.federation.sums.lags import LagCountsQuestion, LagsQuestion, SummedLags, lag_design
from feddbn.privacy.policy import SitePolicy
from support.saying import refused
from support.sites import RowsInMemory

NAMES = ("a", "b", "c")
LEAST = 10
POLICY = SitePolicy(min_rows=LEAST)
STUDY = {"step": "1h", "shortest": 0.25, "longest": 8}


def readings(rng, n=150):
    """A day of readings; b is nearly always read with a, c by itself."""
    times = np.sort(rng.uniform(0, 24, n))
    values = np.array([80, 120, 37]) + rng.normal(size=(n, 3)) * [10, 15, 0.5]
    values[rng.random(n) < 0.3, :2] = np.nan
    values[rng.random(n) < 0.5, 2] = np.nan
    values[np.isnan(values).all(axis=1), 2] = 37.0
    return times - times[0], values


def site_of(*recordings):
    return MemorySite(
        NAMES,
        [
            ArrayRecording(f"r{k}", (Block(values, times=times),))
            for k, (times, values) in enumerate(recordings)
        ],
        step="1h",
    )


def question(variables=NAMES, kind=LagsQuestion, **more):
    design = lag_design(variables, **STUDY)
    bins = {"clock": design.clock, "first": design.first, "n_bins": design.n_bins}
    return kind(**({"n_lags": 0, "variables": variables} | bins | more))


def told(data, what, *guards):
    """What a site answers behind some guards."""
    task = Task(what)
    here = Here("s", data, {})
    for guard in guards:
        guard.before(task, {}, Channel(masked=True))
        here, task = guard.reads(here, task)
    vector = site_task(what.name).answer(here, task.question)[1]
    return SummedLags.from_sums(vector, what.lag_design).sums


def few(found, other=None):
    """Bins and pairs of variables that are told, or in which two sums differ, by so few pairs that readings show."""
    counts = found.counts if other is None else np.abs(found.counts - other.counts)
    return (counts > 0.5) & (counts < LEAST - 0.5)


def test_a_seldom_reading_is_in_no_sum():
    """One reading of c has pairs with ten readings of a: count and product give it to whoever knows the mean of a there."""
    times, values = np.arange(0, 12, 0.1), np.random.default_rng(900).normal(size=(120, 3))
    values[:, 2] = np.nan
    values[60, 2] = 5.0
    data = site_of((times, values))
    bare = told(data, question())
    assert bare.counts[-3, 0, 2] >= LEAST
    assert bare.counts[0, 2, 2] == 1
    kept = told(data, question(), LagGuard(POLICY))
    assert not kept.counts[:, 2].any()
    assert not kept.counts[:, :, 2].any()
    assert not kept.products[:, :, 2].any()
    # All that is left rests on enough readings.
    np.testing.assert_array_equal(kept.counts[:, :2, :2], bare.counts[:, :2, :2])


def test_sums_of_readings_by_bin_would_show_one_and_are_not_told():
    """Where b lacks once, what a has beside b and what a has at all differ by one reading."""
    rng = np.random.default_rng(901)
    times, values = np.arange(100.0), rng.normal(size=(100, 3)) + 50
    values[37, 1] = np.nan
    design = lag_design(NAMES, **STUDY)
    bare = lag_sums([(times, values)], design.edges)
    assert bare.later[0, 0, 0] - bare.later[0, 0, 1] == pytest.approx(values[37, 0])
    for guards in ((), (LagGuard(POLICY),)):
        found = told(site_of((times, values)), question(), *guards)
        assert not found.later.any()
        assert not found.earlier.any()


def test_under_masks_more_products_are_told_as_every_sum_has_readings_of_more_sites():
    data, numbers = site_of(readings(np.random.default_rng(903), 40)), []
    for masked in (False, True):
        guard = LagGuard(POLICY)
        guard.before(Task(question()), {}, Channel(masked=masked))
        numbers.append(guard.reads(Here("s", data, {}), Task(question()))[1].question.cells.sum())
    assert 0 < numbers[0] < numbers[1]


@pytest.mark.parametrize("masked", [False, True])
def test_a_site_of_few_readings_tells_no_more_products_than_these_bear(masked):
    """Two readings for each product that is told: of this site, or under masks of as many as are in every sum."""
    rng = np.random.default_rng(902)
    some = np.zeros(question().lag_design.shape)
    some[:5] = 1.0
    for n in (20, 40, 60, 400):
        data = site_of(readings(rng, n))
        n_readings = sum((~np.isnan(b.values)).sum() for one in data.recordings() for b in one.blocks())
        guard = LagGuard(POLICY)
        guard.before(Task(question()), {}, Channel(masked=masked))

        def cells(what, data=data, guard=guard):
            return guard.reads(Here("s", data, {}), Task(what))[1].question

        told = cells(question()).cells
        n_told = told.sum() - np.triu(told[0], 1).sum()
        assert 2 * n_told <= n_readings * (3 if masked else 1)
        assert n < 400 or n_told > 90
        # Asked for in parts they are not more, and the count before says the same.
        np.testing.assert_array_equal(cells(question(cells=some)).cells, told * some)
        counted = cells(question(kind=LagCountsQuestion, least=10))
        np.testing.assert_array_equal(counted.n_readings(data) >= counted.least, told > 0)


@pytest.mark.parametrize("guarded", [False, True])
def test_one_more_reading_does_not_show_in_the_difference_of_two_versions(guarded):
    rng = np.random.default_rng(903)
    old = [readings(rng) for _ in range(6)]
    times, values = old[2]
    new = [*old[:2], (np.append(times, times[-1] + 1.0), np.vstack([values, [200.0, 200.0, 40.0]])), *old[3:]]
    before, after = site_of(*old), site_of(*new)
    book = RowsInMemory(before)
    guards = lambda: [RowSetGuard(book, LEAST), LagGuard(POLICY)] if guarded else []  # noqa: E731
    one = told(before, question(), *guards())
    book.show(after, "later")
    two = told(after, question(), *guards())
    assert few(two, one).any() != guarded
    if guarded:
        np.testing.assert_array_equal(one.counts, two.counts)


@pytest.mark.parametrize("guarded", [False, True])
def test_many_new_rows_may_have_few_readings_in_a_bin(guarded):
    """A recording more: enough rows, but c only three times in it. The bins of c then differ by a few pairs."""
    rng = np.random.default_rng(904)
    old = [readings(rng) for _ in range(6)]
    times, values = readings(rng, 60)
    values[:, :2] = np.where(np.isnan(values[:, :2]), 80.0, values[:, :2])
    values[:, 2] = np.nan
    values[[5, 20, 40], 2] = 39.0
    before, after = site_of(*old), site_of(*old, (times, values))
    book = RowsInMemory(before)
    guard = RowSetGuard(book, LEAST)
    guards = [guard, LagGuard(POLICY)] if guarded else []
    one = told(before, question(), *guards)
    book.show(after, "later")
    two = told(after, question(), *([RowSetGuard(book, LEAST), LagGuard(POLICY)] if guarded else []))
    differ = few(two, one)
    if not guarded:
        assert differ[:, 2].any()
        assert differ[:, :, 2].any()
        return
    assert not (differ & (two.counts > 0)).any()
    # What many new readings are in is told, of all of them.
    assert (two.counts[:, :2, :2] > one.counts[:, :2, :2]).any()
    # The same question again has the same answer, also after others.
    again = told(after, question(), RowSetGuard(book, LEAST), LagGuard(POLICY))
    np.testing.assert_array_equal(again.products, two.products)


def test_other_times_or_values_of_a_few_readings_are_no_other_sum():
    rng = np.random.default_rng(905)
    old = [readings(rng) for _ in range(6)]
    before = site_of(*old)
    for change in ("time", "value", "gone"):
        book = RowsInMemory(before)
        told(before, question(), RowSetGuard(book, LEAST), LagGuard(POLICY))
        times, values = old[2][0].copy(), old[2][1].copy()
        if change == "time":
            times[40] = (times[40] + times[41]) / 2
        elif change == "value":
            values[40, ~np.isnan(values[40])] += 1
        else:
            times, values = np.delete(times, 40), np.delete(values, 40, axis=0)
        book.show(site_of(*old[:2], (times, values), *old[3:]), change)
        with refused(SiteRefused, code="readings-gone"):
            told(book.data, question(), RowSetGuard(book, LEAST), LagGuard(POLICY))


@pytest.mark.parametrize("guarded", [False, True])
def test_bounded_readings_and_those_as_they_are_do_not_differ_by_a_few(guarded):
    rng = np.random.default_rng(906)
    recordings = [readings(rng) for _ in range(6)]
    recordings[1][1][50, 2] = 60.0
    data = site_of(*recordings)
    book = RowsInMemory(data)
    guards = lambda: [RowSetGuard(book, LEAST), LagGuard(POLICY)] if guarded else []  # noqa: E731
    plain, bounded = (told(data, question(robust=robust), *guards()) for robust in ("none", "site"))
    differ = np.abs(plain.products - bounded.products) > 1e-6
    same = plain.counts == bounded.counts
    # Without guards the difference of a bin with few pairs of that reading is their products.
    assert (differ & same)[1:, 2, 0].any() != guarded
    if guarded:
        told_in_both = (plain.counts > 0) & (bounded.counts > 0)
        n = np.abs(plain.counts - bounded.counts)
        assert not (told_in_both & (n > 0) & (n < LEAST)).any()


def test_other_variables_of_the_same_readings_are_in_the_same_sums():
    rng = np.random.default_rng(907)
    data = site_of(*(readings(rng) for _ in range(6)))
    book = RowsInMemory(data)
    whole = told(data, question(), RowSetGuard(book, LEAST), LagGuard(POLICY))
    some = site_of_two(data)
    part = told(some, question(NAMES[:2]), RowSetGuard(book, LEAST), LagGuard(POLICY))
    both = (part.counts > 0) & (whole.counts[:, :2, :2] > 0)
    n = np.abs(part.counts - whole.counts[:, :2, :2])
    assert not (both & (n > 0) & (n < LEAST)).any()


def site_of_two(data):
    from feddbn.data.memory import AlignedSite

    return AlignedSite(NAMES[:2], data)


def scope(unit=None, **more):
    return Scope(variables=NAMES, lags=(0,), parameters={**STUDY, **more}, unit=unit)


def test_bins_are_the_studys_and_nobody_says_where_they_begin():
    what = question()
    what.check_scope(scope())
    for other in (replace(what, first=what.first - 1), replace(what, n_bins=what.n_bins + 1)):
        with refused(SiteRefused, code="other-bins"):
            other.check_scope(scope())
    assert not {"edges", "step"} & set(what.params)
    # Another step gives other bins of the same ladder, or the same ones: none is between two of them.
    for step in ("1h", "61min", "59min", "50min", "3h"):
        edges = lag_design(NAMES, step, 0.25, 8).edges
        ladder = 4 * np.log2(edges) + 1
        np.testing.assert_allclose(ladder, np.round(ladder), atol=1e-9)
        assert np.all(np.round(ladder) % 2 == 0)


def test_a_run_tells_one_choice_of_pairs_and_counts_by_one_number():
    asked, what = Asked(), question()
    asked.check(Task(what))
    cells = np.ones(what.lag_design.shape)
    with refused(SiteRefused, code="changed-in-run"):
        asked.check(Task(replace(what, cells=cells)))
    counts = question(kind=LagCountsQuestion, least=10)
    counts.check_scope(scope())
    with refused(SiteRefused, code="not-in-study"):
        replace(counts, least=9).check_scope(scope())


def test_policies_of_before_do_not_tell_products_by_delay():
    assert not SitePolicy().allows("gram.lags")
    assert SitePolicy().allows("counts.lags")
    assert SitePolicy(tasks=("gram.*",)).allows("gram.lags")
