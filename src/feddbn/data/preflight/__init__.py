"""The data-quality check: what a person should know about data before a fit, each with what cures it.

One pass over the tables as they were given fills a bounded `profile` of every recording; the checks look at profiles only.
A second pass reads the data as a fit would, so that its refusals and usable rows are told, too.

`quick_warnings` is the part that every fit runs: cheap, and only what is certain. A look at the first rows of each site
decides whether there is anything to examine; clean data stop there.
May import: data.checks, data.layout, data.memory, data.read, data.tables, core, errors, findings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import SiteData
from feddbn.data.checks import check_sites, summary
from feddbn.data.layout import Layout
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.data.preflight.between import check_between, check_columns, shape
from feddbn.data.preflight.columns import (
    CODES,
    centred,
    check_codes,
    check_dynamics,
    check_values,
    is_code,
    sentinels,
)
from feddbn.data.preflight.profile import SiteProfile, chunks, profile_sites, recorded
from feddbn.data.preflight.roles import check_index, check_keys, propose_kinds
from feddbn.data.read import read_sites
from feddbn.errors import DataError
from feddbn.findings import Finding, Findings

__all__ = ["preflight", "quick_warnings"]

_MOST_ROWS = 100_000
_KEYS = ("undeclared-time", "shuffled-time", "glued", "undeclared-id", "blocks")


def preflight(
    data: Any, n_lags: int = 1, *, whole_rows: bool = True, layout: Layout | None = None, **columns: Any
) -> Findings:
    """Return what was found in `data`, errors first; it is read by `layout`, or its fields by name (`feddbn.Layout`).

    `whole_rows` says whether the method needs rows without missing cells, or uses the cells that are there.

    Counts are of all rows; trends, cycles, outliers and comparisons look at a bounded part of each recording. Nothing here
    needs more memory for more rows.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data.preflight import preflight
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> rows[5, 0] = -999.0
    >>> [(one.code, one.level) for one in preflight({"a": rows})]
    [('outliers', 'note')]
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
    settled = {name for name, kind in layout.kinds.items() if kind.name != "continuous"}
    proposed = propose_kinds(sites, keys | set(layout.kinds))
    out += proposed
    glued = {str(f.values.get("site")) for f in out if f.code in ("glued", "shuffled-time", "ignored-index")}
    # Of declared kinds a fit refuses what does not fit; trends, outliers and levels mean nothing there.
    told = {name for finding in proposed for name in finding.about}
    out += _values(sites, keys | settled, glued, told)
    read = replace(layout, missing="drop" if whole_rows else "keep")
    out = _explained(out, _usable(data, n_lags, read, whole_rows))
    return Findings(out)


def _values(
    sites: Mapping[str, SiteProfile], keys: set[str], glued: set[str], told: set[str]
) -> list[Finding]:
    """Return findings about measurements; columns that seem to be something else are left out where they would mislead.

    Of `told` columns the kind is proposed already.
    """
    out: list[Finding] = []
    codes = {name: sentinels(one) for name, one in sites.items()}
    shared = [set(one.numeric) for one in sites.values()]
    first = next(iter(sites.values()), None)
    common = () if first is None else tuple(c for c in first.numeric if all(c in s for s in shared))
    columns = tuple(name for name in common if name not in keys)
    shapes = {}
    for name, one in sites.items():
        rows, medians = centred(one, codes[name])
        about = check_values(one, codes[name], rows, told | keys)
        out += [f for f in about if not (f.about and set(f.about) <= keys)]
        if name not in glued:
            # The course over glued recordings means nothing.
            out += check_dynamics(one, tuple(c for c in one.numeric if c not in keys), codes[name])
        if columns:
            shapes[name] = shape(one, columns, rows, medians)
    out = _everywhere(out, len(sites))
    if shapes:
        some = max(1, _MOST_ROWS // len(shapes))
        out += check_columns(columns, np.concatenate([one.rows[:some] for one in shapes.values()]))
        out += check_between(columns, shapes, sites)
    return out


def _everywhere(found: list[Finding], n_sites: int) -> list[Finding]:
    """A column that is constant at every site is refused by a fit: one error instead of many warnings."""
    flat = [finding for finding in found if finding.code == "constant"]
    if not flat or len(flat) < n_sites:
        return found
    common = tuple(c for c in flat[0].about if all(c in finding.about for finding in flat))
    if not common:
        return found
    error = Finding("constant", "error", {"everywhere": True}, common)
    return [f for f in found if f.code != "constant" or not set(f.about) <= set(common)] + [error]


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


def _usable(data: Any, n_lags: int, layout: Layout, whole_rows: bool) -> list[Finding]:
    try:
        sites = read_sites(data, layout=layout)
        table = summary(sites, n_lags)
    except DataError as error:
        return [_refusal(error)]
    out = []
    for name, row in table.iterrows():
        out += remarked(str(name), sites[str(name)])
        try:
            check_sites({str(name): sites[str(name)]}, n_lags)
        except DataError as error:
            out.append(_refusal(error, str(name)))
            continue
        out += few_usable(str(name), row, n_lags, whole_rows=whole_rows)
    return out


def _explained(found: list[Finding], about_rows: list[Finding]) -> list[Finding]:
    """Return both lists without a refusal that a better finding explains; that one becomes an error."""
    if any(finding.code == "header" for finding in found):
        # The columns' names are values then, and belong into no sentence.
        about_rows = []
    for refusal in about_rows:
        because = [f for f in found if f.code != "kinds" and set(refusal.about) & set(f.about)]
        if refusal.code == "refused" and because:
            about_rows = [one for one in about_rows if one is not refusal]
            found = [replace(f, level="error") if f in because else f for f in found]
    return found + about_rows


def _refusal(error: DataError, site: str | None = None) -> Finding:
    """A refusal of the reader; about a column where it says which is not numeric."""
    column = error.values.get("column")
    parts = [part if isinstance(part, str) else part.plain for part in error.parts]
    values = {"text": str(error), "parts": parts, "why": error.code} | (
        {} if site is None else {"site": site}
    )
    return Finding("refused", "error", values, () if column is None else (str(column),))


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
    return _once(found)


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


def few_usable(
    site: str, row: pd.Series, n_lags: int, share: float = 0.5, whole_rows: bool = True
) -> list[Finding]:
    """Return a finding if less than this share of a site's rows can be used; `row` is one of `feddbn.data.summary`.

    `whole_rows` says whether a row with a missing cell, or after one, is of no use.
    """
    rows = int(row["rows"] + row["dropped_rows"])
    usable = int(row["complete_rows" if whole_rows else "usable_rows"])
    if usable >= share * (rows - n_lags * int(row["recordings"])):
        return []
    values = {"site": site, "usable": usable, "rows": rows, "n_lags": n_lags, "whole_rows": whole_rows}
    return [Finding("usable-rows", "warning", values)]
