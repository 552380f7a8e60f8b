"""Cells of experiments: a killed runner loses only what it was computing, and a Dask cluster gives the same rows."""

from __future__ import annotations

import multiprocessing
import random
import time
from pathlib import Path

import pytest

from feddbn.experiments.cells import Cell, expand
from feddbn.experiments.config import load_experiment, parse_experiment
from feddbn.experiments.runner import ROWS_FILE, RowStore, read_rows, run_cells

N_KILLS = 20
EXPERIMENT = """
name = "kill"
title = "Killed"
kind = "federation"
figures = []
what = ""
axis = "n_sites"
axis_label = "K"
protocols = ["paper-text", "strong"]
points = [
  { d = 3, n_sites = 2, n_samples = 40, mean_degree = 1.0 },
  { d = 3, n_sites = 4, n_samples = 40, mean_degree = 1.0 },
]
methods = ["alldata", "local"]
columns = []
seeds = 8

[quick]
points = [0, 1]
protocols = ["paper-text", "strong"]
seeds = 8
"""


def _cells() -> list[Cell]:
    return expand(parse_experiment(EXPERIMENT, "kill.toml"), quick=True)


def _run(directory: str, ready) -> None:
    with RowStore(directory) as store:
        ready.set()
        run_cells(_cells(), store)


def _without_time(rows):
    return {cell: {k: v for k, v in row.items() if k != "seconds"} for cell, row in rows.items()}


@pytest.mark.slow
def test_rows_after_twenty_kills_equal_those_of_an_uninterrupted_run(tmp_path: Path):
    cells = _cells()
    started = time.monotonic()
    with RowStore(tmp_path / "whole") as store:
        run_cells(cells, store)
    whole_seconds = time.monotonic() - started
    expected = _without_time(read_rows(tmp_path / "whole"))
    assert len(expected) == len(cells)

    # Children come from a clean, single-threaded server process that has everything imported: a kill then
    # falls into the work, not into the imports.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["feddbn.experiments.runner", "feddbn.experiments.fits"])
    rng = random.Random(20)
    kept: dict = {}
    n_killed = n_progress = 0
    for kill in range(N_KILLS):
        ready = context.Event()
        child = context.Process(target=_run, args=(str(tmp_path / "killed"), ready))
        child.start()
        assert ready.wait(60)
        # After none, one or two rows more, and then at any moment of the next one: whatever the machine's speed.
        wanted, deadline = len(kept) + kill % 3, time.monotonic() + 60
        while len(read_rows(tmp_path / "killed")) < wanted and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, whole_seconds / len(cells)))
        n_killed += child.is_alive()
        child.kill()
        child.join()
        now = _without_time(read_rows(tmp_path / "killed"))
        assert {cell: now[cell] for cell in kept} == kept, "a kill lost or changed a recorded row"
        n_progress += len(now) > len(kept)
        kept = now
    assert n_killed >= N_KILLS // 2, "too few kills hit a running runner for the test to mean anything"
    assert n_progress >= N_KILLS // 2

    with RowStore(tmp_path / "killed") as store:
        assert run_cells(cells, store) == len(cells) - len(kept)
    assert _without_time(read_rows(tmp_path / "killed")) == expected
    assert (tmp_path / "killed" / ROWS_FILE).read_bytes().count(b"\n") == len(cells)


distributed = pytest.importorskip("distributed")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_local_dask_cluster_records_the_same_rows(tmp_path):
    cells = [cell for cell in expand(load_experiment("varying-d"), quick=True) if cell.method == "alldata"]
    with RowStore(tmp_path / "here") as store:
        run_cells(cells, store)
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    )
    with cluster, distributed.Client(cluster), RowStore(tmp_path / "there") as store:
        assert run_cells(cells, store, jobs=-1, backend="dask") == len(cells)
    assert _without_time(read_rows(tmp_path / "there")) == _without_time(read_rows(tmp_path / "here"))
