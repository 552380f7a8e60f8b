"""True networks as files: one network, or one per site.

A shared truth is an ordinary stored network (``feddbn-dbn``); different ones are
``{"format": "feddbn-truths", "version": 1, "sites": {site: network}}``. Both may say
under ``simulated`` how the data were drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feddbn.errors import FileError, InputError, ParameterError
from feddbn.model.dbn import DBN
from feddbn.results.result import FORMAT as RESULT_FORMAT
from feddbn.results.result import Result, plain, read_json, write_json
from feddbn.sim.simulation import SimulatedFederation

__all__ = [
    "TRUTHS_FORMAT",
    "Truth",
    "cell_maps_of",
    "has_own_scales",
    "own_course",
    "read_estimate",
    "read_network",
    "read_truth",
    "truth_of_sites",
    "write_truth",
]

TRUTHS_FORMAT = "feddbn-truths"
Truth = DBN | dict[str, DBN]


def write_truth(federation: SimulatedFederation, path: str | Path) -> Path:
    """Write the networks behind a simulated federation and return the path."""
    extra = {"simulated": plain(federation.parameters)}
    if federation.is_homogeneous:
        return write_json({**federation.truth.to_dict(), **extra}, path)
    sites = {site: truth.to_dict() for site, truth in federation.truths.items()}
    return write_json({"format": TRUTHS_FORMAT, "version": 1, "sites": sites, **extra}, path)


def read_truth(path: str | Path) -> Truth:
    """Return the network in a file, or site -> network; a result stands for its network."""
    shared, of_sites = _read(path)
    if shared is not None:
        return shared
    assert of_sites is not None
    return of_sites


def _read(path: str | Path) -> tuple[DBN | None, dict[str, DBN] | None]:
    """Return (the network for all sites, site -> its own) of a result, truth or network file; it lacks at most one."""
    stored, where = read_json(path), f"file {str(path)!r}"
    kind, version = stored.get("format"), stored.get("version")
    if kind == RESULT_FORMAT:
        result = Result.from_dict(stored, where)
        own = {str(stored["site"]): result.dbn} if stored.get("site") else None
        # A deployment's result names no site: their own networks stay with them.
        return result.dbn, result.personal or own
    try:
        if kind != TRUTHS_FORMAT:
            return DBN.from_dict(stored), None
        if version != 1:
            raise FileError(f"its version is {version!r}, but this feddbn reads 1; upgrade feddbn.")
        return None, _networks(stored)
    except InputError as error:
        raise FileError(f"{where} holds no true network: {error}") from None


def _networks(stored: Mapping[str, Any]) -> dict[str, DBN]:
    sites = stored.get("sites")
    if not isinstance(sites, dict) or not sites:
        raise FileError("it has no 'sites'.")
    return {str(site): DBN.from_dict(network) for site, network in sites.items()}


def truth_of_sites(truth: Truth, found: Truth) -> dict[str, DBN]:
    """Return the true network of every site; one truth stands for all sites of `found`."""
    if not isinstance(truth, DBN):
        return truth
    return {} if isinstance(found, DBN) else dict.fromkeys(found, truth)


def read_estimate(path: str | Path) -> Truth:
    """Return the network in a result or network file, or each site's own if the result has them."""
    shared, of_sites = _read(path)
    if of_sites is not None:
        return of_sites
    assert shared is not None
    return shared


def own_course(path: str | Path) -> dict[str, Any] | None:
    """What every recording lost before a result was learned: degree, periods, gains; None if it was not even its mean."""
    stored = read_json(path)
    facts = stored.get("diagnostics")
    if stored.get("format") != RESULT_FORMAT or not isinstance(facts, dict):
        return None
    if facts.get("center") != "recording":
        return None
    done = _treatment(path)
    return {
        "degree": int(done.get("degree") or 0),
        "periods": tuple(float(period) for period in done.get("periods") or ()),
    }


def has_own_scales(path: str | Path) -> bool:
    """Whether a file is a result for which every site was brought to the mean scale of all."""
    return _treatment(path).get("gains") == "site"


def cell_maps_of(path: str | Path) -> tuple[str, ...]:
    """What was made of each cell before a result was learned, and has to be made of rows it is used on."""
    return tuple(map(str, _treatment(path).get("cell_maps") or ()))


def _treatment(path: str | Path) -> dict[str, Any]:
    facts = read_json(path).get("diagnostics")
    done = facts.get("treatment") if isinstance(facts, dict) else None
    return done if isinstance(done, dict) else {}


def read_network(path: str | Path, site: str | None = None) -> DBN:
    """Return one network of a result, truth or network file: the shared one, or that of a `site`."""
    shared, of_sites = _read(path)
    where = f"file {str(path)!r}"
    if site is None:
        if shared is None:
            raise ParameterError(f"{where} has a network per site and none for all; name one of its sites.")
        return shared
    if not of_sites or site not in of_sites:
        own = f"its sites are {', '.join(of_sites)}" if of_sites else "it has one network for all sites"
        raise ParameterError(f"{where} has no network of site {site!r}; {own}.")
    return of_sites[site]
