"""The part of the pre-flight check that every fit runs: cheap, and only what is certain.

A look at the first rows of each site decides whether there is anything to examine; clean data stop there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import SiteData
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.data.preflight.finding import Finding
from feddbn.data.preflight.keys import check_index, check_keys
from feddbn.data.preflight.profile import profile_sites
from feddbn.data.preflight.raw import recorded
from feddbn.data.preflight.usable import few_usable
from feddbn.data.preflight.values import CODES, check_codes, is_code, sentinels

__all__ = ["quick_warnings", "remarked"]

_ROWS = 2000
_FEW_ROWS = 64
_NEAR_EMPTY = 0.25


def quick_warnings(
    data: Any,
    sites: Mapping[str, SiteData],
    table: pd.DataFrame,
    n_lags: int,
    declared: Collection[str],
    whole_rows: bool = True,
) -> list[str]:
    """Return one sentence per finding, with its cure.

    Parameters
    ----------
    data, sites
        What was given to a fit, and what it was read as.
    table
        `feddbn.data.summary` of the sites.
    declared
        Names of columns and index levels whose role was declared.
    whole_rows
        Whether the method needs rows without missing cells, or uses the cells that are there.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data import read_sites, summary
    >>> from feddbn.data.preflight import quick_warnings
    >>> data = {"a": np.random.default_rng(0).normal(size=(200, 2))}
    >>> sites = read_sites(data)
    >>> quick_warnings(data, sites, summary(sites, 1), n_lags=1, declared=[])
    []
    """
    found = list(_ignored_levels(data, declared))
    for name, site in sites.items():
        found += remarked(name, site)
    starts = {name: _beginning(site) for name, site in sites.items()}
    for name in _suspicious({name: start[0] for name, start in starts.items() if start is not None}):
        start = starts[name]
        assert start is not None
        found += _examine(name, MemorySite(tuple(sites[name].variables), (start[1],)))
    usable = table["complete_rows" if whole_rows else "usable_rows"].to_numpy()
    rows = (table["rows"] + table["dropped_rows"]).to_numpy()
    for k in np.flatnonzero(usable < _NEAR_EMPTY * rows).tolist():
        found += few_usable(str(table.index[k]), table.iloc[k], n_lags, _NEAR_EMPTY, whole_rows)
    return _sentences(found)


def remarked(name: str, site: SiteData) -> list[Finding]:
    """Return what was decided when the site was read."""
    return [
        Finding(what, "note", sentence, cure, name) for what, sentence, cure in getattr(site, "remarks", ())
    ]


def _ignored_levels(data: Any, declared: Collection[str]) -> Iterable[Finding]:
    for name, value in data.items() if isinstance(data, Mapping) else [("site-0", data)]:
        frame = value[0] if isinstance(value, (list, tuple)) and value else value
        levels = frame.index.names if isinstance(frame, pd.DataFrame) else []
        if len(levels) > 1 and not any(level in declared for level in levels):
            yield from check_index(frame.index, str(name))


def _beginning(site: SiteData) -> tuple[FloatArray, ArrayRecording] | None:
    """The first rows of a site, and the recording they are."""
    recording = next(iter(site.recordings()), None)
    if recording is None:
        return None
    blocks, n = [], 0
    for block in recording.blocks():
        blocks.append(block)
        n += len(block.values)
        if n >= _ROWS:
            break
    if not n:
        return None
    rows = blocks[0].values if len(blocks) == 1 else np.concatenate([block.values for block in blocks])
    return rows, ArrayRecording(recording.name, tuple(blocks))


def _suspicious(starts: Mapping[str, FloatArray]) -> list[str]:
    """Sites with a column that ends in a known code for missing, holds whole numbers or rises all the time."""
    names = list(starts)
    # fmin and fmax look at the cells that are there.
    ends = [np.concatenate([np.fmin.reduce(rows), np.fmax.reduce(rows)]) for rows in starts.values()]
    # One look-up for all sites: thousands of small ones would be slow.
    coded = (
        np.isin(np.concatenate(ends), CODES) | (np.abs(np.concatenate(ends)) >= 1e20) if ends else np.empty(0)
    )
    owners = np.repeat(np.arange(len(ends)), [len(end) for end in ends])
    odd = set(owners[coded].tolist()) if coded.any() else set()
    return [name for k, name in enumerate(names) if k in odd or _may_be_key(starts[name][:_FEW_ROWS])]


def _may_be_key(rows: FloatArray) -> bool:
    if len(rows) < 20:
        return False
    # A time or a name lacks no cell.
    rows = rows[:, ~np.isnan(rows).any(axis=0)]
    is_whole = rows[0] == np.rint(rows[0])
    if is_whole.any() and (rows[:, is_whole] == np.rint(rows[:, is_whole])).all(axis=0).any():
        return True
    rises = (rows[:4] < rows[1:5]).all(axis=0)
    return bool(rises.any() and (rows[1:, rises] > rows[:-1, rises]).all(axis=0).any())


def _examine(name: str, site: MemorySite) -> list[Finding]:
    profile = profile_sites(recorded(name, site))[name]
    certain = ("undeclared-time", "shuffled-time", "glued")
    found = [f for f in check_keys(profile) if f.severity == "warning" and f.what in certain]
    codes = {column: held for column, held in sentinels(profile).items() if is_code(held[0])}
    return found + check_codes(profile, codes)


def _sentences(found: list[Finding]) -> list[str]:
    """Each finding once, with the number of other sites that have it."""
    groups: dict[tuple[str, tuple[str, ...]], list[Finding]] = {}
    for finding in found:
        groups.setdefault((finding.what, finding.columns), []).append(finding)
    out = []
    for same in groups.values():
        more = f" and {len(same) - 1} more" if len(same) > 1 else ""
        out.append(f"site {same[0].site!r}{more}: {same[0].sentence} Cure: {same[0].cure}.")
    return out
