"""Sites of a random walk over real messages, and the same walk in one process to compare with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import support.study_programs  # noqa: F401 (registers the walk)
from feddbn.core.designs.recordings import Block
from feddbn.data import Recording
from feddbn.data import Site as DataSite
from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Study, study_method
from feddbn.runtime.server.conduct import run_study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.simulated.in_process import InProcessFederation
from support.faults import Fault, FaultyExchange, LocalExchange, MemoryJournal, MemoryStore
from support.study_files import ABOUT

NAMES = ("a", "b", "c")
VARIABLES = ("u", "v")


def data_of(name):
    rows = np.random.default_rng(ord(name)).normal(size=(20, 2))
    return DataSite(VARIABLES, [Recording("r", (Block(rows),))])


class Place:
    """Sites whose stores outlive their processes, and the events they told.

    `vectors` are what some sites answer instead of their own; `more(name)` gives further arguments of an endpoint.
    """

    def __init__(self, names=NAMES, vectors=None, more=lambda name: {}):
        self.stores = {name: MemoryStore(name) for name in names}
        self.events, self._vectors, self._more = [], vectors or {}, more
        self.exchange = LocalExchange(names, self.make)

    def make(self, name):
        vectors = self._vectors

        class Odd(Site):
            def answer(self, task, channel=None):
                super().answer(task)
                return vectors[self.name]

        site = (Odd if name in vectors else Site)(name, data_of(name))
        return SiteEndpoint(
            site,
            self.stores[name],
            **{"on_event": lambda event: self.events.append((name, event)), **self._more(name)},
        )

    def executed(self):
        """Each (site, task) that was computed."""
        return [(name, e.seq) for name, e in self.events if e.what.startswith("executed")]

    def faulty(self, seed=0, away=(), **faults):
        return FaultyExchange(self.exchange, Fault(**faults), np.random.default_rng(seed), set(away))


def walk(names=NAMES, rounds=8, participation=1.0, privacy=None, **attendance):
    parameters = {"rounds": rounds, "participation": participation}
    more = {} if privacy is None else {"privacy": privacy}
    return Study(
        name="s",
        about=ABOUT,
        method="walk",
        variables=VARIABLES,
        sites=names,
        parameters=parameters,
        attendance=attendance,
        **more,
    )


def reference(study, away=None):
    """Where the walk ends in one process; `away` maps a site to the rounds it misses."""
    inner = InProcessFederation({name: Site(name, data_of(name)) for name in study.sites})

    class Thinned:
        sites, variables, seq = inner.sites, VARIABLES, -1

        def sum(self, task):
            self.seq += 1
            asked = inner.sites if task.participants is None else task.participants
            here = tuple(n for n in asked if self.seq not in (away or {}).get(n, ()))
            return inner.sum(replace(task, participants=here))

    return study_method("walk").run(study.parameters, Thinned()).arrays["centre"]


def run(exchange, study, log=None, tell=None, run_id="run-1"):
    """Where the walk ends over an exchange, and who received it."""
    log = MemoryJournal() if log is None else log
    coordinator = Coordinator(exchange, study, run_id, log, tell, pause_s=0.0, opening_s=0.0)
    result, received = run_study(coordinator, study)
    return result.arrays["centre"], received
