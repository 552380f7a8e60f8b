"""Per-round latency and fixed cost of a study on NVFlare, N sites on one machine.

    python benchmarks/runtime_latency.py --sites 2 5 10

For each N: a job of one round (fixed cost), a job of 100 rounds of small messages, FDBNL with 70 rounds and,
where it is installed, OneShotDBN. Seconds are those a lead waits, from submit to downloaded result.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

import pandas as pd  # noqa: E402

import study_programs  # noqa: F401, E402
from feddbn import simulate  # noqa: E402
from feddbn.federation.study import Study, study_methods  # noqa: E402
from feddbn.methods import studies  # noqa: F401, E402
from nvflare_federation import NVFlareFederation  # noqa: E402


def measure(federation, study, run):
    """Seconds from submit to result, and the seconds of each sum at the server."""
    console = federation.console
    start = time.monotonic()
    job = console.submit(study, run)
    status = console.wait(job)
    console.fetch(job, federation.root / "out" / run)
    total = time.monotonic() - start
    assert status.endswith("COMPLETED"), status
    lines = (federation.runs / run / "events.jsonl").read_text().splitlines()
    sums = [e["seconds"] for e in map(json.loads, lines) if e["what"] == "sum"]
    return total, np.array(sums)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sites", type=int, nargs="+", default=[2, 5, 10])
    parser.add_argument("--d", type=int, default=20)
    args = parser.parse_args()
    rows = []
    for n in args.sites:
        made = simulate(d=args.d, n_lags=1, n_sites=n, n_samples=100 * n, mean_degree=4, random_state=0)
        names = [f"site-{k:02d}" for k in range(n)]
        frames = {name: pd.DataFrame(data[0]) for name, data in zip(names, made.sites.values(), strict=True)}
        variables = tuple(frames[names[0]].columns)
        plans = {
            "one round": ("walk", {"rounds": 1}),
            "100 rounds": ("walk", {"rounds": 100}),
            "fdbnl 70": ("fdbnl", {"n_lags": 1, "max_rounds": 70, "tol": 1e-14, "h_tol": 1e-14}),
        }
        if "oneshot" in study_methods():
            plans["oneshot"] = ("oneshot", {"n_lags": 1})
        with (
            tempfile.TemporaryDirectory() as place,
            NVFlareFederation(place, frames, ("study_programs",)) as federation,
        ):
            for what, (method, parameters) in plans.items():
                study = Study(
                    name="bench",
                    method=method,
                    variables=variables,
                    sites=tuple(names),
                    parameters=parameters,
                )
                total, sums = measure(federation, study, what.replace(" ", "-"))
                row = {
                    "sites": n,
                    "study": what,
                    "seconds": total,
                    "sums": len(sums),
                    "median_ms": 1e3 * float(np.median(sums)),
                    "p90_ms": 1e3 * float(np.quantile(sums, 0.9)),
                    "load": os.getloadavg()[0],
                }
                rows.append(row)
                print({k: round(v, 1) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    out = HERE / "results" / "runtime_latency.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(rows, indent=1))
    print(pd.DataFrame(rows).round(1).to_string(index=False))


if __name__ == "__main__":
    main()
