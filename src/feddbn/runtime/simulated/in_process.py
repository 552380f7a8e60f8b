"""Sums in one process: the default runtime and the reference for every other one. Sites answer as deployed ones do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import NotEnoughSites, ProtocolError
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Sum, Task


class InProcessFederation:
    """Sites that live in this process.

    The server program only receives `Sum`s; the vectors exist for the length of one addition.
    """

    def __init__(self, sites: Mapping[str, Site]) -> None:
        if not sites:
            raise NotEnoughSites("a federation needs at least one site, got none.", code="no-sites")
        self._sites = {name: sites[name] for name in sorted(sites)}

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return tuple(self._sites)

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of what the sites measure, in the order of the first site that has them."""
        return tuple(dict.fromkeys(name for site in self._sites.values() for name in site.data.variables))

    @property
    def answered_tasks(self) -> frozenset[str] | None:
        """Every task the sites know."""
        return None

    def state_of(self, site: str) -> Mapping[str, np.ndarray] | None:
        """Return the state of a site; only a simulation may look into it."""
        return self._sites[site].state

    def site(self, name: str) -> Site:
        """Return one site; only a simulation may look into it."""
        return self._sites[name]

    def sum(self, task: Task) -> Sum:
        """Add the vectors of the participating sites in sorted site order."""
        names = self.sites if task.participants is None else tuple(sorted(task.participants))
        unknown = [name for name in names if name not in self._sites]
        if unknown:
            raise ProtocolError(
                f"task {task.name!r} names the site {unknown[0]!r}, which is not in this federation.",
                code="unknown-site",
            )
        if not names:
            raise NotEnoughSites(f"task {task.name!r} was sent to no site.", code="no-sites")
        total: FloatArray | None = None
        for name in names:
            vector = self._sites[name].answer(task)
            if total is None:
                total = vector.copy()
            elif vector.shape != total.shape:
                raise ProtocolError(
                    f"the sites answered task {task.name!r} with vectors of different lengths.",
                    code="different-lengths",
                )
            else:
                total += vector
        assert total is not None
        return Sum(total, names)
