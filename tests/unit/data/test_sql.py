"""Rows that DuckDB answers a query with: the same sites as from a file, in batches, and nothing but a SELECT."""

import pickle
import sqlite3

import duckdb
import numpy as np
import pandas as pd
import pytest

from feddbn.data import SqlTable, check_sites, read_sites
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


READ = {"series": "patient", "time": "hour"}


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


def test_no_row_is_no_traceback(database):
    none = SqlTable("SELECT * FROM stays WHERE x > 1e9", database)
    with refused(DataError, "a"):
        check_sites(read_sites({"a": none}, **READ), 1)


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
        with refused(DataError, "extension", code="engine"):
            read_sites(table, **READ)
    with refused(DataError) as caught:
        read_sites(SqlTable("SELECT 1", database="postgres:host=127.0.0.1 port=1 password=secret"))
    assert "secret" not in str(caught.value)


def test_a_query_goes_to_another_process(database):
    table = SqlTable("SELECT * FROM stays", database)
    assert blocks(read_sites(pickle.loads(pickle.dumps(table)), **READ)) == blocks(read_sites(rows(), **READ))
