"""Sums in one process: the default runtime and the reference for every other one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from feddbn.errors import NotEnoughSites, ProtocolError
from feddbn.federation.protocol.site import Site, SiteState
from feddbn.federation.protocol.task import Sum, Task

__all__ = ["InProcessFederation"]


class InProcessFederation:
    """Sites that live in this process.

    The server program only receives `Sum`s; the vectors exist for the length of one addition.
    """

    def __init__(self, sites: Mapping[str, Site]) -> None:
        if not sites:
            raise NotEnoughSites("a federation needs at least one site, got none.")
        self._sites = {name: sites[name] for name in sorted(sites)}

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return tuple(self._sites)

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of what the sites measure, in the order in which they are met."""
        return tuple(dict.fromkeys(v for site in self._sites.values() for v in site.data.variables))

    @property
    def answered_tasks(self) -> frozenset[str] | None:
        """None: what a site does not answer, it says itself."""
        return None

    def state_of(self, site: str) -> SiteState:
        """Return the state of a site."""
        return self._sites[site].state

    def site(self, name: str) -> Site:
        """Return one site; only a simulation may look into it."""
        return self._sites[name]

    def sum(self, task: Task) -> Sum:
        """Add the vectors of the participating sites in sorted site order."""
        names = self.sites if task.participants is None else tuple(sorted(task.participants))
        total: np.ndarray | None = None
        for name in names:
            if name not in self._sites:
                raise ProtocolError(
                    f"task {task.name!r} names the site {name!r}, which is not in this federation."
                )
            vector = self._sites[name].answer(task)
            if total is None:
                total = np.array(vector, dtype=np.float64)
            elif vector.shape != total.shape:
                raise ProtocolError(
                    f"site {name!r} answered task {task.name!r} with shape {vector.shape}, others with {total.shape}."
                )
            else:
                total += vector
        if total is None:
            raise NotEnoughSites(f"task {task.name!r} was sent to no site.")
        return Sum(total, names)
