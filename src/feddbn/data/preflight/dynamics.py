"""The course of a column: a linear trend, a cycle, levels that wander.

A trend is judged against its standard error with the noise's autocorrelation. A cycle must be a peak in the periodogram
far above its neighbours and keep its phase, so that a process that swings by itself does not count.
"""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.data.preflight.finding import Finding, named
from feddbn.data.preflight.profile import SiteProfile

__all__ = ["check_dynamics", "cycle", "has_trend", "lag_one"]

_SHORTEST = 60
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
            if len(x) < _SHORTEST or not np.ptp(x) > 0:
                continue
            if name not in trends and has_trend(x):
                trends.append(name)
            period = cycle(x)
            if period is not None:
                cycles.setdefault(name, period * length)
            if name not in slow and lag_one(x - x.mean()) > 0.98:
                slow.append(name)
    out = []
    if trends:
        text = f"{named(trends)} drift{'s' if len(trends) == 1 else ''} along a line, which ties all drifting columns."
        cure = "nothing: fits take it off where it shows (detrend=auto); detrend=1 takes it off in any case"
        out.append(Finding("trend", "warning", text, cure, site.name, columns=tuple(trends)))
    if cycles:
        period = float(np.median(list(cycles.values())))
        rows = f"{period:.{int(period < 10)}f} rows"
        text = f"{named(list(cycles))}: a cycle of about {rows}, which ties all columns that have it."
        given = f"period={period:.{int(period < 10)}f}"
        cure = f"nothing: fits take it off where it shows (period=auto); {given} takes it off in any case"
        out.append(Finding("cycle", "warning", text, cure, site.name, columns=tuple(cycles)))
    if slow and not set(slow) <= set(trends):
        text = f"{named(slow)}: neighbouring rows are almost equal; levels that wander like this look related by chance."
        cure = "take differences, or keep fewer rows per time"
        out.append(Finding("wandering", "note", text, cure, site.name, columns=tuple(slow)))
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
