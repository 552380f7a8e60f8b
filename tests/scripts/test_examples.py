"""The examples run, and the documents show what they make."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning")
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
