"""Origin and scale of functions of the data, on a coarse public grid.

A smooth function of ``(x - origin) / scale`` with a tiny scale is a step, and the sums over two steps with one row between
them show that row. So scales are powers of 2^(1/4), and origins multiples of an eighth of them: close enough to mean and
standard deviation for any curve, too coarse to aim at a row. How far both may be from a site's own rows is checked there.
"""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import FloatArray

__all__ = ["are_public_units", "public_units"]

_STEPS_AN_OCTAVE = 4
_STEPS_A_SCALE = 8
_ROUNDING = 1e-9


def public_units(mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(d,) origin and (d,) scale on the grid, nearest to mean and standard deviation."""
    scale = np.exp2(np.round(_STEPS_AN_OCTAVE * np.log2(sd)) / _STEPS_AN_OCTAVE)
    return np.round(mean / scale * _STEPS_A_SCALE) * scale / _STEPS_A_SCALE, scale


def are_public_units(origin: FloatArray, scale: FloatArray) -> bool:
    """Whether both are on the grid, up to rounding."""
    if not (scale > 0).all():
        return False
    steps, places = _STEPS_AN_OCTAVE * np.log2(scale), origin / scale * _STEPS_A_SCALE
    near = np.abs(steps - np.round(steps)) <= _ROUNDING * np.maximum(1.0, np.abs(steps))
    on = np.abs(places - np.round(places)) <= _ROUNDING * np.maximum(1.0, np.abs(places))
    return bool((near & on).all())
