"""What the profiles of sites make doubtful: roles of columns, cells that are no numbers, codes, kinds, repetitions.

`doubts` are what `feddbn.check` shows of tables, `certain_doubts` the part of them that every fit tells.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from feddbn.core.designs.recordings import SiteData
from feddbn.data.columns import check_codes, check_units, check_values, constants, empty_columns, sentinels
from feddbn.data.profile import Profile, profile_of
from feddbn.data.roles import check_index, check_keys, propose_kinds
from feddbn.findings import Finding, Findings

__all__ = ["certain_doubts", "doubts"]

_KEYS = ("undeclared-time", "shuffled-time", "glued", "undeclared-id", "blocks")
_CERTAIN = ("undeclared-time", "shuffled-time", "glued")
_NEAR_EMPTY = 0.25
_LOST = 0.1


def doubts(sites: Mapping[str, SiteData], settled: Collection[str] = ()) -> Findings:
    """Return what the tables of some sites show, errors first; kinds are `settled` for some variables.

    It says nothing of what a fit does to the rows: `feddbn.check` does, and has these findings, too.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data import read_sites
    >>> from feddbn.data.doubts import doubts
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> rows[50:70, 0] = 0.5
    >>> [(one.code, one.level) for one in doubts(read_sites({"a": rows}))]
    [('stuck', 'warning')]
    """
    profiles = {name: profile_of(name, site) for name, site in sites.items()}
    out: list[Finding] = []
    keys: set[str] = set()
    for profile in profiles.values():
        about = check_keys(profile)
        if profile.index is not None:
            about += check_index(profile.index, profile.name)
        keys |= {c for finding in about if finding.code in _KEYS for c in finding.about}
        keys |= {c for c in profile.chosen if c.startswith("Unnamed: ")}
        out += about + _header(profile)
    keys |= set(settled)
    proposed = propose_kinds(profiles, keys)
    # What seems to be something else than a measurement is told as such.
    told = keys | {name for finding in proposed for name in finding.about}
    if _loses_rows(profiles, keys):
        # A method for kinds uses complete rows only.
        proposed = []
    values = [one for site in profiles.values() for one in check_values(site, told)]
    values = [one for one in values if not (one.about and set(one.about) <= keys)]
    empty = Counter(one.about for one in values if one.code == "empty-column")
    # Of what is empty everywhere no method learns.
    values = [replace(one, level="error") if empty[one.about] == len(sites) else one for one in values]
    return Findings([*out, *proposed, *values, *check_units(profiles, told), *_repeated(profiles)])


def _loses_rows(sites: Mapping[str, Profile], keys: Collection[str]) -> bool:
    """Whether complete rows would be less than nine of ten; an empty cell costs its row and the one after it."""
    n = sum(site.n_rows for site in sites.values())
    empty = sum(
        int(site.n_missing[site.place[name]])
        for site in sites.values()
        for name in site.chosen
        if name not in keys
    )
    return 2 * empty > _LOST * n


def _repeated(sites: Mapping[str, Profile]) -> list[Finding]:
    """Recordings that are copies of others, by their first rows and their length."""
    seen: dict[str, dict[str, str]] = {}
    out = []
    for name, site in sites.items():
        for recording, n_rows, first in site.recordings():
            head = first[:1000]
            if len(head) < 5 or not np.nanstd(head) > 0:
                continue
            key = hashlib.sha256(np.ascontiguousarray(head).tobytes() + str(n_rows).encode()).hexdigest()
            if key in seen:
                out.append(Finding("repeated", "warning", {"site": name, "recording": recording} | seen[key]))
            seen.setdefault(key, {"same_site": name, "same_recording": recording})
    return out


def _header(site: Profile) -> list[Finding]:
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


def certain_doubts(
    sites: Mapping[str, SiteData],
    table: pd.DataFrame,
    n_lags: int,
    declared: Collection[str],
    whole_rows: bool = True,
) -> list[Finding]:
    """Return what is certain, each finding once with the number of sites that have it.

    Parameters
    ----------
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
    >>> from feddbn.data.doubts import certain_doubts
    >>> sites = read_sites({"a": np.random.default_rng(0).normal(size=(200, 2))})
    >>> certain_doubts(sites, summary(sites, 1), n_lags=1, declared=[])
    []
    """
    found: list[Finding] = []
    for name, site in sites.items():
        profile = profile_of(name, site)
        index = profile.index
        if index is not None and index.nlevels > 1 and not {*index.names} & {*declared}:
            found += check_index(index, name)
        found += [replace(one, values={**one.values, "site": name}) for one in getattr(site, "findings", ())]
        found += [one for one in check_keys(profile) if one.level == "warning" and one.code in _CERTAIN]
        found += check_codes(profile, sentinels(profile, only_codes=True))
        found += [*empty_columns(profile), *constants(profile)]
    usable = table["complete_rows" if whole_rows else "usable_rows"].to_numpy()
    rows = (table["rows"] + table["dropped_rows"]).to_numpy()
    for k in np.flatnonzero(usable < _NEAR_EMPTY * rows).tolist():
        found += _few_usable(str(table.index[k]), table.iloc[k], n_lags, whole_rows)
    return _once(found)


def _once(found: list[Finding]) -> list[Finding]:
    """Each finding once, with the number of sites that have it."""
    groups: dict[tuple[str, tuple[str, ...]], list[Finding]] = {}
    for finding in found:
        groups.setdefault((finding.code, finding.about), []).append(finding)
    return [
        replace(same[0], values={**same[0].values, "n_sites": len(same)}) if len(same) > 1 else same[0]
        for same in groups.values()
    ]


def _few_usable(site: str, row: pd.Series, n_lags: int, whole_rows: bool) -> list[Finding]:
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
