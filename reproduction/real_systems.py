"""Five real systems and simulated rivers: how well true pairs are ranked, by ours and by others, and what the data tell.

python -m reproduction.real_systems                       all of docs/real-data.md; needs FEDDBN_DATA
python -m reproduction.real_systems systems --only storm
python -m reproduction.real_systems rivers --seeds 200-209
python -m reproduction.real_systems evidence              without the graphs: why nobody is good
python -m reproduction.real_systems battery               what any simple ranking reaches
python -m reproduction.real_systems held --seeds 0-19     what values that are held do to arrows
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from scipy.stats import norm

import feddbn
from benchmarks.timing import Table
from feddbn.core.statistics.diagnostics import slow_levels
from feddbn.core.statistics.moments import Moments
from reproduction.datasets import IT_SYSTEMS, Dataset, load_it_monitoring, load_tennessee_eastman
from reproduction.differential import river_levels
from reproduction.ranking_scores import ranking_scores
from reproduction.rankings import (
    OURS,
    Ranking,
    available,
    classic_scores,
    frames,
    oneshot,
    pooled,
    quietly,
    var_size,
)

PLANT = "plant"
SYSTEMS = (*IT_SYSTEMS, PLANT)
SHARED_RAIN = (0.2, 0.4, 0.6)


def load(name: str) -> Dataset:
    return load_tennessee_eastman() if name == PLANT else load_it_monitoring(name)


def systems(names: Sequence[str] = SYSTEMS) -> Iterator[Table]:
    others, missing = available()
    data = {name: load(name) for name in names}
    note = "In bold the best of ours by default and the others." if len(names) > 1 else ""
    note += f" Not installed, left out: {', '.join(missing)}." if missing else ""
    auroc: dict[str, list[float]] = {}
    precision: dict[str, list[float]] = {}
    for method, rank in {**OURS, **others}.items():
        found = [ranking_scores(one.truth, quietly(rank, one)) for one in data.values()]
        auroc[method] = [f.auroc for f in found]
        precision[method] = [f.average_precision for f in found]
    by_chance = np.array([chance(one.truth) for one in data.values()])
    compared = ["OneShotDBN", *others]
    for k_score, (title, scores) in enumerate(
        (
            ("Average precision of ordered pairs, any lag", precision),
            ("AUROC of ordered pairs, any lag", auroc),
        )
    ):
        table = Table(title, ["ranking", *names, "mean"], note=note.strip())
        best = [max(scores[method][k] for method in compared) for k in range(len(names))]
        for method, values in scores.items():
            cells = [
                f"**{value:.2f}**" if method in compared and value == top else f"{value:.2f}"
                for value, top in zip(values, best, strict=True)
            ]
            table.add(method, *cells, f"{np.mean(values):.2f}")
        random = by_chance[:, :, k_score]
        cells = [
            f"{mean:.2f} ± {spread:.2f}" for mean, spread in zip(random.mean(1), random.std(1), strict=True)
        ]
        table.add("random order", *cells, f"{random.mean():.2f} ± {random.mean(axis=0).std():.2f}")
        yield table


def chance(truth: np.ndarray, n_orders: int = 500) -> np.ndarray:
    """(n_orders, 2) average precision and AUROC of random orders."""
    rng = np.random.default_rng(0)
    found = [ranking_scores(truth, rng.random(truth.shape)) for _ in range(n_orders)]
    return np.array([(one.average_precision, one.auroc) for one in found])


def rivers(seeds: Sequence[int], d: int = 10, n_rows: int = 4000) -> Iterator[Table]:
    others, missing = available()
    rankings: dict[str, Ranking] = {name: OURS[name] for name in list(OURS)[:3]}
    rankings |= others
    table = Table(
        f"River-like levels, {d} gauges, {n_rows} rows, delays 1 to 5: average precision / AUROC",
        ["ranking", *(f"shared rain {shared}" for shared in SHARED_RAIN)],
        note=f"Mean over seeds {seeds[0]} to {seeds[-1]}."
        + (f" Not installed, left out: {', '.join(missing)}." if missing else ""),
    )
    networks = [[river(seed, shared, d, n_rows) for seed in seeds] for shared in SHARED_RAIN]
    for name, rank in rankings.items():
        cells = []
        for group in networks:
            found = [ranking_scores(one.truth, quietly(rank, one)) for one in group]
            precision = np.mean([f.average_precision for f in found])
            cells.append(f"{precision:.2f} / {np.mean([f.auroc for f in found]):.2f}")
        table.add(name, *cells)
    yield table


def river(seed: int, shared: float, d: int, n_rows: int) -> Dataset:
    levels, truth = river_levels(d, n_rows, shared=shared, rng=np.random.default_rng(seed))
    names = tuple(f"g{k}" for k in range(d))
    return Dataset("river", {"a": [pd.DataFrame(levels, columns=list(names))]}, truth, {"a": truth}, names)


def evidence(names: Sequence[str] = SYSTEMS) -> Iterator[Table]:
    """What can be seen without the graphs."""
    table = Table(
        "What the data show without the graphs",
        [
            "system",
            "rows",
            "repeats its last value (median / most)",
            "never falls",
            "near a unit root",
            "independent rows of the slowest",
            "unexplained by own past (median)",
            "of that by others a row ago",
            "and by others in the same row",
            "probabilities above .99 or below .01",
            "edges within a row, directed",
        ],
        note="Repeats: share of rows in which a variable does not change. Unexplained: share of its variance that a "
        "variable's own last value leaves. Directed: edges within a row whose direction second moments and noise decide.",
    )
    for name in names:
        data = load(name)
        rows, d = pooled(data, 1), len(data.variables)
        slow = slow_levels(Moments.of_rows(rows), d)
        assert slow is not None
        repeats = np.median(
            [(frame.diff().iloc[1:] == 0).mean().to_numpy() for frame in frames(data)], axis=0
        )
        rises = [
            ((frame.diff().dropna() >= 0).all() & (frame.nunique() > 1)).to_numpy() for frame in frames(data)
        ]
        own = np.array([_left(rows, j, [d + j]) for j in range(d)])
        past = np.array([_left(rows, j, range(d, 2 * d)) for j in range(d)])
        present = np.array([_left(rows, j, [m for m in range(2 * d) if m != j]) for j in range(d)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = feddbn.OneShotDBN().fit(data.sites)
        probability = model.edge_probabilities_["probability"]
        table.add(
            name,
            len(rows),
            f"{np.median(repeats):.2f} / {repeats.max():.2f}",
            int(np.any(rises, axis=0).sum()),
            f"{len(slow.slow)} of {d}",
            round(float(slow.independent_rows.min())),
            f"{np.median(own):.2f}",
            f"{np.median(1 - past / own):.2f}",
            f"{np.median((past - present) / own):.2f}",
            f"{((probability > 0.99) | (probability < 0.01)).mean():.2f}",
            f"{int(model.orientation_['oriented'].sum())} of {len(model.orientation_)}",
        )
    yield table


def _left(rows: np.ndarray, target: int, columns: Sequence[int] | range) -> float:
    """The share of a column's variance that others leave."""
    X = rows[:, list(columns)]
    residual = rows[:, target] - X @ np.linalg.lstsq(X, rows[:, target], rcond=None)[0]
    return float(residual.var())


def battery(names: Sequence[str] = SYSTEMS) -> Iterator[Table]:
    """What any of many simple rankings reaches, even if the graphs were used to choose it."""
    found: dict[tuple[str, int, str], list[tuple[float, float]]] = {}
    for name in names:
        data = load(name)
        for shape, change in SHAPES.items():
            sites = {site: [change(frame) for frame in recordings] for site, recordings in data.sites.items()}
            changed = replace(data, sites=sites)
            for n_lags in (1, 3, 6):
                for score, values in classic_scores(changed, n_lags).items():
                    one = ranking_scores(data.truth, values)
                    found.setdefault((shape, n_lags, score), []).append((one.average_precision, one.auroc))
    scores = np.array(list(found.values()))
    table = Table(
        f"{len(found)} simple rankings: {len(SHAPES)} shapes of the data x 1, 3 and 6 lags x "
        f"{len(found) // len(SHAPES) // 3} scores; average precision / AUROC",
        ["chosen", *names, "mean"],
        note="The first row is chosen with the graphs, system by system, so no method can be expected to reach it.",
    )
    top, middle = scores.max(axis=0), np.median(scores, axis=0)
    rows = {"the best of each system": top, "the median": middle}
    for k, what in ((0, "average precision"), (1, "AUROC")):
        best = int(scores[:, :, k].mean(axis=1).argmax())
        shape, n_lags, score = list(found)[best]
        rows[f"the best mean {what}: {score}, {shape}, {n_lags} lags"] = scores[best]
    for label, row in rows.items():
        both = np.vstack([row, row.mean(axis=0)])
        table.add(label, *(f"{precision:.2f} / {auroc:.2f}" for precision, auroc in both))
    yield table


def _ranks(frame: pd.DataFrame) -> pd.DataFrame:
    return ((frame.rank() - 0.5) / frame.count()).apply(lambda column: norm.ppf(column))


SHAPES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "levels": lambda frame: frame,
    "differences": lambda frame: frame.diff().iloc[1:],
    "normal ranks": _ranks,
    "differences of normal ranks": lambda frame: _ranks(frame).diff().iloc[1:],
}


def held(seeds: Sequence[int], n_rows: int = 600) -> Iterator[Table]:
    """A slow cause, its effect one row later; the gauge of the cause is read every so many rows and held in between."""
    table = Table(
        "A cause that is read every k rows and held in between: how often cause -> effect ranks above effect -> cause",
        ["k", *(rankings := {"OneShotDBN": oneshot, "VAR(1), size of coefficients": var_size})],
        note=f"Two slow variables (0.95 stays), effect 0.8 one row later, {n_rows} rows, seeds {seeds[0]} to {seeds[-1]}.",
    )
    cases = {
        "1": (1, slice(None)),
        "2": (2, slice(None)),
        "5": (5, slice(None)),
        "5, only the first row of each reading": (5, slice(0, None, 5)),
        "5, only the last row of each reading": (5, slice(4, None, 5)),
    }
    for label, (k, kept) in cases.items():
        wins = dict.fromkeys(rankings, 0.0)
        for seed in seeds:
            data = held_pair(seed, k, n_rows, kept)
            for name, rank in rankings.items():
                scores = quietly(rank, data)
                wins[name] += float(scores[0, 1] > scores[1, 0]) + 0.5 * float(scores[0, 1] == scores[1, 0])
        table.add(
            label,
            *(f"{wins[name] / len(seeds):.2f}" for name in rankings),
        )
    yield table


def held_pair(seed: int, k: int, n_rows: int, kept: slice) -> Dataset:
    rng = np.random.default_rng(seed)
    cause, effect = np.zeros(n_rows), np.zeros(n_rows)
    for t in range(1, n_rows):
        cause[t] = 0.95 * cause[t - 1] + rng.standard_normal()
        effect[t] = 0.2 * effect[t - 1] + 0.8 * cause[t - 1] + 0.3 * rng.standard_normal()
    shown = cause[np.arange(n_rows) // k * k]
    frame = pd.DataFrame({"cause": shown, "effect": effect})[kept]
    truth = np.array([[0, 1], [0, 0]])
    return Dataset("held", {"a": [frame]}, truth, {"a": truth}, ("cause", "effect"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=["systems", "evidence", "battery", "rivers", "held"])
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="these systems")
    parser.add_argument("--seeds", default="200-209", help="first-last, of rivers and of held values")
    parser.add_argument("--rows", type=int, default=4000, help="rows of a river")
    parser.add_argument("--gauges", type=int, default=10, help="gauges of a river")
    options = parser.parse_args()
    first, last = (int(number) for number in options.seeds.split("-"))
    seeds = list(range(first, last + 1))
    parts: Mapping[str, Iterator[Table]] = {
        "systems": systems(options.only),
        "evidence": evidence(options.only),
        "battery": battery(options.only),
        "rivers": rivers(seeds, options.gauges, options.rows),
        "held": held(seeds),
    }
    for name, tables in parts.items():
        if options.part in (None, name):
            for table in tables:
                print(table.text(), flush=True)


if __name__ == "__main__":
    main()
