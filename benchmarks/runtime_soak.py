"""Kill trials and a long run on NVFlare processes on loopback.

    python benchmarks/runtime_soak.py kill --trials 10      # kill -9 a site's job, a site, the server;
    resume; compare python benchmarks/runtime_soak.py hours --minutes 60    # memory and disk while studies
    follow each other

Results go to benchmarks/results/ as JSON (and a plot for the long run).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

import pandas as pd  # noqa: E402

from nvflare_federation import SERVER, NVFlareFederation, children  # noqa: E402
from trials import (  # noqa: E402
    SITES,
    assert_nothing_executed_twice,
    in_process,
    job_process,
    journal_of,
    make_study,
    result_of,
    wait_for_sum,
)


def frames():
    rng = np.random.default_rng(0)
    return {site: pd.DataFrame(rng.normal(size=(40, 4)), columns=["x0", "x1", "x2", "x3"]) for site in SITES}


def finish(federation, study, run):
    """Resume a run to its end and compare."""
    with federation.console() as console:
        job = console.submit(study, run)
        status = console.wait(job, timeout_s=180)
        assert status.endswith("COMPLETED"), status
        np.testing.assert_array_equal(result_of(federation, console, job, run), in_process(federation, study))
    assert_nothing_executed_twice(federation, run)


def kill_job(federation, run, rng):
    study = make_study(run)
    with federation.console() as console:
        job = console.submit(study, run)
        at = wait_for_sum(federation, run, int(rng.integers(0, 40)))
        os.kill(job_process(federation, str(rng.choice(SITES)), job), signal.SIGKILL)
        console.wait(job, timeout_s=180)
    finish(federation, study, run)
    return at


def kill_site(federation, run, rng):
    """Half of the trials go on without the site, half wait for it."""
    goes_on = bool(rng.random() < 0.5)
    rules = {"when_missing": "continue", "min_sites": 2} if goes_on else {"max_wait_s": 1.0}
    study = make_study(run, **rules)
    site = str(rng.choice(SITES))
    with federation.console() as console:
        job = console.submit(study, run)
        at = wait_for_sum(federation, run, int(rng.integers(0, 40)))
        federation.kill(site)
        status = console.wait(job, timeout_s=240)
        if goes_on:
            assert status.endswith("COMPLETED"), status
            entries = journal_of(federation, run).entries
            absent = {e.seq: tuple(set(SITES) - set(e.answer.contributors)) for e in entries}
            found = result_of(federation, console, job, run)
            np.testing.assert_array_equal(found, in_process(federation, study, absent))
    federation.start(site)
    federation.wait_until_up()
    if not goes_on:
        finish(federation, study, run)
    return at


def kill_server(federation, run, rng):
    study = make_study(run)
    with federation.console() as console:
        console.submit(study, run)
        at = wait_for_sum(federation, run, int(rng.integers(0, 40)))
        federation.kill(SERVER)
    federation.start(SERVER)
    federation.wait_until_up()
    finish(federation, study, run)
    return at


def kill_trials(args):
    rng = np.random.default_rng(args.seed)
    rows = []
    with (
        tempfile.TemporaryDirectory() as place,
        NVFlareFederation(place, frames(), ("study_programs",)) as federation,
    ):
        for kind in (kill_job, kill_site, kill_server):
            for trial in range(args.trials):
                start = time.monotonic()
                at = kind(federation, f"{kind.__name__.replace('_', '-')}-{trial}", rng)
                rows.append({"kind": kind.__name__, "trial": trial, "killed_at": at, "ok": True})
                print(
                    f"{kind.__name__} {trial}: killed at sum {at}, bits equal, {time.monotonic() - start:.0f} s",
                    flush=True,
                )
    return rows


def memory_mb(pid):
    total = 0
    for each in [pid, *children(pid)]:
        try:
            line = next(
                x for x in Path(f"/proc/{each}/status").read_text().splitlines() if x.startswith("VmRSS")
            )
            total += int(line.split()[1]) / 1024
        except (OSError, StopIteration):
            continue
    return total


def own_memory_mb(pid):
    """Of the long-lived process itself, without the jobs it runs."""
    below = [p for p in [pid, *children(pid)] if b"_train" in Path(f"/proc/{p}/cmdline").read_bytes()]
    line = next(
        x for x in Path(f"/proc/{below[-1]}/status").read_text().splitlines() if x.startswith("VmRSS")
    )
    return int(line.split()[1]) / 1024


def disk_mb(path):
    return sum(p.stat().st_size for p in Path(path).rglob("*") if p.is_file()) / 2**20


def hours(args):
    rows = []
    settings = "keep_days = 0.002"
    with (
        tempfile.TemporaryDirectory() as place,
        NVFlareFederation(place, frames(), ("study_programs",), settings) as federation,
    ):
        path = federation.kits[SERVER] / "local" / "feddbn_server.toml"
        path.write_text(path.read_text() + settings + "\n")
        start = time.monotonic()
        n = 0
        with federation.console() as console:
            while time.monotonic() - start < 60 * args.minutes:
                n += 1
                run = f"soak-{n}"
                job = console.submit(make_study(run, rounds=args.rounds, pause_s=0.0), run)
                status = console.wait(job, timeout_s=600)
                assert status.endswith("COMPLETED"), status
                row = {"minutes": (time.monotonic() - start) / 60, "studies": n}
                for name in (SERVER, *SITES):
                    row[f"{name} MB"] = own_memory_mb(federation.processes[name].pid)
                row["site state MB"] = disk_mb(federation.state(SITES[0]))
                row["server runs MB"] = disk_mb(federation.runs)
                row["runs kept"] = len(list(federation.runs.iterdir()))
                rows.append(row)
                print({k: round(v, 2) for k, v in row.items()}, flush=True)
    plot(rows, HERE / "results" / "runtime_soak.png")
    return rows


def plot(rows, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    table = pd.DataFrame(rows).set_index("minutes")
    path.parent.mkdir(exist_ok=True)
    figure, axes = plt.subplots(2, 1, sharex=True, figsize=(7, 5))
    table[[c for c in table if c.endswith(" MB") and "s MB" not in c and "state" not in c]].plot(
        ax=axes[0], ylabel="resident MB", ylim=0
    )
    table[["site state MB", "server runs MB"]].plot(ax=axes[1], ylabel="disk MB", ylim=0)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["kill", "hours"])
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rows = kill_trials(args) if args.what == "kill" else hours(args)
    out = HERE / "results" / f"runtime_soak_{args.what}.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(rows, indent=1))
    print(f"{len(rows)} rows -> {out}")


if __name__ == "__main__":
    main()
