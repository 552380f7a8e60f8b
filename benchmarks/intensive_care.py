"""Seven vital signs of 134 real intensive-care stays: does a harmless change of the data turn an arrow around?

python benchmarks/intensive_care.py                 needs FEDDBN_DATA; some minutes
python benchmarks/intensive_care.py --only 6        the first six variants

Hourly means (clif-demo), dealt to four sites. A pair flips if a contemporaneous edge has a probability above .9 one way in
one variant and above .9 the other way in another. "as recorded" has some 25 values that no living patient has; the other
half of the table is without them.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from timing import Table

import feddbn
from feddbn.findings import Finding

POSSIBLE = {
    "heart_rate": (10, 300),
    "map": (15, 250),
    "sbp": (30, 300),
    "dbp": (10, 200),
    "respiratory_rate": (1, 80),
    "spo2": (30, 100),
    "temp_c": (25, 45),
}
PRESSURES = {"map", "sbp", "dbp"}
SURE = 0.9
Stays = Mapping[str, pd.DataFrame]
Edge = tuple[str, str, int]


def _each(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Stays], Stays]:
    return lambda stays: {name: change(one) for name, one in stays.items()}


def _some(stays: Stays) -> Stays:
    """Three quarters of them, drawn once."""
    chosen = np.random.default_rng(0).permutation(len(stays))[: 3 * len(stays) // 4]
    return {name: one for k, (name, one) in enumerate(stays.items()) if k in set(chosen.tolist())}


@dataclass(frozen=True)
class Variant:
    """A harmless change of the stays, of the number of sites or of a setting."""

    change: Callable[[Stays], Stays] = dict
    n_sites: int = 4
    settings: Mapping[str, str] | None = None


VARIANTS = {
    "all stays": Variant(),
    "even stays": Variant(lambda stays: dict(list(stays.items())[::2])),
    "odd stays": Variant(lambda stays: dict(list(stays.items())[1::2])),
    "without temp_c": Variant(_each(lambda one: one.drop(columns="temp_c"))),
    "without map": Variant(_each(lambda one: one.drop(columns="map"))),
    "straight lines": Variant(settings={"features": "linear"}),
    "first half of each stay": Variant(_each(lambda one: one.iloc[: (len(one) + 1) // 2])),
    "48 hours and more": Variant(lambda stays: {name: one for name, one in stays.items() if len(one) >= 48}),
    "three quarters of the stays": Variant(_some),
    "without spo2": Variant(_each(lambda one: one.drop(columns="spo2"))),
    "eight sites": Variant(n_sites=8),
}


def read_stays(only_possible: bool) -> Stays:
    """Hourly means of every stay; hours in which nothing was written down are empty."""
    long = pd.read_parquet(Path(os.environ["FEDDBN_DATA"]) / "clif-demo" / "clif_vitals.parquet")
    long = long[long["vital_category"].isin(POSSIBLE)]
    if only_possible:
        low, high = (long["vital_category"].map({k: v[i] for k, v in POSSIBLE.items()}) for i in (0, 1))
        long = long[long["vital_value"].between(low.astype(float), high.astype(float))]
    long = long.assign(hour=pd.to_datetime(long["recorded_dttm"], utc=True).dt.floor("h"))
    found = {}
    for stay, one in long.groupby("hospitalization_id"):
        wide = one.pivot_table(index="hour", columns="vital_category", values="vital_value", aggfunc="mean")
        found[str(stay)] = wide.reindex(columns=list(POSSIBLE)).asfreq("h").reset_index(drop=True)
    return dict(sorted(found.items()))


def dealt(stays: Stays, n_sites: int = 4) -> dict[str, list[pd.DataFrame]]:
    """Every fourth stay to each site."""
    every = list(stays.values())
    return {f"site {k + 1}": every[k::n_sites] for k in range(n_sites)}


def fitted(stays: Stays, variant: Variant) -> tuple[set[Edge], list[Finding]]:
    """Edges between variables with a probability above .9, and the findings of the fit."""
    sites = dealt(variant.change(stays), variant.n_sites)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = feddbn.OneShotDBN(n_lags=1, **(variant.settings or {})).fit(sites)
    table = model.edge_probabilities_
    table = table[(table["probability"] > SURE) & (table["source"] != table["target"])]
    edges = zip(table["source"], table["target"], table["lag"].astype(int), strict=True)
    return set(edges), list(model.findings_)


def flips(found: Mapping[str, set[Edge]]) -> list[str]:
    """Pairs that have a sure contemporaneous edge each way."""
    sure = [{edge[:2] for edge in edges if edge[2] == 0} for edges in found.values()]
    pairs = {tuple(sorted(e)) for one, other in combinations(sure, 2) for e in one if e[::-1] in other}
    return ["-".join(pair) for pair in sorted(pairs)]


def _is_named(findings: list[Finding]) -> str:
    return (
        "yes"
        if any(one.code == "near-identity" and set(one.about) == PRESSURES for one in findings)
        else "no"
    )


def measured(n_variants: int = len(VARIANTS)) -> list[Table]:
    """Sure edges of every variant, and which pairs flip between them."""
    table = Table(
        "OneShotDBN on intensive-care stays: edges above .9 (all, contemporaneous), and what it says",
        ["values", "variant", "edges", "in one row", "findings", "pressures named", "codes"],
    )
    summary = Table("What a harmless change does", ["values", "pairs that flip", "which"])
    every = {}
    for values in ("as recorded", "possible ones"):
        stays, found = read_stays(values == "possible ones"), {}
        for name, variant in list(VARIANTS.items())[:n_variants]:
            edges, findings = fitted(stays, variant)
            found[name] = edges
            n_now = sum(lag == 0 for _, _, lag in edges)
            codes = ", ".join(one.code for one in findings)
            table.add(values, name, len(edges), n_now, len(findings), _is_named(findings), codes)
        pairs = flips(found)
        summary.add(values, len(pairs), ", ".join(pairs) or "none")
        every[values] = found
    pairs = flips({f"{values} {name}": edges for values, one in every.items() for name, edges in one.items()})
    summary.add("both", len(pairs), ", ".join(pairs) or "none")
    recorded, possible = every.values()
    for name in recorded:
        differ = sorted(recorded[name] ^ possible[name])
        which = ", ".join(f"{i} -> {j} ({lag})" for i, j, lag in differ) or "none"
        summary.add(f"{name}: edges above .9 in one only", len(differ), which)
    return [table, summary]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=int, default=len(VARIANTS), metavar="N", help="the first N variants")
    for one in measured(parser.parse_args().only):
        print(one.text())
