"""The guard that keeps numbers at home with which one site would spoil a sum: not finite, too large to mask, too long."""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import SiteRefused
from feddbn.federation.protocol.site import Channel, Guard
from feddbn.federation.protocol.task import Task
from feddbn.privacy.fixed_point import largest_summand

__all__ = ["BoundsGuard"]


class BoundsGuard(Guard):
    """Refuses an answer that no sum should have; no sentence says a number of the data.

    Parameters
    ----------
    n_sites
        Sites of the study: so many numbers are added up.
    max_norm
        Largest Euclidean norm of an answer that the study declares, or None.
    """

    def __init__(self, n_sites: int, max_norm: float | None = None) -> None:
        self._n_sites = n_sites
        self._max_norm = max_norm

    def after(self, task: Task, vector: FloatArray, channel: Channel) -> FloatArray:
        """Return the vector, or say what keeps it here."""
        if not np.all(np.isfinite(vector)):
            raise SiteRefused(
                f"the answer to task {task.name!r} holds NaN or infinity and stays here; look for infinite or enormous "
                "values in the data of this site (`feddbn site check`)."
            )
        limit = largest_summand(self._n_sites)
        if channel.masked and not np.abs(vector).max(initial=0.0) < limit:
            raise SiteRefused(
                f"the answer to task {task.name!r} holds a number of magnitude {limit:.3g} or more, which could overflow a "
                f"sum over {self._n_sites} sites, and stays here; give the variables of this site smaller units."
            )
        if self._max_norm is not None and not np.linalg.norm(vector) <= self._max_norm:
            raise SiteRefused(
                f"the answer to task {task.name!r} is longer than the study allows (max_norm = {self._max_norm:g}) and stays "
                "here; check the units and outliers of this site, or ask the lead for a larger max_norm."
            )
        return vector
