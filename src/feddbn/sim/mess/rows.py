"""Mess in recordings that are already there: sampling, drifts, units, sensors and files.

Every function takes the recordings of all sites (site -> recordings (n, d)), a strength, the (d,) standard deviations of
the variables before any mess, and a generator, and returns new recordings. Nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from feddbn.core.arrays import FloatArray

__all__ = ["PERIOD", "ROW_MESSES", "SENTINEL", "SPIKE", "RowMess", "Sites"]

PERIOD = 24
SPIKE = 15.0
SENTINEL = -999.0
Sites = list[list[FloatArray]]
RowMess = Callable[[Sites, float, FloatArray, np.random.Generator], Sites]


def _every_recording(sites: Sites, change: Callable[[FloatArray], FloatArray]) -> Sites:
    return [[change(rows) for rows in recordings] for recordings in sites]


def _at(sites: Sites, chosen: set[int], change: Callable[[FloatArray], FloatArray]) -> Sites:
    """Change the recordings of the chosen sites only."""
    return [
        [change(rows) for rows in recordings] if k in chosen else list(recordings)
        for k, recordings in enumerate(sites)
    ]


def _n_variables(sites: Sites) -> int:
    return int(sites[0][0].shape[1])


def _one_of_each(sites: Sites, rng: np.random.Generator) -> tuple[int, int]:
    """One site and one variable."""
    return int(rng.integers(len(sites))), int(rng.integers(_n_variables(sites)))


def jitter(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """Rows at times that are up to `strength` rows early or late, interpolated between neighbours."""

    def change(rows: FloatArray) -> FloatArray:
        times = np.arange(len(rows), dtype=np.float64)
        shifted = times + rng.uniform(-strength, strength, len(rows))
        return np.stack([np.interp(shifted, times, column) for column in rows.T], axis=1)

    return _every_recording(sites, change)


def two_rates(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """Every `strength`-th row only, at half of the sites, chosen at random."""
    chosen = rng.choice(len(sites), size=len(sites) // 2, replace=False)
    return _at(sites, set(chosen.tolist()), lambda rows: rows[:: round(strength)].copy())


def trend(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """A line through 0 at the middle of every recording; one rise per site and variable."""
    rises = rng.standard_normal((len(sites), len(scale))) * strength * scale
    return [
        [rows + np.linspace(-0.5, 0.5, len(rows))[:, None] * rise for rows in recordings]
        for recordings, rise in zip(sites, rises, strict=True)
    ]


def cycle(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """A sine of `PERIOD` rows; one amplitude and phase per site and variable."""
    sizes = rng.standard_normal((len(sites), len(scale))) * strength * scale
    phases = rng.uniform(0, 2 * np.pi, (len(sites), len(scale)))
    return [
        [
            rows + size * np.sin(2 * np.pi * np.arange(len(rows))[:, None] / PERIOD + phase)
            for rows in recordings
        ]
        for recordings, size, phase in zip(sites, sizes, phases, strict=True)
    ]


def measurement_noise(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """Gaussian noise that the next row knows nothing of."""
    return _every_recording(sites, lambda rows: rows + rng.standard_normal(rows.shape) * strength * scale)


def gains(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """One log-normal factor per site and variable."""
    factors = np.exp(rng.standard_normal((len(sites), len(scale))) * strength)
    return [[rows * factor for rows in recordings] for recordings, factor in zip(sites, factors, strict=True)]


def offsets(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """One constant per site and variable."""
    shifts = rng.standard_normal((len(sites), len(scale))) * strength * scale
    return [[rows + shift for rows in recordings] for recordings, shift in zip(sites, shifts, strict=True)]


def unit_variance(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """Every variable divided by its standard deviation over all rows of all sites, to the power `strength`."""
    spread = np.vstack([rows for recordings in sites for rows in recordings]).std(axis=0)
    factor = np.where(spread > 0, spread, 1.0) ** strength
    return _every_recording(sites, lambda rows: rows / factor)


def other_units(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """One variable of one site multiplied by `strength`."""
    site, variable = _one_of_each(sites, rng)
    factor = np.ones(_n_variables(sites))
    factor[variable] = strength
    return _at(sites, {site}, lambda rows: rows * factor)


def stuck(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """One variable of one site repeats a value for a share `strength` of every recording."""
    site, variable = _one_of_each(sites, rng)

    def change(rows: FloatArray) -> FloatArray:
        length = round(strength * len(rows))
        start = int(rng.integers(len(rows) - length + 1))
        rows = rows.copy()
        if length:
            rows[start : start + length, variable] = rows[start, variable]
        return rows

    return _at(sites, {site}, change)


def rounding(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """Multiples of `strength`."""
    return _every_recording(sites, lambda rows: np.round(rows / strength) * strength)


def spikes(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """A share `strength` of all cells is moved by `SPIKE` standard deviations, up or down."""

    def change(rows: FloatArray) -> FloatArray:
        signs = np.where(rng.random(rows.shape) < 0.5, -1.0, 1.0)
        return rows + (rng.random(rows.shape) < strength) * signs * SPIKE * scale

    return _every_recording(sites, change)


def mixed_columns(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """`strength` sites in which no column is where its name says."""
    chosen = rng.choice(len(sites), size=min(round(strength), len(sites)), replace=False).tolist()
    ring = rng.permutation(_n_variables(sites))
    places = np.empty_like(ring)
    places[ring] = np.roll(ring, 1)
    return _at(sites, set(chosen), lambda rows: np.ascontiguousarray(rows[:, places]))


def sentinels(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """`SENTINEL` in a share `strength` of all cells."""
    return _every_recording(sites, lambda rows: np.where(rng.random(rows.shape) < strength, SENTINEL, rows))


def missing(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """NaN in a share `strength` of all cells, at random."""
    return _every_recording(sites, lambda rows: np.where(rng.random(rows.shape) < strength, np.nan, rows))


ROW_MESSES: Mapping[str, RowMess] = MappingProxyType(
    {
        "jitter": jitter,
        "two-rates": two_rates,
        "trend": trend,
        "cycle": cycle,
        "measurement-noise": measurement_noise,
        "gains": gains,
        "offsets": offsets,
        "unit-variance": unit_variance,
        "other-units": other_units,
        "stuck": stuck,
        "rounding": rounding,
        "spikes": spikes,
        "mixed-columns": mixed_columns,
        "sentinels": sentinels,
        "missing": missing,
    }
)
