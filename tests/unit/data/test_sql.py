"""Rows that DuckDB answers a query with: the same sites as from a file, in batches, and nothing but a SELECT."""

import pickle
import sqlite3

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

import feddbn
from feddbn.data import SqlTable, check_sites, read_sites
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


def test_no_row_is_no_traceback(database):
    for stream_bytes in (0, 2**26):
        with refused(DataError, "a"):
            check_sites(
                read_sites(
                    {"a": SqlTable("SELECT * FROM stays WHERE x > 1e9", database)},
                    **READ,
                    stream_bytes=stream_bytes,
                ),
                1,
            )


def can_load(extension):
    try:
        duckdb.connect(config={"autoinstall_known_extensions": False}).execute(f"LOAD {extension}")
    except duckdb.Error:
        return False
    return True


def test_other_databases_need_extensions_and_passwords_stay_secret(tmp_path):
    with sqlite3.connect(tmp_path / "ward.db") as made:
        rows().to_sql("stays", made, index=False)
    made.close()
    table = SqlTable("SELECT * FROM stays", database=tmp_path / "ward.db")
    if can_load("sqlite"):
        assert blocks(read_sites(table, **READ)) == blocks(read_sites(rows(), **READ))
    else:
        with refused(DataError, "INSTALL sqlite", code="no-extension"):
            read_sites(table, **READ)
    with refused(DataError) as caught:
        read_sites(SqlTable("SELECT 1", database="postgres:host=127.0.0.1 port=1 password=secret"))
    assert "secret" not in str(caught.value)


def test_a_query_goes_to_another_process(database):
    table = SqlTable("SELECT * FROM stays", database)
    assert table.columns() == pickle.loads(pickle.dumps(table)).columns()


@pytest.mark.filterwarnings("ignore:these data do not show")
@pytest.mark.parametrize("lazy", ["query", "relation", "polars"])
def test_a_fit_of_a_stream_is_that_of_its_rows(database, tmp_path, lazy):
    frame = rows().drop(columns=["hour"])
    if lazy == "query":
        given = SqlTable("SELECT patient, x, y FROM stays", database)
    elif lazy == "relation":
        own = duckdb.connect(database, read_only=True)
        given = own.sql("SELECT patient, x, y FROM stays")
    else:
        given = pl.from_pandas(frame).lazy()
    streamed = read_sites({"a": given}, series="patient", stream_bytes=1000, missing="keep")
    assert type(streamed["a"]).__name__ == "FileSite"
    found = feddbn.OneShotDBN().fit(streamed)
    expected = feddbn.OneShotDBN().fit({"a": frame}, series="patient")
    np.testing.assert_allclose(found.dbn_.A, expected.dbn_.A, rtol=1e-9)
    assert found.findings_.codes == expected.findings_.codes
