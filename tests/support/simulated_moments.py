"""Moments of simulated lagged rows."""

import numpy as np

from feddbn.core.designs.recordings import Block, lagged_rows
from feddbn.core.statistics.moments import Moments
from feddbn.sim import SimulationSettings, simulate_arrays


def simulated(d, n, seed, n_lags=1, factors=None, **settings):
    """Moments of lagged rows and the true support."""
    s = SimulationSettings(d=d, n_samples=n, n_sites=2, n_lags=n_lags, **settings)
    arrays = simulate_arrays(s, np.random.default_rng(seed))
    scale = np.ones(d) if factors is None else factors
    rows = [
        chunk
        for recordings in arrays.recordings.values()
        for x in recordings
        for chunk in lagged_rows([Block(x * scale)], n_lags)
    ]
    system = next(iter(arrays.systems.values()))
    truth = np.vstack([system.W, *system.A]) != 0
    return Moments.of_chunks(rows, (n_lags + 1) * d), truth
