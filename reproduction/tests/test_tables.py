"""The tables of real systems run at their smallest setting: their numbers mean nothing here."""

import os
import runpy
import sys

import pytest

from reproduction import real_data_ranking, real_systems

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
with_data = pytest.mark.skipif(
    not os.environ.get("FEDDBN_DATA"), reason="needs other people's data: FEDDBN_DATA"
)


@pytest.mark.parametrize("line", ["rivers --seeds 0-0 --rows 300 --gauges 4", "held --seeds 0-1"])
def test_simulated_tables_run(line, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["real_systems", *line.split()])
    runpy.run_module("reproduction.real_systems", run_name="__main__")
    assert capsys.readouterr().out


@with_data
def test_tables_of_recorded_systems_run():
    for part in (real_systems.systems, real_systems.evidence, real_systems.battery):
        assert [table.text() for table in part(["middleware"])]


@with_data
def test_tables_of_dream4_run(capsys):
    recipes = {"linear": real_data_ranking.RECIPES["linear, no hubs"]}
    real_data_ranking.dream4_table([1, 2], recipes)
    assert "AUROC" in capsys.readouterr().out
