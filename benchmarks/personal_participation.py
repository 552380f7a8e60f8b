"""Partial participation (d=10, K=6, n_k=60, heterogeneity .1): mSHD of W for j of 6 sites a round, and a drop-out
curve.

python benchmarks/personal_participation.py [n_seeds]
"""

import sys

import numpy as np

import feddbn
from feddbn import PFDBNL
from feddbn.data import read_sites
from feddbn.federation.site import Site
from feddbn.federation.task import Sum, Task
from feddbn.runtime.in_process import InProcessFederation


class DroppingFederation(InProcessFederation):
    """Two sites are away for ten rounds."""

    def __init__(self, data: dict, away: range) -> None:
        sites = read_sites(data)
        super().__init__({name: Site(name, site) for name, site in sites.items()})
        self.variables, self.away = tuple(next(iter(sites.values())).variables), away

    def sum(self, task: Task) -> Sum:
        names = self.sites if task.participants is None else task.participants
        if task.name == "personal-step" and task.params["round"] in self.away:
            names = tuple(name for name in names if name not in ("site-0", "site-1"))
        return super().sum(Task(task.name, task.arrays, task.params, names, task.note))


def main(n_seeds: int) -> None:
    shd: dict[str, list[float]] = {}
    updates: dict[str, list[float]] = {}
    for seed in range(n_seeds):
        fed = feddbn.simulate(
            d=10, n_sites=6, n_samples=360, mean_degree=4, heterogeneity=0.1, random_state=seed
        )
        for j in (6, 5, 4, 3, 2, 1):
            for average in ("running", "participants") if j in (1, 3) else ("running",):
                m = PFDBNL(participation=j, average=average, max_rounds=200 * 6 // j).fit(fed.sites)
                key = f"j={j} {average}"
                shd.setdefault(key, []).append(feddbn.score_sites(fed.truths, m.dbns_)["W"]["mshd"])
                updates.setdefault(key, []).append(m.n_rounds_ * j / 6)
    for key, values in shd.items():
        print(
            f"{key}: mSHD {np.mean(values):.2f}  local updates per site {np.mean(updates[key]):.0f}",
            flush=True,
        )
    fed = feddbn.simulate(d=10, n_sites=6, n_samples=360, mean_degree=4, heterogeneity=0.1, random_state=0)
    full = PFDBNL().fit(fed.sites)
    for average in ("running", "participants"):
        m = PFDBNL(
            federation=DroppingFederation(fed.sites, range(80, 90)), average=average, max_rounds=300
        ).fit(None)
        curve = m.history_["primal"].to_numpy()
        text = " ".join(f"{curve[t]:.4f}" for t in range(74, 100, 2) if t < len(curve))
        print(
            f"{average}: rounds {m.n_rounds_} ({full.n_rounds_} undisturbed), primal residual 74..98: {text}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
