"""Which cuts of its rows into blocks a site refuses, given those it answered before."""

import numpy as np
import pandas as pd

from feddbn.data import read_sites
from feddbn.data.site import with_columns
from feddbn.errors import SiteRefused
from feddbn.federation.guards.row_set_guard import RowSetGuard
from feddbn.federation.protocol.site import Here
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from support.saying import refused
from support.sites import RowsInMemory

NAMES, LEAST = ("a", "b"), 6


def site(step="2h", n=31 * 12 + 20 * 12, empty=()):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n, 2)), columns=list(NAMES))
    for row in empty:
        frame.iloc[row, 1] = np.nan
    frame.index = pd.date_range("2024-01-01", periods=n, freq=step)
    return read_sites({"s": frame}, label="@time", missing="keep")["s"]


def ask(book, data, question):
    return RowSetGuard(book, LEAST).reads(Here("s", data, {}), Task(question))[0]


def blocks(unit="", block_rows=0, n_lags=1, n_blocks=60, variables=NAMES):
    return GramQuestion(
        n_lags=n_lags, variables=variables, block_rows=block_rows, n_blocks=n_blocks, calendar=unit,
        first_block={"M": 648, "D": 19723, "W": 2818}.get(unit, 0),
    )  # fmt: skip


def test_days_lie_within_months_and_weeks_do_not():
    data = site()
    book = RowsInMemory(data)
    ask(book, data, blocks("M"))
    ask(book, data, blocks("D"))
    ask(book, data, blocks("M"))
    # Every class of rows is a day of twelve rows, with weeks, too.
    ask(book, data, blocks("W"))
    assert len({one.key.split()[-2] for one in book.kept}) == 3
    # A row a day: of the week in which January ends three rows are of January.
    data = site("1D", 31 + 25)
    book = RowsInMemory(data)
    ask(book, data, blocks("M"))
    with refused(SiteRefused, code="blocks-show-rows"):
        ask(book, data, blocks("W"))
    ask(RowsInMemory(data), data, blocks("W"))


def test_what_a_new_choice_of_variables_leaves_of_a_block_is_enough_or_nothing():
    data = site("1h", 128, empty=range(3, 64, 2))
    book = RowsInMemory(data)
    ask(book, data, blocks(block_rows=32, n_blocks=4, n_lags=0))
    one = with_columns(data, ("a",))
    # The rows that the first study left out are in the first two blocks: sixteen in each.
    ask(book, one, blocks(block_rows=32, n_blocks=4, n_lags=0, variables=("a",)))
    few = site("1h", 128, empty=[3, 40, 70, 100, 101, 102])
    book = RowsInMemory(few)
    ask(book, few, blocks(block_rows=32, n_blocks=4, n_lags=0))
    with refused(SiteRefused, code="blocks-show-rows"):
        ask(book, with_columns(few, ("a",)), blocks(block_rows=32, n_blocks=4, n_lags=0, variables=("a",)))


def test_sums_over_all_rows_after_blocks_leave_none_of_them_alone():
    # Fourteen rows are empty in the first study: eight of a block of eight, and six that are scattered.
    empty = [*range(8, 16), 20, 30, 40, 50, 60, 70]
    data = site("1h", 96, empty)
    book = RowsInMemory(data)
    ask(book, with_columns(data, ("a",)), blocks(block_rows=8, n_blocks=12, n_lags=0, variables=("a",)))
    RowSetGuard(book, LEAST).reads(Here("s", data, {}), Task(GramQuestion(n_lags=0, variables=NAMES)))
    used = [one.rows for one in book.kept]
    every = np.arange(96)
    pattern = np.array([np.isin(every, one) for one in used], dtype=int).T
    sizes = np.unique(pattern, axis=0, return_counts=True)[1]
    assert sizes.min() >= LEAST
