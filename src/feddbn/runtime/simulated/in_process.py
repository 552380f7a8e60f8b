"""Sums in one process: the default runtime and the reference for every other one.

The sites' programs answer for many sites at once (`federation.protocol.site`), so a simulation of many sites costs
little more than one large site, and runs what a deployed site runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.backend.device import Device
from feddbn.errors import NotEnoughSites, ProtocolError
from feddbn.federation.protocol.site import (
    TOGETHER,
    Here,
    Memo,
    Site,
    answer_of_one,
    answer_together,
    site_task,
)
from feddbn.federation.protocol.task import Sum, Task

_NUMBERS_TOGETHER = 1 << 18
"""Sites are asked at once as long as a question's arrays, one copy for each, have so many numbers: what a few megabytes
hold stays in cache, and memory does not grow with the number of sites."""
_SITES_TOGETHER = 1024
"""And never more than so many: answers may be longer than what was asked."""


class InProcessFederation:
    """Sites that live in this process.

    The server program only receives `Sum`s; the vectors exist for the length of one addition.
    """

    def __init__(self, sites: Mapping[str, Site]) -> None:
        if not sites:
            raise NotEnoughSites("a federation needs at least one site, got none.", code="no-sites")
        self._sites = {name: sites[name] for name in sorted(sites)}
        self._is_guarded = any(site.guards for site in self._sites.values())
        self._memo: Memo = {}
        self._asked: tuple[str, ...] = ()
        self._added: tuple[object, Here] | None = None

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return tuple(self._sites)

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of what the sites measure, in the order of the first site that has them."""
        return tuple(dict.fromkeys(name for site in self._sites.values() for name in site.data.variables))

    @property
    def device(self) -> Device:
        """Who multiplies large matrices, for the sites and for whoever asks them."""
        return next(iter(self._sites.values())).device

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
        keys = site_task(task.name).adds_up(task.question)
        if keys and not self._is_guarded and all(key in self._sites[names[0]].state for key in keys):
            return Sum(self._answer_of_all(names, keys, task), names)
        self._added = None
        if names != self._asked:
            # What the memo holds of sites together serves the next question to the same sites only.
            self._memo.pop(TOGETHER, None)
            self._asked = names
        sites = [self._sites[name] for name in names]
        size = max(1, _NUMBERS_TOGETHER // (1 + sum(array.size for array in task.arrays.values())))
        size = min(size, _SITES_TOGETHER)
        total: FloatArray | None = None
        for first in range(0, len(sites), size):
            vectors = answer_together(sites[first : first + size], task, self._memo)
            # One site after the other, so that the sum does not depend on how many are asked at once.
            total = vectors.sum(axis=0) if total is None else np.add.reduce([total, *vectors])
        assert total is not None
        return Sum(total, names)

    def _answer_of_all(self, names: tuple[str, ...], keys: tuple[str, ...], task: Task) -> FloatArray:
        """The answer of one site with the sum of the others' arrays; nothing else was asked in between."""
        asked = (names, keys)
        if self._added is None or self._added[0] != asked:
            sites = [self._sites[name] for name in names]
            added = {key: np.sum([site.state[key] for site in sites], axis=0) for key in keys}
            state = {**sites[0].state, **added}
            self._added = (asked, replace(sites[0].here, state=state))
        return answer_of_one(site_task(task.name), self._added[1], task.question, self._memo)[1]
