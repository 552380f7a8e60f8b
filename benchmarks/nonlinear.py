"""Curved effects: networks found, what curves cost where there are none, and forecasts; the tables of docs/measurements.md.

    PYTHONPATH=. python benchmarks/nonlinear.py --out curves                      # every table to a file of that folder
    PYTHONPATH=. python benchmarks/nonlinear.py recovery arena --out curves       # only these
    PYTHONPATH=. python benchmarks/nonlinear.py --quick
    PYTHONPATH=. python benchmarks/nonlinear.py --read curves --page docs/measurements.md      # put all files into the page

A wrong edge of W is a pair of variables whose edge differs from the truth (SHD: a reversed edge counts 1); of A, an entry
that differs. Seeds 1000 and on were used for no choice. Nothing is tuned and nothing looks at the truth.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import arena
import numpy as np
from settings import federation
from timing import Size, Table

import feddbn
from feddbn.metrics import edge_scores
from reproduction.corruptions import simulate

EFFECTS = ("gp", "spline", "sigmoid", "threshold", "quadratic", "mixed")
FEATURES = ("linear", "auto", "spline")
LIMITS: dict[str, int] = {}
BEGINS, ENDS = "<!-- tables of benchmarks/nonlinear.py begin -->", "<!-- tables end -->"


def sparse(d: int, n: int, seed: int, **more: Any) -> feddbn.SimulatedFederation:
    """Four sites; about d contemporaneous edges and d lagged ones."""
    return federation(d, 4, n, seed, mean_degree=2, lag_degree=1, **more)


def fitted(sites: Any, features: str, **options: Any) -> tuple[feddbn.OneShotDBN, float]:
    """A fit with one lag and its CPU seconds."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = feddbn.OneShotDBN(n_lags=1, features=features, **options).fit(sites)
    return model, time.process_time() - start


def wrong(model: Any, truth: feddbn.DBN) -> tuple[int, int]:
    """Wrong edges of W and A."""
    return edge_scores(truth.W, model.W_).shd, edge_scores(truth.A, model.A_).shd


def same_graph(one: Any, other: Any) -> bool:
    """Whether two fits have the same edges."""
    pairs = ((one.W_, other.W_), (one.A_, other.A_))
    return all(np.array_equal(a != 0, b != 0) for a, b in pairs)


def mean_error(values: Any) -> str:
    """Mean ± standard error."""
    values = np.asarray(values, dtype=float)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{values.mean():.2f} ± {error:.2f}"


def both_parts(pairs: list[tuple[int, int]]) -> str:
    """Means ± standard errors of W / A."""
    return " / ".join(mean_error(part) for part in zip(*pairs, strict=True))


def seeds_of(size: Size, n: int = 10) -> range:
    """As many as a table should have, or as --seeds allows."""
    return range(1000, 1000 + (min(n, LIMITS.get("seeds", n)) if size == "full" else 1))


def shown(seeds: range) -> str:
    return f"Seeds {seeds[0]} to {seeds[-1]}." if len(seeds) > 1 else f"Seed {seeds[0]}."


def recovery(size: Size) -> Iterator[Table]:
    """Wrong edges by kind of function, and the same in other units."""
    settings = {"tiny": [(4, 80)], "quick": [(10, 300)], "full": [(20, 1000), (10, 300)]}[size]
    seeds = seeds_of(size)
    for d, n in settings:
        table = Table(
            f"Wrong edges of W / A, d={d}, n={n}",
            ["effects", "true edges", *FEATURES, "seconds", "other units, auto", "other units, spline"],
            note=f"Four sites, mean degree 2, lag degree 1, |weights| .3 to .5. {shown(seeds)} Mean ± standard error. "
            f"Seconds: CPU time of a fit, {' / '.join(FEATURES)}. Other units: every variable times a lognormal factor "
            "(log sd 1); fits with the very same graph, and wrong edges of W / A there.",
        )
        for effects in EFFECTS if size == "full" else EFFECTS[:2]:
            found: dict[str, list[tuple[int, int]]] = {}
            seconds: dict[str, list[float]] = {name: [] for name in FEATURES}
            same = dict.fromkeys(FEATURES[1:], 0)
            n_true = []
            for seed in seeds:
                fed = sparse(d, n, seed, effects=effects)
                factors = np.random.default_rng(seed).lognormal(0.0, 1.0, d)
                scaled = {name: [x * factors for x in frames] for name, frames in fed.sites.items()}
                n_true.append((np.count_nonzero(fed.truth.W), np.count_nonzero(fed.truth.A)))
                for name in FEATURES:
                    model, spent = fitted(fed.sites, name)
                    found.setdefault(name, []).append(wrong(model, fed.truth))
                    seconds[name].append(spent)
                    if name in same:
                        other, _ = fitted(scaled, name)
                        same[name] += same_graph(model, other)
                        found.setdefault(f"{name}, scaled", []).append(wrong(other, fed.truth))
            table.add(
                effects,
                " / ".join(f"{np.mean(part):.1f}" for part in zip(*n_true, strict=True)),
                *(both_parts(found[name]) for name in FEATURES),
                " / ".join(f"{np.mean(seconds[name]):.1f}" for name in FEATURES),
                *(
                    f"same {same[name]} of {len(seeds)}: {both_parts(found[f'{name}, scaled'])}"
                    for name in same
                ),
            )
        yield table


def units(size: Size) -> Iterator[Table]:
    """Whether units matter where nothing is made of equal noise variances."""
    settings = {"tiny": [(4, 80)], "quick": [(10, 300)], "full": [(20, 1000), (10, 300)]}[size]
    seeds = seeds_of(size)
    table = Table(
        "Other units with noise_variance='free'",
        ["effects", "d, n", "same graph, auto", "same graph, spline", "wrong edges, spline"],
        note="As above, and every variable times a lognormal factor (log sd 1); noise_variance='free' in both units. "
        f"{shown(seeds)}",
    )
    for effects in ("gp", "mixed"):
        for d, n in settings:
            same, found = dict.fromkeys(FEATURES[1:], 0), []
            for seed in seeds:
                fed = sparse(d, n, seed, effects=effects)
                factors = np.random.default_rng(seed).lognormal(0.0, 1.0, d)
                scaled = {name: [x * factors for x in frames] for name, frames in fed.sites.items()}
                for name in same:
                    model, other = (
                        fitted(sites, name, noise_variance="free")[0] for sites in (fed.sites, scaled)
                    )
                    same[name] += same_graph(model, other)
                found.append(wrong(model, fed.truth))
            table.add(
                effects, f"{d}, {n}", *(f"{k} of {len(seeds)}" for k in same.values()), both_parts(found)
            )
    yield table


def linear_data(size: Size) -> Iterator[Table]:
    """The recovery table of docs/oneshot.md with and without a choice of curves."""
    settings = [(10, 512), (20, 512), (10, 256), (20, 256), (20, 100), (15, 90), (10, 50), (5, 25)]
    settings, seeds = settings if size == "full" else [(5, 25)], seeds_of(size)
    table = Table(
        "Linear data",
        ["d, n", "linear", "auto", "same graph", "took curves", "seconds", "time ratio"],
        note="As the recovery table of docs/oneshot.md (mean degree 4, lag degree 1, five sites, |weights| .3 to .5), "
        f"but a reversed edge counts 1. {shown(seeds)} Wrong edges of W / A, mean ± standard error. "
        "Seconds: CPU time of a fit, linear / auto.",
    )
    for d, n in settings:
        found: dict[str, list[tuple[int, int]]] = {"linear": [], "auto": []}
        spent = {"linear": 0.0, "auto": 0.0}
        same = curved = 0
        for seed in seeds:
            fed = federation(d, 5, n, seed)
            models = {}
            for name in found:
                models[name], seconds = fitted(fed.sites, name)
                spent[name] += seconds / len(seeds)
                found[name].append(wrong(models[name], fed.truth))
            same += same_graph(*models.values())
            curved += not models["auto"].dbn_.is_linear
        table.add(
            f"{d}, {n}",
            *map(both_parts, found.values()),
            f"{same} of {len(seeds)}",
            curved,
            f"{spent['linear']:.2f} / {spent['auto']:.2f}",
            f"{spent['auto'] / spent['linear']:.2f}",
        )
    yield table


def forecast(size: Size) -> Iterator[Table]:
    """Log score of rows that were not learned from."""
    d, n = (4, 200) if size == "tiny" else (10, 1000)
    seeds = seeds_of(size)
    table = Table(
        f"Held-out log score, d={d}, n={n}",
        [
            "effects",
            "linear, nats a row",
            "auto, nats a row",
            "gain, nats a row",
            "gain, %",
            "better in",
            "true network",
        ],
        note=f"Learned from the first 70 % of every recording, scored on the rest (dbn_.log_likelihood). {shown(seeds)} "
        "Mean ± standard error; % of the linear model's score. True network: the score of the noise under its own variances.",
    )
    for effects in ("gp", "mixed", "linear"):
        scores: dict[str, list[float]] = {"linear": [], "auto": [], "truth": []}
        for seed in seeds:
            fed = sparse(d, n, seed, effects=effects)
            parts: tuple[dict[str, list[Any]], list[Any]] = ({}, [])
            for name, frames in fed.sites.items():
                cuts = [round(0.7 * len(x)) for x in frames]
                parts[0][name] = [x.iloc[:k] for x, k in zip(frames, cuts, strict=True)]
                parts[1].extend(x.iloc[k:] for x, k in zip(frames, cuts, strict=True))
            rows = sum(len(x) - 1 for x in parts[1])
            for name in ("linear", "auto"):
                model, _ = fitted(parts[0], name)
                scores[name].append(model.dbn_.log_likelihood(parts[1]) / rows)
            noise = np.vstack([np.asarray(u) for u in residuals_of(fed.truth, parts[1])])
            s2 = np.asarray(fed.truth.noise_variances)
            scores["truth"].append(float(-0.5 * (np.log(2 * np.pi * s2) + noise**2 / s2).sum() / len(noise)))
        before, after = np.array(scores["linear"]), np.array(scores["auto"])
        table.add(
            effects,
            mean_error(before),
            mean_error(after),
            mean_error(after - before),
            f"{100 * (after - before).sum() / abs(before.sum()):+.2f}",
            f"{(after > before).sum()} of {len(seeds)} (equal {(after == before).sum()})",
            mean_error(scores["truth"]),
        )
    yield table


def residuals_of(truth: feddbn.DBN, recordings: list[Any]) -> Iterator[np.ndarray]:
    """The noise of every recording, without the rows that only serve as lags."""
    for x in recordings:
        u = np.asarray(truth.residuals(x), dtype=float)
        yield u[np.isfinite(u).all(axis=1)]


def curvature(size: Size) -> Iterator[Table]:
    """How often clean linear data are said to be curved."""
    noises: dict[str, dict[str, Any]] = {
        "Gaussian": {},
        "Laplace": {"noise": "laplace"},
        "t, 3 degrees": {"corruptions": {"heavy-tails": 3.0}},
        "exponential": {"noise": "exponential"},
    }
    worlds = {"d=8, 8 sites of 200 rows": (8, 8, 1600), "d=10, 64 sites of 8 rows": (10, 64, 512)}
    worlds = worlds if size == "full" else {"d=4, 4 sites of 40 rows": (4, 4, 160)}
    seeds = seeds_of(size, 30)
    for label, (d, k, n) in worlds.items():
        table = Table(
            f"False alarms of curvature on linear data, {label}",
            ["noise", "variances", "curvature said", "auto took curves"],
            note=f"{shown(seeds)} Mean degree 2.5, lag degree 1, |weights| .3 to .6; unequal: corruption unequal-noise. "
            "Curvature said: 'curvature' in residuals_.violations of features='auto', or curves taken; of the fits whose "
            "residuals were looked at.",
        )
        for noise, more in noises.items():
            for equal in (True, False):
                given = {**more.get("corruptions", {}), **({} if equal else {"unequal-noise": None})}
                options = {
                    "mean_degree": 2.5,
                    "lag_degree": 1,
                    "w_range": (0.3, 0.6),
                    **more,
                    "corruptions": given,
                }
                said = taken = unseen = 0
                for seed in seeds:
                    drawn = simulate(d=d, n_sites=k, n_samples=n, random_state=seed, **options)
                    model, _ = fitted(drawn.sites, "auto")
                    curved, looked = not model.dbn_.is_linear, model.residuals_
                    taken += curved
                    said += curved or (looked is not None and "curvature" in looked.violations)
                    unseen += looked is None
                table.add(
                    noise,
                    "equal" if equal else "unequal",
                    f"{said} of {len(seeds) - unseen}",
                    f"{taken} of {len(seeds)}",
                )
        yield table


def arena_rows(size: Size) -> Iterator[Table]:
    """The two rows of the arena with effects that are not linear."""
    world = arena.World(4, 2, 60, seeds=(900,)) if size == "tiny" else arena.World(seeds=range(900, 905))
    scenarios = {key: arena.SCENARIOS[key] for key in ("tanh", "squares")}
    trials = list(arena.run(world, scenarios, ["OneShotDBN"]))
    table = arena.summary(world, scenarios, ["OneShotDBN"], trials)
    table.title = "Rows of the arena"
    yield table


PARTS: dict[str, Callable[[Size], Iterator[Table]]] = {
    "recovery": recovery,
    "units": units,
    "linear": linear_data,
    "forecast": forecast,
    "curvature": curvature,
    "arena": arena_rows,
}


def tables(size: Size) -> Iterator[Table]:
    """What `run.py` shows."""
    for part in PARTS.values():
        yield from part(size)


def put_into(page: Path, folder: Path) -> None:
    """Replace the tables of a page, or add them at its end under "Measured"."""
    found = [(folder / f"{name}.md").read_text() for name in PARTS if (folder / f"{name}.md").exists()]
    block = "\n".join([BEGINS, *found, ENDS])
    text = page.read_text() if page.exists() else "# Nonlinear effects"
    if BEGINS in text:
        before, _, rest = text.partition(BEGINS)
        page.write_text(before + block + rest.partition(ENDS)[2])
    else:
        page.write_text(f"{text.rstrip()}\n\n## Measured\n\n{block}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes, one seed")
    size.add_argument("--tiny", action="store_true", help="only shows that everything runs")
    parser.add_argument("--seeds", type=int, help="at most so many for each row")
    parser.add_argument("--out", type=Path, help="folder for one file of tables per part")
    parser.add_argument("--read", type=Path, help="folder of an earlier run, instead of running")
    parser.add_argument("--page", type=Path, help="put all files of the folder into this page")
    options = parser.parse_args()
    if options.seeds:
        LIMITS["seeds"] = options.seeds
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part is called {sorted(unknown)[0]!r}; there are {', '.join(PARTS)}")
    if options.page and not (options.read or options.out):
        parser.error("--page needs the folder of the tables: add --out or --read")
    if not options.read:
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
        for name in options.parts or PARTS:
            texts = []
            for table in PARTS[name]("tiny" if options.tiny else "quick" if options.quick else "full"):
                texts.append(table.text())
                print(texts[-1], flush=True)
                if options.out:
                    (options.out / f"{name}.md").write_text("".join(texts))
    if options.page:
        put_into(options.page, options.read or options.out)


if __name__ == "__main__":
    main()
