"""Rows that DuckDB answers a query with: the same sites as from a file, in batches, and nothing but a SELECT."""

import duckdb
import numpy as np
import pandas as pd
import pytest

from feddbn.data import SqlTable, read_sites
from feddbn.data.tables import sorted_frames
from feddbn.errors import DataError, FileError, ParameterError
from support.saying import refused

N = 3000


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.standard_normal((N, 2)), columns=["x", "y"])
    frame.insert(0, "patient", np.repeat(["p", "q", "r"], N // 3))
    frame.insert(1, "hour", np.tile(np.arange(N // 3), 3))
    frame.loc[[5, 700], "y"] = np.nan
    return frame


@pytest.fixture
def database(tmp_path):
    frame = rows()
    path = tmp_path / "ward.duckdb"
    with duckdb.connect(path) as made:
        made.register("given", frame)
        made.execute("CREATE TABLE stays AS SELECT * FROM given")
    return path


def blocks(sites):
    return [
        (name, r.name, b.time, b.starts_segment, b.values.tobytes())
        for name, site in sites.items()
        for r in site.recordings()
        for b in r.blocks()
    ]


def segments(sites):
    """Blocks that go on are put together: batches of streams have other ends."""
    found = []
    for name, site in sites.items():
        for r in site.recordings():
            for b in r.blocks():
                if b.starts_segment or not found:
                    found.append([name, r.name, b.time, b.values])
                else:
                    found[-1][3] = np.concatenate([found[-1][3], b.values])
    return [(name, recording, time, values.tobytes()) for name, recording, time, values in found]


READ = {"series": "patient", "time": "hour"}


def test_a_query_is_the_frame_it_gives(database):
    found = read_sites(SqlTable("SELECT * FROM stays", database=database), **READ)
    assert blocks(found) == blocks(read_sites(rows(), **READ))


def test_a_large_query_is_streamed_and_has_the_same_segments(database):
    query = SqlTable("SELECT * FROM stays ORDER BY patient, hour", database=str(database))
    found = read_sites({"a": query}, stream_bytes=1000, **READ)
    assert type(found["a"]).__name__ == "FileSite"
    expected = segments(read_sites({"a": rows()}, **READ))
    assert segments(found) == expected
    assert segments(found) == expected
    of_sites = read_sites(query, site="patient", time="hour", stream_bytes=1000)
    assert segments(of_sites) == segments(read_sites(rows(), site="patient", time="hour"))


def test_files_are_looked_for_in_the_folder(tmp_path):
    rows().to_parquet(tmp_path / "stays.parquet")
    found = read_sites(SqlTable("SELECT * FROM 'stays.parquet'", folder=tmp_path), **READ)
    assert blocks(found) == blocks(read_sites(rows(), **READ))


def test_exact_decimals_are_the_nearest_numbers():
    query = SqlTable(
        "SELECT (range / 1000)::DECIMAL(18, 3) AS x, sum(range)::HUGEINT AS y FROM range(2000) GROUP BY ALL ORDER BY x"
    )
    values = next(next(read_sites(query)["site-0"].recordings()).blocks()).values
    np.testing.assert_array_equal(values[:, 0], np.arange(2000) / 1000)


@pytest.mark.parametrize(
    "query", ["DROP TABLE stays", "SELECT 1; SELECT 2", "COPY (SELECT 1) TO 'x.csv'", "", 3]
)
def test_nothing_but_one_select(database, query):
    with refused(ParameterError, "SELECT"):
        read_sites(SqlTable(query, database=database))


def test_what_cannot_be_read(database, tmp_path):
    with refused(DataError, "cannot be read") as error:
        read_sites(SqlTable("SELECT * FROM nothing", database=database))
    assert error.value.code == "engine"
    with refused(DataError, "cannot be read"):
        read_sites(SqlTable("SELEC 1"))
    with refused(FileError, "does not exist"):
        read_sites(SqlTable("SELECT 1", database=tmp_path / "no.duckdb"))
    with refused(DataError, "more than one") as error:
        read_sites(SqlTable("SELECT x, x FROM stays", database=database))
    assert error.value.code == "twice"


def test_other_rows_when_it_is_read_again_are_refused():
    query = SqlTable("SELECT random() AS x, range AS y FROM range(9000)")
    with refused(DataError, "again") as error:
        blocks(read_sites(query, stream_bytes=1000))
        blocks(read_sites(query, stream_bytes=1000))
    assert error.value.code == "other-rows"


def test_frames_are_sorted_however_many_there_are():
    rng = np.random.default_rng(8)
    names = np.array(["Zoë", "a", "b", "B", "zz", "ä"], dtype=object)
    frame = pd.DataFrame(
        {
            "who": names[rng.integers(0, 6, 5000)],
            "t": rng.integers(0, 40, 5000),
            "v": rng.standard_normal(5000),
        }
    )
    parts = (frame.iloc[k : k + 700] for k in range(0, 5000, 700))
    found = list(sorted_frames(parts, ["who", "t", "v"], batch_rows=1000))
    assert [len(one) for one in found] == [1000] * 5
    expected = frame.iloc[np.lexsort([frame["v"], frame["t"], pd.factorize(frame["who"], sort=True)[0]])]
    pd.testing.assert_frame_equal(
        pd.concat(found, ignore_index=True), expected.reset_index(drop=True), check_dtype=False
    )
    assert list(sorted_frames(iter(()), ["t"])) == []


def test_an_error_among_frames_that_are_sorted_is_told_as_it_is():
    def parts():
        yield pd.DataFrame({"t": [1, 2]})
        raise DataError("row 3 is strange.", code="strange")

    with refused(DataError, "row 3", code="strange"):
        list(sorted_frames(parts(), ["t"]))
