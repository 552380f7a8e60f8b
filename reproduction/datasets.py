"""Public benchmark data, read from a directory or downloaded with checksums; none is in the package.

Where the files are: the order is: the `path` argument, the environment variable FEDDBN_DATA, a download. A directory that
was named and lacks a file is an error, never a reason to download: what was asked for is what is read.

    DREAM4              in-silico networks of 100 genes (GeneNetWeaver; Marbach et al. 2009, Prill et al. 2010)
    NetSim              simulated BOLD signals of brain networks (Smith et al. 2011, NeuroImage 54)
    IT monitoring       four computer systems with graphs drawn by their engineers (Ait-Bachir et al. 2023)
    Tennessee Eastman   a chemical plant, simulated, with its graph (CIPCaD-Bench; Menegozzo et al. 2022)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.io import loadmat

from feddbn.errors import FileError, ParameterError
from feddbn.settings import word

__all__ = ["IT_SYSTEMS", "Dataset", "dream4", "load_it_monitoring", "load_tennessee_eastman", "netsim"]

SOURCE_URL = "https://raw.githubusercontent.com/PeChen123/FDBN_Learning/main/"
"""Origin of the files; FEDDBN_DATA_URL replaces it by a mirror with the same names under it."""

_SHA256SUMS = """
839ed6be71f52313fc35256892a5e4e38faf7df637ee91e67757b996a3f12e1e  dream4/insilico_size100_1_goldstandard.tsv
d2701670f17e5ade34624c9252fbad4e799156ed4a055ddc97388c1aeddd6336  dream4/insilico_size100_1_timeseries.tsv
5bdf23ce7c28c7f0c2316661632ea17d2c1b79295507cbf12fd4010000d2f3d9  dream4/insilico_size100_2_goldstandard.tsv
5e738fc7ae6c45ff163aa81e66f8a765fa1562fc67464cfe204d326e4d05f87a  dream4/insilico_size100_2_timeseries.tsv
2bc529512045cb4961c6856ba07855ae934aaff4bbb1c86f45aedfeef7d13fc4  dream4/insilico_size100_3_goldstandard.tsv
4820581efddce33d9eb161a9d5c2d530d73e8d1aaeef96609eea6bb405769e18  dream4/insilico_size100_3_timeseries.tsv
84e28bec273d1c4efe3d04b9e3678eda1848fb53616de90e811acac571ed34f5  dream4/insilico_size100_4_goldstandard.tsv
392e44acca4a7af9fd16b3d57cdfd3b5f9b60c4c013508cf34496eb106b7f65e  dream4/insilico_size100_4_timeseries.tsv
667909b9fe1b3a9933fb340da4da168d71d218473f7a5ec888249c7435985535  dream4/insilico_size100_5_goldstandard.tsv
234c4b36cf55ff185d12d201a22286844b38a2ce494b72380e96b195f8e6150d  dream4/insilico_size100_5_timeseries.tsv
7201bbd41f796b86965cbb4a5f83b02845c9fea00baa987c96a4d3a07b28e19f  netsim/sim1.mat
bb2c03fffa8ecd33803c6897c1fd94cb751feff8b2a4e47c92e0e4e374c262c6  netsim/sim2.mat
50e42e322d0c22994d5293ce30235967b3ee5bd2e1826e65c319f6bf268bed34  netsim/sim3.mat
"""
CHECKSUMS: dict[str, str] = {
    name: digest for digest, name in (line.split() for line in _SHA256SUMS.strip().splitlines())
}
"""SHA-256 of every file, by its name."""


@dataclass(frozen=True)
class Dataset:
    """A federation with a known network.

    Attributes
    ----------
    name
        Which data.
    sites
        Site name -> its recordings, one DataFrame each, ready for any estimator's `fit`.
    truth
        (d, d) of 0 and 1, [from, to], no self-loops: the edges that every site has.
    truths
        The same for each site.
    variables
        d names.

    Examples
    --------
    >>> from reproduction.datasets import netsim
    >>> data = netsim(3, subjects=[1, 2])
    >>> len(data.sites), data.truth.shape == (len(data.variables),) * 2
    (2, True)
    """

    name: str
    sites: Mapping[str, list[pd.DataFrame]]
    truth: NDArray[np.int_]
    truths: Mapping[str, NDArray[np.int_]]
    variables: tuple[str, ...]


def locate(name: str, path: str | os.PathLike[str] | None = None) -> Path:
    """Return the file `name`, such as ``netsim/sim3.mat``; downloaded if no directory is named."""
    named = path if path is not None else os.environ.get("FEDDBN_DATA") or None
    if named is None:
        return _download(name)
    directory = Path(named)
    for candidate in (directory / name, directory / Path(name).name):
        if candidate.is_file():
            return candidate
    argument = "path" if path is not None else "the environment variable FEDDBN_DATA"
    cure = ", or leave the directory unnamed to download it." if name in CHECKSUMS else "."
    raise FileError(f"{argument} names {str(directory)!r}, which has no file {name!r}; put it there{cure}")


def locate_local(name: str, path: str | os.PathLike[str] | None, origin: str) -> Path:
    """Return the file `name` of a named directory; these files are not downloaded, so a sentence tells their `origin`."""
    if path is None and not os.environ.get("FEDDBN_DATA"):
        raise FileError(
            f"{name!r} is not downloaded; get it from {origin}, put it into a directory"
            " and name that by path= or the environment variable FEDDBN_DATA."
        )
    return locate(name, path)


def _download(name: str) -> Path:
    try:
        import pooch
    except ImportError:
        raise FileError(
            f"{name!r} is downloaded by pooch, which is not installed; install reproduction/requirements.txt."
        ) from None
    base = os.environ.get("FEDDBN_DATA_URL", SOURCE_URL)
    folder, _, file = name.rpartition("/")
    try:
        found = pooch.retrieve(
            base.rstrip("/") + "/" + name,
            known_hash=f"sha256:{CHECKSUMS[name]}",
            fname=file,
            path=pooch.os_cache("feddbn") / folder,
            downloader=pooch.HTTPDownloader(timeout=30),
        )
    except Exception as error:  # a network fails in many types, and a wrong checksum is one more
        raise FileError(
            f"{name!r} could not be downloaded from {base} ({type(error).__name__}); get it from there"
            " or another mirror, put it into a directory"
            " and name that by path= or the environment variable FEDDBN_DATA."
        ) from error
    return Path(found)


STIMULUS = "stimulus"
_STIMULATED_TRANSITIONS = 10


def dream4(
    network: int = 1, path: str | os.PathLike[str] | None = None, *, n_sites: int = 5, stimulus: bool = False
) -> Dataset:
    """Return one of the five networks: ten series of 21 time points, two per site by default, and the true
    edges.

    Parameters
    ----------
    network
        1 to 5.
    path
        Directory with ``dream4/insilico_size100_*.tsv``; by default FEDDBN_DATA, else a download.
    n_sites
        Number of sites, at most ten; the series are dealt out in order.
    stimulus
        Add the column ``stimulus``: 1 in rows that were reached under the perturbation (time points 0 to 10),
        0 after it was removed (challenge description). Its targets differ between series and are unknown,
        which is what ``center_by="stimulus"`` is for.

    Examples
    --------
    >>> from reproduction.datasets import dream4
    >>> data = dream4(1, n_sites=5)
    >>> len(data.sites), len(data.variables), int(data.truth.sum())
    (5, 100, 176)
    """
    if network not in (1, 2, 3, 4, 5):
        raise ParameterError(f"network={network!r} must be 1, 2, 3, 4 or 5.")
    stem = f"dream4/insilico_size100_{network}"
    series = _read_series(locate(f"{stem}_timeseries.tsv", path))
    if not 1 <= n_sites <= len(series):
        raise ParameterError(
            f"n_sites={n_sites!r} must lie between 1 and the number of series, {len(series)}."
        )
    variables = tuple(str(name) for name in series[0].columns)
    truth = _read_edges(locate(f"{stem}_goldstandard.tsv", path), variables, "from, to, 0 or 1")
    if stimulus:
        series = [
            frame.assign(**{STIMULUS: (np.arange(len(frame)) <= _STIMULATED_TRANSITIONS).astype(int)})
            for frame in series
        ]
    sites = {
        f"client-{k + 1}": [series[i] for i in part]
        for k, part in enumerate(np.array_split(np.arange(len(series)), n_sites))
    }
    return Dataset(f"DREAM4 size 100 network {network}", sites, truth, dict.fromkeys(sites, truth), variables)


def _read_series(file: Path) -> list[pd.DataFrame]:
    """Series of one file: a header, then groups of rows separated by blank lines; the time comes first."""
    lines = file.read_text(encoding="utf-8").splitlines()
    names = [name.strip().strip('"') for name in lines[0].split("\t")] if lines else []
    if len(names) < 2 or names[0] != "Time":
        raise FileError(f"{str(file)!r} is not a DREAM4 time series: its first column must be 'Time'.")
    groups: list[list[list[float]]] = [[]]
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            groups.append([])
            continue
        try:
            values = [float(cell) for cell in line.split("\t")]
        except ValueError:
            values = []
        if len(values) != len(names):
            raise FileError(
                f"{str(file)!r} has {len(names)} columns, but line {number} has not so many numbers."
            )
        groups[-1].append(values)
    frames = [pd.DataFrame(np.array(group)[:, 1:], columns=names[1:]) for group in groups if group]
    if not frames:
        raise FileError(f"{str(file)!r} is not a DREAM4 time series: it has no rows.")
    return frames


PAPER_SUBJECTS: dict[int, tuple[int, ...]] = {1: (3, 6, 9, 12, 15), 2: (2, 4, 6, 8, 10), 3: (1, 3, 5, 7, 9)}
"""Subjects of the paper's per-subject FDBNL experiment, counted from 1."""


def netsim(
    sim: int = 3, subjects: Iterable[int] | None = None, path: str | os.PathLike[str] | None = None
) -> Dataset:
    """Return subjects of sim1 (5 nodes), sim2 (10) or sim3 (15): one site per subject, 200 time steps each.

    ``net[i, j]`` of the file is read as i -> j. Its diagonal of -1 (self-decay) is not an edge and is left
    out.

    Parameters
    ----------
    sim
        1, 2 or 3.
    subjects
        Numbers from 1; all by default. `PAPER_SUBJECTS[sim]` are the paper's five.
    path
        Directory with ``netsim/sim*.mat``; by default FEDDBN_DATA, else a download.

    Examples
    --------
    >>> from reproduction.datasets import netsim
    >>> data = netsim(3, subjects=[1, 2])
    >>> sorted(data.sites), data.truth.shape
    (['subject-01', 'subject-02'], (15, 15))
    """
    if sim not in (1, 2, 3):
        raise ParameterError(f"sim={sim!r} must be 1, 2 or 3.")
    file = locate(f"netsim/sim{sim}.mat", path)
    try:
        content = loadmat(file)
        series, net = (
            np.asarray(content["ts"], dtype=np.float64),
            np.asarray(content["net"], dtype=np.float64),
        )
        series = series.reshape(len(net), -1, net.shape[1])
    except (ValueError, KeyError, IndexError, TypeError, OSError) as error:
        raise FileError(
            f"{str(file)!r} is not a NetSim file ({type(error).__name__}): it needs 'ts' and 'net'."
        ) from error
    chosen = list(range(1, len(net) + 1)) if subjects is None else [int(s) for s in subjects]
    wrong = [s for s in chosen if not 1 <= s <= len(net)]
    if wrong or not chosen or len(set(chosen)) < len(chosen):
        raise ParameterError(f"subjects={chosen!r} must be different numbers between 1 and {len(net)}.")
    variables = tuple(f"node-{i + 1}" for i in range(net.shape[1]))
    sites = {f"subject-{s:02d}": [pd.DataFrame(series[s - 1], columns=list(variables))] for s in chosen}
    off_diagonal = ~np.eye(len(variables), dtype=bool)
    truths = {f"subject-{s:02d}": ((net[s - 1] != 0) & off_diagonal).astype(int) for s in chosen}
    everywhere = np.min(list(truths.values()), axis=0)
    return Dataset(f"NetSim sim{sim}", sites, everywhere, truths, variables)


IT_SYSTEMS: tuple[str, ...] = ("antivirus", "middleware", "storm", "web")
"""The systems, in the order of the tables in docs/real-data.md."""

_ORIGIN = "the repository ckassaad/Case_Studies_of_Causal_Discovery_from_IT_Monitoring_Time_Series"
_GRAPHS = {"storm": "storm_structure.txt"}
_PREPARED = ("antivirus", "web")
_UNEVEN = "middleware"


def load_it_monitoring(
    system: str, path: str | os.PathLike[str] | None = None, *, preparation: int = 1
) -> Dataset:
    """Return one system: its sites and the edges that its engineers expect, at any lag.

    ==========  ==========================================  =======================================================
    system      sites                                       rows
    ==========  ==========================================  =======================================================
    antivirus   one                                         1,320 of five minutes
    middleware  two runs of a load test, hours apart        288 and 364 seconds; those that were skipped are empty
    storm       one                                         991
    web         one                                         7,500 of five minutes
    ==========  ==========================================  =======================================================

    The two files of antivirus and of web are two preparations of the same measurements, so they are no two sites, and their
    rows must not be counted twice; docs/real-data.md says how this is seen.

    Parameters
    ----------
    system
        One of `IT_SYSTEMS`.
    path
        Directory with ``it-monitoring/<system>/``; by default FEDDBN_DATA. These files are not downloaded.
    preparation
        Which file of antivirus and web: 1 keeps measured values, 2 interpolates between them, which puts a part of
        the next measurement into the present.

    Examples
    --------
    >>> from reproduction.datasets import IT_SYSTEMS, load_it_monitoring
    >>> data = load_it_monitoring(IT_SYSTEMS[0])
    >>> data.truth.shape[0] == len(data.variables)
    True
    """
    word(*IT_SYSTEMS).check("system", system)
    if preparation not in (1, 2) or (preparation == 2 and system not in _PREPARED):
        raise ParameterError(
            f"preparation={preparation!r} must be 1, or 2 for {' and '.join(_PREPARED)}; the system is {system!r}."
        )

    def file(name: str) -> Path:
        return locate_local(f"it-monitoring/{system}/{name}", path, _ORIGIN)

    if system in _PREPARED:
        sites = {system: [_read_rows(file(f"preprocessed_{preparation}.csv"))]}
    elif system == _UNEVEN:
        sites = {f"run-{k}": [_every_second(_read_rows(file(f"monitoring_metrics_{k}.csv")))] for k in (1, 2)}
    else:
        sites = {system: [_read_rows(file("storm_data_normal.csv"))]}
    frames = [recordings[0] for recordings in sites.values()]
    variables = tuple(str(name) for name in frames[0].columns)
    if any(list(frame.columns) != list(variables) for frame in frames):
        raise FileError(f"the files of {system} in 'it-monitoring/{system}' do not have the same columns.")
    truth = _read_edges(file(_GRAPHS.get(system, "structure.txt")), variables, "cause, effect")
    return Dataset(f"IT monitoring: {system}", sites, truth, dict.fromkeys(sites, truth), variables)


def _read_rows(file: Path) -> pd.DataFrame:
    """The measurements; the first column is the time or the number of the row and becomes the index."""
    try:
        frame = pd.read_csv(file, index_col=0).astype(np.float64)
    except (ValueError, TypeError, pd.errors.ParserError) as error:
        raise FileError(f"{str(file)!r} is no table of numbers with a time in its first column.") from error
    if not len(frame) or not len(frame.columns):
        raise FileError(f"{str(file)!r} is no table of numbers with a time in its first column: it is empty.")
    return frame


def _read_edges(file: Path, variables: tuple[str, ...], line_is: str) -> NDArray[np.int_]:
    """(d, d) of 0 and 1 from lines with a cause and an effect and, if a line has more, whether there is an edge."""
    position = {name: k for k, name in enumerate(variables)}
    truth = np.zeros((len(variables), len(variables)), dtype=int)
    n_cells = line_is.count(",") + 1
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        cells = line.split()
        if not cells:
            continue
        is_edge = [*cells, "1"][2] if len(cells) == n_cells else ""
        if any(name not in position for name in cells[:2]) or is_edge not in ("0", "1"):
            raise FileError(
                f"{str(file)!r} does not have the edges of these variables: line {number} is not '{line_is}'."
            )
        truth[position[cells[0]], position[cells[1]]] = int(is_edge)
    np.fill_diagonal(truth, 0)
    return truth


def _every_second(frame: pd.DataFrame) -> pd.DataFrame:
    """The same with an empty row for every second that was skipped, so that a lag is a second everywhere."""
    seconds = pd.RangeIndex(int(frame.index[0]), int(frame.index[-1]) + 1, name=frame.index.name)
    return frame.reindex(seconds)


_PLANT = "the repository giovanniMen/CPCaD-Bench"
_N = 33


def load_tennessee_eastman(path: str | os.PathLike[str] | None = None) -> Dataset:
    """Return the plant: one site, 1,499 rows, 31 of the variables X1 to X33 (X27 and X31 are absent), and 28 edges.

    The graph's file does not say which way it is meant. It is read as [effect, cause], because the valves X23 to X26
    then set the flows X1 to X4 and not the other way round; `Dataset.truth` is [from, to] as everywhere.

    Parameters
    ----------
    path
        Directory with ``tep/datasetTE.csv`` and ``tep/TEGroundTruth.txt``; by default FEDDBN_DATA. These files are not
        downloaded.

    Examples
    --------
    >>> from reproduction.datasets import load_tennessee_eastman
    >>> data = load_tennessee_eastman()
    >>> data.truth.shape[0] == len(data.variables)
    True
    """
    file = locate_local("tep/datasetTE.csv", path, _PLANT)
    frame = _read_rows(file)
    unknown = set(map(str, frame.columns)) - {f"X{k}" for k in range(1, _N + 1)}
    if unknown:
        raise FileError(f"{str(file)!r} must have columns X1 to X{_N}, got {min(unknown)!r}.")
    graph = _read_plant_graph(locate_local("tep/TEGroundTruth.txt", path, _PLANT))
    variables = tuple(str(name) for name in frame.columns)
    measured = [int(name[1:]) - 1 for name in variables]
    truth = graph[np.ix_(measured, measured)].T.copy()
    np.fill_diagonal(truth, 0)
    sites = {"plant": [frame]}
    return Dataset("Tennessee Eastman", sites, truth, {"plant": truth}, variables)


def _read_plant_graph(file: Path) -> NDArray[np.int_]:
    try:
        graph = np.loadtxt(file)
    except ValueError as error:
        raise FileError(f"{str(file)!r} is not a matrix of {_N} x {_N} numbers.") from error
    if graph.shape != (_N, _N):
        raise FileError(f"{str(file)!r} is not a matrix of {_N} x {_N} numbers, but of shape {graph.shape}.")
    edges: NDArray[np.int_] = (graph != 0).astype(int)
    return edges
