"""River-like levels: slow, delayed by several rows, all effects positive, rain that many places share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from feddbn.errors import ParameterError

__all__ = ["river_levels"]

_BURN_IN = 300
_WET = 0.03
_DRIZZLE = 0.05


def river_levels(
    d: int = 10,
    n_rows: int = 4000,
    *,
    max_delay: int = 5,
    shared: float = 0.4,
    noise: float = 0.01,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.int_]]:
    """Return (n_rows, d) levels of gauges and (d, d) of 0 and 1, [from, to]: which gauge flows into which.

    Every gauge but the last flows into one gauge further down. A gauge keeps most of its level and takes in its rain and a
    part of what came from upstream some rows ago:

        x_j(t) = phi_j x_j(t-1) + (1 - phi_j) (rain_j(t) + sum_i gain_ij x_i(t - delay_ij)) + u_j(t)

    Rain comes in bursts that fade slowly. Regressions of one level on the others then have thousands of rows and few
    independent ups and downs.

    Parameters
    ----------
    d, n_rows
        Numbers of gauges and of rows.
    max_delay
        Delays are 1 to this many rows.
    shared
        Part of the rain that is the same everywhere, from 0 to 1.
    noise
        Standard deviation of the gauges' own error, in standard deviations of the level.
    rng
        Source of randomness.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.sim import river_levels
    >>> levels, delays = river_levels(4, 200, rng=np.random.default_rng(0))
    >>> levels.shape, delays.shape
    ((200, 4), (4, 4))
    """
    if d < 2 or n_rows < 1 or max_delay < 1:
        raise ParameterError(
            f"d={d!r}, n_rows={n_rows!r} and max_delay={max_delay!r} must be at least 2, 1 and 1."
        )
    if not 0 <= shared <= 1 or noise < 0:
        raise ParameterError(
            f"shared={shared!r} must lie between 0 and 1, and noise={noise!r} must not be below 0."
        )
    truth, below = np.zeros((d, d), dtype=int), np.full(d, -1)
    place = rng.permutation(d)
    for k in range(d - 1):
        upper, lower = place[k], place[min(k + int(rng.geometric(0.5)), d - 1)]
        truth[upper, lower], below[upper] = 1, lower
    delay, gain = rng.integers(1, max_delay + 1, d), rng.uniform(0.4, 0.9, d)
    keeps, fades = rng.uniform(0.8, 0.97, d), float(rng.uniform(0.9, 0.98))
    upstream = np.flatnonzero(below >= 0)
    n_all = n_rows + _BURN_IN + max_delay
    everywhere, own = _bursts(n_all, 1, rng), _bursts(n_all, d, rng)
    x, common, local = np.zeros((n_all, d)), 0.0, np.zeros(d)
    for t in range(max_delay, n_all):
        common, local = fades * common + everywhere[t, 0], fades * local + own[t]
        inflow = shared * common + (1 - shared) * local
        np.add.at(inflow, below[upstream], gain[upstream] * x[t - delay[upstream], upstream])
        x[t] = keeps * x[t - 1] + (1 - keeps) * inflow + 0.002 * rng.standard_normal(d)
    levels = x[-n_rows:]
    levels = levels + noise * levels.std(axis=0) * rng.standard_normal(levels.shape)
    return levels, truth


def _bursts(n_rows: int, d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(n_rows, d) rain: now and then a shower, otherwise next to nothing."""
    showers = (rng.random((n_rows, d)) < _WET) * rng.exponential(1.0, (n_rows, d))
    return showers + _DRIZZLE * rng.standard_normal((n_rows, d))
