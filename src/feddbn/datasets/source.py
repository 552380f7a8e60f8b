"""Where the files are: a directory the user names, or a checked download.

The order is: the `path` argument, the environment variable FEDDBN_DATA, a download. A directory that was
named and lacks a file is an error, never a reason to download: what was asked for is what is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.errors import FileError, MissingExtra

__all__ = ["CHECKSUMS", "SOURCE_URL", "Dataset", "locate", "locate_local"]

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
    >>> from feddbn.datasets import netsim
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
        raise MissingExtra("pooch", "datasets") from None
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
