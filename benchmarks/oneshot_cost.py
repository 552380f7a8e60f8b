"""What OneShotDBN costs as variables, rows and lags grow, and where its time goes; a new process per fit.

python benchmarks/oneshot_cost.py 100 1000 1        # d, n, p: one fit, its parts, seconds and peak memory
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

from timing import Size, Table, exponent

PARTS = {
    "choose_noise": "search",
    "settle_directions": "reversals",
    "_varied_starts": "average",
    "average_orders": "average",
    "average_within_order": "average",
    "_check_units": "units",
}


def measure(d: int, n: int, p: int, seed: int = 0) -> dict[str, Any]:
    """One fit in this process: CPU seconds of its parts, peak megabytes, errors, regressions."""
    import resource

    from settings import federation

    import feddbn
    from feddbn.core.orders import learn as one_round
    from feddbn.core.orders.parents import ParentRegressions

    found: dict[str, Any] = dict.fromkeys(("search", "reversals", "average", "units"), 0.0)
    found["regressions"] = 0

    def timed(label, function):
        def call(*args, **kwargs):
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                found[label] += time.process_time() - start

        return call

    for name, label in PARTS.items():
        place = one_round if hasattr(one_round, name) else one_round.OrderLearner
        setattr(place, name, timed(label, getattr(place, name)))
    compute = ParentRegressions._compute

    def counted(self, *args):
        found["regressions"] += 1
        return compute(self, *args)

    ParentRegressions._compute = counted
    fed = federation(d, 5, n, seed, n_lags=p)
    estimator = feddbn.OneShotDBN(n_lags=p)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = estimator.fit(fed.sites)
    found["total"] = time.process_time() - start
    found["before"], found["peak"] = before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found["W"] = int(((model.W_ != 0) != (fed.truth.W != 0)).sum())
    found["A"] = int(((model.A_ != 0) != (fed.truth.A != 0)).sum())
    return found


def curve(axis: str, settings: list[tuple[int, int, int]]) -> Table:
    table = Table(
        f"OneShotDBN over {axis}",
        ["d", "n", "p", "seconds", "search", "reversals", "average", "units", "regressions", "peak MB",
         "wrong in W", "wrong in A"],
    )  # fmt: skip
    sizes, times = [], []
    for d, n, p in settings:
        done = subprocess.run(
            [sys.executable, __file__, str(d), str(n), str(p)], capture_output=True, text=True, check=True
        )
        r = json.loads(done.stdout.splitlines()[-1])
        sizes.append(float({"d": d, "n": n, "p": p}[axis]))
        times.append(r["total"])
        table.add(
            d, n, p, r["total"], r["search"], r["reversals"], r["average"], r["units"], r["regressions"],
            round(r["peak"]), r["W"], r["A"],
        )  # fmt: skip
    table.note = (
        f"Exponent of {axis}: {exponent(sizes, times):.2f}. CPU seconds of one thread, default settings, five sites; peak of "
        "the whole process, simulated data included. Over orders up to 40 variables, within the order beyond."
    )
    return table


def tables(size: Size) -> Iterator[Table]:
    counts = {"tiny": [3, 4], "quick": [50, 100], "full": [50, 100, 200, 300]}
    yield curve("d", [(d, 10 * d, 1) for d in counts[size]])
    if size == "full":
        yield curve("n", [(50, n, 1) for n in (500, 2000, 8000, 32_000)])
        yield curve("p", [(50, 1000, p) for p in (1, 2, 3)])


if __name__ == "__main__":
    print(json.dumps(measure(*(int(a) for a in sys.argv[1:]))))
