"""Which rows a site leaves out of a question, given those it was asked about before."""

import itertools

import numpy as np
import pytest

from feddbn.core.designs.recordings import Block, site_rows
from feddbn.data.memory import AlignedSite, ArrayRecording, MemorySite
from feddbn.errors import SiteRefused
from feddbn.federation.guards import row_set_guard
from feddbn.federation.guards.row_set_guard import RowSetGuard, UsedRows
from feddbn.federation.programs.feature_statistics import FeatureScaleQuestion
from feddbn.federation.programs.statistics import MomentsQuestion
from feddbn.federation.programs.survey import SurveyQuestion
from feddbn.federation.protocol.site import Here
from feddbn.federation.protocol.task import Task
from support.saying import refused
from support.sites import RowsInMemory

LEAST, N = 6, 80
NAMES = ("x", "y", "z", "w")


@pytest.fixture
def site():
    x = np.random.default_rng(0).normal(size=(2, N, 4))
    x[0, 10, 2] = x[0, 30:33, 3] = x[1, 50, 2] = np.nan
    x[1, 20:40, 3] = np.nan
    return MemorySite(
        NAMES, [ArrayRecording(name, (Block(part),)) for name, part in zip("ab", x, strict=True)]
    )


def asked(book, site, names, n_lags=1, told=None, run="", **more):
    """The rows that a question is about, of those that are offered to it."""
    guard = RowSetGuard(book, LEAST, lambda note: None if told is None else told.append(note), run)
    question = MomentsQuestion(n_lags=n_lags, variables=names, **more)
    here, _ = guard.reads(Here("s", AlignedSite(names, site), {}), Task(question))
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
    book, raw = RowsInMemory("a", "b"), []
    for place in order:
        rows = site_rows(AlignedSite(choices[place], site), RowsInMemory("a", "b").order())
        raw.append(rows.lagged(rows.complete, n_lags))
    found = [asked(book, site, choices[place], n_lags) for place in order]
    # Without the guard it is; the guard leaves few rows out.
    assert fewest(raw) < LEAST * (n_lags + 1)
    assert fewest(found) >= LEAST
    for whole, left in zip(raw, found, strict=True):
        assert set(left) <= set(whole)
        assert len(left) >= len(whole) - 3 * (LEAST + n_lags)


def test_a_site_alone_is_asked_about_all_its_rows_and_again_about_the_same(site):
    book, told = RowsInMemory("a", "b"), []
    names = ("x", "y", "z")
    rows = site_rows(AlignedSite(names, site), book.order())
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
    book = RowsInMemory("a", "b")
    asked(book, site, ("x", "z"))
    model = np.vstack([np.zeros(4), np.eye(4)])
    guard = RowSetGuard(book, LEAST)
    question = MomentsQuestion(n_lags=1, variables=("x", "w"), row_model=model)
    here, _ = guard.reads(Here("s", AlignedSite(("x", "w"), site), {}), Task(question))
    complete, present = (one.rows for one in book.kept[-2:])
    before = book.kept[0].rows
    assert fewest([before, complete]) >= LEAST
    assert fewest([before, complete, present]) >= LEAST
    rows = site_rows(here.data, book.order())
    np.testing.assert_array_equal(rows.present, present)
    # The two rows that only the first question lacks are not filled in.
    assert not np.isin([10, 2**40 + 50], present).any()


def test_looks_and_what_has_no_rows_are_passed_on(site):
    book = RowsInMemory("a", "b")
    here = Here("s", site, {})
    look = Task(SurveyQuestion(n_lags=1, variables=NAMES))
    assert RowSetGuard(book, LEAST).reads(here, look) == (here, look)
    assert book.kept == []
    RowSetGuard(book, LEAST).reads(here, Task(FeatureScaleQuestion()))
    assert [one.n_lags for one in book.kept] == [0]


def test_folds_whose_rows_differ_by_few_are_refused(site):
    """Enough rows differ, but few of them are in the part that is held out or left."""
    book = RowsInMemory("a", "b")
    # Recording a: rows 30 to 32; recording b: rows 20 to 39. All of them are before the last tenth.
    asked(book, site, ("x", "w"))
    assert len(asked(book, site, ("x",), fold=(0, 1, 100)))
    gaps = MemorySite(NAMES, [ArrayRecording("a", (Block(_with_gap(site)),))])
    book = RowsInMemory("a", "b")
    asked(book, gaps, ("x", "w"))
    with refused(SiteRefused, 6, code="fold-shows-rows"):
        asked(book, gaps, ("x",), fold=(0, 1, 500))


def test_a_run_that_is_restarted_is_not_held_against_its_own_rows(site):
    gaps = MemorySite(NAMES, [ArrayRecording("a", (Block(_with_gap(site)),))])
    book = RowsInMemory("a", "b")
    asked(book, gaps, ("x", "w"), run="one")
    # Another process of the same run, which has only the book.
    assert len(asked(book, gaps, ("x",), fold=(0, 1, 500), run="one"))
    with refused(SiteRefused, 6, code="fold-shows-rows"):
        asked(book, gaps, ("x", "y"), fold=(0, 1, 500), run="two")


def _with_gap(site):
    x = next(iter(site.recordings())).segments[0].values[:, :4].copy()
    x[:, 3] = 1.0
    x[33:41, 3] = np.nan
    return x


def test_many_different_sets_are_refused(site, monkeypatch):
    monkeypatch.setattr(row_set_guard, "MOST_SETS", 2)
    book = RowsInMemory("a", "b")
    asked(book, site, ("x",))
    book.add([UsedRows("other", 1, np.arange(30), np.zeros(0, dtype=np.int64))])
    asked(book, site, ("x",))
    with refused(SiteRefused, 2, code="too-many-row-sets"):
        asked(book, site, ("x", "w"))
