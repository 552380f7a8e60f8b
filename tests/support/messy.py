"""Federations with and without a mess, from one seed, and what the true network leaves of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import feddbn

SETTING = {"d": 5, "n_sites": 6, "n_samples": 2400, "mean_degree": 2, "random_state": 3}


def with_mess(mess=None, **more) -> feddbn.SimulatedFederation:
    """Six sites of 400 usable rows, five variables; other arguments of `simulate` as given."""
    return feddbn.simulate(**{**SETTING, **more}, mess=mess)


def values(fed: feddbn.SimulatedFederation) -> list[np.ndarray]:
    """The first recording of every site."""
    return [np.asarray(frames[0]) for frames in fed.sites.values()]


def residuals(fed: feddbn.SimulatedFederation, shape: Callable = lambda x: x) -> list[np.ndarray]:
    """What the true network with one lag leaves of every recording, if `shape` of causes acts."""
    W, A = fed.truth.W, fed.truth.A[0]
    return [x[1:] - shape(x[1:]) @ W - shape(x[:-1]) @ A for x in values(fed)]
