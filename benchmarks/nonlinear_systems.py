"""Curved effects against a neural method, on Lorenz-96, and in designs of thousands of columns: parts of `nonlinear.py`."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import neural_notears
import numpy as np
from settings import federation
from timing import Size, Table, in_fresh_process

import feddbn
from feddbn.metrics import edge_scores, ranking_scores
from feddbn.results.edge_table import pair_ranking

PENALTIES = (0.001, 0.005, 0.02)
THRESHOLDS = (0.3, 0.5)


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = work()
    return result, time.process_time() - start


def neural(size: Size) -> Iterator[Table]:
    """OneShotDBN against one small neural network per target, in one run."""
    settings = {"tiny": [(3, 40, 1)], "quick": [(10, 300, 1)], "full": [(10, 300, 4), (10, 1000, 4)]}[size]
    table = Table(
        "Against a neural method, gp effects",
        [
            "d, n",
            "seed",
            "OneShotDBN",
            "s",
            "neural, held-out",
            "neural, by truth",
            "s of a fit",
            "s of all fits",
        ],
        note="Wrong edges of W / A. OneShotDBN: defaults. Neural: NTS-NOTEARS written anew (benchmarks/neural_notears.py), "
        f"10 hidden units, centred and standardised data, lambda2 .01, lambda1 of {', '.join(map(str, PENALTIES))}, "
        f"thresholds {' and '.join(map(str, THRESHOLDS))}. Held-out: the lambda1 with the least loss on the last fifth of "
        "every recording, then all rows; the better threshold is picked with the truth. By truth: lambda1 and threshold "
        "with the fewest wrong edges of W and A, an upper bound that nobody has. s of a fit: of that held-out lambda1 on all "
        "rows, without the choice. CPU seconds, one thread.",
    )
    totals: list[tuple[float, ...]] = []
    for d, n, count in settings:
        for seed in range(1000, 1000 + count):
            fed = federation(d, 4, n, seed, mean_degree=2, lag_degree=1, effects="gp")
            model, ours = _timed(lambda fed=fed: feddbn.OneShotDBN(n_lags=1).fit(fed.sites))
            raw = [np.asarray(x, dtype=float) for frames in fed.sites.values() for x in frames]
            rows = np.vstack(raw)
            recordings = [(x - rows.mean(axis=0)) / rows.std(axis=0) for x in raw]
            fits, losses, seconds, all_seconds = [], [], [], 0.0
            for penalty in PENALTIES:
                for kept_back in (0.2, 0.0):
                    found, spent = _timed(
                        lambda r=recordings, penalty=penalty, k=kept_back: neural_notears.fit(
                            r, np.random.default_rng(0), lambda1=penalty, kept_back=k
                        )
                    )
                    all_seconds += spent
                    if kept_back:
                        losses.append(found.held_out)
                    else:
                        fits.append([_wrong(fed.truth, *found.edges(cut)) for cut in THRESHOLDS])
                        seconds.append(spent)
            chosen = int(np.argmin(losses))
            own, held_out = _wrong(fed.truth, model.W_, model.A_), min(fits[chosen], key=sum)
            best = min((pair for pairs in fits for pair in pairs), key=sum)
            totals.append((*own, *held_out, *best, ours, seconds[chosen]))
            table.add(
                f"{d}, {n}",
                seed,
                *(f"{own[0]} / {own[1]}", f"{ours:.2f}"),
                f"{held_out[0]} / {held_out[1]} (lambda1 {PENALTIES[chosen]:g})",
                f"{best[0]} / {best[1]}",
                f"{seconds[chosen]:.1f}",
                f"{all_seconds:.0f}",
            )
    sums = np.sum(totals, axis=0)
    table.add(
        "all",
        "mean",
        *(f"{sums[0] / len(totals):.2f} / {sums[1] / len(totals):.2f}", f"{sums[6] / len(totals):.2f}"),
        f"{sums[2] / len(totals):.2f} / {sums[3] / len(totals):.2f}",
        f"{sums[4] / len(totals):.2f} / {sums[5] / len(totals):.2f}",
        f"{sums[7] / len(totals):.1f}: {sums[7] / sums[6]:.0f} times ours",
        "",
    )
    yield table


def _wrong(truth: feddbn.DBN, W: np.ndarray, A: np.ndarray) -> tuple[int, int]:
    return edge_scores(truth.W, W).shd, edge_scores(truth.A, A).shd


def lorenz(size: Size) -> Iterator[Table]:
    """AUROC of pairs off the diagonal."""
    seeds = range(1000, 1005 if size == "full" else 1001)
    lengths = (250, 500, 1000) if size == "full" else (250,)
    kinds: dict[str, dict[str, Any]] = {
        "linear": {"features": "linear"},
        "spline": {"features": "spline"},
        "spline, interactions": {"features": "spline", "interactions": True},
    }
    d = 5 if size == "tiny" else 10
    table = Table(
        f"Lorenz-96, d={d}: AUROC off the diagonal",
        ["F", "dt", "T", *kinds, "seconds"],
        note=f"One site, feddbn.simulate_system('lorenz96', ...), seeds {seeds[0]} to {seeds[-1]}: mean (least). "
        f"Pairs are ordered by pair_ranking(edge_probabilities_). Seconds: CPU time of a fit, {' / '.join(kinds)}.",
    )
    for forcing in (10, 40):
        for dt in (0.05, 0.1):
            for length in lengths:
                scores: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
                for seed in seeds:
                    fed = feddbn.simulate_system(
                        "lorenz96", d=d, n_sites=1, n_samples=length, F=forcing, dt=dt, random_state=seed
                    )
                    for name, options in kinds.items():
                        model, spent = _timed(
                            lambda options=options, fed=fed: feddbn.OneShotDBN(n_lags=1, **options).fit(
                                fed.sites
                            )
                        )
                        ranking = pair_ranking(model.edge_probabilities_, fed.truth.variables)
                        scores[name].append((ranking_scores(fed.truth.A[0], ranking).auroc, spent))
                table.add(
                    forcing,
                    dt,
                    length,
                    *(
                        f"{np.mean([s for s, _ in found]):.3f} ({min(s for s, _ in found):.3f})"
                        for found in scores.values()
                    ),
                    " / ".join(f"{np.mean([s for _, s in found]):.1f}" for found in scores.values()),
                )
    yield table


def fit_large(d: int, n: int, seed: int) -> dict[str, float]:
    """One fit in this process: seconds of the sites' sums and of the server's search, megabytes of an answer, wrong edges."""
    from feddbn import AS_THEY_ARE
    from feddbn.federation.programs import curved
    from feddbn.federation.sums import gram

    spent = {"sites": 0.0, "search": 0.0}

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            result, seconds = _timed(lambda: function(*args))
            spent[part] += seconds
            return result

        return call

    curved._network_of = timed("search", curved._network_of)
    gram.design_moments = timed("sites", gram.design_moments)
    fed = federation(d, 4, n, seed, mean_degree=2, lag_degree=1, effects="gp")
    model = feddbn.OneShotDBN(n_lags=1, features="spline", check_residuals=False, prepare=AS_THEY_ARE)
    _, total = _timed(lambda: model.fit(fed.sites))
    w, a = _wrong(fed.truth, model.W_, model.A_)
    q = 14 * d
    edges = np.count_nonzero(fed.truth.W) + np.count_nonzero(fed.truth.A)
    message = 8 * (1 + q + q * (q + 1) / 2) / 1e6
    return {**spent, "total": total, "w": w, "a": a, "edges": float(edges), "q": q, "message": message}


def large(size: Size) -> Iterator[Table]:
    """Seconds, memory and messages of designs with thousands of columns."""
    settings = {"tiny": [(5, 100)], "quick": [(50, 1000)], "full": [(100, 5000), (200, 5000), (285, 5000)]}[
        size
    ]
    table = Table(
        "Large designs, gp effects, features='spline'",
        [
            "d",
            "rows",
            "columns",
            "sites' sums, s",
            "search, s",
            "whole fit, s",
            "peak MB",
            "answer, MB",
            "wrong W / A",
            "true",
        ],
        note="Four sites, one lag, mean degree 2, lag degree 1, seed 1000, a process of its own, one thread; CPU seconds, "
        "the sites' all together. Rows as they are (AS_THEY_ARE, no look at residuals). Peak: of the whole process, with the "
        "simulation. Answer: what one site sends in the large sum.",
    )
    for d, n in settings:
        code = (
            f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
            f"import json, nonlinear_systems\nprint(json.dumps(nonlinear_systems.fit_large({d}, {n}, 1000)))"
        )
        _, megabytes, said = in_fresh_process(code)
        found = json.loads(said.strip().splitlines()[-1])
        table.add(
            d,
            n,
            found["q"],
            f"{found['sites']:.1f}",
            f"{found['search']:.1f}",
            f"{found['total']:.1f}",
            f"{megabytes:.0f}",
            f"{found['message']:.1f}",
            f"{found['w']} / {found['a']}",
            f"{found['edges']:.0f}",
        )
    yield table
