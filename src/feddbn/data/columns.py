"""Single columns of a site: empty cells, text, codes for missing, constants, stuck sensors, few values, held readings.

Columns that are read less often than rows are written hold each reading for several rows. What recordings do over time, and
which cells are far out, is for a fit to decide (`federation.sums.treatment`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.data.profile import Profile
from feddbn.data.units import conversion
from feddbn.findings import Finding

__all__ = [
    "CODES",
    "check_codes",
    "check_units",
    "check_values",
    "constants",
    "empty_columns",
    "is_code",
    "rows_held",
    "sentinels",
]

CODES = (-9.0, -99.0, -999.0, -9999.0, -99999.0, -1.0, 99.0, 999.0, 9999.0, 99999.0, -32768.0, 32767.0)
_SHORTEST = 50
_STUCK_ROWS = 12


def is_code(value: float) -> bool:
    """Whether a number is known as a code for "missing": -999 and its kin, or one of 1e20 and more."""
    return value in CODES or abs(value) >= 1e20


def sentinels(site: Profile, only_codes: bool = False) -> dict[str, tuple[float, int]]:
    """Return column -> (value, count) where one extreme value is repeated far outside all others."""
    found: dict[str, tuple[float, int]] = {}
    for side in (site.lowest, site.highest):
        for name in site.numeric:
            j = site.place[name]
            value, following, count = float(side.value[j]), float(side.following[j]), int(side.count[j])
            if only_codes and not is_code(value):
                continue
            if _is_apart(site, name, value, following, count):
                found[name] = (value, count)
    return found


def _is_apart(site: Profile, name: str, value: float, following: float, count: int) -> bool:
    if count < (2 if is_code(value) else 5) or not np.isfinite(following):
        return False
    rest = site.head(name)
    rest = rest[np.isfinite(rest) & (rest != value)]
    if len(rest) < 10:
        return False
    low, middle, high = np.quantile(rest, [0.05, 0.5, 0.95])
    spread = high - low
    return bool(spread > 0 and abs(value - following) > 2 * spread and abs(value - middle) > 4 * spread)


def check_values(site: Profile, told: Collection[str] = ()) -> list[Finding]:
    """Return the findings about the columns of a site; few values of `told` columns are known."""
    codes = sentinels(site)
    return [
        *empty_columns(site),
        *_missing(site),
        *_text(site),
        *check_codes(site, codes),
        *constants(site),
        *_shapes(site, codes, told),
        *check_held(site),
    ]


def empty_columns(site: Profile) -> list[Finding]:
    """Return a finding for each column without any value."""
    return [
        Finding("empty-column", "warning", {"site": site.name}, (name,))
        for name in site.chosen
        if site.n_rows and site.n_missing[site.place[name]] == site.n_rows
    ]


def _missing(site: Profile) -> list[Finding]:
    shares = {name: float(site.n_missing[site.place[name]] / max(site.n_rows, 1)) for name in site.chosen}
    gappy = {name: share for name, share in shares.items() if 0 < share < 1}
    if not gappy:
        return []
    worst_first = dict(sorted(gappy.items(), key=lambda one: -one[1]))
    return [Finding("missing", "note", {"site": site.name, "shares": worst_first}, tuple(gappy))]


def _text(site: Profile) -> list[Finding]:
    out = []
    for name in site.chosen:
        j = site.place[name]
        if name.startswith("Unnamed: "):
            continue
        if site.is_date[j]:
            how, cure = ("other-dates", {}) if site.is_timed else ("dates", {"time": name})
            values: dict[str, object] = {"site": site.name, "how": how}
            out.append(Finding("undeclared-time", "error", values, (name,), cure))
        elif site.n_text[j]:
            values = {"site": site.name, "n_text": int(site.n_text[j]), "n_numbers": int(site.n_numbers[j])}
            out.append(Finding("text-cells", "error", values, (name,)))
    return out


def check_codes(site: Profile, codes: dict[str, tuple[float, int]]) -> list[Finding]:
    """Return the findings about codes for missing, as `sentinels` found them."""
    groups: dict[float | None, list[str]] = {}
    for name, (found, _) in codes.items():
        groups.setdefault(found if is_code(found) else None, []).append(name)
    return [
        Finding(
            "sentinel",
            "warning",
            {"site": site.name, "value": value, "n": sum(codes[name][1] for name in names)},
            tuple(names),
            {} if value is None else {"prepare.empty_values": value},
        )
        for value, names in groups.items()
    ]


def constants(site: Profile) -> list[Finding]:
    """Return a finding if columns never change."""
    is_flat = (site.lowest.value == site.highest.value) & (site.n_rows > 1)
    flat = tuple(name for name in site.numeric if is_flat[site.place[name]])
    return [Finding("constant", "warning", {"site": site.name}, flat)] if flat else []


def _shapes(site: Profile, codes: dict[str, tuple[float, int]], told: Collection[str]) -> list[Finding]:
    stuck: list[str] = []
    few: list[str] = []
    for name in site.numeric:
        heads = [one[:, site.place[name]] for one in site.heads]
        x = np.concatenate(heads)
        x = x[np.isfinite(x) & (x != codes.get(name, (np.nan, 0))[0])]
        n_values = len(np.unique(x))
        if len(x) < _SHORTEST or n_values == 1:
            continue
        if n_values <= 2 or ((x == np.rint(x)).all() and n_values <= max(12, len(x) // 25)):
            if name not in told:
                few.append(name)
        elif n_values > 0.5 * len(x) and max(_longest_run(h) for h in heads) >= _STUCK_ROWS:
            stuck.append(name)
    where, out = {"site": site.name}, []
    if stuck:
        out.append(Finding("stuck", "warning", {**where, "n_rows": _STUCK_ROWS}, tuple(stuck)))
    return [*out, Finding("few-values", "note", where, tuple(few))] if few else out


def _longest_run(x: FloatArray) -> int:
    if len(x) < 2:
        return len(x)
    edges = np.flatnonzero(np.r_[True, x[1:] != x[:-1], True])
    return int(np.diff(edges).max())


_FEWEST_READINGS = 12
_REGULAR = 0.7
_OFTEN = 0.5
_FEW_VALUES = 4


def check_held(site: Profile) -> list[Finding]:
    """Return a finding if some columns are held for a regular number of rows while another one changes more often."""
    held: dict[str, int] = {}
    changing = 0.0
    for name in site.numeric:
        heads = [one[:, site.place[name]] for one in site.heads]
        steps = [np.diff(head[np.isfinite(head)]) for head in heads]
        n = sum(len(step) for step in steps)
        changing = max(changing, sum(int((step != 0).sum()) for step in steps) / n if n else 0.0)
        k = rows_held(heads)
        if k is not None:
            held[name] = k
    if not held or changing < _OFTEN:
        return []
    values = {"site": site.name, "n_rows": max(held.values())}
    return [Finding("held", "warning", values, tuple(held))]


def rows_held(heads: list[FloatArray]) -> int | None:
    """Return for how many rows a value is usually held, 2 or more; None if it changes all the time or irregularly.

    Long calm stretches, as of a counter of rare events, are irregular: their lengths spread widely.
    """
    lengths: list[FloatArray] = []
    values: set[float] = set()
    for head in heads:
        x = head[np.isfinite(head)]
        edges = np.flatnonzero(np.r_[True, x[1:] != x[:-1]]) if len(x) else np.empty(0, dtype=int)
        # The first reading may have begun, and the last one may end, outside.
        lengths.append(np.diff(edges)[1:])
        values.update(np.unique(x)[: _FEW_VALUES + 1].tolist())
    runs = np.concatenate(lengths) if lengths else np.empty(0)
    if len(runs) < _FEWEST_READINGS or len(values) <= _FEW_VALUES:
        return None
    usual = float(np.median(runs))
    slack = max(1.0, 0.2 * usual) if usual > 2 else 0.0
    if usual < 2 or float((np.abs(runs - usual) <= slack).mean()) < _REGULAR:
        return None
    return round(usual)


_PAIRS = (
    ("C", "F"),
    ("F", "C"),
    ("K", "C"),
    ("C", "K"),
    ("K", "F"),
    ("F", "K"),
    ("mmHg", "kPa"),
    ("kPa", "mmHg"),
)
_FACTORS = 10.0, 100.0, 1000.0, 1e6, 60.0, 0.1, 0.01, 0.001, 1e-6, 1 / 60
_CONVERSIONS = (
    *((conversion(*pair), pair) for pair in _PAIRS),
    *(((factor, 0.0), ()) for factor in _FACTORS),
)
"""Changes of unit that mistakes are made with: a factor and an offset, and the units where they have names."""
_FEWEST_UNITS = 3
"""With fewer sites nobody can say who has the other unit."""
_OTHERS_AGREE, _FEWEST_CELLS = 2 / 3, 20
_APART, _PART_LEFT = 1.5, 0.25
"""A site's level is so many standard deviations off the others, and the conversion leaves so much of that."""
_NEAR_LEVEL, _BROUGHT = 0.8, 0.1
"""Where sites are alike: so many standard deviations, or so much of how far off the one is."""
_NEAR_SPREAD, _MOST_SPREAD, _HUGE = 0.6, 0.5, 4.0
"""The same of logs of spreads: a part of the change, and the most; and a change that no honest site has."""
_QUARTILES = 1.349
"""Between the quartiles of a Gaussian lie so many standard deviations."""


def check_units(sites: Mapping[str, Profile], told: Collection[str] = ()) -> list[Finding]:
    """Return the findings about columns that a known change of unit would bring from far off to where other sites are.

    Honest sites differ in level and spread, too, but hardly by what a change of unit does to both at once. Medians and
    quartiles of the first rows are looked at; columns that are `told` are no measurements.
    """
    profiles, out = list(sites.values()), list[Finding]()
    if len(profiles) < _FEWEST_UNITS:
        return []
    for name in profiles[0].numeric:
        if name in told or not all(name in one.numeric for one in profiles):
            continue
        quarters = np.array([_quarters(one, name) for one in profiles])
        spread = (quarters[:, 2] - quarters[:, 0]) / _QUARTILES
        if not (spread > 0).all():
            continue
        for k, site in enumerate(profiles):
            found = _of_other_unit(quarters[:, 1], np.log(spread), k)
            if found is not None:
                (factor, offset), units = _CONVERSIONS[found]
                level, usual = float(quarters[k, 1]), float(np.median(np.delete(quarters[:, 1], k)))
                values = {"site": site.name, "how": "conversion", "units": list(units), "factor": factor}
                values |= {
                    "offset": offset,
                    "level": level,
                    "usual": usual,
                    "becomes": factor * level + offset,
                }
                out.append(Finding("units", "warning", values, (name,)))
    return out


def _quarters(site: Profile, name: str) -> FloatArray:
    """(3,) the quartiles of a column, NaN with few values."""
    x = site.head(name)
    x = x[np.isfinite(x)]
    return np.quantile(x, [0.25, 0.5, 0.75]) if len(x) >= _FEWEST_CELLS else np.full(3, np.nan)


def _of_other_unit(levels: FloatArray, logs: FloatArray, k: int) -> int | None:
    """Which conversion brings site k to the others, of whom most agree; None if it is near them, or none does."""
    level, log = (float(np.median(np.delete(one, k))) for one in (levels, logs))
    apart, wider = np.abs(levels - level) / np.exp(log), np.abs(logs - log)
    near = max(_NEAR_LEVEL, _BROUGHT * apart[k])
    best: tuple[float, int] | None = None
    for which, ((factor, offset), _) in enumerate(_CONVERSIONS):
        change = float(np.log(factor))
        left = abs(factor * levels[k] + offset - level) / np.exp(log), abs(logs[k] + change - log)
        near_spread = min(_NEAR_SPREAD * abs(change) or 1.0, _MOST_SPREAD)
        # Spread alone tells another unit only where it is far beyond what sites have.
        is_told = apart[k] > _APART and left[0] < _PART_LEFT * apart[k]
        is_told |= offset == 0 and abs(change) > _HUGE
        alike = np.delete((wider < near_spread) & (apart < near), k)
        is_like = left[0] < near and left[1] < near_spread and alike.mean() >= _OTHERS_AGREE
        if is_told and is_like and (best is None or sum(left) < best[0]):
            best = sum(left), which
    return None if best is None else best[1]
