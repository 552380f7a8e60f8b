"""Every plot on a real fit, as in docs/gallery.md. Run: python examples/gallery.py [folder] [names...]."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

import feddbn
from feddbn import FDBNL, PFDBNL, ChangingDBN, Monitor, OneShotDBN
from feddbn.model.nodes import Part, Term
from feddbn.report import (
    plot_changes,
    plot_convergence,
    plot_effects,
    plot_evidence,
    plot_forecast,
    plot_outlook,
    plot_process_graph,
    plot_responses,
    plot_site_differences,
    plot_time_series_graph,
    plot_truth_and_estimate,
    site_differences,
)

VITALS = ["heart_rate", "pressure", "breathing", "oxygen", "temperature", "lactate", "urine", "sedation"]


@cache
def federation(heterogeneity: float = 0.0) -> feddbn.SimulatedFederation:
    return feddbn.simulate(
        d=8, n_lags=2, n_sites=6, n_samples=1200, mean_degree=2, lag_degree=1, heterogeneity=heterogeneity,
        variables=VITALS, random_state=7,
    )  # fmt: skip


@cache
def fitted() -> FDBNL:
    return FDBNL(n_lags=2, lambda_w=0.05, lambda_a=0.05).fit(federation().sites)


def process_graph() -> Axes:
    return plot_process_graph(fitted().dbn_)


def time_series_graph() -> Axes:
    return plot_time_series_graph(fitted().dbn_)


def truth_and_estimate() -> Axes:
    return plot_truth_and_estimate(federation().truth, fitted().dbn_)


def convergence() -> Axes:
    return plot_convergence(fitted().history_)


def responses() -> Axes:
    shock = "sedation"
    return plot_responses(fitted().dbn_.impulse_responses(10)[:, VITALS.index(shock)], VITALS, shock=shock)


def forecast() -> Axes:
    record = federation().sites["site-0"][0]
    ahead = [fitted().dbn_.forecast(record, steps=12, interval=level) for level in (0.5, 0.9)]
    name = "heart_rate"
    return plot_forecast(
        ahead[0].mean[name], low=[a.lower[name] for a in ahead], high=[a.upper[name] for a in ahead],
        levels=(0.5, 0.9), history=record[name].tail(40), name=name,
    )  # fmt: skip


def site_difference() -> Axes:
    model = PFDBNL(n_lags=2, lambda_w=0.05, lambda_a=0.05, mu=1.0).fit(federation(0.15).sites)
    return plot_site_differences(site_differences(model.dbn_, model.dbns_), max_edges=30)


def curves() -> Axes:
    # Lactate bends with pressure, sedation works up to a dose, oxygen is best in the middle.
    names = ["sedation", "pressure", "lactate", "oxygen"]
    W, A = np.zeros((4, 4)), 0.3 * np.eye(4)[None]
    W[0, 1], A[0, 1, 2], A[0, 2, 3] = -0.5, -0.3, 0.2
    bends = [
        Part(1, Term(((0, 0),), "spline", (0.0,), (1.0,)), [0.5, 0.3]),
        Part(2, Term(((1, 1),), "spline", (0.0,), (1.2,)), [0.6]),
        Part(2, Term(((3, 0),), "quadratic", (0.0,), (1.1,)), [-0.7]),
    ]
    truth = feddbn.DBN(W, A, names, noise_variances=np.full(4, 0.6)).with_parts(bends)
    sites = {f"site-{k}": truth.simulate(400, random_state=k) for k in range(6)}
    return plot_effects(OneShotDBN(features="spline").fit(sites).dbn_, truth=truth)


def changes() -> Axes:
    """Five sites whose network changes at row 250 of 600: one edge vanishes, one appears, one turns."""
    W, A = np.zeros((4, 4)), 0.3 * np.eye(4)
    W[0, 1], W[1, 2], A[0, 3] = 0.6, -0.5, 0.5
    before = feddbn.DBN(W, A[None], VITALS[:4])
    W, A = W.copy(), A.copy()
    W[1, 2], A[0, 3], A[2, 3] = 0.5, 0.0, 0.4
    after = feddbn.DBN(W, A[None], VITALS[:4])
    sites = {}
    for seed in range(5):
        first = before.simulate(250, random_state=seed)
        later = after.simulate(350, random_state=100 + seed)
        sites[f"site-{seed}"] = pd.concat([first, later], ignore_index=True)
    fit = ChangingDBN().fit(sites)
    return plot_changes(fit.dbns_by_segment_, fit.segments_)


def evidence() -> Axes:
    """Six sites send 50 rows each at every look. From look 8 on one edge is half as strong, from look 15 on noise grows."""
    W, A = np.zeros((5, 5)), 0.3 * np.eye(5)
    W[0, 1], W[1, 2], A[0, 3], A[3, 4] = 0.6, -0.5, 0.6, 0.5
    half = A.copy()
    half[0, 3] = 0.3
    networks = [
        feddbn.DBN(W, weights[None], VITALS[:5], noise_variances=noise)
        for weights, noise in ((A, np.ones(5)), (half, np.ones(5)), (half, np.array([1, 1, 1.6, 1, 1])))
    ]

    def rows(look: int, n: int) -> dict[str, pd.DataFrame]:
        dbn = networks[(look >= 8) + (look >= 15)]
        return {f"site-{k}": dbn.simulate(n, random_state=1000 * k + look) for k in range(6)}

    monitor = Monitor(OneShotDBN(features="linear").fit(rows(0, 200)))
    for look in range(1, 25):
        monitor.look(rows(look, 51))
    return plot_evidence(monitor)


@cache
def ward() -> feddbn.SimulatedFederation:
    """Variables of five kinds."""
    kinds = {
        "lactate": "positive",
        "calls": "count",
        "alarm": "binary",
        "ward": ["surgery", "medicine", "intensive"],
    }
    return feddbn.simulate(
        d=5,
        n_sites=1,
        n_samples=200,
        mean_degree=2,
        variables=["temperature", *kinds],
        kinds=kinds,
        random_state=3,
    )


def effects() -> Axes:
    return plot_effects(ward().truth)


def outlook() -> Axes:
    record = ward().sites["site-0"][0]
    ahead = ward().truth.forecast(record, steps=8, interval=0.9, random_state=0)
    return plot_outlook(ahead, "ward", history=record["ward"].tail(20))


PICTURES: dict[str, Callable[[], Axes]] = {
    "process-graph": process_graph,
    "time-series-graph": time_series_graph,
    "truth-and-estimate": truth_and_estimate,
    "convergence": convergence,
    "responses": responses,
    "curves": curves,
    "changes": changes,
    "evidence": evidence,
    "effects": effects,
    "outlook": outlook,
    "forecast": forecast,
    "site-differences": site_difference,
}


def main(folder: Path, names: list[str] | None = None) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in names or list(PICTURES):
        path = folder / f"{name}.png"
        PICTURES[name]().figure.savefig(path, dpi=90, metadata={"Software": None})
        paths.append(path)
        print(path)
    return paths


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/gallery"), sys.argv[2:])
