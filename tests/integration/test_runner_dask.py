"""Cells on a Dask cluster give the rows they give at home."""

import pytest

from feddbn.experiments.cells import expand
from feddbn.experiments.config import load_experiment
from feddbn.experiments.runner import RowStore, read_rows, run_cells

distributed = pytest.importorskip("distributed")


def _without_time(rows):
    return {cell: {k: v for k, v in row.items() if k != "seconds"} for cell, row in rows.items()}


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
