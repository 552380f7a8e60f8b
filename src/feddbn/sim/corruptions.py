"""What sites do to the rows they hold: sampling, drifts, units, sensors, files.

A corruption takes the recordings of all sites (for each site a list of (n, d) arrays), a strength, the (d,) standard
deviations of the variables before any corruption, and a generator, and returns new recordings. Nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from zlib import crc32

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.settings import Rule, number, whole, word

CorruptionNames = str | Sequence[str] | Mapping[str, float | None] | None
"""How corruptions are asked for: a name, several, or names with strengths (None: the default strength)."""

PERIOD = 24
SPIKE = 15.0
SENTINEL = -999.0
Sites = list[list[FloatArray]]


def _changed(
    sites: Sites, change: Callable[[FloatArray], FloatArray], chosen: Sequence[int] | None = None
) -> Sites:
    """The recordings of the chosen sites, or of all, changed."""
    these = range(len(sites)) if chosen is None else chosen
    return [list(map(change, one)) if k in these else list(one) for k, one in enumerate(sites)]


def jitter(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """Rows at times that are up to `strength` rows early or late, interpolated between neighbours."""

    def change(rows: FloatArray) -> FloatArray:
        times = np.arange(len(rows), dtype=np.float64)
        shifted = times + rng.uniform(-strength, strength, len(rows))
        return np.stack([np.interp(shifted, times, column) for column in rows.T], axis=1)

    return _changed(sites, change)


def two_rates(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """Every `strength`-th row only, at half of the sites, chosen at random."""
    chosen = rng.choice(len(sites), size=len(sites) // 2, replace=False)
    return _changed(sites, lambda rows: rows[:: round(strength)].copy(), chosen.tolist())


def _with(sites: Sites, numbers: FloatArray, change: Callable[[FloatArray, FloatArray], FloatArray]) -> Sites:
    """The recordings of every site changed by numbers of its own."""
    return [[change(rows, own) for rows in one] for one, own in zip(sites, numbers, strict=True)]


def trend(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """A line through 0 at the middle of every recording; one rise per site and variable."""
    rises = rng.standard_normal((len(sites), len(scale))) * strength * scale
    return _with(sites, rises, lambda rows, rise: rows + np.linspace(-0.5, 0.5, len(rows))[:, None] * rise)


def cycle(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """A sine of `PERIOD` rows; one amplitude and phase per site and variable."""
    sizes = rng.standard_normal((len(sites), len(scale))) * strength * scale
    phases = rng.uniform(0, 2 * np.pi, (len(sites), len(scale)))

    def change(rows: FloatArray, own: FloatArray) -> FloatArray:
        return np.asarray(rows + own[0] * np.sin(2 * np.pi * np.arange(len(rows))[:, None] / PERIOD + own[1]))

    return _with(sites, np.stack([sizes, phases], axis=1), change)


def measurement_noise(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """Gaussian noise that the next row knows nothing of."""
    return _changed(sites, lambda rows: rows + rng.standard_normal(rows.shape) * strength * scale)


def gains(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """One log-normal factor per site and variable."""
    factors = np.exp(rng.standard_normal((len(sites), len(scale))) * strength)
    return _with(sites, factors, lambda rows, factor: rows * factor)


def offsets(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """One constant per site and variable."""
    shifts = rng.standard_normal((len(sites), len(scale))) * strength * scale
    return _with(sites, shifts, lambda rows, shift: rows + shift)


def unit_variance(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """Every variable divided by its standard deviation over all rows of all sites, to the power `strength`."""
    spread = spreads(sites)
    factor = np.where(spread > 0, spread, 1.0) ** strength
    return _changed(sites, lambda rows: rows / factor)


def other_units(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """One variable of one site multiplied by `strength`."""
    site, variable = (int(rng.integers(n)) for n in (len(sites), len(scale)))
    factor = np.ones(len(scale))
    factor[variable] = strength
    return _changed(sites, lambda rows: rows * factor, [site])


def stuck(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """One variable of one site repeats a value for a share `strength` of every recording."""
    site, variable = (int(rng.integers(n)) for n in (len(sites), len(scale)))

    def change(rows: FloatArray) -> FloatArray:
        length = round(strength * len(rows))
        start = int(rng.integers(len(rows) - length + 1))
        rows = rows.copy()
        if length:
            rows[start : start + length, variable] = rows[start, variable]
        return rows

    return _changed(sites, change, [site])


def rounding(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """Multiples of `strength`."""
    return _changed(sites, lambda rows: np.round(rows / strength) * strength)


def spikes(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """A share `strength` of all cells is moved by `SPIKE` standard deviations, up or down."""

    def change(rows: FloatArray) -> FloatArray:
        signs = np.where(rng.random(rows.shape) < 0.5, -1.0, 1.0)
        return rows + (rng.random(rows.shape) < strength) * signs * SPIKE * scale

    return _changed(sites, change)


def mixed_columns(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """`strength` sites in which no column is where its name says."""
    chosen = rng.choice(len(sites), size=min(round(strength), len(sites)), replace=False)
    ring = rng.permutation(len(scale))
    places = np.empty_like(ring)
    places[ring] = np.roll(ring, 1)
    return _changed(sites, lambda rows: np.ascontiguousarray(rows[:, places]), chosen.tolist())


def sentinels(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """`SENTINEL` in a share `strength` of all cells."""
    return _changed(sites, lambda rows: np.where(rng.random(rows.shape) < strength, SENTINEL, rows))


def missing(sites: Sites, strength: float, scale: FloatArray, rng: np.random.Generator) -> Sites:
    """NaN in a share `strength` of all cells, at random."""
    return _changed(sites, lambda rows: np.where(rng.random(rows.shape) < strength, np.nan, rows))


class Corruption(NamedTuple):
    """A corruption of rows: the function, whose docstring says what a strength means; the default strength; and which
    strengths there are.
    """

    act: Callable[[Sites, float, FloatArray, np.random.Generator], Sites]
    default: float
    rule: Rule


CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {
        "jitter": Corruption(jitter, 0.3, number(0, most=1)),
        "two-rates": Corruption(two_rates, 2, whole(1, 100)),
        "trend": Corruption(trend, 3.0, number(0)),
        "cycle": Corruption(cycle, 1.5, number(0)),
        "measurement-noise": Corruption(measurement_noise, 0.5, number(0)),
        "gains": Corruption(gains, 0.4, number(0, most=10)),
        "offsets": Corruption(offsets, 3.0, number(0)),
        "unit-variance": Corruption(unit_variance, 1.0, number(0, most=1)),
        "other-units": Corruption(other_units, 100.0, number(above=0)),
        "stuck": Corruption(stuck, 0.25, number(0, most=1)),
        "rounding": Corruption(rounding, 1.0, number(above=0)),
        "spikes": Corruption(spikes, 0.01, number(0, most=1)),
        "mixed-columns": Corruption(mixed_columns, 1, whole(0)),
        "sentinels": Corruption(sentinels, 0.01, number(0, most=1)),
        "missing": Corruption(missing, 0.1, number(0, most=0.95)),
    }
)
"""Every corruption by name, in the order in which they act."""


def strengths_of(asked: CorruptionNames, d: int) -> dict[str, float]:
    """Return name -> strength, in the order in which corruptions act.

    Raises
    ------
    ParameterError
        If a name is not known, a strength is impossible or there are too few variables.
    """
    if isinstance(asked, str):
        asked = [asked]
    if not isinstance(asked, (Mapping, Sequence, type(None))):
        raise ParameterError(
            f"corruptions must be a name, a list of names or a dict of strengths, got {asked!r}."
        )
    said = dict(asked) if isinstance(asked, Mapping) else dict.fromkeys(asked or ())
    for name, strength in said.items():
        word(*CORRUPTIONS).check("corruptions", name)
        if strength is not None:
            CORRUPTIONS[name].rule.check(f"the strength of the corruption {name!r}", strength)
    if "mixed-columns" in said and d < 2:
        raise ParameterError(f"the corruption 'mixed-columns' needs d >= 2, got d={d}.")
    given = {name: said[name] for name in CORRUPTIONS if name in said}
    return {name: CORRUPTIONS[name].default if x is None else x for name, x in given.items()}


def corrupted(sites: Sites, strengths: Mapping[str, float], seed: np.random.SeedSequence) -> Sites:
    """The recordings as the sites hold them; what one corruption draws does not depend on the others."""
    scale = spreads(sites) if strengths else np.zeros(0)
    for name, strength in strengths.items():
        sites = CORRUPTIONS[name].act(sites, strength, scale, stream(seed, name))
    return sites


def stream(seed: np.random.SeedSequence, name: str) -> np.random.Generator:
    """A generator that depends on the seed and the name, and on no other name."""
    key = (*seed.spawn_key, crc32(name.encode()))
    return np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=key))


def spreads(sites: Sites) -> FloatArray:
    """(d,) standard deviations over all rows."""
    return np.asarray(np.vstack([rows for recordings in sites for rows in recordings]).std(axis=0))
