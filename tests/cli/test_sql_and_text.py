"""Queries and text files of other countries on the command line and in a site's settings."""

from __future__ import annotations

import json

import duckdb
import numpy as np
import pytest

import feddbn
from feddbn.data import SqlTable, read_sites
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.open_site import read_data


@pytest.fixture(scope="module")
def frame():
    fed = feddbn.simulate(d=3, n_sites=3, n_samples=450, random_state=2)
    parts = [frames[0].set_axis(list("uvw"), axis=1).assign(ward=name) for name, frames in fed.sites.items()]
    return (
        parts[0]
        .__class__(np.concatenate([p.to_numpy(object) for p in parts]), columns=[*"uvw", "ward"])
        .astype(dict.fromkeys("uvw", float))
    )


@pytest.fixture
def database(tmp_path, frame):
    path = tmp_path / "wards.duckdb"
    with duckdb.connect(path) as made:
        made.register("given", frame)
        made.execute("CREATE TABLE stays AS SELECT * FROM given")
    return path


def edges(outcome):
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)["edges"]


def test_a_fit_of_a_query_is_that_of_its_rows(run, frame, database, tmp_path):
    frame.to_csv(tmp_path / "stays.csv", index=False)
    options = ("--site", "ward", "-o", tmp_path / "r.json", "--json")
    asked = run("fit", "SELECT * FROM stays", "--sql", "--database", database, *options)
    assert edges(asked) == edges(run("fit", tmp_path / "stays.csv", *options))
    by_file = run("fit", f"SELECT * FROM '{tmp_path}//stays.csv'", "--sql", *options)
    assert edges(by_file) == edges(asked)
    assert (
        run("check", "SELECT * FROM stays", "--sql", "--database", database, "--site", "ward").exit_code == 0
    )
    ahead = run(
        "forecast",
        tmp_path / "r.json",
        "SELECT u, v, w FROM stays LIMIT 100",
        "--sql",
        "--database",
        database,
        "--json",
    )
    frame.iloc[:100, :3].to_csv(tmp_path / "one.csv", index=False)
    assert json.loads(ahead.stdout) == json.loads(
        run("forecast", tmp_path / "r.json", tmp_path / "one.csv", "--json").stdout
    )


def test_a_european_file(run, frame, tmp_path):
    path = tmp_path / "stays.csv"
    renamed = frame.rename(columns={"u": "größe"})
    renamed.to_csv(path, index=False, sep=";", decimal=",", encoding="latin-1")
    options = ("--site", "ward", "-o", tmp_path / "r.json", "--json")
    for given, code, cure in (
        ((), "not-text", "--encoding"),
        (("--encoding", "latin-1"), "separator", "--separator"),
        (("--encoding", "latin-1", "--separator", ";"), "not-numeric", "--decimal"),
    ):
        outcome = run("fit", path, *options, *given)
        assert outcome.exit_code == 2
        assert json.loads(outcome.stdout)["error"]["code"] == code
        assert cure in outcome.stderr
    renamed.to_csv(tmp_path / "plain.csv", index=False)
    expected = edges(run("fit", tmp_path / "plain.csv", *options))
    given = ("--encoding", "latin-1", "--separator", ";", "--decimal", ",")
    assert edges(run("fit", path, *options, *given)) == expected


def site_file(folder, data):
    path = folder / "feddbn_site.toml"
    path.write_text(f'name = "a"\nstate = "state"\nseries = "ward"\ndata = {data}\n', encoding="utf-8")
    return path


def test_a_site_reads_a_query(frame, database, tmp_path):
    expected = read_sites({"a": frame}, series="ward", missing="keep")["a"]
    frame.to_parquet(tmp_path / "stays.parquet")
    for data in (
        '{sql = "SELECT * FROM stays", database = "wards.duckdb"}',
        "{sql = \"SELECT * FROM 'stays.parquet'\"}",
    ):
        settings = read_site_settings(site_file(tmp_path, data))
        assert isinstance(settings.data, SqlTable)
        found = read_data(settings)
        for mine, its in zip(found.recordings(), expected.recordings(), strict=True):
            assert mine.name == its.name
            np.testing.assert_array_equal(
                np.concatenate([b.values for b in mine.blocks()]),
                np.concatenate([b.values for b in its.blocks()]),
            )
