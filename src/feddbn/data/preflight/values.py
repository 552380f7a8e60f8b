"""Single columns of a site: gaps, text, codes for missing, constants, stuck sensors, spikes, few values."""

from __future__ import annotations

import warnings
from collections.abc import Collection

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.data.preflight.finding import Finding, named, option, times
from feddbn.data.preflight.held import check_held
from feddbn.data.preflight.profile import SiteProfile

__all__ = ["CODES", "centred", "check_codes", "check_values", "is_code", "sentinels"]

CODES = (-9.0, -99.0, -999.0, -9999.0, -99999.0, -1.0, 99.0, 999.0, 9999.0, 99999.0, -32768.0, 32767.0)
# A normal value lies as far out once in 10^15; an exponential one once in 10^5.
_FAR = 5.0
_SHORTEST = 50
_STUCK_ROWS = 12


def is_code(value: float) -> bool:
    """Whether a number is known as a code for "missing": -999 and its kin, or one of 1e20 and more."""
    return value in CODES or abs(value) >= 1e20


def sentinels(site: SiteProfile) -> dict[str, tuple[float, int]]:
    """Return column -> (value, count) where one extreme value is repeated far outside all others."""
    found: dict[str, tuple[float, int]] = {}
    for name in site.numeric:
        held = list(site.column(name))
        for side in ("lowest", "highest"):
            extremes = [getattr(one, side) for one, _ in held]
            sign = 1.0 if side == "lowest" else -1.0
            value = sign * min(sign * float(e.value[j]) for e, (_, j) in zip(extremes, held, strict=True))
            if not np.isfinite(value):
                continue
            mine = [(e, j) for e, (_, j) in zip(extremes, held, strict=True) if e.value[j] == value]
            others = [e.value[j] for e, (_, j) in zip(extremes, held, strict=True) if e.value[j] != value]
            following = sign * min(sign * float(v) for v in [*others, *(e.following[j] for e, j in mine)])
            count = sum(int(e.count[j]) for e, j in mine)
            if _is_apart(site, name, value, following, count):
                found[name] = (value, count)
    return found


def _is_apart(site: SiteProfile, name: str, value: float, following: float, count: int) -> bool:
    if count < (2 if is_code(value) else 5) or not np.isfinite(following):
        return False
    rest = np.concatenate([one.head[:, j] for one, j in site.column(name)])
    rest = rest[np.isfinite(rest) & (rest != value)]
    if len(rest) < 10:
        return False
    low, middle, high = np.quantile(rest, [0.05, 0.5, 0.95])
    spread = high - low
    return bool(spread > 0 and abs(value - following) > 2 * spread and abs(value - middle) > 4 * spread)


def centred(site: SiteProfile, codes: dict[str, tuple[float, int]]) -> tuple[FloatArray, FloatArray]:
    """Rows (n, d) of the numeric columns less their recording's median, codes removed, and medians (r, d)."""
    rows, medians = [], []
    for one in site.long:
        head = one.head[:, [one.place[name] for name in site.numeric]]
        for j, name in enumerate(site.numeric):
            if name in codes:
                head[head[:, j] == codes[name][0], j] = np.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            middle = np.nanmedian(head, axis=0) if len(head) else np.full(len(site.numeric), np.nan)
        medians.append(middle)
        rows.append(head - middle)
    if not rows:
        return np.empty((0, len(site.numeric))), np.empty((0, len(site.numeric)))
    return np.concatenate(rows), np.array(medians)


def check_values(
    site: SiteProfile, codes: dict[str, tuple[float, int]], rows: FloatArray, told: Collection[str] = ()
) -> list[Finding]:
    """Return the findings about the columns of a site; `rows` as in `centred`. Few values of `told` columns are known."""
    return [
        *_missing(site),
        *_text(site),
        *check_codes(site, codes),
        *_constants(site),
        *_shapes(site, rows, told),
        *check_held(site),
    ]


def _missing(site: SiteProfile) -> list[Finding]:
    n = sum(one.n_rows for one in site.long)
    shares = {name: site.total("n_missing", name) / n for name in site.chosen} if n else {}
    gappy = sorted((name for name in shares if shares[name] > 0), key=lambda name: -shares[name])
    if not gappy:
        return []
    text = f"{100 * shares[gappy[0]]:.2g} % of {gappy[0]!r} is missing"
    if len(gappy) > 1:
        text += f", and up to {100 * shares[gappy[1]]:.2g} % of {len(gappy) - 1} other columns"
    cure = "fill short gaps, or choose the other columns with variables="
    columns = tuple(name for name in site.chosen if name in gappy)
    return [Finding("missing", "note", f"{text}.", cure, site.name, columns=columns)]


def _text(site: SiteProfile) -> list[Finding]:
    out = []
    for name in site.chosen:
        if name.startswith("Unnamed: "):
            continue
        n_text, n_numbers = site.total("n_text", name), site.total("n_numbers", name)
        if any(one.is_date[j] for one, j in site.column(name)):
            text = f"{name!r} holds dates, and would be a variable."
            cure = f"{option('time', name)}; write dates as 2024-01-31 or 2024-01-31T12:00"
            out.append(Finding("undeclared-time", "error", text, cure, site.name, columns=(name,)))
        elif n_text and n_numbers >= n_text:
            text = f"{name!r} holds numbers, but {n_text} of its cells {'is' if n_text == 1 else 'are'} text."
            cure = "leave such cells empty, or write the number"
            out.append(Finding("text", "error", text, cure, site.name, columns=(name,)))
        elif n_text:
            text = f"{name!r} holds text."
            roles = f"{option('site', name)} or {option('series', name)}"
            cure = f"{roles} if it names them, kinds= if it holds levels, otherwise choose the other columns with variables="
            out.append(Finding("text", "error", text, cure, site.name, columns=(name,)))
    return out


def check_codes(site: SiteProfile, codes: dict[str, tuple[float, int]]) -> list[Finding]:
    """Return the findings about codes for missing, as `sentinels` found them."""
    groups: dict[float | None, list[str]] = {}
    for name, (found, _) in codes.items():
        groups.setdefault(found if is_code(found) else None, []).append(name)
    out = []
    for value, names in groups.items():
        n = sum(codes[name][1] for name in names)
        what = "one value" if value is None else f"{value:g}"
        text = f"{named(names)}: {what} stands there {times(n)}, far outside all others, like a code for missing."
        cure = "leave such cells empty"
        out.append(Finding("sentinel", "warning", text, cure, site.name, columns=tuple(names)))
    return out


def _constants(site: SiteProfile) -> list[Finding]:
    flat = tuple(
        name
        for name in site.numeric
        if len({float(e.value[j]) for one, j in site.column(name) for e in (one.lowest, one.highest)}) == 1
        and sum(one.n_rows for one in site.long) > 1
    )
    if not flat:
        return []
    text = (
        f"{named(flat)} never change{'s' if len(flat) == 1 else ''} here: no edge can be learned from that."
    )
    cure = "leave the site out, or choose the other columns with variables="
    return [Finding("constant", "warning", text, cure, site.name, columns=flat)]


def _shapes(site: SiteProfile, rows: FloatArray, told: Collection[str]) -> list[Finding]:
    spiky: dict[str, int] = {}
    stuck: list[str] = []
    few: list[str] = []
    if len(rows) < _SHORTEST:
        return []
    for j, name in enumerate(site.numeric):
        x = rows[:, j]
        x = x[np.isfinite(x)]
        if len(x) < _SHORTEST:
            continue
        n_values = len(np.unique(x))
        if n_values == 1:
            continue
        heads = [one.head[:, k] for one, k in site.column(name)]
        is_whole = all(bool((h[np.isfinite(h)] == np.rint(h[np.isfinite(h)])).all()) for h in heads)
        if n_values <= 2 or (is_whole and n_values <= max(12, len(x) // 25)):
            if name not in told:
                few.append(name)
            continue
        if n_values > 0.5 * len(x) and max(_longest_run(h) for h in heads) >= _STUCK_ROWS:
            stuck.append(name)
        low, high = np.quantile(x, [0.05, 0.95])
        n_far = int(((x > _FAR * high) & (high > 0)).sum() + ((x < _FAR * low) & (low < 0)).sum())
        if n_far:
            spiky[name] = n_far
    out = []
    if spiky:
        n = sum(spiky.values())
        text = f"{named(list(spiky))}: {n} cell{'' if n == 1 else 's'} far outside all others (spikes)."
        cure = "leave wrong cells empty; fits leave out those that have no effect on anything (spikes=auto)"
        # One far cell among thousands happens by chance where noise has heavy tails.
        severity = "warning" if max(spiky.values()) >= max(2, 2e-4 * len(rows)) else "note"
        out.append(Finding("spikes", severity, text, cure, site.name, columns=tuple(spiky)))
    if stuck:
        text = f"{named(stuck)}: {_STUCK_ROWS} or more neighbouring rows have exactly one value, like a stuck sensor."
        cure = "leave such cells empty"
        out.append(Finding("stuck", "warning", text, cure, site.name, columns=tuple(stuck)))
    if few:
        text = f"{named(few)} {'has' if len(few) == 1 else 'have'} few values (yes/no, codes, counts)."
        cure = (
            "read edges to them as linear trends; name what is only set from outside with exogenous=, and leave codes "
            "without an order out with variables="
        )
        out.append(Finding("few-values", "note", text, cure, site.name, columns=tuple(few)))
    return out


def _longest_run(x: FloatArray) -> int:
    if len(x) < 2:
        return len(x)
    edges = np.flatnonzero(np.r_[True, x[1:] != x[:-1], True])
    return int(np.diff(edges).max())
