"""Several modules: both data sets, and where they are read from."""

from __future__ import annotations

import builtins
import hashlib
import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from feddbn import datasets as source_module
from feddbn.datasets import PAPER_SUBJECTS, dream4, netsim
from feddbn.errors import FileError, MissingExtra, ParameterError
from support.saying import refused

GENES = ("G1", "G2", "G3")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Small files in the real formats: 4 series of 21 points of 3 genes; 3 subjects of 2 nodes."""
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


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDDBN_DATA", raising=False)
    monkeypatch.delenv("FEDDBN_DATA_URL", raising=False)


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


def test_impossible_arguments_are_refused(directory):
    with refused(ParameterError, "network=6"):
        dream4(6, directory)
    with refused(ParameterError, "n_sites=5", 4):
        dream4(2, directory)
    with refused(ParameterError, "sim=4"):
        netsim(4, path=directory)
    for subjects in ((0,), (1, 1), ()):
        with refused(ParameterError, f"subjects={list(subjects)}", 3):
            netsim(1, subjects, directory)


def test_a_named_directory_without_the_file_is_an_error_and_never_a_download(directory, monkeypatch):
    with refused(FileError, "path", "'netsim/sim2.mat'"):
        netsim(2, path=directory)
    monkeypatch.setenv("FEDDBN_DATA", str(directory))
    with refused(FileError, "FEDDBN_DATA", "'netsim/sim2.mat'"):
        netsim(2)


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("a\tb\n1\t2\n", ("'Time'",)),
        ("Time\tG1\n", ("timeseries",)),
        ("Time\tG1\n0\t1\t2\n", ("line 2", 2)),
        ("Time\tG1\n0\tx\n", ("line 2", 2)),
    ],
)
def test_a_file_that_is_not_a_series_is_refused(directory, content, names):
    (directory / "dream4" / "insilico_size100_2_timeseries.tsv").write_text(content)
    with refused(FileError, *names):
        dream4(2, directory)


def test_a_file_that_is_not_a_gold_standard_or_not_netsim_is_refused(directory):
    (directory / "dream4" / "insilico_size100_2_goldstandard.tsv").write_text("G1\tG9\t1\n")
    with refused(FileError, "goldstandard", "line 1"):
        dream4(2, directory, n_sites=1)
    (directory / "netsim" / "sim1.mat").write_bytes(b"not a matlab file at all" * 20)
    savemat(directory / "netsim" / "sim2.mat", {"ts": np.zeros((4, 2))})
    for sim in (1, 2):
        with refused(FileError, f"sim{sim}.mat", "'ts'", "'net'"):
            netsim(sim, path=directory)


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


def test_without_pooch_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "pooch":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtra, match=r"pip install 'feddbn\[datasets\]'"):
        netsim(1)


def test_every_file_has_a_checksum():
    names = {
        f"dream4/insilico_size100_{k}_{kind}.tsv"
        for k in range(1, 6)
        for kind in ("goldstandard", "timeseries")
    }
    names |= {f"netsim/sim{k}.mat" for k in (1, 2, 3)}
    assert set(source_module.CHECKSUMS) == names
    assert all(len(digest) == 64 for digest in source_module.CHECKSUMS.values())
