"""Several modules: the monitored computer systems and the chemical plant."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feddbn.datasets import IT_SYSTEMS, load_it_monitoring, load_tennessee_eastman
from feddbn.errors import FileError, ParameterError
from support.saying import refused

REAL = os.environ.get("FEDDBN_DATA")
HAS_DATA = REAL is not None and (Path(REAL) / "it-monitoring").is_dir() and (Path(REAL) / "tep").is_dir()
with_data = pytest.mark.skipif(
    not HAS_DATA, reason="FEDDBN_DATA names no directory with it-monitoring and tep"
)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small files in the real formats."""
    monkeypatch.delenv("FEDDBN_DATA", raising=False)
    for system in IT_SYSTEMS:
        (tmp_path / "it-monitoring" / system).mkdir(parents=True)
    web, middleware = tmp_path / "it-monitoring" / "web", tmp_path / "it-monitoring" / "middleware"
    (web / "structure.txt").write_text("a b\n\nc b\n")
    for k in (1, 2):
        (web / f"preprocessed_{k}.csv").write_text(
            f"timestamp,b,a,c\n2021-10-23 22:00:00,{k},2,3\n2021-10-23 22:05:00,4,5,6\n"
        )
        (middleware / f"monitoring_metrics_{k}.csv").write_text("timestamp,a,b\n10,1,2\n11,3,4\n14,5,6\n")
    (middleware / "structure.txt").write_text("b a\n")
    (tmp_path / "tep").mkdir()
    (tmp_path / "tep" / "datasetTE.csv").write_text(",X1,X2,X33\n0,1.0,2.0,3.0\n1,1.5,2.5,3.5\n")
    graph = np.zeros((33, 33), dtype=int)
    graph[0, 32] = graph[1, 1] = graph[5, 0] = 1
    np.savetxt(tmp_path / "tep" / "TEGroundTruth.txt", graph, fmt="%d", delimiter="\t")
    return tmp_path


def test_two_preparations_of_the_same_days_are_one_site(directory):
    first = load_it_monitoring("web", directory)
    assert list(first.sites) == ["web"]
    assert first.variables == ("b", "a", "c")
    assert first.truth.tolist() == [[0, 0, 0], [1, 0, 0], [1, 0, 0]], "[from, to]"
    assert first.sites["web"][0]["b"].tolist() == [1.0, 4.0]
    assert load_it_monitoring("web", directory, preparation=2).sites["web"][0]["b"].tolist() == [2.0, 4.0]


def test_two_runs_are_two_sites_and_skipped_seconds_are_empty(directory):
    data = load_it_monitoring("middleware", directory)
    assert list(data.sites) == ["run-1", "run-2"]
    frame = data.sites["run-1"][0]
    assert frame.index.tolist() == [10, 11, 12, 13, 14]
    assert frame["a"].isna().tolist() == [False, False, True, True, False]
    assert data.truths["run-2"].tolist() == [[0, 0], [1, 0]]


def test_the_plant_is_read_effect_by_cause_and_has_no_loops(directory):
    data = load_tennessee_eastman(directory)
    assert data.variables == ("X1", "X2", "X33")
    assert data.truth.tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]


def test_bad_arguments_and_files_are_refused(directory, monkeypatch):
    with refused(ParameterError, "system='mail'", *IT_SYSTEMS):
        load_it_monitoring("mail", directory)
    with refused(ParameterError, "preparation=2", "antivirus", "web"):
        load_it_monitoring("storm", directory, preparation=2)
    with refused(FileError, "'it-monitoring/storm/storm_data_normal.csv'"):
        load_it_monitoring("storm", directory)
    with refused(FileError, "'tep/datasetTE.csv'", "CPCaD-Bench", "FEDDBN_DATA"):
        load_tennessee_eastman()
    wrong = {
        ("web", "it-monitoring/web/structure.txt", "line 1"): "a z\n",
        ("web", "it-monitoring/web/preprocessed_1.csv", "preprocessed_1.csv"): "t,a\n0,x\n",
        ("middleware", "it-monitoring/middleware/monitoring_metrics_2.csv", "middleware"): "t,a,c\n10,1,2\n",
        ("tep", "tep/TEGroundTruth.txt", "(2, 2)"): "0 1\n1 0\n",
        ("tep", "tep/datasetTE.csv", "'X40'"): ",X1,X40\n0,1,2\n",
    }
    for (system, file, name), text in wrong.items():
        (directory / file).write_text(text)
        with refused(FileError, name):
            load_tennessee_eastman(directory) if system == "tep" else load_it_monitoring(system, directory)


@with_data
def test_the_systems_have_the_published_sizes():
    sizes = {name: load_it_monitoring(name) for name in IT_SYSTEMS}
    assert {name: (len(d.variables), int(d.truth.sum())) for name, d in sizes.items()} == {
        "antivirus": (13, 16),
        "middleware": (7, 10),
        "storm": (8, 9),
        "web": (10, 14),
    }
    rows = {name: [len(r[0].dropna()) for r in d.sites.values()] for name, d in sizes.items()}
    assert rows == {"antivirus": [1320], "middleware": [288, 364], "storm": [991], "web": [7500]}
    plant = load_tennessee_eastman()
    assert (len(plant.variables), int(plant.truth.sum()), len(plant.sites["plant"][0])) == (31, 28, 1499)


@with_data
@pytest.mark.parametrize("system", ["antivirus", "web"])
def test_the_two_files_hold_the_same_days(system):
    one, two = (load_it_monitoring(system, preparation=k).sites[system][0] for k in (1, 2))
    both = one.index.intersection(two.index)
    assert len(both) == len(one)
    alike = [one.loc[both, name].corr(two.loc[both, name]) for name in one.columns]
    assert pd.Series(alike).median() > 0.8


@with_data
def test_the_valves_of_the_plant_set_the_flows():
    plant = load_tennessee_eastman()
    place = {name: k for k, name in enumerate(plant.variables)}
    flows = [
        plant.truth[place[f"X{k}"]][[place[f"X{f}"] for f in (1, 2, 3, 4)]].sum() for k in (23, 24, 25, 26)
    ]
    assert flows == [1, 1, 1, 1]
