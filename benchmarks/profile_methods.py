"""Where the time of a fit goes: reading, sites, evaluations of h, everything else.

python benchmarks/profile_methods.py [largest d]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
sys.path.insert(0, str(Path(__file__).parent))

from settings import federation
from timing import Table

import feddbn
from feddbn.core import acyclicity, local_step, member
from feddbn.methods import base
from feddbn.runtime import stacked


class Clock:
    """CPU time and calls of functions while they are wrapped."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}

    def wrap(self, label, function):
        def timed(*args, **kwargs):
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[label] = self.seconds.get(label, 0.0) + time.process_time() - start
                self.calls[label] = self.calls.get(label, 0) + 1

        return timed


def profile(largest: int) -> Table:
    table = Table(
        "Where the time of a fit goes (CPU seconds; K=10, n=20 d, p=1)",
        [
            "method",
            "d",
            "total",
            "reading",
            "decompositions",
            "site rounds",
            "h",
            "other",
            "rounds",
            "h per acyclic round",
        ],
        note="'other' is the server's elementwise work and Python itself; decompositions include a site's one pass over its rows.",
    )
    clock = Clock()
    expm = acyclicity.expm_value_and_grad
    acyclicity.ACYCLICITIES["expm"] = clock.wrap("h", expm)
    base.read_sites = clock.wrap("reading", base.read_sites)
    stacked._Members.start = clock.wrap("start", stacked._Members.start)
    stacked._Members.answer = clock.wrap("sites", stacked._Members.answer)
    local_step.LocalProblem.from_gram = clock.wrap("start", local_step.LocalProblem.from_gram)
    member.SiteMember.answer = clock.wrap("sites", member.SiteMember.answer)
    for d in (d for d in (10, 20, 50, 100, 200, 300) if d <= largest):
        fed = federation(d, 10, 20 * d, 0)
        for method in (feddbn.FDBNL, feddbn.Dynotears):
            method().fit(fed.sites)
            clock.seconds.clear()
            clock.calls.clear()
            start = time.process_time()
            model = method().fit(fed.sites)
            total = time.process_time() - start
            parts = [clock.seconds.get(key, 0.0) for key in ("reading", "start", "sites", "h")]
            acyclic = int((model.history_["stage"] == "acyclic").sum())
            table.add(
                method.__name__,
                d,
                total,
                *parts,
                total - sum(parts),
                model.n_rounds_,
                clock.calls.get("h", 0) / max(acyclic, 1),
            )
            print(table.text().splitlines()[-2], flush=True)
    return table


if __name__ == "__main__":
    print(profile(int(sys.argv[1]) if len(sys.argv) > 1 else 100).text())
