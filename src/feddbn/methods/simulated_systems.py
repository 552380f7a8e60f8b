"""Federations of nonlinear differential equations with known graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from feddbn.errors import ParameterError
from feddbn.methods.simulation import SimulatedFederation, generator_of
from feddbn.methods.true_network import TrueNetwork
from feddbn.sim import Trajectories, lorenz96, lotka_volterra
from feddbn.sim.settings import check_whole, split_evenly

__all__ = ["SYSTEMS", "simulate_system"]

SYSTEMS: Mapping[str, Callable[..., Trajectories]] = MappingProxyType(
    {"lorenz96": lorenz96, "lotka-volterra": lotka_volterra}
)
"""Every system by name, with the function of `feddbn.sim` that draws it and documents its options."""


def simulate_system(
    system: str,
    d: int = 10,
    n_sites: int = 10,
    n_samples: int = 512,
    *,
    random_state: int | np.random.Generator | None = 0,
    **options: float,
) -> SimulatedFederation:
    """A federation of sites that watch a nonlinear system of differential equations.

    Every site sees a path of its own. The truth has no edges within a moment and one of weight 1 at lag 1 wherever a
    variable is in the equation of another (or its own).

    Parameters
    ----------
    system
        "lorenz96" or "lotka-volterra".
    d, n_sites
        Numbers of variables and sites.
    n_samples
        Usable rows of all sites together, split evenly; a recording has one row more.
    random_state
        A seed, a generator, or None.
    options
        Options of `feddbn.sim.lorenz96` (``F``, ``dt``, ``noise``) or `feddbn.sim.lotka_volterra` (``n_hunted``,
        ``dt``, ``noise``).

    Examples
    --------
    >>> import feddbn
    >>> fed = feddbn.simulate_system("lorenz96", d=5, n_sites=2, n_samples=20, F=8)
    >>> len(fed.sites["site-1"][0]), int((fed.truth.A[0] != 0).sum())
    (11, 20)
    """
    if system not in SYSTEMS:
        raise ParameterError(f"system must be one of {', '.join(SYSTEMS)}, got {system!r}.")
    draw = SYSTEMS[system]
    known = [name for name in draw.__kwdefaults__ or {} if name != "n_sites"]
    for name in options:
        if name not in known:
            raise ParameterError(
                f"{name}={options[name]!r} is no option of {system}; it has {', '.join(known)}."
            )
    check_whole("n_sites", n_sites, 1)
    check_whole("n_samples", n_samples, n_sites)
    sizes = split_evenly(n_samples, n_sites)
    drawn = draw(d, max(sizes) + 1, n_sites=n_sites, rng=generator_of(random_state), **options)
    truth = TrueNetwork(
        None, np.zeros((d, d)), drawn.graph[None].astype(np.float64), drawn.variables, np.ones(d)
    )
    names = [f"site-{k}" for k in range(n_sites)]
    frames = [
        pd.DataFrame(rows[: size + 1], columns=list(drawn.variables))
        for rows, size in zip(drawn.recordings, sizes, strict=True)
    ]
    asked: dict[str, Any] = {"system": system, "d": d, "n_sites": n_sites, "n_samples": n_samples, **options}
    return SimulatedFederation(
        sites={name: [frame] for name, frame in zip(names, frames, strict=True)},
        truths=dict.fromkeys(names, truth),
        clusters=None,
        lag_damping=dict.fromkeys(names, 1.0),
        parameters={**asked, "random_state": random_state},
    )
