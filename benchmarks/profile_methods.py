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
from feddbn.core.fdbnl import server as consensus
from feddbn.core.graphs import acyclicity
from feddbn.core.solvers import seen_gram
from feddbn.methods import base
from feddbn.runtime.simulated import in_process


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
            "sites",
            "h",
            "convex",
            "other",
            "rounds",
            "h per acyclic round",
        ],
        note="sites: moments, gradients, a personal site's steps without h; convex: the server's lassos within an order and "
        "the bound they are solved on; other: the server's elementwise work, messages and Python itself.",
    )
    clock = Clock()
    acyclicity.ACYCLICITIES["expm"] = clock.wrap("h", acyclicity.expm_value_and_grad)
    base.read_sites = clock.wrap("reading", base.read_sites)
    for name in ("answer_together", "answer_of_one"):
        setattr(in_process, name, clock.wrap("sites", getattr(in_process, name)))
    consensus.solve_by_signs = clock.wrap("convex", consensus.solve_by_signs)
    for name in ("see", "scaled"):
        setattr(seen_gram.SeenGram, name, clock.wrap("convex", getattr(seen_gram.SeenGram, name)))
    for d in [d for d in (10, 20, 50, 100, 200, 300) if d <= largest] or [largest]:
        fed = federation(d, 10, 20 * d, 0)
        for method in (feddbn.FDBNL, feddbn.Dynotears, feddbn.PFDBNL):
            is_personal = method is feddbn.PFDBNL
            if is_personal and d > 100:
                continue
            if d <= 50:
                method().fit(fed.sites)
            clock.seconds.clear()
            clock.calls.clear()
            start = time.process_time()
            model = method().fit(fed.sites)
            total = time.process_time() - start
            spent = {key: clock.seconds.get(key, 0.0) for key in ("reading", "sites", "h", "convex")}
            if is_personal:
                # Its sites ask for h, of all of them in one call.
                spent["sites"] -= spent["h"]
            acyclic = int((model.history_["stage"] == "acyclic").sum())
            calls = clock.calls.get("h", 0) / max(acyclic, 1)
            table.add(
                method.__name__,
                d,
                total,
                *spent.values(),
                total - sum(spent.values()),
                model.n_rounds_,
                calls,
            )
            print(table.text().splitlines()[-2], flush=True)
    return table


if __name__ == "__main__":
    print(profile(int(sys.argv[1]) if len(sys.argv) > 1 else 100).text())
