"""Lagged rows: column order, segments, chunks.

Rows by number: the same for every choice of variables, and lagged rows as the designs make them.
"""

import numpy as np
import pandas as pd
import pytest

from feddbn.core.designs.recordings import Block, SitePart, WithoutRows, complete_rows, lagged_rows, site_rows
from feddbn.data.read import read_sites
from feddbn.federation.guards.disclosure import counted_rows


def test_columns_run_from_now_to_the_past() -> None:
    x = np.arange(8.0).reshape(4, 2)
    (z,) = lagged_rows([Block(x)], 2)
    assert z.tolist() == [[4, 5, 2, 3, 0, 1], [6, 7, 4, 5, 2, 3]]


@pytest.mark.parametrize("chunk_rows", [1, 3, 1000])
def test_chunks_are_bounded_and_complete(chunk_rows: int) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    chunks = list(lagged_rows([Block(x)], 2, chunk_rows))
    assert max(len(chunk) for chunk in chunks) <= chunk_rows
    np.testing.assert_array_equal(np.concatenate(chunks), np.hstack([x[2:], x[1:-1], x[:-2]]))


ORDER = {"r0": 0, "r1": 1}


@pytest.fixture
def place(tmp_path):
    rng = np.random.default_rng(0)
    for name, n in (("r0", 40), ("r1", 30)):
        frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("xyz"))
        frame["t"] = np.delete(np.arange(n + 1), 11)
        frame.loc[:2, "z"] = np.nan
        frame.loc[20, "y"] = np.nan
        frame.loc[25, ["x", "y"]] = np.nan
        (tmp_path / "site").mkdir(exist_ok=True)
        frame.to_csv(tmp_path / "site" / f"{name}.csv", index=False)
    return tmp_path / "site"


def read(place, names):
    return read_sites({"s": place}, variables=names, time="t", freq=1, missing="keep")["s"]


@pytest.mark.parametrize("n_lags", [0, 1, 2, 4])
@pytest.mark.parametrize("names", [("x", "y", "z"), ("x", "y"), ("z",), ("y",)])
def test_lagged_rows_are_as_many_as_designs_make(place, names, n_lags):
    site = read(place, names)
    rows = site_rows(site, ORDER)
    n_complete, n_incomplete = counted_rows(site.recordings(), n_lags)
    assert len(rows.lagged(rows.complete, n_lags)) == n_complete
    assert len(rows.lagged(rows.every, n_lags)) == n_complete + n_incomplete
    assert set(rows.complete) <= set(rows.every)


def test_a_row_has_the_same_number_whichever_variables_are_read(place):
    whole, part = (site_rows(read(place, names), ORDER) for names in (("x", "y", "z"), ("z",)))
    lacking = np.setdiff1d(part.complete, whole.complete)
    # Rows 20 and 25 of each recording lack y; one time is missing before them.
    np.testing.assert_array_equal(lacking % 2**40, [21, 26, 21, 26])
    assert not len(np.setdiff1d(whole.complete, part.complete))


def test_rows_that_are_left_out_have_no_cell_and_end_segments(place):
    site = read(place, ("x", "y"))
    rows = site_rows(site, ORDER)
    left_out = rows.complete[[5, 6, 40]]
    without = WithoutRows(site, left_out, ORDER)
    found = site_rows(without, ORDER)
    np.testing.assert_array_equal(found.complete, np.setdiff1d(rows.complete, left_out))
    assert without.variables == ("x", "y")
    np.testing.assert_array_equal(site_rows(SitePart(without, complete_rows), ORDER).complete, found.complete)
    values = np.vstack([b.values for r in without.recordings() for b in r.blocks()])
    same = np.vstack([b.values for r in site.recordings() for b in r.blocks()])
    kept = ~np.isin(rows.every, left_out)
    np.testing.assert_array_equal(values[kept], same[kept])
    assert np.isnan(values[~kept]).all()
