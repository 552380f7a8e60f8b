"""What columns seem to be: times or names of recordings that were not declared, and kinds that could be.

Kinds are proposed for all sites together, as a note: nothing is done unless it is declared. A proposal must not hurt where it
is taken, so what may be a rounded measurement stays a number on a line:

    binary       two values
    count        whole numbers from 0 on with a mean below 10, spread as counts are, the largest rare
    ordinal      few whole numbers, one after the other from 1, or many from 0
    categorical  few whole numbers with unequal steps, or up to four from 0; few different texts
    positive     above 0 and skewed, and hardly skewed on a log scale
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.survey import SMALL_MEAN, SPREAD
from feddbn.data.profile import Profile
from feddbn.findings import Finding

__all__ = ["check_index", "check_keys", "propose_kinds", "role"]

_SHORTEST_KEY = 20
_MOST_RECORDINGS = 20
_FEW_ROWS = 64
_FEWEST_BLOCKS = 4
"""Of fewer blocks of rows an input may be the reason that is switched."""


@dataclass(frozen=True)
class Role:
    """What a column looks like: time, shuffled, counter (starts again) or blocks; where it starts anew."""

    kind: str
    starts: NDArray[np.intp]


def role(x: FloatArray) -> Role | None:
    """Return the role that a column (n,) seems to have besides that of a measurement, or None.

    Measurements are hardly ever whole numbers that never fall, count up and start again, or come in blocks of one value each;
    a clock read with rounding rises in steps that are almost equal.
    """
    n = len(x)
    if n < _SHORTEST_KEY or not np.isfinite(x).all():
        return None
    steps, none = np.diff(x), np.empty(0, dtype=np.intp)
    if (x != np.rint(x)).any():
        return Role("time", none) if (steps > 0).all() and steps.std() < 0.15 * steps.mean() else None
    values = np.unique(x)
    changes = np.flatnonzero(steps != 0) + 1
    if len(changes) + 1 == len(values) and 1 < len(values) <= n / 5:
        return Role("blocks", changes)
    if (steps >= 0).all():
        return Role("time", none) if len(values) > n / 5 else None
    if len(values) == n:
        spacing = np.diff(values)
        return Role("shuffled", none) if (spacing <= 1.5 * np.median(spacing)).mean() > 0.8 else None
    up = steps[steps > 0]
    if len(up) > 0.8 * len(steps) and (up == np.median(up)).mean() > 0.95 and not (steps == 0).any():
        return Role("counter", np.flatnonzero(steps < 0) + 1)
    return None


def check_keys(site: Profile) -> list[Finding]:
    """Return the findings about columns of a site that seem to be its time, or the names of its recordings."""
    roles, changes = _roles(site), _changes(site)
    out: list[Finding] = []
    paired: set[str] = set()
    for counter in [name for name, found in roles.items() if found.kind == "counter"]:
        starts = roles[counter].starts
        names = [c for c, at in changes.items() if c != counter and np.array_equal(at, starts)]
        blocks = [c for c, found in roles.items() if found.kind == "blocks" and c not in names]
        outer = [c for c in blocks if np.isin(roles[c].starts, starts).all()]
        if names or outer:
            # `names` change exactly where the counter starts again, `outer` at some of these places.
            said = [*zip(("site",), outer, strict=False), *zip(("series",), names, strict=False)]
            about = (*names[:1], *outer[:1], counter)
            values = {"site": site.name, "how": "names", "n_starts": len(starts)}
            out.append(Finding("glued", "warning", values, about, {**dict(said), "time": counter}))
            paired |= {counter, *names, *outer}
    return [*out, *(one for name in roles if name not in paired for one in _finding(site, name, roles[name]))]


def _finding(site: Profile, name: str, found: Role) -> list[Finding]:
    """What is said of a column alone; where times are known, no other one is looked for."""
    where, time = {"site": site.name}, {"time": name}
    is_left_out = name not in site.chosen
    if found.kind == "blocks":
        values = {**where, "how": "blocks", "n_values": len(found.starts) + 1}
        is_told = values["n_values"] >= _FEWEST_BLOCKS and not is_left_out
        return [Finding("glued", "warning", values, (name,), {"series": name})] if is_told else []
    if site.is_timed:
        return []
    if found.kind == "counter":
        values = {**where, "how": "counter", "n_starts": len(found.starts)}
        return [Finding("glued", "warning", values, (name,), time)]
    if found.kind == "shuffled":
        return [Finding("shuffled-time", "warning", where, (name,), {**time, "sort": True})]
    return [Finding("undeclared-time", "warning", where, (name,), time)]


def _changes(site: Profile) -> dict[str, NDArray[np.intp]]:
    """Return column -> rows of the first long recording at which it changes."""
    one = next((one for one in site.heads if len(one) >= _SHORTEST_KEY), None)
    if one is None:
        return {}
    return {name: np.flatnonzero(np.diff(one[:, j]) != 0) + 1 for name, j in site.place.items()}


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


def check_index(index: pd.Index, site: str) -> list[Finding]:
    """Return the findings about the index of a frame, which a fit ignores unless it holds dates or is declared."""
    if index.nlevels > 1:
        levels = tuple(str(name) if name is not None else f"level_{i}" for i, name in enumerate(index.names))
        cure = {"series": levels[0], "time": levels[-1]}
        return [Finding("ignored-index", "warning", {"site": site, "how": "levels"}, levels, cure)]
    if isinstance(index, pd.RangeIndex) or not pd.api.types.is_numeric_dtype(index.dtype) or len(index) < 3:
        return []
    steps = np.diff(index.to_numpy(dtype=float))
    if (steps > 0).all() and (steps <= 1.5 * np.median(steps)).all():
        return []
    name = str(index.name or "index")
    return [Finding("ignored-index", "warning", {"site": site, "how": "uneven"}, (name,), {"time": name})]


_SHORTEST = 50
_MOST_ROWS = 100_000
_MOST_LEVELS = 12
_ROWS_A_LEVEL = 10
_LARGEST_CODE = 99
_RARE = 0.05
_SKEWED = 1.0
_STRAIGHT = 0.5

Said = str | list[str] | dict[str, list[str]]


def propose_kinds(sites: Mapping[str, Profile], settled: Collection[str]) -> list[Finding]:
    """Return one note with the kinds of all columns that are no numbers on a line; `settled` columns are left out."""
    profiles = list(sites.values())
    first = profiles[0].chosen if profiles else ()
    common = [name for name in first if name not in settled and all(name in one.chosen for one in profiles)]
    found: dict[str, Said] = {}
    for name in common:
        if all(name in one.numeric for one in profiles):
            said = _of_numbers(_values(profiles, name))
        else:
            said = _of_texts(profiles, name)
        if said is not None:
            found[name] = said
    return [Finding("kinds", "note", {"kinds": found}, tuple(found), {"kinds": found})] if found else []


def _values(profiles: list[Profile], name: str) -> FloatArray:
    some = max(1, _MOST_ROWS // len(profiles))
    x = np.concatenate([site.head(name)[:some] for site in profiles])
    return np.asarray(x[np.isfinite(x)])


def _of_numbers(x: FloatArray) -> Said | None:
    values, counts = np.unique(x, return_counts=True)
    if len(x) < _SHORTEST or len(values) < 2:
        return None
    if len(values) == 2:
        return "binary" if values.tolist() == [0.0, 1.0] else {"binary": _named(values)}
    if (values != np.rint(values)).any():
        return "positive" if _is_skewed(x) else None
    if values[0] < 0:
        return None
    if _is_count(x, counts[-1] / len(x)):
        return "count"
    is_few = len(values) <= _MOST_LEVELS and values[-1] <= _LARGEST_CODE
    if not is_few or len(x) < _ROWS_A_LEVEL * len(values):
        return None
    steps = np.diff(values)
    if (steps != steps[0]).any():
        return _named(values)
    if steps[0] != 1 or values[0] > 1:
        # Equal steps far from 0 are those of a rounded measurement.
        return None
    return _named(values) if values[0] == 0 and len(values) <= 4 else {"ordinal": _named(values)}


def _is_count(x: FloatArray, share_of_largest: float) -> bool:
    mean = float(x.mean())
    # Counts vary about as much as their mean or more, lean to the right as rounded measurements do not, and a small mean has
    # zeros.
    is_spread = mean < SMALL_MEAN and float(x.var()) > SPREAD * mean and _skewness(x) > 0.5 / np.sqrt(mean)
    has_zeros = bool((x == 0).any()) or len(x) * np.exp(-mean) < 5
    return is_spread and has_zeros and share_of_largest < _RARE


def _is_skewed(x: FloatArray) -> bool:
    return bool(x.min() > 0 and _skewness(x) > _SKEWED and abs(_skewness(np.log(x))) < _STRAIGHT)


def _skewness(x: FloatArray) -> float:
    z = (x - x.mean()) / max(float(x.std()), 1e-300)
    return float((z**3).mean())


def _of_texts(profiles: list[Profile], name: str) -> Said | None:
    held = [(one, one.place[name]) for one in profiles]
    n_text, n_numbers = (sum(int(getattr(one, n)[j]) for one, j in held) for n in ("n_text", "n_numbers"))
    names = sorted(set().union(*(one.texts[j] for one, j in held)))
    is_few = 2 <= len(names) <= _MOST_LEVELS and n_text >= max(_SHORTEST, _ROWS_A_LEVEL * len(names))
    if n_numbers or not is_few or any(one.is_date[j] for one, j in held):
        return None
    return {"binary": names} if len(names) == 2 else names


def _named(values: FloatArray) -> list[str]:
    # 0.0 is added since minus zero is no other level.
    return [f"{value + 0.0:g}" for value in values]
