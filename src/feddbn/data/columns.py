"""Single columns of a site: empty cells, codes for missing, constants.

What recordings do over time, which cells are far out and which were made up is for a fit to decide.
"""

from __future__ import annotations

import numpy as np

from feddbn.data.profile import Profile
from feddbn.findings import Finding

__all__ = ["CODES", "check_columns", "is_code"]

CODES = (-9.0, -99.0, -999.0, -9999.0, -99999.0, -1.0, 99.0, 999.0, 9999.0, 99999.0, -32768.0, 32767.0)


def is_code(value: float) -> bool:
    """Whether a number is known as a code for "missing": -999 and its kin, or one of 1e20 and more."""
    return value in CODES or abs(value) >= 1e20


def check_columns(site: Profile) -> list[Finding]:
    """Return the findings about the columns of a site."""
    where = {"site": site.name}
    empty = [name for name in site.chosen if site.n_rows and site.n_missing[site.place[name]] == site.n_rows]
    is_flat = (site.lowest == site.highest) & (site.n_rows > 1)
    flat = tuple(name for name in site.numeric if is_flat[site.place[name]])
    return [
        *(Finding("empty-column", "warning", where, (name,)) for name in empty),
        *_missing(site),
        *_codes(site),
        *([Finding("constant", "warning", where, flat)] if flat else []),
    ]


def _missing(site: Profile) -> list[Finding]:
    shares = {name: float(site.n_missing[site.place[name]] / max(site.n_rows, 1)) for name in site.chosen}
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
            n = _times_apart(site, name, value) if is_code(value) else 0
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
