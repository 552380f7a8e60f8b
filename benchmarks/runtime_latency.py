"""Per-round latency and fixed cost of a study on NVFlare, N sites on one machine.

    python benchmarks/runtime_latency.py --sites 2 5 10

For each N: a job of one round (fixed cost), a job of 100 rounds of small messages, FDBNL with 70 rounds and
OneShotDBN. Seconds are those a lead waits, from submit to downloaded result, at sites that have been started and idle;
CPU seconds are those of all processes together, which a busy machine changes little. `--only` names some of the
studies. Rows are added to benchmarks/results/runtime_latency.jsonl.
"""

from __future__ import annotations

import argparse
import contextlib
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

import support.study_programs  # noqa: F401, E402
from feddbn import simulate  # noqa: E402
from feddbn.analysis import studies  # noqa: F401, E402
from feddbn.federation.protocol.study import Study  # noqa: E402
from support.nvflare_federation import NVFlareFederation, children  # noqa: E402
from support.study_files import ABOUT  # noqa: E402


def cpu_seconds(federation):
    """Of the server and the sites, with the job processes that have ended."""
    total = 0
    for process in federation.processes.values():
        for pid in [process.pid, *children(process.pid)]:
            with contextlib.suppress(OSError):
                total += sum(
                    map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15])
                )
    return total / os.sysconf("SC_CLK_TCK")


def settle(federation, timeout_s=120.0):
    """Wait until all processes have started and idle: a site is up for days before its first study, not for seconds."""
    end = time.monotonic() + timeout_s
    used, before = cpu_seconds(federation), -1.0
    while used - before > 0.1 * 2.0 and time.monotonic() < end:
        before = used
        time.sleep(2.0)
        used = cpu_seconds(federation)


def measure(federation, study, run):
    """Seconds from submit to result and to the first sum, CPU seconds, and the seconds of each sum at the server."""
    console = federation.console
    used = cpu_seconds(federation)
    events = federation.runs / run / "events.jsonl"
    start = time.monotonic()
    job = console.submit(study, run)
    while not (events.exists() and '"what": "sum"' in events.read_text()):
        time.sleep(0.02)
    first = time.monotonic() - start
    status = console.wait(job)
    console.fetch(job, federation.root / "out" / run)
    total = time.monotonic() - start
    assert status.endswith("COMPLETED"), status
    lines = events.read_text().splitlines()
    sums = [e["seconds"] for e in map(json.loads, lines) if e["what"] == "sum"]
    return total, first, cpu_seconds(federation) - used, np.array(sums)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sites", type=int, nargs="+", default=[2, 5, 10])
    parser.add_argument("--d", type=int, default=20)
    parser.add_argument("--only", nargs="+", default=[])
    args = parser.parse_args()
    out = HERE / "results" / "runtime_latency.jsonl"
    out.parent.mkdir(exist_ok=True)
    rows = []
    for n in args.sites:
        made = simulate(d=args.d, n_lags=1, n_sites=n, n_samples=200 * n, mean_degree=4, random_state=0)
        names = [f"site-{k:02d}" for k in range(n)]
        frames = {name: pd.DataFrame(data[0]) for name, data in zip(names, made.sites.values(), strict=True)}
        variables = tuple(frames[names[0]].columns)
        endless = {"max_rounds": 70, "tol": 1e-14, "h_tol": 1e-14}
        plans = {
            "one round": ("walk", {"rounds": 1}),
            "100 rounds": ("walk", {"rounds": 100}),
            "fdbnl 70": ("fdbnl", {"n_lags": 1, "schedule": "rounds", "rounds": endless}),
        }
        plans["oneshot"] = ("oneshot", {"n_lags": 1})
        plans = {what: plan for what, plan in plans.items() if not args.only or what in args.only}
        with (
            tempfile.TemporaryDirectory() as place,
            NVFlareFederation(place, frames, ("support.study_programs",)) as federation,
        ):
            settle(federation)
            for what, (method, parameters) in plans.items():
                study = Study(
                    name="bench",
                    about=ABOUT,
                    method=method,
                    variables=variables,
                    sites=tuple(names),
                    parameters=parameters,
                )
                total, first, cpu, sums = measure(federation, study, what.replace(" ", "-"))
                row = {
                    "sites": n,
                    "study": what,
                    "seconds": total,
                    "first_sum": first,
                    "cpu": cpu,
                    "sums": len(sums),
                    "median_ms": 1e3 * float(np.median(sums)),
                    "p90_ms": 1e3 * float(np.quantile(sums, 0.9)),
                    "load": os.getloadavg()[0],
                }
                rows.append(row)
                with open(out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print({k: round(v, 1) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    print(pd.DataFrame(rows).round(1).to_string(index=False))


if __name__ == "__main__":
    main()
