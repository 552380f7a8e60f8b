"""Several modules: both data sets, and where they are read from."""

from __future__ import annotations

import hashlib
import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

from feddbn.errors import FileError
from reproduction import datasets as source_module
from reproduction.datasets import (
    IT_SYSTEMS,
    PAPER_SUBJECTS,
    dream4,
    load_it_monitoring,
    load_tennessee_eastman,
    netsim,
)
from support.saying import refused

GENES = ("G1", "G2", "G3")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small files in the real formats: 4 series of 21 points of 3 genes; 3 subjects of 2 nodes."""
    for name in ("FEDDBN_DATA", "FEDDBN_DATA_URL"):
        monkeypatch.delenv(name, raising=False)
    rng = np.random.default_rng(0)
    folder = tmp_path / "dream4"
    folder.mkdir()
    lines = ['"Time"\t' + "\t".join(f'"{g}"' for g in GENES)]
    for _ in range(4):
        lines.append("")
        lines += ["\t".join(f"{v:.7f}" for v in (50.0 * t, *rng.random(3))) for t in range(21)]
    (folder / "insilico_size100_2_timeseries.tsv").write_text("\n".join(lines) + "\n")
    (folder / "insilico_size100_2_goldstandard.tsv").write_text("G1\tG2\t1\nG3\tG1\t1\nG2\tG1\t0\n")
    (tmp_path / "netsim").mkdir()
    net = np.tile(np.array([[-1.0, 0.4], [0.0, -1.0]]), (3, 1, 1))
    net[2, 1, 0] = 0.3
    series = rng.standard_normal((3 * 50, 2))
    savemat(tmp_path / "netsim" / "sim1.mat", {"ts": series, "net": net})
    return tmp_path


def test_dream4_deals_its_series_to_sites_and_reads_edges_from_to(directory):
    data = dream4(2, directory, n_sites=2)
    assert list(data.sites) == ["client-1", "client-2"]
    assert [len(s) for s in data.sites.values()] == [2, 2]
    assert data.sites["client-1"][0].shape == (21, 3)
    assert data.variables == GENES
    assert data.truth.tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]
    assert list(data.sites["client-1"][0].columns) == list(GENES), "the time is not a variable"


def test_dream4_stimulus_marks_the_rows_reached_under_it(directory):
    frame = dream4(2, directory, n_sites=1, stimulus=True).sites["client-1"][0]
    assert frame["stimulus"].tolist() == [1] * 11 + [0] * 10


def test_the_environment_names_the_directory(directory, monkeypatch):
    monkeypatch.setenv("FEDDBN_DATA", str(directory))
    assert dream4(2, n_sites=4).name == "DREAM4 size 100 network 2"
    monkeypatch.setenv("FEDDBN_DATA", str(directory / "netsim"))
    assert len(netsim(1).sites) == 3, "the directory of the files themselves is accepted too"


def test_netsim_makes_a_site_of_each_subject_and_drops_the_diagonal(directory):
    data = netsim(1, subjects=(1, 3), path=directory)
    assert list(data.sites) == ["subject-01", "subject-03"]
    assert data.sites["subject-03"][0].shape == (50, 2)
    assert data.truths["subject-01"].tolist() == [[0, 1], [0, 0]]
    assert data.truths["subject-03"].tolist() == [[0, 1], [1, 0]]
    assert data.truth.tolist() == [[0, 1], [0, 0]], "the common truth has the edges of every subject"
    assert netsim(1, path=directory).sites.keys() == {"subject-01", "subject-02", "subject-03"}
    assert PAPER_SUBJECTS[3] == (1, 3, 5, 7, 9)


def test_a_named_directory_without_the_file_is_an_error_and_never_a_download(directory, monkeypatch):
    with refused(FileError, "path", "'netsim/sim2.mat'"):
        netsim(2, path=directory)
    monkeypatch.setenv("FEDDBN_DATA", str(directory))
    with refused(FileError, "FEDDBN_DATA", "'netsim/sim2.mat'"):
        netsim(2)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def mirror(directory, monkeypatch, tmp_path_factory):
    """A web server on this machine with the same names, an empty cache, and the checksum of a file."""
    pooch = pytest.importorskip("pooch")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(pooch, "os_cache", lambda project: Path(cache) / project)
    monkeypatch.setenv("FEDDBN_DATA_URL", f"http://127.0.0.1:{server.server_port}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    digest = hashlib.sha256((directory / "netsim" / "sim1.mat").read_bytes()).hexdigest()
    monkeypatch.setitem(source_module.CHECKSUMS, "netsim/sim1.mat", digest)
    yield cache
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_download_is_checked_and_kept(mirror, directory):
    assert len(netsim(1).sites) == 3
    assert (mirror / "feddbn" / "netsim" / "sim1.mat").is_file()
    os.remove(directory / "netsim" / "sim1.mat")
    assert len(netsim(1).sites) == 3, "the second time it comes from the cache"


def test_a_download_with_another_checksum_is_refused_with_instructions(mirror, monkeypatch):
    monkeypatch.setitem(source_module.CHECKSUMS, "netsim/sim1.mat", "0" * 64)
    with pytest.raises(FileError, match=r"'netsim/sim1.mat'.*path=.*FEDDBN_DATA"):
        netsim(1)
    assert not (mirror / "feddbn" / "netsim" / "sim1.mat").exists()


def test_a_server_without_the_file_gives_instructions(mirror):
    with pytest.raises(FileError, match=r"http://127.0.0.1:\d+ \(HTTPError\)"):
        netsim(3)


REAL = os.environ.get("FEDDBN_DATA")
HAS_DATA = REAL is not None and (Path(REAL) / "it-monitoring").is_dir() and (Path(REAL) / "tep").is_dir()
with_data = pytest.mark.skipif(
    not HAS_DATA, reason="FEDDBN_DATA names no directory with it-monitoring and tep"
)


@pytest.fixture
def systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_two_preparations_of_the_same_days_are_one_site(systems):
    first = load_it_monitoring("web", systems)
    assert list(first.sites) == ["web"]
    assert first.variables == ("b", "a", "c")
    assert first.truth.tolist() == [[0, 0, 0], [1, 0, 0], [1, 0, 0]], "[from, to]"
    assert first.sites["web"][0]["b"].tolist() == [1.0, 4.0]
    assert load_it_monitoring("web", systems, preparation=2).sites["web"][0]["b"].tolist() == [2.0, 4.0]


def test_two_runs_are_two_sites_and_skipped_seconds_are_empty(systems):
    data = load_it_monitoring("middleware", systems)
    assert list(data.sites) == ["run-1", "run-2"]
    frame = data.sites["run-1"][0]
    assert frame.index.tolist() == [10, 11, 12, 13, 14]
    assert frame["a"].isna().tolist() == [False, False, True, True, False]
    assert data.truths["run-2"].tolist() == [[0, 0], [1, 0]]


def test_the_plant_is_read_effect_by_cause_and_has_no_loops(systems):
    data = load_tennessee_eastman(systems)
    assert data.variables == ("X1", "X2", "X33")
    assert data.truth.tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]


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
