"""Which rows a site leaves out of a question, given those it was asked about before."""

import itertools
import json

import numpy as np
import pytest

from feddbn.core.designs.recordings import Block, site_rows
from feddbn.data import Recording, Site
from feddbn.data.site import with_columns
from feddbn.errors import SiteRefused
from feddbn.federation.guards import row_set_guard
from feddbn.federation.guards.row_set_guard import RowSetGuard
from feddbn.federation.protocol.site import Here
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.survey import SurveyQuestion
from support.saying import refused
from support.sites import RowsInMemory

LEAST, N = 6, 80
NAMES = ("x", "y", "z", "w")


@pytest.fixture
def site():
    x = np.random.default_rng(0).normal(size=(2, N, 4))
    x[0, 10, 2] = x[0, 30:33, 3] = x[1, 50, 2] = np.nan
    x[1, 20:40, 3] = np.nan
    return Site(NAMES, [Recording(name, (Block(part),)) for name, part in zip("ab", x, strict=True)])


def asked(book, site, names, n_lags=1, told=None, **more):
    """The rows that a question is about, of those that are offered to it."""
    guard = RowSetGuard(book, LEAST, lambda note: None if told is None else told.append(note))
    question = GramQuestion(n_lags=n_lags, variables=names, **more)
    here, _ = guard.reads(Here("s", with_columns(site, names), {}), Task(question))
    rows = site_rows(here.data, book.order())
    return rows.lagged(rows.complete, n_lags)


def fewest(sets):
    every = np.unique(np.concatenate(sets))
    table = np.array([np.isin(every, one) for one in sets], dtype=int)
    sizes = (np.count_nonzero(np.array(c) @ table) for c in itertools.product((-1, 0, 1), repeat=len(sets)))
    return min(size for size in sizes if size)


@pytest.mark.parametrize("n_lags", [0, 1, 3])
@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::5])
def test_no_combination_of_four_choices_of_variables_is_about_few_rows(site, order, n_lags):
    choices = [("x", "y"), ("x", "y", "z"), ("x", "y", "w"), NAMES]
    book, raw = RowsInMemory(site), []
    for place in order:
        rows = site_rows(with_columns(site, choices[place]), RowsInMemory(site).order())
        raw.append(rows.lagged(rows.complete, n_lags))
    found = [asked(book, site, choices[place], n_lags) for place in order]
    # Without the guard it is; the guard leaves few rows out.
    assert fewest(raw) < LEAST * (n_lags + 1)
    assert fewest(found) >= LEAST
    for whole, left in zip(raw, found, strict=True):
        assert set(left) <= set(whole)
        assert len(left) >= len(whole) - 3 * (LEAST + n_lags)


def test_a_site_alone_is_asked_about_all_its_rows_and_again_about_the_same(site):
    book, told = RowsInMemory(site), []
    names = ("x", "y", "z")
    rows = site_rows(with_columns(site, names), book.order())
    first = asked(book, site, names, told=told)
    np.testing.assert_array_equal(first, rows.lagged(rows.complete, 1))
    assert told == []
    second = asked(book, site, ("x", "y"), told=told)
    assert [(note.code, note.values["n_lags"]) for note in told] == [("rows-left-out", 1)]
    n_kept = len(book.kept)
    np.testing.assert_array_equal(asked(book, site, names), first)
    np.testing.assert_array_equal(asked(book, site, ("x", "y")), second)
    assert len(book.kept) == n_kept


def test_rows_with_empty_cells_count_as_rows_with_any_cell(site):
    """A model that is made up shows the rows that it fills in, so they are held against earlier sums, too."""
    book = RowsInMemory(site)
    asked(book, site, ("x", "z"))
    model = np.vstack([np.zeros(4), np.eye(4)])
    guard = RowSetGuard(book, LEAST)
    question = GramQuestion(n_lags=1, variables=("x", "w"), row_model=model)
    guard.reads(Here("s", with_columns(site, ("x", "w")), {}), Task(question))
    present = book.kept[-1].present
    assert fewest([book.kept[0].rows, present]) >= LEAST
    # The two rows that only the first question lacks are not filled in.
    assert not np.isin([10, N + 50], present).any()


def cells_of(book, site, names=NAMES, n_lags=1, **more):
    """What is in the cells that count, as lagged rows (n, q): 0 nothing, 1 what was recorded, else what takes its place."""
    question = GramQuestion(n_lags=n_lags, variables=names, **more)
    RowSetGuard(book, LEAST).reads(Here("s", with_columns(site, names), {}), Task(question))
    used, n = book.kept[-1], len(book.table().numbers)
    found = np.zeros((n, (n_lags + 1) * len(names)), dtype=np.uint64)
    found[used.rows] = used.lagged_cells(n_lags, names)
    return found


def pairs_that_differ(one, other):
    """(2 q, q) in how many rows each pair of columns has something else in two sums, or is in one alone."""
    a, b, same = ((x > 0).astype(int) for x in (one, other, one * (one == other)))
    return np.concatenate([a.T @ a - same.T @ same, b.T @ b - same.T @ same])


def heavy(seed=3, n_far=3):
    """Rows of which a few are far out, so few that they would show."""
    x = np.random.default_rng(seed).normal(size=(200, 3))
    x[20 : 20 + 40 * n_far : 40, 0] += 30.0
    x[[35, 90], 1] -= 7.0
    return Site(NAMES[:3], [Recording("a", (Block(x),))])


@pytest.mark.parametrize("order", [("none", "site"), ("site", "none")])
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("n_far", [1, 3])
def test_no_pair_of_columns_differs_in_few_rows_with_and_without_robust_rows(order, pairs, n_far):
    data = heavy(n_far=n_far)
    plain, robust = (
        cells_of(RowsInMemory(data), data, NAMES[:3], pairs=pairs, robust=one) for one in ("none", "site")
    )
    few = pairs_that_differ(plain, robust)
    assert ((few > 0) & (few < LEAST)).any()
    book = RowsInMemory(data)
    left = pairs_that_differ(*(cells_of(book, data, NAMES[:3], pairs=pairs, robust=one) for one in order))
    assert left.any()
    assert not ((left > 0) & (left < LEAST)).any()


def test_bounded_cells_have_other_values_where_other_cells_are_empty_and_that_counts():
    """Medians and scales move with the cells: off sums without bounds, the few that were bounded would be left."""
    data = heavy()
    next(iter(data.recordings())).segments[0].values[100:180:5, 0] = -1.0
    asked_for = [{}, {"cell_maps": ("empty_values=-1",)}]
    alone = [cells_of(RowsInMemory(data), data, NAMES[:3], robust="site", **one) for one in asked_for]
    book = RowsInMemory(data)
    found = [cells_of(book, data, NAMES[:3], robust="site", **one) for one in asked_for]
    for (first, second), shows_few in ((alone, True), (found, False)):
        left = pairs_that_differ(first, second)
        assert ((left > 0) & (left < LEAST)).any() == shows_few
        assert left.any()


def test_two_numbers_of_lags_differ_by_enough_rows(site):
    book = RowsInMemory(site)
    sets = [asked(book, site, ("x", "y"), n_lags) for n_lags in (1, 2, 0, 4)]
    assert fewest(sets) >= LEAST
    assert len(sets[0]) == 2 * (N - 1)
    np.testing.assert_array_equal(asked(book, site, ("x", "y"), 2), sets[1])


def grown(site, more, change=lambda x: x):
    """The site with rows at the end of each recording."""
    parts = [one.segments[0].values for one in site.recordings()]
    x = [change(np.vstack([part, rows])) for part, rows in zip(parts, more, strict=True)]
    return Site(NAMES, [Recording(name, (Block(part),)) for name, part in zip("ab", x, strict=True)])


def contents(site, rows):
    """What rows with one lag hold, whichever version of the data they are of."""
    values = [one.segments[0].values[:, :2] for one in site.recordings()]
    return {tuple(values[n // 2**40][n % 2**40 - 1 : n % 2**40 + 1].ravel()) for n in rows.tolist()}


@pytest.mark.parametrize("n_new", [0, 1, 2, 5])
def test_rows_that_came_or_changed_since_are_left_out_until_they_are_enough(site, n_new):
    rng = np.random.default_rng(1)
    book = RowsInMemory(site)
    first = contents(site, asked(book, site, ("x", "y")))
    later = grown(site, rng.normal(size=(2, n_new, 4)))
    book.show(later, "later")
    second = contents(later, asked(book, later, ("x", "y")))
    assert len(second - first) == (2 * n_new if 2 * n_new >= LEAST else 0)
    assert not first - second

    def corrected(x):
        x = x.copy()
        x[40, 0] += 1.0
        return x

    third = grown(later, np.zeros((2, 0, 4)), corrected)
    book.show(third, "third")
    after = contents(third, asked(book, third, ("x", "y")))
    for one in (first, second):
        assert not one ^ after or min(len(one - after) or LEAST, len(after - one) or LEAST) >= LEAST


def test_rows_that_changed_places_are_seen_by_what_is_before_them(site):
    """The same rows in another order: only rows together with those before them differ."""
    book = RowsInMemory(site)
    first = contents(site, asked(book, site, ("x", "y")))

    def swapped(x):
        is_first = x[0, 0] == next(iter(site.recordings())).segments[0].values[0, 0]
        return x[[*range(60), 61, 60, *range(62, N)]] if is_first else x

    later = grown(site, np.zeros((2, 0, 4)), swapped)
    book.show(later, "later")
    second = contents(later, asked(book, later, ("x", "y")))
    assert not second - first
    assert len(first - second) >= LEAST


def test_variables_that_are_offered_no_more_are_asked_for(site):
    book = RowsInMemory(site)
    asked(book, site, ("x", "y"))
    fewer, more = with_columns(site, ("x", "y")), grown(site, np.zeros((2, 0, 4)))
    book.show(more, "the same under another name")
    assert len(asked(book, more, ("x", "y"))) == 2 * (N - 1)
    book.show(fewer, "fewer")
    with refused(SiteRefused, "w, z", code="fewer-variables"):
        asked(book, fewer, ("x", "y"))


def test_looks_are_compared_with_looks_and_what_has_no_rows_is_passed_on(site):
    book = RowsInMemory(site)
    look = Task(SurveyQuestion(n_lags=1, variables=NAMES))
    here, task = RowSetGuard(book, LEAST).reads(Here("s", site, {}), look)
    assert (here.data, task) == (site, look)
    assert [(one.group, one.n_lags) for one in book.kept] == [("look", 0)]
    later = grown(site, np.ones((2, 1, 4)))
    book.show(later, "later")
    here, _ = RowSetGuard(book, LEAST).reads(Here("s", later, {}), look)
    assert len(site_rows(here.data, book.order()).every) - len(here.data.left_out) == 2 * N


def test_folds_leave_and_hold_out_enough_of_what_differs(site):
    gaps = Site(NAMES, [Recording("a", (Block(_with_gap(site)),))])
    book = RowsInMemory(gaps)
    sets = [asked(book, gaps, ("x", "w"))]
    RowSetGuard(book, LEAST).reads(
        Here("s", with_columns(gaps, ("x",)), {}),
        Task(GramQuestion(n_lags=1, variables=("x",), fold=(0, 1, 500))),
    )
    assert fewest([sets[0], book.kept[-1].rows]) >= LEAST


def _with_gap(site):
    x = next(iter(site.recordings())).segments[0].values[:, :4].copy()
    x[:, 3] = 1.0
    x[33:41, 3] = np.nan
    return x


def test_many_different_sets_are_refused(site, monkeypatch):
    monkeypatch.setattr(row_set_guard, "MOST_SETS", 2)
    book = RowsInMemory(site)
    asked(book, site, ("x",))
    asked(book, site, ("x", "y"))
    asked(book, site, ("x",))
    with refused(SiteRefused, 2, code="too-many-row-sets"):
        asked(book, site, ("x", "w"))


def test_cells_that_went_are_refused_where_no_whole_row_can_go_with_them():
    ids, rows = np.arange(4), np.arange(4)
    before = np.array([[True, True], [True, False], [True, False], [True, False]])
    after = np.array([[True, False], [True, False], [True, False], [True, False]])
    with refused(SiteRefused, code="cells-show-rows"):
        row_set_guard._few_pairs(rows, (ids, after), (ids, before), 2, 3)


def test_a_code_that_one_cell_has_leaves_more_rows_out_than_its_own(site):
    book = RowsInMemory(site)
    whole = asked(book, site, ("x", "y"))
    value = next(iter(site.recordings())).blocks()
    cell = float(next(iter(value)).values[50, 0])
    question = GramQuestion(n_lags=1, variables=("x", "y"), cell_maps=(f"empty_values={cell!r}",))
    guard = RowSetGuard(book, LEAST, lambda note: None)
    here, _ = guard.reads(Here("s", with_columns(site, ("x", "y")), {}), Task(question))
    rows = site_rows(question.treated(here.data), book.order())
    found = rows.lagged(rows.complete, 1)
    # By itself the code takes two rows out: that of the cell and the one that has it as a lag.
    alone = site_rows(question.treated(with_columns(site, ("x", "y"))), RowsInMemory(site).order())
    assert len(whole) - len(alone.lagged(alone.complete, 1)) == 2
    assert fewest([whole, found]) >= LEAST


def test_codes_that_most_cells_have_are_refused():
    site = Site(("x",), [Recording("a", (Block(np.repeat([[0.0], [1.0]], [70, 10], axis=0)),))])
    question = GramQuestion(n_lags=1, variables=("x",), cell_maps=("empty_values=0",))
    guard = RowSetGuard(RowsInMemory(site), LEAST, lambda note: None)
    with refused(SiteRefused, code="tight-limits"):
        guard.reads(Here("s", site, {}), Task(question))


@pytest.mark.parametrize(("n_repeats", "is_told"), [(1, False), (LEAST - 1, False), (LEAST, True)])
def test_a_study_that_empties_repeats_tells_of_no_few_of_them(n_repeats, is_told):
    x = np.random.default_rng(0).normal(size=(N, 4))
    x[50 : 51 + n_repeats, 1] = x[50, 1]
    site = Site(NAMES, [Recording("a", (Block(x),))])
    guard = RowSetGuard(RowsInMemory(site), LEAST)
    maps = (f"made_up={json.dumps({NAMES[1]: 'repeats'})}",)
    task = Task(SurveyQuestion(n_lags=1, variables=NAMES, cell_maps=maps))
    if is_told:
        guard.reads(Here("s", site, {}), task)
        return
    with refused(SiteRefused, code="few-emptied"):
        guard.reads(Here("s", site, {}), task)


@pytest.mark.parametrize(
    ("n_codes", "maps"), [(1, "7.25"), (LEAST - 1, "7.25"), (1, "[7.25, 8.5]"), (LEAST, "7.25")]
)
def test_a_first_look_tells_of_no_value_that_few_cells_have(n_codes, maps):
    """Codes for empty cells are the study's choice: it could ask for any value whether somebody has it."""
    x = np.random.default_rng(0).normal(size=(N, 4))
    x[:20, 0] = 8.5
    x[50 : 50 + n_codes, 0] = 7.25
    site = Site(NAMES, [Recording("a", (Block(x),))])
    guard = RowSetGuard(RowsInMemory(site), LEAST)

    def look(codes):
        question = SurveyQuestion(n_lags=1, variables=NAMES, cell_maps=(f"empty_values={codes}",))
        return guard.reads(Here("s", site, {}), Task(question))

    look("8.5")
    if n_codes < LEAST:
        with refused(SiteRefused, code="few-emptied"):
            look(maps)
    else:
        look(maps)
