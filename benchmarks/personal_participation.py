"""Partial participation (d=10, K=6, n_k=60, heterogeneity .1): mSHD of W for j of 6 sites a round, each with the local
updates per site that full participation took; and the residuals of a run in which two sites are away for ten rounds.

python benchmarks/personal_participation.py [n_seeds] [first_seed]
python benchmarks/personal_participation.py curve [picture.svg]
"""

import sys
from dataclasses import replace

import numpy as np

import feddbn
from feddbn import PFDBNL, PersonalRounds
from feddbn.data import read_sites
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Sum, Task
from feddbn.runtime.simulated.in_process import InProcessFederation


class DroppingFederation(InProcessFederation):
    """Two sites are away for ten rounds."""

    def __init__(self, data: dict, away: range) -> None:
        sites = read_sites(data)
        super().__init__({name: Site(name, site) for name, site in sites.items()})
        self.away = away

    def sum(self, task: Task) -> Sum:
        names = self.sites if task.participants is None else task.participants
        if task.name == "step.personal" and task.params["round"] in self.away:
            names = tuple(name for name in names if name not in ("site-0", "site-1"))
        return super().sum(replace(task, participants=names))


def draw(seed: int, d: int = 10) -> feddbn.SimulatedFederation:
    return feddbn.simulate(d=d, n_sites=6, n_samples=360, mean_degree=4, heterogeneity=0.1, random_state=seed)


def table(seeds: range, d: int = 10) -> None:
    shd: dict[int, list[float]] = {j: [] for j in (6, 5, 4, 3, 2, 1)}
    updates: dict[int, list[float]] = {j: [] for j in shd}
    for seed in seeds:
        fed = draw(seed, d)
        budget = 0
        for j in shd:
            limit = {"rounds.max_rounds": budget * 6 // j} if budget else {}
            m = PFDBNL(participation=j, **limit).fit(fed.sites)
            budget = budget or m.n_rounds_
            shd[j].append(feddbn.score_sites(fed.truths, m.dbns_)["W"]["mshd"])
            updates[j].append(m.n_rounds_ * j / 6)
        print(f"seed {seed}: " + " ".join(f"{j}:{values[-1]:.2f}" for j, values in shd.items()), flush=True)
    full = np.mean(shd[6])
    for j, values in shd.items():
        error = np.std(values) / len(values) ** 0.5
        print(
            f"j={j}: mSHD {np.mean(values):.2f} ± {error:.2f} ({np.mean(values) / full - 1:+.0%})  "
            f"local updates per site {np.mean(updates[j]):.0f}"
        )


def curve(picture: str | None, d: int = 10) -> None:
    data = draw(0, d).sites
    undisturbed = PFDBNL().fit(data)
    # Every site is in its final order and the residuals are falling.
    start = int((undisturbed.history_["stage"] == "lasso").to_numpy().argmax()) + 4
    away = range(start, start + 10)
    runs = {
        "nobody away": undisturbed,
        "two sites away, running mean": PFDBNL(federation=DroppingFederation(data, away)).fit(None),
        "two sites away, the paper's mean": PFDBNL(
            federation=DroppingFederation(data, away),
            rounds=PersonalRounds(average="participants", max_rounds=300),
        ).fit(None),
    }
    print(f"site-0 and site-1 are away in rounds {away.start}-{away.stop - 1}")
    for name, m in runs.items():
        values = m.history_["primal"].to_numpy()
        text = " ".join(
            f"{values[t]:.4f}" for t in range(away.start - 4, away.stop + 12, 2) if t < len(values)
        )
        print(f"{name}: {m.n_rounds_} rounds; primal residual from {away.start - 4} by 2: {text}", flush=True)
    W = [runs[name].dbns_ for name in ("nobody away", "two sites away, running mean")]
    gap = max(np.abs(W[0][site].W - W[1][site].W).max() for site in W[0])
    print(f"largest difference of a personal weight to the undisturbed run: {gap:.4f}")
    if picture is None:
        return
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 3.2), layout="constrained")
    axis.axvspan(away.start, away.stop, color="0.9", label="site-0 and site-1 away")
    for (name, m), style in zip(runs.items(), ("-", "--", ":"), strict=True):
        values = m.history_["primal"].to_numpy()[:150]
        axis.semilogy(np.arange(len(values)), np.maximum(values, 1e-7), style, label=name)
    axis.set(xlabel="round", ylabel="primal residual", xlim=(0, 150))
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    if sys.argv[1:2] == ["curve"]:
        curve(sys.argv[2] if len(sys.argv) > 2 else None)
    else:
        n_seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
        first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
        table(range(first, first + n_seeds))
