"""Ours against other packages: time and errors side by side, one thread, one recording.

python benchmarks/against_peers.py --d 20 --n 512 --noise exponential --peers VARLiNGAM PCMCI+ --seeds 3
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from peers import PEERS, STATIC_PEERS, installed
from settings import federation, shd
from timing import Size, Table, cpu_seconds

import feddbn


def compare(d: int, n: int, noise: str, names: list[str], seeds: int, n_lags: int = 1) -> Table:
    methods, missing = installed(PEERS if n_lags else STATIC_PEERS)
    label = f"d={d}, n={n}, {noise} noise" + ("" if n_lags else ", static (p=0)")
    table = Table(
        f"Against other packages: {label}",
        ["method", "seconds", "times OneShotDBN's", "SHD of W", "seeds"],
        note="SHD of W: a reversal or a missing direction counts one; for VARLiNGAM and DirectLiNGAM the smallest over "
        "thresholds 0, 0.05, 0.1, 0.15, 0.2. "
        + (f"Not installed, left out: {', '.join(missing)}." if missing else ""),
    )
    ours = {"FDBNL (1 site)": feddbn.FDBNL, "Dynotears": feddbn.Dynotears, "OneShotDBN": feddbn.OneShotDBN}
    results: dict[str, list[tuple[float, float]]] = {}
    for seed in range(seeds):
        fed = federation(d, 1, n, seed, noise=noise, n_lags=n_lags)
        x = np.asarray(next(iter(fed.sites.values()))[0], dtype=float)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, method in ours.items():
                seconds, model = cpu_seconds(
                    lambda method=method, x=x: method(n_lags=n_lags).fit({"a": x}), 1
                )
                results.setdefault(name, []).append((seconds, shd(fed.truth.W, model.W_)))
            for name in (name for name in names if name in methods):
                seconds, W = cpu_seconds(lambda name=name, x=x: methods[name](x), 1)
                cuts = (0.0, 0.05, 0.1, 0.15, 0.2) if "LiNGAM" in name else (0.0,)
                errors = float("nan") if np.isnan(W).any() else min(shd(fed.truth.W, W, cut) for cut in cuts)
                results.setdefault(name, []).append((seconds, errors))
    base = float(np.mean([s for s, _ in results["OneShotDBN"]]))
    for name, values in results.items():
        seconds = float(np.mean([s for s, _ in values]))
        errors = np.array([e for _, e in values], dtype=float)
        table.add(
            name,
            seconds,
            seconds / base,
            "-" if np.isnan(errors).any() else f"{errors.mean():.1f} ± {errors.std():.1f}",
            seeds,
        )
    return table


def tables(size: Size) -> Iterator[Table]:
    everyone = ["VAR OLS", "VARLiNGAM", "PCMCI+"]
    if size == "tiny":
        yield compare(4, 60, "gaussian", everyone[:1], 1)
        return
    if size == "quick":
        yield compare(20, 512, "gaussian", everyone[:2], 1)
        yield compare(20, 512, "gaussian", ["DirectLiNGAM", "dagma"], 1, n_lags=0)
        return
    for d in (10, 20):
        for noise in ("gaussian", "exponential"):
            yield compare(d, 512, noise, everyone, 3)
            yield compare(d, 512, noise, ["DirectLiNGAM", "dagma"], 3, n_lags=0)
    yield compare(50, 1000, "exponential", everyone[:2], 1)
    yield compare(100, 1000, "exponential", everyone[:2], 1)
    yield compare(100, 1000, "gaussian", everyone[:1], 1)
    yield compare(300, 3000, "gaussian", everyone[:1], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--d", type=int, default=20)
    parser.add_argument("--n", type=int, default=512)
    parser.add_argument("--lags", type=int, default=1)
    parser.add_argument("--noise", default="gaussian")
    parser.add_argument("--peers", nargs="*", default=["VAR OLS", "VARLiNGAM", "PCMCI+"])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    table = compare(options.d, options.n, options.noise, options.peers, options.seeds, options.lags)
    print(table.text(), flush=True)


if __name__ == "__main__":
    main()
