"""Single columns of a site: gaps, text, codes for missing, constants, stuck sensors, outliers, few values, and their course.

Columns that are read less often than rows are written hold each reading for several rows. A trend is judged against its
standard error with the noise's autocorrelation. A cycle must be a peak in the periodogram far above its neighbours and keep
its phase, so that a process that swings by itself does not count.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.data.preflight.profile import SiteProfile
from feddbn.findings import Finding, Level

__all__ = [
    "CODES",
    "centred",
    "check_codes",
    "check_dynamics",
    "check_values",
    "is_code",
    "rows_held",
    "sentinels",
]

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
    columns = tuple(name for name in site.chosen if name in gappy)
    values = {"site": site.name, "shares": {name: shares[name] for name in gappy}}
    return [Finding("missing", "note", values, columns)]


def _text(site: SiteProfile) -> list[Finding]:
    out = []
    for name in site.chosen:
        if name.startswith("Unnamed: "):
            continue
        n_text, n_numbers = site.total("n_text", name), site.total("n_numbers", name)
        if any(one.is_date[j] for one, j in site.column(name)):
            values: dict[str, object] = {"site": site.name, "how": "dates"}
            out.append(Finding("undeclared-time", "error", values, (name,), {"time": name}))
        elif n_text:
            values = {"site": site.name, "n_text": n_text, "n_numbers": n_numbers}
            out.append(Finding("text-cells", "error", values, (name,)))
    return out


def check_codes(site: SiteProfile, codes: dict[str, tuple[float, int]]) -> list[Finding]:
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


def _constants(site: SiteProfile) -> list[Finding]:
    flat = tuple(
        name
        for name in site.numeric
        if len({float(e.value[j]) for one, j in site.column(name) for e in (one.lowest, one.highest)}) == 1
        and sum(one.n_rows for one in site.long) > 1
    )
    return [Finding("constant", "warning", {"site": site.name, "everywhere": False}, flat)] if flat else []


def _shapes(site: SiteProfile, rows: FloatArray, told: Collection[str]) -> list[Finding]:
    outlying: dict[str, int] = {}
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
            outlying[name] = n_far
    out = []
    if outlying:
        # One outlier among thousands happens by chance where noise has heavy tails.
        level: Level = "warning" if max(outlying.values()) >= max(2, 2e-4 * len(rows)) else "note"
        values = {"site": site.name, "n": sum(outlying.values())}
        out.append(Finding("outliers", level, values, tuple(outlying), {"prepare.spikes": "auto"}))
    if stuck:
        out.append(Finding("stuck", "warning", {"site": site.name, "n_rows": _STUCK_ROWS}, tuple(stuck)))
    if few:
        out.append(Finding("few-values", "note", {"site": site.name}, tuple(few)))
    return out


def _longest_run(x: FloatArray) -> int:
    if len(x) < 2:
        return len(x)
    edges = np.flatnonzero(np.r_[True, x[1:] != x[:-1], True])
    return int(np.diff(edges).max())


_FEWEST_READINGS = 12
_REGULAR = 0.7
_OFTEN = 0.5
_FEW_VALUES = 4


def check_held(site: SiteProfile) -> list[Finding]:
    """Return a finding if some columns are held for a regular number of rows while another one changes more often."""
    held: dict[str, int] = {}
    changing = 0.0
    for name in site.numeric:
        heads = [one.head[:, k] for one, k in site.column(name)]
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


_SHORTEST_COURSE = 60
_MOST_RECORDINGS = 20
_LONGEST = 20_000


def check_dynamics(
    site: SiteProfile, columns: tuple[str, ...], codes: dict[str, tuple[float, int]]
) -> list[Finding]:
    """Return the findings about trends, cycles and wandering levels; one recording with them is enough."""
    trends: list[str] = []
    cycles: dict[str, float] = {}
    slow: list[str] = []
    for name in columns:
        for one, j in list(site.column(name))[:_MOST_RECORDINGS]:
            course, length = one.course
            x = course[:_LONGEST, j]
            if name in codes:
                x = np.where(x == codes[name][0], np.nan, x)
            x = _filled(x)
            if len(x) < _SHORTEST_COURSE or not np.ptp(x) > 0:
                continue
            if name not in trends and has_trend(x):
                trends.append(name)
            period = cycle(x)
            if period is not None:
                cycles.setdefault(name, period * length)
            if name not in slow and lag_one(x - x.mean()) > 0.98:
                slow.append(name)
    out, where = [], {"site": site.name}
    if trends:
        out.append(Finding("trend", "warning", where, tuple(trends), {"prepare.detrend": 1}))
    if cycles:
        middle = float(np.median(list(cycles.values())))
        period = round(middle, int(middle < 10))
        cure = {"prepare.period": period}
        out.append(Finding("cycle", "warning", {**where, "period": period}, tuple(cycles), cure))
    if slow and not set(slow) <= set(trends):
        out.append(Finding("wandering", "note", where, tuple(slow)))
    return out


def _filled(x: FloatArray) -> FloatArray:
    """Straight lines over gaps; empty if most is missing."""
    known = np.isfinite(x)
    if known.all() or known.mean() < 0.5:
        return x if known.all() else x[:0]
    return np.interp(np.arange(len(x)), np.flatnonzero(known), x[known])


def lag_one(x: FloatArray) -> float:
    """Return the autocorrelation at lag 1 of a centred series."""
    return float(x[1:] @ x[:-1] / max(float(x @ x), 1e-300))


def has_trend(x: FloatArray) -> bool:
    """Whether a line explains more than noise with this autocorrelation could, and a visible share."""
    n = len(x)
    t = np.arange(n) - (n - 1) / 2
    slope = float(t @ x / (t @ t))
    noise = x - x.mean() - slope * t
    variance = float(noise @ noise / (n - 2))
    change = abs(slope) * n
    if not variance > 1e-12 * np.square(x).mean():
        return change > 0
    # A wandering level looks like a line over any stretch.
    if lag_one(noise) > 0.95:
        return False
    # Spectrum at frequency zero of an autoregression of order 5: sums over all autocorrelations.
    inflation = _long_run(noise) / variance
    n_effective = n / max(inflation, 1.0)
    if n_effective < 10:
        return False
    error = np.sqrt(variance * max(inflation, 1.0) / (t @ t))
    # Few effective rows estimate the error badly; the bar rises as a t quantile does.
    return bool(abs(slope) > (6 + 30 / n_effective) * error and change > np.sqrt(variance))


def _long_run(x: FloatArray, order: int = 5) -> float:
    rows = np.stack([x[order - k : len(x) - k] for k in range(1, order + 1)], axis=1)
    weights = np.linalg.lstsq(rows, x[order:], rcond=None)[0]
    left = x[order:] - rows @ weights
    gain = max(1.0 - float(weights.sum()), 0.02)
    return float(left @ left / (len(left) - order)) / gain**2


def cycle(x: FloatArray) -> float | None:
    """Return the period in rows of a sharp cycle that carries a visible share of the variance, or None."""
    n = len(x)
    t = np.arange(n) - (n - 1) / 2
    noise = x - x.mean() - (t @ x / (t @ t)) * t
    if not noise @ noise > 1e-12 * (x @ x):
        return None
    power = np.square(np.abs(np.fft.rfft(noise * np.hanning(n))))[1:]
    m = len(power)
    # Fewer than four cycles cannot be told from a wandering level, nor periods below three rows from alternation.
    k = 3 + int(np.argmax(power[3 : 2 * m // 3])) if m > 8 else 0
    if k < 3:
        return None
    around = np.arange(max(0, k - 12), min(m, k + 13))
    beside = power[around[np.abs(around - k) > 2]]
    # The median of exponential values is log 2 times their mean; 20 means that chance needs e^20 frequencies.
    is_sharp = power[k] > (20 + np.log(m)) * np.median(beside) / np.log(2) and power[k] > 5 * beside.max()
    share = power[max(0, k - 1) : k + 2].sum() / power.sum()
    if not is_sharp or share < 0.1:
        return None
    # A clock keeps its phase over the quarters of the recording; a process that swings by itself loses it.
    frequencies = (k + 1 + np.linspace(-0.6, 0.6, 25)) / n
    waves = np.exp(-2j * np.pi * np.outer(frequencies, t)) * noise
    best = int(np.argmax(np.abs(waves.sum(axis=1))))
    quarters = np.array([part.mean() for part in np.array_split(waves[best], 4)])
    sizes = np.abs(quarters)
    is_steady = np.abs(quarters.sum()) > 0.9 * sizes.sum() and sizes.min() > 0.4 * sizes.max()
    return float(1 / frequencies[best]) if is_steady else None
