"""What the tables of a federation show by themselves: roles of columns, cells that are no numbers, codes, kinds, repetitions.

One pass over the tables as they were given fills a bounded `profile` of every recording; the checks look at profiles only,
and say where something is. What is done to rows is decided by sums: `feddbn.analysis.data_check` joins both.

`quick_warnings` is the part that every fit runs: cheap, and only what is certain. A look at the first rows of each site
decides whether there is anything to examine; clean data stop there.
May import: data and below.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import SiteData
from feddbn.data.layout import Layout
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.findings import Finding, Findings
from feddbn.preflight.columns import CODES, check_codes, check_units, check_values, is_code, sentinels
from feddbn.preflight.profile import SiteProfile, chunks, profile_sites, recorded
from feddbn.preflight.roles import check_index, check_keys, propose_kinds

__all__ = ["preflight", "quick_warnings"]

_KEYS = ("undeclared-time", "shuffled-time", "glued", "undeclared-id", "blocks")


def preflight(data: Any, *, layout: Layout | None = None, **columns: Any) -> Findings:
    """Return what the tables of `data` show, errors first; they are read by a `feddbn.Layout`, or its fields by name.

    It says nothing of what a fit does to the rows: `feddbn.check` does, and has these findings, too. Counts are of all rows;
    what is costly looks at a bounded part of each recording. Nothing here needs more memory for more rows.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.preflight import preflight
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> rows[50:70, 0] = 0.5
    >>> [(one.code, one.level) for one in preflight({"a": rows})]
    [('stuck', 'warning')]
    """
    layout = Layout.of(layout, columns, "preflight")
    sites = profile_sites(chunks(data, layout))
    out: list[Finding] = []
    keys: set[str] = set()
    for profile in sites.values():
        about = check_keys(profile)
        if profile.index is not None:
            about += check_index(profile.index, profile.name)
        keys |= {c for finding in about if finding.code in _KEYS for c in finding.about}
        keys |= {c for c in profile.chosen if c.startswith("Unnamed: ")}
        out += about + _header(profile)
    keys |= {name for name, kind in layout.kinds.items() if kind.name != "continuous"}
    proposed = propose_kinds(sites, keys | set(layout.kinds))
    # What seems to be something else than a measurement is told as such.
    told = keys | {name for finding in proposed for name in finding.about}
    if _loses_rows(sites, keys):
        # A method for kinds uses complete rows only.
        proposed = []
    values = [one for site in sites.values() for one in check_values(site, told)]
    values = [one for one in values if not (one.about and set(one.about) <= keys)]
    empty = Counter(one.about for one in values if one.code == "empty-column")
    # Of what is empty everywhere no method learns.
    values = [replace(one, level="error") if empty[one.about] == len(sites) else one for one in values]
    return Findings([*out, *proposed, *values, *check_units(sites, told), *_repeated(sites)])


def _loses_rows(sites: Mapping[str, SiteProfile], keys: Collection[str]) -> bool:
    """Whether complete rows would be less than nine of ten; an empty cell costs its row and the one after it."""
    n = sum(one.n_rows for site in sites.values() for one in site.long)
    empty = sum(
        site.total("n_missing", name) for site in sites.values() for name in site.chosen if name not in keys
    )
    return 2 * empty > _LOST * n


def _repeated(sites: Mapping[str, SiteProfile]) -> list[Finding]:
    seen: dict[str, dict[str, str]] = {}
    out = []
    for name, site in sites.items():
        for one in site.long:
            head = one.head[:1000]
            if len(head) < 5 or not np.nanstd(head) > 0:
                continue
            key = hashlib.sha256(np.ascontiguousarray(head).tobytes() + str(one.n_rows).encode()).hexdigest()
            if key in seen:
                where = {"site": name, "recording": one.name}
                out.append(Finding("repeated", "warning", where | seen[key]))
            seen.setdefault(key, {"same_site": name, "same_recording": one.name})
    return out


def _header(site: SiteProfile) -> list[Finding]:
    names = [name for name in site.chosen if not name.startswith("Unnamed: ")]
    if not site.is_file or not names or not all(_is_number(name) for name in names):
        return []
    return [Finding("header", "error", {"site": site.name})]


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


_ROWS = 2000
_FEW_ROWS = 64
_NEAR_EMPTY = 0.25
_LOST = 0.1


def quick_warnings(
    data: Any,
    sites: Mapping[str, SiteData],
    table: pd.DataFrame,
    n_lags: int,
    declared: Collection[str],
    whole_rows: bool = True,
) -> list[Finding]:
    """Return what is certain, each finding once with the number of sites that have it.

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
    >>> from feddbn.preflight import quick_warnings
    >>> data = {"a": np.random.default_rng(0).normal(size=(200, 2))}
    >>> sites = read_sites(data)
    >>> quick_warnings(data, sites, summary(sites, 1), n_lags=1, declared=[])
    []
    """
    found = list(_ignored_levels(data, declared))
    for name, site in sites.items():
        found += remarked(name, site)
        found += [Finding("empty-column", "warning", {"site": name}, (one,)) for one in _empty(site)]
    starts = {name: _beginning(site) for name, site in sites.items()}
    for name in _suspicious({name: start[0] for name, start in starts.items() if start is not None}):
        start = starts[name]
        assert start is not None
        step = getattr(sites[name], "step", None)
        found += _examine(name, MemorySite(tuple(sites[name].variables), (start[1],), step=step))
    for name, start in starts.items():
        if start is not None:
            found += _flat(name, sites[name], start[0])
    usable = table["complete_rows" if whole_rows else "usable_rows"].to_numpy()
    rows = (table["rows"] + table["dropped_rows"]).to_numpy()
    for k in np.flatnonzero(usable < _NEAR_EMPTY * rows).tolist():
        found += few_usable(str(table.index[k]), table.iloc[k], n_lags, whole_rows)
    return _once(found)


def _empty(site: SiteData) -> list[str]:
    """The columns without any value; as a rule the first rows show that there is none."""
    is_empty = np.ones(len(site.variables), dtype=bool)
    for recording in site.recordings():
        for block in recording.blocks():
            is_empty &= np.isnan(block.values).all(axis=0)
            if not is_empty.any():
                return []
    return [name for name, one in zip(site.variables, is_empty, strict=True) if one]


def remarked(name: str, site: SiteData) -> list[Finding]:
    """Return what was decided when the site was read."""
    return [replace(one, values={**one.values, "site": name}) for one in getattr(site, "remarks", ())]


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


def _flat(name: str, site: SiteData, start: FloatArray) -> list[Finding]:
    """A finding if columns of a site never change; rows after the first are looked at only if these do not tell."""
    low, high = np.fmin.reduce(start), np.fmax.reduce(start)
    if not (low == high).any() or len(start) < 2:
        return []
    for block in (block for recording in site.recordings() for block in recording.blocks()):
        low = np.fmin(low, np.fmin.reduce(block.values))
        high = np.fmax(high, np.fmax.reduce(block.values))
        if not (low == high).any():
            return []
    flat = tuple(np.array(site.variables)[low == high].tolist())
    return [Finding("constant", "warning", {"site": name}, flat)]


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
    found = [f for f in check_keys(profile) if f.level == "warning" and f.code in certain]
    codes = {column: held for column, held in sentinels(profile).items() if is_code(held[0])}
    return found + check_codes(profile, codes)


def _once(found: list[Finding]) -> list[Finding]:
    """Each finding once, with the number of sites that have it."""
    groups: dict[tuple[str, tuple[str, ...]], list[Finding]] = {}
    for finding in found:
        groups.setdefault((finding.code, finding.about), []).append(finding)
    return [
        replace(same[0], values={**same[0].values, "n_sites": len(same)}) if len(same) > 1 else same[0]
        for same in groups.values()
    ]


def few_usable(site: str, row: pd.Series, n_lags: int, whole_rows: bool) -> list[Finding]:
    """Return a finding if hardly any of a site's rows can be used; `row` is one of `feddbn.data.summary`.

    `whole_rows` says whether a row with a missing cell, or after one, is of no use.
    """
    rows = int(row["rows"] + row["dropped_rows"])
    usable = int(row["complete_rows" if whole_rows else "usable_rows"])
    if usable >= _NEAR_EMPTY * (rows - n_lags * int(row["recordings"])):
        return []
    values = {"site": site, "usable": usable, "rows": rows, "n_lags": n_lags, "whole_rows": whole_rows}
    # The cells are there, and the method cannot use them.
    is_lost = whole_rows and usable < _NEAR_EMPTY * int(row["usable_rows"])
    return [Finding("usable-rows", "error" if is_lost else "warning", values)]
