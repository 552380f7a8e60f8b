"""How cost grows with variables, sites, rows and lags; memory, traffic and rounds beside it."""

from __future__ import annotations

from collections.abc import Iterator

from settings import federation
from timing import Size, Table, cpu_seconds, exponent, in_fresh_process

import feddbn
from feddbn import AS_THEY_ARE


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
        return
    base = {"d": 10, "K": 10, "n": 1000, "p": 1}
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
    yield import_table()
