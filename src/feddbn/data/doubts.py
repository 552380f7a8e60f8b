"""What the profiles of sites make doubtful: roles of columns, codes, constants.

`doubts` are what `feddbn.check` shows of tables, `certain_doubts` the part of them that every fit tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

import pandas as pd

from feddbn.core.designs.recordings import SiteData
from feddbn.data.columns import check_columns
from feddbn.data.profile import Profile, profile_of
from feddbn.data.roles import check_index, check_keys
from feddbn.findings import Finding, Findings, Level

__all__ = ["certain_doubts", "doubts"]

_CERTAIN = (
    "undeclared-time",
    "shuffled-time",
    "glued",
    "ignored-index",
    "sentinel",
    "empty-column",
    "constant",
)
_NEAR_EMPTY = 0.25


def _of_site(profile: Profile) -> list[Finding]:
    """What one site shows."""
    index = [] if profile.index is None else check_index(profile.index, profile.name)
    return [*check_keys(profile), *index, *check_columns(profile)]


def doubts(sites: Mapping[str, SiteData], settled: Collection[str] = ()) -> Findings:
    """Return what the tables of some sites show, errors first; kinds are `settled` for some variables.

    It says nothing of what a fit does to the rows: `feddbn.check` does, and has these findings, too.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data import read_sites
    >>> from feddbn.data.doubts import doubts
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> rows[50:53, 0] = -999
    >>> [(one.code, one.level) for one in doubts(read_sites({"a": rows}))]
    [('sentinel', 'warning')]
    """
    profiles = {name: profile_of(name, site) for name, site in sites.items()}
    shown = [one for profile in profiles.values() for one in _of_site(profile)]
    found = [one for one in shown if not one.about or not {*one.about} <= {*settled}]
    empty = Counter(one.about for one in found if one.code == "empty-column")
    # Of what is empty everywhere no method learns.
    found = [replace(one, level="error") if empty[one.about] == len(sites) else one for one in found]
    return Findings(found)


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
        shown = [one for one in _of_site(profile_of(name, site)) if one.code in _CERTAIN]
        found += [one for one in shown if one.code != "ignored-index" or not {*one.about} & {*declared}]
        found += [replace(one, values={**one.values, "site": name}) for one in getattr(site, "findings", ())]
    usable = table["complete_rows" if whole_rows else "usable_rows"]
    rows = table["rows"] + table["dropped_rows"]
    # The cells may be there, and the method cannot use them.
    is_lost = whole_rows & (usable < _NEAR_EMPTY * table["usable_rows"])
    for name in table.index[usable < _NEAR_EMPTY * (rows - n_lags * table["recordings"])]:
        values = {"site": str(name), "usable": int(usable[name]), "rows": int(rows[name]), "n_lags": n_lags}
        level: Level = "error" if is_lost[name] else "warning"
        found.append(Finding("usable-rows", level, {**values, "whole_rows": whole_rows}))
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
