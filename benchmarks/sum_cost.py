"""What one masked sum costs at each level of a tree of sites, and what that means for a million of them.

    python benchmarks/sum_cost.py [--sites 10 25 50 100 200] [--tree 20 20] [--total 1000000]

Measures what one site and one server do in rosters of several sizes (CPU time of one core), fits the cost of a roster of m
members to them (a + b m, and where work is quadratic + c m^2), checks the fit against a real sum over two levels in this
process, and prints the costs of flat and layered sums by that model.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
from masked_regions import regional_federation
from privacy_overhead import one_point
from threadpoolctl import threadpool_limits
from timing import Table, cpu_seconds

from feddbn.core.arrays import FloatArray
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.privacy.integers import MAX_SHARES

LENGTH = 821
"""Numbers of an answer: a round of FDBNL with d = 20 and one lag."""
SLOTS = 4
WHAT = {
    "site_keys_ms": ("a site, keys for 4 sums, ms", 2),
    "site_sum_ms": ("a site, one sum, ms", 1),
    "server_keys_ms": ("a server, keys for 4 sums, ms", 2),
    "server_sum_ms": ("a server, one sum, ms", 2),
    "site_keys_kb": ("a site, keys, kB both ways", 1),
    "site_sum_kb": ("a site, one sum, kB both ways", 1),
}


def fitted(sizes: list[int], costs: list[float], degree: int) -> FloatArray:
    """Non-negative coefficients of 1, m, m^2, by least squares of relative errors."""
    from scipy.optimize import nnls

    m, y = np.array(sizes, dtype=float), np.array(costs)
    powers = np.vander(m, degree + 1, increasing=True)
    return np.asarray(nnls(powers / y[:, None], np.ones(len(m)))[0])


def cost(coefficients: FloatArray, m: float) -> float:
    return float(np.polynomial.polynomial.polyval(m, coefficients))


def measured(sizes: list[int]) -> tuple[Table, dict[str, FloatArray]]:
    rows = [one_point(m, LENGTH, SLOTS) for m in sizes]
    table = Table(
        f"One roster, answers of {LENGTH} numbers",
        ["", *(f"m = {m}" for m in sizes), "1", "m", "m^2"],
        note="CPU time of one core; the last columns are the fit. Kilobytes are of messages as they travel.",
    )
    models = {}
    for key, (words, degree) in WHAT.items():
        models[key] = fitted(sizes, [row[key] for row in rows], degree)
        table.add(words, *(row[key] for row in rows), *models[key], *([None] * (2 - degree)))
    return table, models


class _Numbers:
    """A site that holds rows of noise: what it answers costs next to nothing."""

    variables = tuple(f"x{j}" for j in range(20))

    def __init__(self, seed: int) -> None:
        from feddbn.core.designs.recordings import Block
        from feddbn.data import ArrayRecording

        self._recording = ArrayRecording("r", (Block(np.random.default_rng(seed).normal(size=(5, 20))),))

    def recordings(self):
        yield self._recording


def checked(shape: tuple[int, int], models: dict[str, FloatArray]) -> Table:
    """A real sum over two levels against the model."""
    n_regions, size = shape
    sites = {f"s{k:05d}": Site(f"s{k:05d}", _Numbers(k)) for k in range(n_regions * size)}
    names = sorted(sites)
    regions = {f"r{r:03d}": names[r * size : (r + 1) * size] for r in range(n_regions)}
    federation = regional_federation(sites, regions, random_bytes=os.urandom)
    task = Task(GramQuestion(n_lags=0, variables=_Numbers.variables))
    start = time.process_time()
    total = federation.sum(task)
    first = time.process_time() - start
    assert len(total.contributors) == len(sites)
    again, _ = cpu_seconds(lambda: federation.sum(task), 2)

    def all_of(kind: str) -> float:
        """Seconds of everybody: sites in regions, region servers, regions towards the top, the top."""
        per_site, per_server = models[f"site_{kind}_ms"], models[f"server_{kind}_ms"]
        low = n_regions * (size * cost(per_site, size) + cost(per_server, size))
        return (low + n_regions * cost(per_site, n_regions) + cost(per_server, n_regions)) / 1e3

    table = Table(
        f"A sum over two levels, {n_regions} regions of {size} sites, everybody in this process",
        ["", "model, CPU s", "measured, CPU s"],
        note="A simulation computes the masks of a pair once for both ends and the answers of a region together, and sets "
        "up 8 sums instead of 4, so the model is not met exactly.",
    )
    table.add("keys and first sum", all_of("keys") + all_of("sum"), first)
    table.add("a later sum", all_of("sum"), again)
    return table


def layouts(total: int) -> list[tuple[str, list[int]]]:
    """Members at each level, from the sites up."""
    third = round(total ** (1 / 3))
    half = round(total**0.5)
    return [
        ("flat", [total]),
        (f"two levels of {half}", [half, half]),
        (f"three levels of {third}", [third] * 3),
        ("regions of 250, sums of regions added in the clear", [250]),
    ]


def predicted(total: int, models: dict[str, FloatArray]) -> Table:
    table = Table(
        f"{total:,} sites by the model",
        [
            "layout",
            "site keys s",
            "site sum s",
            "site MB, keys",
            "site MB, sum",
            "server keys s",
            "server sum s",
            "servers",
            "server GB",
        ],
        note=f"Worst server of all levels, one core. Memory: masked answers of its members, {16 * LENGTH / 1e3:.0f} kB each, "
        f"and sealed shares of {64 * SLOTS + 16} bytes a pair. Rosters above {MAX_SHARES} members are not possible "
        "here: such rows are the model beyond what was built.",
    )
    for name, levels in layouts(total):
        n_servers, left = 0, total
        for m in levels:
            left = max(1, left // m)
            n_servers += left
        m, top = levels[0], max(levels)
        table.add(
            name,
            cost(models["site_keys_ms"], m) / 1e3,
            cost(models["site_sum_ms"], m) / 1e3,
            cost(models["site_keys_kb"], m) / 1e3,
            cost(models["site_sum_kb"], m) / 1e3,
            cost(models["server_keys_ms"], top) / 1e3,
            cost(models["server_sum_ms"], top) / 1e3,
            n_servers,
            (16 * LENGTH * top + (64 * SLOTS + 16) * top**2) / 1e9,
        )
    return table


def plain(total: int) -> Table:
    """Adding without masks, for comparison."""
    x = np.random.default_rng(0).normal(size=(1000, LENGTH))
    seconds, _ = cpu_seconds(lambda: x.sum(axis=0), 5)
    table = Table("Adding in the clear", ["answers", "CPU s"])
    table.add("1000, measured", seconds)
    table.add(f"{total:,}, by that", seconds * total / 1000)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sites", type=int, nargs="+", default=[10, 25, 50, 100, 200])
    parser.add_argument("--tree", type=int, nargs=2, default=[20, 20], help="regions, and sites of each")
    parser.add_argument("--total", type=int, default=1_000_000)
    given = parser.parse_args()
    with threadpool_limits(1):
        table, models = measured(given.sites)
        for one in (
            table,
            checked(tuple(given.tree), models),
            predicted(given.total, models),
            plain(given.total),
        ):
            print(one.text(), flush=True)


if __name__ == "__main__":
    main()
