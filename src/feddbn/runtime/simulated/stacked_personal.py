"""The rounds of PFDBNL at many simulated sites, computed together.

What a site does when it joins or when a stage begins is its own program's; every round in between is one batch (see
`core.pfdbnl.stacked`). The sites' states are written when anything else is asked of them.

Rules of the file
-----------------
- Only a simulation may do this: sites with guards answer for themselves.
- The numbers are those of the sites' own programs up to rounding; see test_stacked_personal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.acyclicity import get_acyclicity
from feddbn.core.pfdbnl.stacked import StackedMembers, StackedProblems
from feddbn.core.pfdbnl.step import PersonalStage
from feddbn.core.solvers.ordered_step import StackedInverses
from feddbn.federation.programs.pfdbnl.asked import Asked, remember
from feddbn.federation.programs.pfdbnl.state import SiteMemory, pack
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Sum, Task

__all__ = ["CHUNK", "StackedPersonal"]

CHUNK = 1 << 18
"""Doubles per chunk: temporaries of a few megabytes stay in cache and do not grow with the number of sites."""

Numbers = NDArray[np.intp]


class StackedPersonal:
    """Sites whose PFDBNL rounds are computed together; `write_back` before anything else is asked of them."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self._sites = [sites[name] for name in sorted(sites)]
        self._number = {site.name: k for k, site in enumerate(self._sites)}
        self._run: _Run | None = None

    def knows(self, names: tuple[str, ...]) -> bool:
        """Whether all these sites are here."""
        return all(name in self._number for name in names)

    def sum(self, task: Task) -> Sum:
        """Return the sum of the participants' vectors; their states move on."""
        names = tuple(self._number) if task.participants is None else tuple(sorted(task.participants))
        number = int(task.params["run"])  # type: ignore[arg-type]
        if self._run is None or self._run.number != number:
            self.write_back()
            self._run = _Run(self._sites, task)
        at = np.array([self._number[name] for name in names])
        return Sum(self._run.answer(task, at), names)

    def write_back(self) -> None:
        """Give every site its state and forget it here."""
        if self._run is not None:
            self._run.write_back()
            self._run = None


class _Run:
    """One run: the sites' memories, and what changes in every round as arrays with a leading axis for the sites."""

    def __init__(self, sites: list[Site], task: Task) -> None:
        self.number = int(task.params["run"])  # type: ignore[arg-type]
        self._sites = sites
        q, d = task.arrays["C"].shape[1:]
        n = len(sites)
        self._memories: list[SiteMemory | None] = [None] * n
        self._problems = StackedProblems.room(n, d, task.arrays["metric"])
        self._members = StackedMembers.room(n, q, d)
        self._inverses = StackedInverses(n, q, d)
        self._allowed = np.zeros((n, q, d), dtype=bool)
        self._sent, self._offered = np.zeros((n, q, d)), np.zeros((n, q, d))
        self._offered_round, self._serial = np.full(n, -1), np.full(n, -1)
        self._slot = np.zeros(n, dtype=int)
        self._path_objective = np.full(n, np.nan)

    def answer(self, task: Task, at: Numbers) -> FloatArray:
        """Return the sum of `federation.programs.pfdbnl.rounds`'s vectors of these sites."""
        asked = Asked.of(task)
        places = {name: i for i, name in enumerate(task.params["names"])}  # type: ignore[arg-type]
        told = task.params["counted"]
        counted = np.array([told[places[self._sites[k].name]] for k in at])  # type: ignore[index]
        self._bring_in(task, at, counted)
        total: FloatArray | None = None
        for chunk in self._chunks(at):
            vector = self._step(asked, task, at[chunk], counted[chunk])
            total = vector if total is None else total + vector
        assert total is not None
        return total

    def _chunks(self, at: Numbers) -> Iterator[slice]:
        size = max(1, CHUNK // self._problems.wG[0].size)
        for first in range(0, len(at), size):
            yield slice(first, first + size)

    def _bring_in(self, task: Task, at: Numbers, counted: NDArray[np.int_]) -> None:
        """Let sites that begin, or that enter another stage, do so by themselves; acknowledge the others' answers."""
        is_known = np.array([self._memories[k] is not None for k in at]) & (counted >= 0)
        heard = at[is_known & (counted == self._offered_round[at])]
        self._sent[heard] = self._offered[heard]
        for k in at[~is_known | (self._serial[at] != task.params["serial"])]:
            site = self._sites[k]
            own = replace(task, params={**task.params, "site": site.name})
            asked = Asked.of(own)
            memory = self._memory(int(k))
            if memory is None or asked.counted < 0:
                site.state, memory = remember(site.data, site.state, own, asked)
            site.state, memory = asked.entered(site.state, memory)
            self._keep(int(k), memory)

    def _step(self, asked: Asked, task: Task, at: Numbers, counted: NDArray[np.int_]) -> FloatArray:
        rules, L = asked.rules(), asked.penalty()
        slots = self._slot[at]
        assert asked.models is not None
        Cbar = asked.models[slots]
        problems, members, allowed = self._problems.take(at), self._members.take(at), self._allowed[at]
        acyclicity = get_acyclicity(str(task.params["acyclicity"]))
        norms = members.step(problems, L, allowed, Cbar, rules, acyclicity, self._inverses, at)
        self._members.put(at, members)
        offered = members.T + members.U / (rules.rho2 * rules.agreement(problems.metric))
        change = offered - self._sent[at] if task.params["average"] == "running" else offered
        objective = problems.objective(rules.mu, Cbar, problems.weight * L, members.C)
        self._offered[at], self._offered_round[at] = offered, int(asked.number("round"))
        gain = self._path_objective[at] - objective if asked.stage is PersonalStage.CHOSEN else np.zeros(1)
        # (M, K): who belongs to which model.
        belongs = (slots == np.arange(asked.n_slots)[:, None]).astype(float)
        whole, new = np.tensordot(belongs, change, axes=1), belongs @ (counted < 0)
        numbers = [members.h.sum(), objective.sum(), np.nansum(gain)]
        return np.concatenate([whole.ravel(), norms.sum(axis=0), numbers, new])

    def _memory(self, k: int) -> SiteMemory | None:
        """Return what a site remembers, as its own program keeps it."""
        memory = self._memories[k]
        if memory is None:
            return None
        return replace(
            memory,
            site=replace(memory.site, member=self._members.member(k)),
            sent=self._sent[k].copy(),
            offered=self._offered[k].copy(),
            offered_round=int(self._offered_round[k]),
        )

    def _keep(self, k: int, memory: SiteMemory) -> None:
        problem = self._problems.put(k, memory.problem, memory.weight)
        self._memories[k] = replace(memory, problem=problem)
        self._members.put_member(k, memory.site.member)
        self._allowed[k] = memory.site.allowed
        self._sent[k], self._offered[k] = memory.sent, memory.offered
        self._offered_round[k], self._serial[k] = memory.offered_round, memory.serial
        self._slot[k], self._path_objective[k] = memory.slot, memory.site.path_objective

    def write_back(self) -> None:
        """Give the sites that took part their states."""
        for k, site in enumerate(self._sites):
            memory = self._memory(k)
            if memory is not None:
                site.state = pack(site.state, memory)
