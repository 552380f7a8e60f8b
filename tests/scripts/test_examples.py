"""The examples run, and the documents show what they make."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import tomllib
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import feddbn
from feddbn.cli.main import app
from feddbn.data import SqlTable, read_sites

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")]

ROOT = Path(__file__).parents[2]


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_quick_start_learns_most_edges_and_writes_its_report(tmp_path):
    wrong = example("quickstart").main(tmp_path)
    assert wrong["FDBNL"] <= 4
    assert wrong["OneShotDBN"] <= 2
    assert (tmp_path / "report.html").stat().st_size < 3_000_000


def test_the_hospital_tutorial_gains_from_personal_networks(tmp_path):
    wrong = example("hospital_federation").main(tmp_path)
    assert wrong["PFDBNL"] <= wrong["FDBNL"]
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"graph.png", "sites.png", "sedation.png", "forecast.png", "report.html"}


def test_every_picture_of_the_gallery_can_be_drawn(tmp_path):
    gallery = example("gallery")
    paths = gallery.main(tmp_path)
    assert [path.stem for path in paths] == list(gallery.PICTURES)
    assert all(path.stat().st_size > 5_000 for path in paths)


def test_the_gallery_shows_every_picture_of_its_script_and_all_are_stored():
    shown = re.findall(r"!\[[^]]*\]\(gallery/([\w-]+)\.png\)", (ROOT / "docs" / "gallery.md").read_text())
    assert shown == list(example("gallery").PICTURES)
    for name in shown:
        assert (ROOT / "docs" / "gallery" / f"{name}.png").is_file()


def test_a_week_of_visits_opens_the_sum_of_all_clinics_together(tmp_path):
    found, together, lines = example("collection_week").main(tmp_path)
    np.testing.assert_array_equal(found, together)
    assert any("south was killed" in line for line in lines)
    assert any("the server died" in line for line in lines)


def test_tables_of_hospitals_and_of_a_plant_give_the_networks_they_were_made_from(tmp_path):
    pytest.importorskip("duckdb")
    assert example("mappings").main(tmp_path) == {"omop": 0, "historian": 0}


CLIF = Path(os.environ.get("FEDDBN_DATA", "")) / "clif-demo"
CONCEPTS = {
    "heart_rate": 3027018,
    "sbp": 3004249,
    "dbp": 3012888,
    "map": 3027598,
    "respiratory_rate": 3024171,
    "spo2": 40762499,
    "temp_c": 3020891,
}


@pytest.fixture
def clif(tmp_path):
    """A folder with the tables and the file that describes them."""
    if not os.environ.get("FEDDBN_DATA") or not CLIF.is_dir():
        pytest.skip("needs the tables of the CLIF demo: set FEDDBN_DATA to the directory that has clif-demo")
    pytest.importorskip("duckdb")
    for path in (
        CLIF / "clif_vitals.parquet",
        CLIF / "clif_hospitalization.parquet",
        ROOT / "examples" / "clif.toml",
    ):
        shutil.copy(path, tmp_path)
    return tmp_path


def bits(sites):
    """Every site's variables, recordings and segments, in their order, on which the last bit of a sum depends."""
    return [
        (name, tuple(site.variables), recording.name, block.time, block.values.tobytes())
        for name, site in sites.items()
        for recording in site.recordings()
        for block in recording.blocks()
    ]


def test_stays_of_intensive_care_have_the_same_bits_from_polars_sql_and_a_table_of_omop(clif):
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    expected = read_sites(clif / "clif.toml", missing="keep")
    assert len(expected) == 4
    assert sum(1 for site in expected.values() for _ in site.recordings()) == 134
    text = tomllib.loads((clif / "clif.toml").read_text())
    query = text.pop("data")["sql"]
    layout = feddbn.Layout(**text, missing="keep")
    vitals = polars.read_parquet(clif / "clif_vitals.parquet")
    stays = polars.read_parquet(clif / "clif_hospitalization.parquet").with_columns(
        hospital=polars.format("hospital {}", polars.col("patient_id").cast(polars.Int64) % 4 + 1)
    )
    frame = vitals.join(stays.select("hospitalization_id", "hospital"), on="hospitalization_id")
    assert bits(read_sites(frame, layout=layout)) == bits(expected)
    assert bits(read_sites(SqlTable(query, folder=clif), layout=layout)) == bits(expected)
    assert bits(read_sites(frame.to_pandas(), layout=layout)) == bits(expected)
    with duckdb.connect(str(clif / "omop.duckdb")) as file:
        file.register("vitals", frame.to_arrow())
        file.register(
            "names", polars.DataFrame({"n": list(CONCEPTS), "c": list(CONCEPTS.values())}).to_arrow()
        )
        file.execute(
            "CREATE TABLE measurement AS SELECT hospitalization_id::BIGINT AS visit_occurrence_id, hospital, "
            "c AS measurement_concept_id, recorded_dttm::TIMESTAMP AS measurement_datetime, vital_value AS value_as_number "
            "FROM vitals JOIN names ON vital_category = n ORDER BY hash(recorded_dttm, c)"
        )
    variables = {name: {"name": CONCEPTS[name], **said} for name, said in text["variables"].items()}
    measured = feddbn.Layout(
        site="hospital", series="visit_occurrence_id", time="measurement_datetime", names="measurement_concept_id",
        values="value_as_number", freq="1h", variables=variables, missing="keep",
    )  # fmt: skip
    table = SqlTable("FROM measurement", clif / "omop.duckdb")
    assert bits(read_sites(table, layout=measured)) == bits(expected)


def test_rows_of_intensive_care_are_the_hourly_means_that_pandas_makes(clif):
    sites = read_sites(clif / "clif.toml", missing="keep")
    text = tomllib.loads((clif / "clif.toml").read_text())
    long = pd.read_parquet(clif / "clif_vitals.parquet")
    limits = {name: said["limits"] for name, said in text["variables"].items()}
    low, high = (long["vital_category"].map({k: v[i] for k, v in limits.items()}) for i in (0, 1))
    long = long[long["vital_value"].between(low.astype(float), high.astype(float))]
    hours = long["recorded_dttm"].dt.floor("h")
    wide = long.pivot_table(
        index=["hospitalization_id", hours], columns="vital_category", values="vital_value"
    )
    for site in sites.values():
        for recording in site.recordings():
            rows = np.concatenate([block.values for block in recording.blocks()])
            rows = rows[~np.isnan(rows).all(axis=1)]
            expected = wide.loc[recording.name, list(limits)].to_numpy()
            np.testing.assert_allclose(rows, expected, rtol=1e-12)


def test_the_readmes_three_commands_go_from_the_tables_to_a_report(clif, monkeypatch):
    readme = (ROOT / "README.md").read_text()
    commands = re.findall(r"^    feddbn (.*clif\.toml.*|report result\.json)$", readme, re.MULTILINE)
    lines = [line.split("#")[0].split() for line in commands]
    assert [line[0] for line in lines] == ["check", "fit", "report"]
    monkeypatch.chdir(clif)
    for line in lines:
        assert CliRunner().invoke(app, line).exit_code == 0
    assert "heart_rate" in (clif / "result.html").read_text()
