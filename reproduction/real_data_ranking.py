"""DREAM4 and NetSim rankings, all from sums over sites; run with FEDDBN_DATA set.

No setting is chosen with the gold standards: a row is a recipe, and `auto` is chosen by marginal likelihood.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from reproduction.datasets import PAPER_SUBJECTS, dream4, netsim
from reproduction.edge_ranking import ContemporaneousEdgeRanker, LaggedEdgeRanker

NETWORKS = range(1, 6)
RECIPES = {
    "linear, no hubs": {"n_hub_steps": 0},
    "linear, no hubs, centred by stimulus": {"n_hub_steps": 0, "center_by": "stimulus"},
    "+ smoothing .6 + hubs": {"smoothing": 0.6, "center_by": "stimulus"},
    "+ squares": {"smoothing": 0.6, "features": "quadratic", "center_by": "stimulus"},
    "auto, centred by stimulus": {"smoothing": "auto", "features": "auto", "center_by": "stimulus"},
    "squares, smoothing .6, stimulus unknown": {"smoothing": 0.6, "features": "quadratic"},
    "auto, stimulus unknown": {"smoothing": "auto", "features": "auto"},
}


def dream4_table(networks: Sequence[int] = NETWORKS, recipes: Mapping[str, dict] = RECIPES) -> None:
    off = ~np.eye(100, dtype=bool)
    print(f"DREAM4 size 100, {len(networks)} networks, 5 clients x 2 series; off-diagonal AP / AUROC")
    for name, recipe in recipes.items():
        rows, chosen, started = [], [], time.perf_counter()
        for network in networks:
            data = dream4(network, stimulus="center_by" in recipe)
            model = LaggedEdgeRanker(**recipe).fit(data.sites)
            score, truth = model.probabilities_[0][off], data.truth[off]
            rows.append((average_precision_score(truth, score), roc_auc_score(truth, score)))
            chosen.append(f"{model.features_[0]}{model.smoothing_:g}")
        table = np.array(rows)
        mean, spread = table.mean(axis=0), table.std(axis=0, ddof=1)
        print(
            f"{name:42s} AP {mean[0]:.3f} ± {spread[0]:.3f}  AUROC {mean[1]:.3f} ± {spread[1]:.3f}"
            f"  used {' '.join(chosen)}  {(time.perf_counter() - started) / len(networks):.1f} s each"
        )


def alone_table(networks: Sequence[int] = NETWORKS) -> None:
    off = ~np.eye(100, dtype=bool)
    single, averaged = [], []
    for network in networks:
        data = dream4(network, stimulus=True)
        truth = data.truth[off]
        recipe = {"smoothing": 0.6, "features": "quadratic", "center_by": "stimulus"}
        alone = [LaggedEdgeRanker(**recipe).fit({name: s}) for name, s in data.sites.items()]
        own = [model.probabilities_[0][off] for model in alone]
        single += [(average_precision_score(truth, s), roc_auc_score(truth, s)) for s in own]
        mean = np.mean(own, axis=0)
        averaged.append((average_precision_score(truth, mean), roc_auc_score(truth, mean)))
    for name, rows in (("one client alone", single), ("average of the clients' own posteriors", averaged)):
        mean = np.mean(rows, axis=0)
        print(f"{name:42s} AP {mean[0]:.3f}  AUROC {mean[1]:.3f}")


def netsim_table(simulations: Sequence[int] = (1, 2, 3)) -> None:
    print("NetSim; AUROC off-diagonal / with the diagonal counted as true and scored 1")
    for sim in simulations:
        everyone = netsim(sim)
        single = []
        for name, series in everyone.sites.items():
            model = ContemporaneousEdgeRanker().fit({name: series})
            single.append(_aurocs(everyone.truths[name], model.scores_))
        five = [int(s) - 1 for s in PAPER_SUBJECTS[sim]]
        chosen = netsim(sim, PAPER_SUBJECTS[sim])
        presence = ContemporaneousEdgeRanker().fit(chosen.sites)
        summed = _aurocs(chosen.truth, presence.scores_)
        undirected = _aurocs(chosen.truth, np.abs(presence.partial_correlations_))
        total = _aurocs(everyone.truth, ContemporaneousEdgeRanker().fit(everyone.sites).scores_)
        table = np.array(single)
        print(
            f"sim{sim}: per subject (50) {_text(table.mean(axis=0))} ± {table.std(axis=0, ddof=1)[0]:.3f};"
            f" the paper's five, each {_text(table[five].mean(axis=0))}; the five summed {_text(summed)}"
            f" (partial correlation alone {_text(undirected)}); 50 summed {_text(total)}"
        )


def _aurocs(truth: np.ndarray, score: np.ndarray) -> tuple[float, float]:
    off = ~np.eye(len(truth), dtype=bool)
    with_diagonal = np.where(off, truth, 1)
    return (
        float(roc_auc_score(truth[off], score[off])),
        float(roc_auc_score(with_diagonal.ravel(), np.where(off, score, 1.0).ravel())),
    )


def _text(pair: np.ndarray | tuple[float, float]) -> str:
    return f"{pair[0]:.3f} / {pair[1]:.3f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="?", choices=["dream4", "alone", "netsim"])
    choice = parser.parse_args().only
    parts = {
        "dream4": dream4_table,
        "alone": alone_table,
        "netsim": netsim_table,
    }
    for name, table in parts.items():
        if choice in (None, name):
            table()
