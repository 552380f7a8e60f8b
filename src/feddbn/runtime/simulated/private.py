"""Noise and masks between sites of one process."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from feddbn.federation.guards.noise import DpGuard
from feddbn.federation.protocol.site import Site
from feddbn.federation.sums.private_moments import MOMENTS, private_moments_plan
from feddbn.privacy.policy import DEFAULT_MIN_SITES, Unit, usual_threshold
from feddbn.runtime.noisy import PrivateFederation
from feddbn.runtime.simulated.secure import secure_federation


def private_federation(
    sites: Mapping[str, Site],
    epsilon: float,
    delta: float = 1e-5,
    *,
    unit: Unit = "recording",
    clip: float | None = None,
    n_colluding: int = 1,
    min_sites: int = DEFAULT_MIN_SITES,
    rng: np.random.Generator | None = None,
) -> PrivateFederation:
    """Return a federation of sites in this process with noise and masks: all that a fit asks for is together
    (epsilon, delta)-differentially private for each unit, and nobody sees more than sums.

    Only lagged second moments are answered: no functions of the variables.

    Parameters
    ----------
    sites
        The sites; each keeps its guards and gains one that clips, adds noise and refuses a second release.
    clip
        Bound on a unit's vector of moments; None chooses it from a noisy histogram, for a tenth of the budget.
    n_colluding
        Sites that may tell the server their own share of the noise; in a study at least 1, since each site knows its own.
    rng
        Source of the noise, for tests and benchmarks; None takes the operating system's randomness.
    """
    plan = private_moments_plan(MOMENTS, unit, epsilon, delta, clip, n_colluding)
    sources = [os.urandom] * len(sites) if rng is None else [one.bytes for one in rng.spawn(len(sites))]
    guarded = {
        name: Site(name, site.data, (*site.guards, DpGuard(plan, source, epsilon, delta)))
        for (name, site), source in zip(sorted(sites.items()), sources, strict=True)
    }
    n_guaranteed = usual_threshold(len(sites), min_sites)
    return PrivateFederation(secure_federation(guarded, min_sites, n_guaranteed), plan, n_guaranteed)
