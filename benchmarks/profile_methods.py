"""Where the time of a fit goes: reading, looks, sites' rounds, evaluations of h, the order, everything else.

python benchmarks/profile_methods.py [largest d] [methods]
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
from feddbn.core.penalised import acyclicity, consensus
from feddbn.methods import base
from feddbn.runtime.simulated.in_process import InProcessFederation

PARTS = ("reading", "looks", "rounds of sites", "h", "order", "lassos")
METHODS = ("FDBNL", "Dynotears", "PFDBNL")


class Clock:
    """CPU time and calls of functions while they are wrapped; a part within another counts for the inner one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._within: list[float] = []

    def wrap(self, label, function):
        """Wrap a function; the label may depend on its arguments."""

        def timed(*args, **kwargs):
            name = label(*args) if callable(label) else label
            self._within.append(0.0)
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.process_time() - start
                self.seconds[name] = self.seconds.get(name, 0.0) + spent - self._within.pop()
                self.calls[name] = self.calls.get(name, 0) + 1
                if self._within:
                    self._within[-1] += spent

        return timed


def kind_of_sum(_federation, task) -> str:
    return "rounds of sites" if "step" in task.name else "looks"


def profile(largest: int, methods: list[str]) -> Table:
    table = Table(
        "Where the time of a fit goes (CPU seconds; K=10, n=20 d, p=1)",
        ["method", "d", "total", *PARTS, "other", "rounds", "h per acyclic round"],
        note="looks: the sites' first look, moments and residuals; rounds of sites: gradients, a personal site's steps "
        "without h; order: the search for the best order; lassos: the server's, within an order, and the bound they are "
        "solved on; other: the server's elementwise work and decisions, messages and Python itself.",
    )
    clock = Clock()
    acyclicity.ACYCLICITIES["expm"] = clock.wrap("h", acyclicity.expm_value_and_grad)
    base.read_sites = clock.wrap("reading", base.read_sites)
    InProcessFederation.sum = clock.wrap(kind_of_sum, InProcessFederation.sum)
    consensus.searched = clock.wrap("order", consensus.searched)
    consensus.solve_by_signs = clock.wrap("lassos", consensus.solve_by_signs)
    for name in ("see", "scaled"):
        setattr(consensus.SeenGram, name, clock.wrap("lassos", getattr(consensus.SeenGram, name)))
    for d in [d for d in (10, 20, 50, 100, 200, 300) if d <= largest] or [largest]:
        fed = federation(d, 10, 20 * d, 0)
        for name in methods:
            method = getattr(feddbn, name)
            if name == "PFDBNL" and d > 100:
                continue
            if d <= 50:
                method().fit(fed.sites)
            clock.seconds.clear()
            clock.calls.clear()
            start = time.process_time()
            model = method().fit(fed.sites)
            total = time.process_time() - start
            spent = [clock.seconds.get(part, 0.0) for part in PARTS]
            acyclic = int((model.history_["stage"] == "acyclic").sum())
            table.add(
                name, d, total, *spent, total - sum(spent), model.n_rounds_,
                clock.calls.get("h", 0) / max(acyclic, 1),
            )  # fmt: skip
            print(table.text().splitlines()[-3], flush=True)
    return table


if __name__ == "__main__":
    chosen = [name for name in METHODS if name in sys.argv[2:]] or list(METHODS)
    print(profile(int(sys.argv[1]) if len(sys.argv) > 1 else 100, chosen).text())
