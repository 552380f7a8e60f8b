"""Seven vital signs of 134 real intensive-care stays: does a harmless change of the data turn an arrow around?

python benchmarks/intensive_care.py     needs FEDDBN_DATA; a minute or two

Hourly means (clif-demo), dealt to four sites. A pair flips if a contemporaneous edge has a probability above .9 one way in
one variant and above .9 the other way in another. "as recorded" has some 25 values that no living patient has; the other
half of the table is without them.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pathlib import Path

import pandas as pd
from timing import Table

import feddbn

POSSIBLE = {
    "heart_rate": (10, 300),
    "map": (15, 250),
    "sbp": (30, 300),
    "dbp": (10, 200),
    "respiratory_rate": (1, 80),
    "spo2": (30, 100),
    "temp_c": (25, 45),
}
Stays = Mapping[str, pd.DataFrame]
VARIANTS: dict[str, Callable[[Stays], Stays]] = {
    "all stays": lambda stays: stays,
    "even stays": lambda stays: dict(list(stays.items())[::2]),
    "odd stays": lambda stays: dict(list(stays.items())[1::2]),
    "without temp_c": lambda stays: {name: one.drop(columns="temp_c") for name, one in stays.items()},
    "without map": lambda stays: {name: one.drop(columns="map") for name, one in stays.items()},
}
SURE = 0.9


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


def sure_edges(sites: dict[str, list[pd.DataFrame]]) -> tuple[set[tuple[str, str]], int]:
    """Contemporaneous edges with a probability above .9, and how many findings the fit has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = feddbn.OneShotDBN(n_lags=1).fit(sites)
    table = model.edge_probabilities_
    table = table[(table["lag"] == 0) & (table["probability"] > SURE)]
    return set(zip(table["source"], table["target"], strict=True)), len(model.findings_)


def measured(variants: Sequence[str] = tuple(VARIANTS)) -> Table:
    """Sure edges of every variant, and which pairs flip between them."""
    table = Table("OneShotDBN on intensive-care stays", ["values", "variant", "sure edges", "findings"])
    for values in ("as recorded", "possible ones"):
        stays, found = read_stays(values == "possible ones"), {}
        for name in variants:
            found[name], n = sure_edges(dealt(VARIANTS[name](stays)))
            table.add(values, name, len(found[name]), n)
        flipped = {
            tuple(sorted(edge))
            for one, other in combinations(found.values(), 2)
            for edge in one
            if edge[::-1] in other
        }
        pairs = ", ".join(map("-".join, sorted(flipped))) or "none"
        table.add(values, f"pairs that flip: {pairs}", len(flipped), "")
    return table


if __name__ == "__main__":
    print(measured().text())
