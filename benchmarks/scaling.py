"""How cost grows with variables, sites, rows and lags; memory, traffic and rounds beside it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from settings import federation
from timing import Size, Table, cpu_seconds, exponent, in_fresh_process

import feddbn
from feddbn import AS_THEY_ARE
from feddbn.core.designs.recordings import Block
from feddbn.core.statistics.moments import Moments


class Traffic:
    """Bytes a site sends and receives."""

    def __init__(self) -> None:
        self.sent = self.received = 0

    def __call__(self, task, answer) -> None:
        self.sent += answer.value.nbytes
        self.received += sum(array.nbytes for array in task.arrays.values())


def curve(axis: str, settings: list[dict], repeats: int) -> Table:
    table = Table(
        f"FDBNL over {axis}",
        ["d", "K", "n", "p", "seconds", "rounds", "ms per round", "kB sent per site", "kB received"],
    )
    sizes, times = [], []
    for setting in settings:
        fed = federation(setting["d"], setting["K"], setting["n"], 0, n_lags=setting["p"])
        traffic = Traffic()
        first = feddbn.FDBNL(n_lags=setting["p"]).fit(fed.sites, observer=traffic)
        seconds, model = cpu_seconds(
            lambda sites=fed.sites, p=setting["p"]: feddbn.FDBNL(n_lags=p).fit(sites), repeats
        )
        assert model.n_rounds_ == first.n_rounds_
        sizes.append(float(setting[axis]))
        times.append(seconds)
        table.add(
            setting["d"], setting["K"], setting["n"], setting["p"], seconds, model.n_rounds_,
            1e3 * float(model.history_["seconds"].median()), traffic.sent / 1e3, traffic.received / 1e3,
        )  # fmt: skip
    half = len(sizes) // 2
    table.note = (
        f"Exponent of {axis}: {exponent(sizes, times):.2f} over all, "
        f"{exponent(sizes[half:], times[half:]):.2f} over the larger half. "
        "Default settings (refit included), reading of the data included."
    )
    return table


def looks_table(sizes: list[int], repeats: int) -> Table:
    table = Table(
        "Looking at the data and at residuals, and searching the order (K=10, n=20 d, p=1, seed 0)",
        ["method", "d", "default s", "optimum='path'", "AS_THEY_ARE", "AS_THEY_ARE and 'path'"],
        note=f"CPU seconds of one thread, reading included; least of {repeats} up to d = 20, of two at 50, one above.",
    )
    plain = {"check_residuals": False, "prepare": AS_THEY_ARE}
    path = {"optimum": "path"}
    for method in (feddbn.FDBNL, feddbn.Dynotears, feddbn.OneShotDBN):
        has_path = method is not feddbn.OneShotDBN
        for d in sizes:
            fed = federation(d, 10, 20 * d, 0)
            row: list[float | None] = []
            for arguments in ({}, path, plain, {**plain, **path}):
                if "optimum" in arguments and not has_path:
                    row.append(None)
                    continue
                estimator = method(**arguments)
                n_fits = repeats if d <= 20 else min(repeats, 2) if d <= 50 else 1
                row.append(
                    cpu_seconds(lambda sites=fed.sites, estimator=estimator: estimator.fit(sites), n_fits)[0]
                )
            table.add(method.__name__, d, *row)
    return table


def many_sites(K: int) -> Table:
    table = Table(
        f"{K} sites of 20 rows, d=10, in one process", ["phase", "CPU seconds", "peak MB"],
        note="Peak of the whole process, simulated data included.",
    )  # fmt: skip
    simulate = f"import feddbn; fed = feddbn.simulate(d=10, n_sites={K}, n_samples={20 * K}, random_state=0)"
    base, base_mb, _ = in_fresh_process(simulate)
    total, total_mb, out = in_fresh_process(
        f"{simulate}\nm = feddbn.FDBNL().fit(fed.sites)\n"
        "print(m.n_rounds_, m.status_.name, feddbn.score(fed.truth, m.dbn_)['W']['shd'])"
    )
    rounds, status, errors = out.split()
    table.add("import and simulate", base, base_mb)
    table.add(f"fit ({rounds} rounds, {status.lower()}, SHD of W {errors})", total - base, total_mb)
    return table


def gram_table(settings: list[tuple[int, int, int]]) -> Table:
    table = Table(
        "One pass over the rows against a bare X.T @ X of the lagged matrix",
        ["d", "p", "rows", "X.T @ X ms", "ours ms", "ours / bare speed"],
        note="The bare product gets its lagged matrix for free; ours reads the series, centres it and never forms "
        "that matrix.",
    )
    rng = np.random.default_rng(0)
    for d, p, n in settings:
        x = rng.normal(size=(n, d))
        Z = np.hstack([x[p - lag : n - lag] for lag in range(p + 1)])
        bare, _ = cpu_seconds(lambda Z=Z: Z.T @ Z, 7)
        ours, _ = cpu_seconds(lambda x=x, p=p, d=d: Moments.of_blocks([Block(x, True)], p, d), 7)
        table.add(d, p, n, 1e3 * bare, 1e3 * ours, bare / ours)
    return table


def floor_table(settings: list[tuple[int, int, int]]) -> Table:
    table = Table(
        "FDBNL against the least it must do: one eigendecomposition per site and one regression",
        ["d", "K", "n", "floor ms", "FDBNL ms", "times floor"],
        note="Floor: numpy eigh of each site's Gram matrix plus one least-squares fit of the pooled VAR (numpy lstsq).",
    )
    for d, K, n in settings:
        fed = federation(d, K, n, 0)
        X = [np.asarray(frames[0], dtype=float) for frames in fed.sites.values()]
        Z = [np.hstack([x[1:], x[:-1]]) for x in X]

        def floor(Z=Z, d=d):
            for z in Z:
                np.linalg.eigh(z.T @ z)
            rows = np.vstack(Z)
            return np.linalg.lstsq(rows[:, d:], rows[:, :d], rcond=None)

        bare, _ = cpu_seconds(floor, 5)
        for refit in (False, True):
            ours, _ = cpu_seconds(
                lambda sites=fed.sites, refit=refit: feddbn.FDBNL(refit=refit).fit(sites), 3
            )
            table.add(d, K, f"{n}{' + refit' if refit else ''}", 1e3 * bare, 1e3 * ours, ours / bare)
    return table


def import_table() -> Table:
    table = Table("Start-up", ["what", "CPU seconds", "limit", "ratio"])

    def best(code: str) -> float:
        return min(in_fresh_process(code)[0] for _ in range(5))

    stack, pandas = best("import numpy, scipy, pandas"), best("import pandas")
    table.add("import numpy, scipy, pandas", stack, None, 1.0)
    table.add("import pandas", pandas, None, None)
    ours = best("import feddbn")
    table.add("import feddbn", ours, 2 * stack, ours / stack)
    used = best("from feddbn import FDBNL")
    table.add("from feddbn import FDBNL", used, 2 * stack, used / stack)
    shown = best(
        "import sys\nsys.argv = ['feddbn', '--help']\nfrom feddbn.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )
    table.add("feddbn --help", shown, pandas + 0.3, shown / pandas)
    return table


def tables(size: Size) -> Iterator[Table]:
    full = size == "full"
    if size == "tiny":
        setting = {"d": 3, "K": 2, "n": 60, "p": 1}
        yield curve("n", [{**setting, "n": n} for n in (40, 60, 80)], 1)
        yield looks_table([3], 1)
        yield many_sites(3)
        yield floor_table([(4, 2, 60)])
        yield gram_table([(2, 1, 200)])
        return
    base = {"d": 10, "K": 10, "n": 1000, "p": 1}
    many = 10_000 if full else 2_000
    axes = {
        "d": [10, 20, 50] + ([100, 200, 300] if full else []),
        "K": [2, 8, 32, 128, 512] + ([2048, 8192] if full else []),
        "n": [500, 2000, 8000] + ([32_000, 128_000] if full else []),
        "p": [1, 2, 3] + ([5, 8] if full else []),
    }
    for axis, values in axes.items():
        settings = []
        for value in values:
            setting = {**base, axis: value}
            if axis == "d":
                setting["n"] = 20 * value
            if axis == "K":
                setting["n"] = max(1000, 10 * value)
            settings.append(setting)
        yield curve(axis, settings, 2 if full else 1)
    yield looks_table([10, 20, 50] + ([100] if full else []), 3)
    yield many_sites(many)
    yield floor_table([(50, 10, 1000)] + ([(20, 10, 1000), (100, 10, 2000)] if full else []))
    yield gram_table([(10, 1, 200_000), (20, 1, 200_000), (50, 1, 100_000), (20, 3, 100_000)])
    yield import_table()
