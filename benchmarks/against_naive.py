"""One fit against a straightforward transcription of the paper, at an equal or lower objective."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from naive import naive_fdbnl, naive_pfdbnl
from settings import federation, pooled_gram, pooled_objective, rows_of, shd
from timing import Size, Table, cpu_seconds

import feddbn
from feddbn import AS_THEY_ARE, FDBNL

LAMBDA = 0.05
FITS = {
    "default": {},
    "path": {"optimum": "path"},
    "as they are": {"prepare": AS_THEY_ARE},
    "as they are, path": {"prepare": AS_THEY_ARE, "optimum": "path"},
}
"""Arguments of FDBNL beside the transcription: as it comes, without the search for the order, without looks."""
FMRI = (15, 5, 1000)
"""The paper's fMRI size: 15 variables, five subjects, 200 rows each."""


def fdbnl_table(settings: list[tuple[int, int, int]], seeds: int, max_seconds: float) -> Table:
    table = Table(
        "FDBNL against the paper's Algorithm 1, transcribed",
        ["d", "K", "n", "seed", "fit", "seconds", "ratio", "rounds", "h evals", "objective", "SHD"],
        note="CPU seconds of one thread, reading of the data included for ours; least of 3 fits for ours, one of the "
        "naive. Objective: pooled, penalised (lambda 0.05), of the acyclic network; the naive sums unweighted losses, so its "
        "lambda is 0.05 K. SHD of W, a reversal counts one; of weights before the refit, at threshold 0.3.",
    )
    for d, K, n in settings:
        for seed in range(seeds):
            fed = federation(d, K, n, seed)
            rows = rows_of(fed.sites)
            G = pooled_gram(rows)
            fit = naive_fdbnl(rows, LAMBDA * K, LAMBDA * K, max_seconds=max_seconds)
            n_rounds = f"{fit.n_rounds}{'' if fit.is_finished else ' (cut off)'}"
            found = [("naive", fit.seconds, n_rounds, fit.n_evaluations, fit.C)]
            for name, arguments in FITS.items():
                method = FDBNL(lambda_w=LAMBDA, lambda_a=LAMBDA, **arguments)
                seconds, model = cpu_seconds(lambda sites=fed.sites, method=method: method.fit(sites))
                C = np.vstack([model.W_raw_, model.A_raw_.reshape(-1, d)])
                found.append((name, seconds, str(model.n_rounds_), None, C))
            for name, seconds, n_rounds, n_evaluations, C in found:
                table.add(
                    d, K, n, seed, name, seconds, fit.seconds / seconds, n_rounds, n_evaluations,
                    f"{pooled_objective(G, C, LAMBDA, LAMBDA):.4f}", shd(fed.truth.W, C[:d], 0.3),
                )  # fmt: skip
    return table


def pfdbnl_table(
    seeds: int, max_seconds: float, mu: float = 1.0, setting: tuple[int, int, int] = FMRI
) -> Table:
    d, K, n = setting
    table = Table(
        f"PFDBNL against the paper's Algorithm 2, transcribed (d={d}, K={K}, n={n // K} rows per site)",
        ["seed", "naive s", "rounds", "ours s", "rounds", "ratio", "naive objective", "ours"],
        note="Objective: sum over sites of loss + mu |C_k - C|^2 + penalties, of acyclic W_k; mu = "
        f"{mu:g}, lambda 0.05.",
    )
    for seed in range(seeds):
        fed = federation(d, K, n, seed, heterogeneity=0.1)
        rows = rows_of(fed.sites)
        method = feddbn.PFDBNL(
            mu=mu,
            lambda_w=LAMBDA,
            lambda_a=LAMBDA,
            rounds=feddbn.PersonalRounds(refit=False),
            prepare=feddbn.Prepare(center="none", scale="none"),
        )
        seconds, model = cpu_seconds(lambda sites=fed.sites, method=method: method.fit(sites), 2)
        fit = naive_pfdbnl(rows, LAMBDA, LAMBDA, mu, max_seconds=max_seconds)
        names = sorted(fed.sites)
        raw = getattr(model, "dbns_raw_", model.dbns_)
        ours = [np.vstack([raw[k].W, raw[k].A.reshape(-1, d)]) for k in names]
        by_name = dict(zip(fed.sites, rows, strict=True))
        values = [
            personal_objective([by_name[k] for k in names], ours, mu),
            personal_objective(rows, fit.personal, mu),
        ]
        table.add(
            seed,
            fit.seconds,
            fit.n_rounds,
            seconds,
            model.n_rounds_,
            fit.seconds / seconds,
            values[1],
            values[0],
        )
    return table


def personal_objective(rows: list, stacks: list[np.ndarray], mu: float) -> float:
    """The paper's joint objective at the best consensus of the given networks, which is their mean."""
    mean = np.mean(stacks, axis=0)
    total = sum(
        pooled_objective(pooled_gram([r]), C, LAMBDA, LAMBDA) for r, C in zip(rows, stacks, strict=True)
    )
    return float(total + mu * sum(np.sum((C - mean) ** 2) for C in stacks))


def tables(size: Size) -> Iterator[Table]:
    if size == "tiny":
        yield fdbnl_table([(4, 2, 60)], 1, 0.5)
        yield pfdbnl_table(1, 0.5, setting=(3, 2, 60))
        return
    seeds, cap = (3, 300.0) if size == "full" else (1, 60.0)
    for setting in [(10, 64, 512), (20, 10, 100)] + ([(50, 10, 1000)] if size == "full" else []):
        yield fdbnl_table([setting], seeds, cap)
    yield pfdbnl_table(seeds, cap)
