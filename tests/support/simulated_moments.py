"""Moments of simulated lagged rows."""

from functools import reduce

import numpy as np

import feddbn
from feddbn.core.designs.gram import Gram, recording_gram
from feddbn.core.designs.recordings import Block, lagged_rows
from feddbn.core.statistics.moments import Moments


def lagged(x, n_lags=1):
    """``[x_t, ..., x_{t-p}]`` of one series."""
    return np.hstack([x[n_lags - lag : len(x) - lag] for lag in range(n_lags + 1)])


def lagged_moments(x, n_lags=1):
    """The moments of these rows."""
    return Moments.of_rows(lagged(x, n_lags))


def gram_of(design, recordings):
    """The sums over all recordings."""
    return reduce(Gram.merge, (recording_gram(design, one) for one in recordings), Gram.empty(design.q))


def simulated(d, n, seed, n_lags=1, factors=None, **settings):
    """Moments of lagged rows and the true support."""
    fed = feddbn.simulate(d=d, n_samples=n, n_sites=2, n_lags=n_lags, random_state=seed, **settings)
    scale = np.ones(d) if factors is None else factors
    rows = [
        chunk
        for recordings in fed.sites.values()
        for x in recordings
        for chunk in lagged_rows([Block(x.to_numpy() * scale)], n_lags)
    ]
    network = next(iter(fed.truths.values()))
    truth = np.vstack([network.W, *network.A]) != 0
    return Moments.of_rows(np.concatenate(rows)), truth
