"""Cycles that stand out of a summed spectrum."""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import FloatArray

__all__ = ["MOST_CYCLES", "cycles_in"]

MOST_CYCLES = 4
_FEWEST_TURNS = 4.0
"""A recording must see a cycle so many times: slower ones cannot be told from trends."""
_FASTEST = 3.0
_ERRORS = 6.0
_NEIGHBOURS = 8


def cycles_in(spectrum: FloatArray, n_spectra: float, length: float) -> tuple[float, ...]:
    """Return periods in rows, the strongest first, at most four.

    Parameters
    ----------
    spectrum
        Mean of periodograms at evenly spaced frequencies from 0 to half a turn per row.
    n_spectra, length
        How many were averaged, and the mean length of a recording: peaks are as wide as one over it.

    A peak must exceed the medians of its neighbours, a few widths to either side, by six standard errors. Noise with a
    memory or with resonances has slopes and broad hills, where the neighbours of one side are as high.
    """
    n = len(spectrum)
    width = max(1.0, 2.0 * (n - 1) / max(length, 2.0))
    lowest = int(np.ceil(_FEWEST_TURNS * width))
    highest = int(2 * (n - 1) / _FASTEST)
    found: list[tuple[float, float]] = []
    for k in range(lowest, highest + 1):
        low, high = round(max(k - 1.5 * width, 0)), round(k + 1.5 * width)
        if spectrum[k] < spectrum[max(low, 0) : high + 1].max():
            continue
        far = round(_NEIGHBOURS * width)
        sides = spectrum[max(low - far, round(width)) : low], spectrum[high + 1 : high + 1 + far]
        base = max(float(np.median(side)) for side in sides if len(side))
        ratio = spectrum[k] / base
        if ratio > 1.0 + _ERRORS / np.sqrt(n_spectra):
            found.append((float(ratio), _period(spectrum, k, width)))
    found.sort(reverse=True)
    return tuple(period for _, period in found[:MOST_CYCLES])


def _period(spectrum: FloatArray, k: int, width: float) -> float:
    """The period of a peak, between the frequencies of the grid; a whole number of rows if that is as likely."""
    left, top, right = spectrum[k - 1 : k + 2]
    bend = left - 2 * top + right
    place = k + (0.5 * (left - right) / bend if bend < 0 else 0.0)
    turn = 2.0 * (len(spectrum) - 1)
    period, whole = turn / place, round(turn / place)
    # Frequencies closer than a small part of a peak's width cannot be told apart, and clocks have whole numbers of rows.
    return float(whole) if whole >= 2 and abs(turn / whole - place) < 0.25 * width else float(period)
