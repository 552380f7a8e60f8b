"""What masking costs: FDBNL with and without secure aggregation, and one sum against the number of sites.

    python benchmarks/privacy_overhead.py [--curve]

CPU seconds of this process; the key agreement (with masks computed ahead) is timed apart.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits

from feddbn.data import read_sites
from feddbn.federation.site import Site, SiteTask, register_site_task
from feddbn.federation.task import Task
from feddbn.methods.fdbnl import FDBNL
from feddbn.methods.simulation import simulate
from feddbn.runtime.in_process import InProcessFederation
from feddbn.runtime.secure import secure_federation

register_site_task(SiteTask("bench-vector", lambda data, state, task: (state, data), "benchmark"))


def fit(n_sites: int, d: int, n_repeats: int = 3, schedule: str = "adaptive") -> None:
    data = read_sites(simulate(d=d, n_sites=n_sites, n_samples=60 * n_sites, random_state=0).sites)
    ratios = []
    for _ in range(n_repeats):
        plain = InProcessFederation({name: Site(name, site) for name, site in data.items()})
        plain.variables = next(iter(data.values())).variables  # type: ignore[attr-defined]
        start = time.process_time()
        one = FDBNL(federation=plain, schedule=schedule).fit(None)
        t_plain = time.process_time() - start
        secure = secure_federation({name: Site(name, site) for name, site in data.items()})
        start = time.process_time()
        secure.agree_on_keys(min(one.n_rounds_ + 5, 1200), length=2 * d * d + d + 2)
        t_keys = time.process_time() - start
        start = time.process_time()
        two = FDBNL(federation=secure, schedule=schedule).fit(None)
        t_secure = time.process_time() - start
        same = np.array_equal(one.W_ != 0, two.W_ != 0) and np.array_equal(one.A_ != 0, two.A_ != 0)
        ratios.append(t_secure / t_plain)
        n = one.n_rounds_
        print(
            f"K={n_sites} d={d} {schedule}: {n} rounds, plain {1e3 * t_plain / n:.2f} ms/round, masked "
            f"{1e3 * t_secure / n:.2f} ms/round, ratio {ratios[-1]:.2f}, overhead {ratios[-1] - 1:.2f}x plain, "
            f"key agreement {t_keys:.2f} s, same network: {same}"
        )
    print(f"ratio {np.mean(ratios):.2f} +- {np.std(ratios):.2f} over {n_repeats} runs")


def curve(n: int = 822) -> None:
    rng = np.random.default_rng(0)
    print(
        "sites  key agreement of 4 sums (CPU s, all sites)  per site (ms)  one sum (ms, all sites)  per site (ms)"
    )
    for n_sites in (3, 10, 25, 50, 100, 200):
        names = [f"s{k:03d}" for k in range(n_sites)]
        federation = secure_federation({name: Site(name, rng.normal(size=n)) for name in names})
        start = time.process_time()
        federation.agree_on_keys(4, length=0)
        t_keys = time.process_time() - start
        start = time.process_time()
        for i in range(2):
            federation.sum(Task("bench-vector", params={"i": i}))
        t_sum = (time.process_time() - start) / 2
        print(
            f"{n_sites:5d}  {t_keys:12.2f}  {1e3 * t_keys / n_sites:10.1f}  {1e3 * t_sum:10.1f}  "
            f"{1e3 * t_sum / n_sites:8.2f}",
            flush=True,
        )


if __name__ == "__main__":
    with threadpool_limits(1):
        if "--curve" in sys.argv:
            curve()
        else:
            fit(10, 20)
            fit(10, 20, schedule="paper")
