"""Six simulated hospitals that share physiology but not data. With real records: docs/tutorials/hospitals.md.

Run: python examples/hospital_federation.py [folder]
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import feddbn
from feddbn import FDBNL, PFDBNL, OneShotDBN
from feddbn.errors import UnitsWarning
from feddbn.report import (
    plot_forecast,
    plot_process_graph,
    plot_responses,
    plot_site_differences,
    site_differences,
    write_report,
)

VITALS = ["heart_rate", "pressure", "breathing", "oxygen", "temperature", "lactate", "urine", "sedation"]


def hospitals() -> feddbn.SimulatedFederation:
    """Hourly records of six hospitals; one edge in ten differs from hospital to hospital."""
    return feddbn.simulate(
        d=len(VITALS), n_lags=1, n_sites=6, n_samples=1200, mean_degree=2, lag_degree=1, heterogeneity=0.1,
        n_recordings=4, variables=VITALS, random_state=7,
    )  # fmt: skip


def compare(fed: feddbn.SimulatedFederation) -> tuple[pd.Series, PFDBNL]:
    """Wrong edges per hospital (mean) of one graph for all, and of one graph for each."""
    shared = FDBNL(n_lags=1).fit(fed.sites)
    personal = PFDBNL(n_lags=1, mu=1.0).fit(fed.sites)
    wrong = {"FDBNL": [], "PFDBNL": []}
    for site, truth in fed.truths.items():
        for name, dbn in (("FDBNL", shared.dbn_), ("PFDBNL", personal.dbns_[site])):
            scores = feddbn.score(truth, dbn)
            wrong[name].append(scores["W"]["shd"] + scores["A"]["shd"])
    return pd.Series({name: float(np.mean(counts)) for name, counts in wrong.items()}), personal


def main(folder: Path) -> pd.Series:
    folder.mkdir(parents=True, exist_ok=True)
    fed = hospitals()
    wrong, personal = compare(fed)
    print(wrong.to_string())

    with warnings.catch_warnings():
        # Simulated variables have no units, so there is nothing to warn about.
        warnings.simplefilter("ignore", UnitsWarning)
        one_round = OneShotDBN(n_lags=1).fit(fed.sites)

    plot_process_graph(one_round.dbn_).figure.savefig(folder / "graph.png", dpi=110)
    differences = site_differences(personal.dbn_, personal.dbns_)
    plot_site_differences(differences).figure.savefig(folder / "sites.png", dpi=110)

    mine = personal.dbns_["site-3"]
    responses = mine.impulse_responses(8)[:, VITALS.index("sedation")]
    plot_responses(responses, VITALS, shock="sedation").figure.savefig(folder / "sedation.png", dpi=110)

    record = fed.sites["site-3"][0]
    ahead = mine.forecast(record, steps=8, interval=0.9)
    fan = plot_forecast(
        ahead.mean["heart_rate"], low=ahead.lower["heart_rate"], high=ahead.upper["heart_rate"],
        history=record["heart_rate"].tail(40), name="heart_rate",
    )  # fmt: skip
    fan.figure.savefig(folder / "forecast.png", dpi=110)

    rows = [
        {
            "name": site,
            "recordings": len(parts),
            "rows": sum(len(part) - 1 for part in parts),
            "dropped_rows": len(parts),
        }
        for site, parts in fed.sites.items()
    ]
    print(write_report(personal, folder / "report.html", title="Six hospitals", sites=rows))
    return wrong


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/hospitals"))
