"""What columns seem to be: times or names of recordings that were not declared."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.data.profile import Profile
from feddbn.findings import Finding

__all__ = ["check_keys", "role"]

_SHORTEST_KEY = 20
_MOST_RECORDINGS = 20
_FEW_ROWS = 64
_FEWEST_BLOCKS = 4
"""Of fewer blocks of rows an input may be the reason that is switched."""


class Role(NamedTuple):
    """What a column looks like: time, shuffled, counter (starts again) or blocks; where it starts anew."""

    kind: str
    starts: NDArray[np.intp] = np.empty(0, dtype=np.intp)


def role(x: FloatArray) -> Role | None:
    """Return the role that a column (n,) seems to have besides that of a measurement, or None.

    Measurements are hardly ever whole numbers that never fall, count up and start again, or come in blocks of one value each;
    a clock read with rounding rises in steps that are almost equal.
    """
    n = len(x)
    if n < _SHORTEST_KEY or not np.isfinite(x).all():
        return None
    steps = np.diff(x)
    if (x != np.rint(x)).any():
        return Role("time") if (steps > 0).all() and steps.std() < 0.15 * steps.mean() else None
    values = np.unique(x)
    changes = np.flatnonzero(steps != 0) + 1
    if len(changes) + 1 == len(values) and 1 < len(values) <= n / 5:
        return Role("blocks", changes)
    if (steps >= 0).all():
        return Role("time") if len(values) > n / 5 else None
    if len(values) == n:
        spacing = np.diff(values)
        return Role("shuffled") if (spacing <= 1.5 * np.median(spacing)).mean() > 0.8 else None
    up = steps[steps > 0]
    if len(up) > 0.8 * len(steps) and (up == np.median(up)).mean() > 0.95 and not (steps == 0).any():
        return Role("counter", np.flatnonzero(steps < 0) + 1)
    return None


def check_keys(site: Profile) -> list[Finding]:
    """Return the findings about columns of a site that seem to be its time, or the names of its recordings."""
    roles, out = _roles(site), list[Finding]()
    counter = next((name for name, found in roles.items() if found.kind == "counter"), None)
    if counter is not None:
        starts = roles[counter].starts
        head = next(one for one in site.heads if len(one) >= _SHORTEST_KEY)
        changes = {name: np.flatnonzero(np.diff(head[:, j]) != 0) + 1 for name, j in site.place.items()}
        # Names change where the counter starts again; those of sites at some of these places only.
        names = [
            name for name, at in changes.items() if name != counter and len(at) and np.isin(at, starts).all()
        ]
        names.sort(key=lambda name: -len(changes[name]))
        if names:
            cure = {**dict(zip(("series", "site"), names, strict=False)), "time": counter}
            values = {"site": site.name, "how": "names", "n_starts": len(starts)}
            out.append(Finding("glued", "warning", values, (*names[:2], counter), cure))
            roles = {name: found for name, found in roles.items() if name not in (counter, *names)}
    return [*out, *(one for name, found in roles.items() for one in _finding(site, name, found))]


def _finding(site: Profile, name: str, found: Role) -> list[Finding]:
    """What is said of a column alone; where times are known, no other one is looked for."""
    where, time = {"site": site.name}, {"time": name}
    if found.kind == "blocks":
        n = len(found.starts) + 1
        if n < _FEWEST_BLOCKS:
            return []
        return [
            Finding("glued", "warning", {**where, "how": "blocks", "n_values": n}, (name,), {"series": name})
        ]
    if site.is_timed:
        return []
    if found.kind == "counter":
        return [
            Finding(
                "glued", "warning", {**where, "how": "counter", "n_starts": len(found.starts)}, (name,), time
            )
        ]
    if found.kind == "shuffled":
        return [Finding("shuffled-time", "warning", where, (name,), {**time, "sort": True})]
    return [Finding("undeclared-time", "warning", where, (name,), time)]


def _roles(site: Profile) -> dict[str, Role]:
    """Return column -> the role it has in every recording that is long enough."""
    found = {name: list[Role | None]() for name in site.columns}
    for head in site.heads[:_MOST_RECORDINGS]:
        if len(head) < _SHORTEST_KEY:
            continue
        # As a rule a few rows show that a column is neither whole numbers nor rises all the time.
        few = head[:_FEW_ROWS]
        may_be = (few == np.rint(few)).all(axis=0) | (few[1:] > few[:-1]).all(axis=0)
        found = {name: roles for name, roles in found.items() if may_be[site.place[name]]}
        for name, roles in found.items():
            roles.append(role(head[:, site.place[name]]))
    return {
        name: roles[0]
        for name, roles in found.items()
        if roles and roles[0] is not None and all(r is not None and r.kind == roles[0].kind for r in roles)
    }
