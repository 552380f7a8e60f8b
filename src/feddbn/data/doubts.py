"""What the profiles of sites make doubtful: roles of columns, codes, constants.

`doubts` are what `feddbn.check` shows of tables, `certain_doubts` the part of them that every fit tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from feddbn.core.designs.recordings import SiteData
from feddbn.data.profile import Profile, profile_of
from feddbn.data.roles import check_keys
from feddbn.findings import Finding, Findings, Level

__all__ = ["certain_doubts", "doubts"]

_CERTAIN = ("undeclared-time", "shuffled-time", "glued", "sentinel", "empty-column", "constant")
_NEAR_EMPTY = 0.25
_CODES = (-9.0, -99.0, -999.0, -9999.0, -99999.0, -1.0, 99.0, 999.0, 9999.0, 99999.0, -32768.0, 32767.0)


def _of_site(profile: Profile) -> list[Finding]:
    """What one site shows."""
    return [*check_keys(profile), *_of_columns(profile)]


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
    whole_rows: bool = True,
) -> list[Finding]:
    """Return what is certain, each finding once with the number of sites that have it.

    Parameters
    ----------
    table
        `feddbn.data.summary` of the sites.
    whole_rows
        Whether the method needs rows without missing cells, or uses the cells that are there.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.data import read_sites, summary
    >>> from feddbn.data.doubts import certain_doubts
    >>> sites = read_sites({"a": np.random.default_rng(0).normal(size=(200, 2))})
    >>> certain_doubts(sites, summary(sites, 1), n_lags=1)
    []
    """
    found: list[Finding] = []
    for name, site in sites.items():
        found += [one for one in _of_site(profile_of(name, site)) if one.code in _CERTAIN]
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


def _is_code(value: float) -> bool:
    """Whether a number is known as a code for "missing": -999 and its kin, or one of 1e20 and more."""
    return value in _CODES or abs(value) >= 1e20


def _of_columns(site: Profile) -> list[Finding]:
    """Return the findings about the columns of a site."""
    where = {"site": site.name}
    empty = [name for name in site.columns if site.n_rows and site.n_missing[site.place[name]] == site.n_rows]
    is_flat = (site.lowest == site.highest) & (site.n_rows > 1)
    flat = tuple(name for name in site.numeric if is_flat[site.place[name]])
    return [
        *(Finding("empty-column", "warning", where, (name,)) for name in empty),
        *_missing(site),
        *_codes(site),
        *([Finding("constant", "warning", where, flat)] if flat else []),
    ]


def _missing(site: Profile) -> list[Finding]:
    shares = {name: float(site.n_missing[site.place[name]] / max(site.n_rows, 1)) for name in site.columns}
    worst_first = sorted(
        ((name, share) for name, share in shares.items() if 0 < share < 1), key=lambda one: -one[1]
    )
    values = {"site": site.name, "shares": dict(worst_first)}
    return (
        [Finding("missing", "note", values, tuple(name for name in shares if 0 < shares[name] < 1))]
        if worst_first
        else []
    )


def _codes(site: Profile) -> list[Finding]:
    """Codes for missing that are the lowest or highest value of columns, far from all others."""
    found: dict[float, dict[str, int]] = {}
    for name in site.numeric:
        j = site.place[name]
        for value in (float(site.lowest[j]), float(site.highest[j])):
            n = _times_apart(site, name, value) if _is_code(value) else 0
            if n > 1:
                found.setdefault(value, {})[name] = n
    return [
        Finding(
            "sentinel",
            "warning",
            {"site": site.name, "value": value, "n": sum(counts.values())},
            tuple(counts),
            {"prepare.empty_values": value},
        )
        for value, counts in found.items()
    ]


def _times_apart(site: Profile, name: str, value: float) -> int:
    """How often an extreme value is in the first rows, 0 if it is not far from the others."""
    head = site.head(name)
    rest = head[np.isfinite(head) & (head != value)]
    if len(rest) < 10:
        return 0
    low, middle, high = np.quantile(rest, [0.05, 0.5, 0.95])
    spread, gap = high - low, np.abs(rest - value).min()
    is_apart = spread > 0 and gap > 2 * spread and abs(value - middle) > 4 * spread
    return int((head == value).sum()) if is_apart else 0
