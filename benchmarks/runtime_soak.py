"""Memory and disk of a server and three sites on NVFlare while studies follow each other.

    python benchmarks/runtime_soak.py --minutes 60

Three kinds of study take turns: 200 rounds of a small stateful method, FDBNL under secure aggregation, and
OneShotDBN. `keep_days` is set to a few minutes, so that pruning has to work. After each study the resident
memory, threads and open files of the long-lived processes and the bytes on disk are noted. Rows go to
benchmarks/results/runtime_soak.json as they are made, the plot to docs/gallery/soak.png.
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
import pandas as pd

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from support.conformance import make_study as method_study  # noqa: E402
from support.nvflare_federation import SERVER, NVFlareFederation, children  # noqa: E402
from support.trials import SITES, make_study  # noqa: E402

KEEP_MINUTES = 6
VARIABLES = ("x0", "x1", "x2", "x3")


def frames():
    """Return site -> 120 rows of a small autoregression."""
    rng = np.random.default_rng(0)
    out = {}
    for site in SITES:
        x = np.zeros((120, 4))
        for t in range(1, 120):
            x[t] = 0.5 * x[t - 1] + rng.normal(size=4)
            x[t, 2] += 0.8 * x[t, 0]
        out[site] = pd.DataFrame(x, columns=list(VARIABLES))
    return out


def study_number(n, rounds):
    """Return the study of turn `n`."""
    kind = n % 3
    if kind == 0:
        return make_study(f"soak-{n}", rounds=rounds, pause_s=0.0, timeout_s=60.0)
    if kind == 1:
        privacy = {"secure_aggregation": True, "protection": "exact", "min_sites": 3}
        return method_study("fdbnl", SITES, VARIABLES, privacy=privacy)
    return method_study("oneshot", SITES, VARIABLES)


def long_lived(pid, command=b"_train"):
    """Return the id of the process that outlives jobs, below the start script."""
    for each in [pid, *children(pid)]:
        if command in Path(f"/proc/{each}/cmdline").read_bytes():
            return each
    raise LookupError(f"process {pid} runs no server or site")


def of_process(pid):
    """Return resident MB, threads and open files."""
    lines = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    return int(lines["VmRSS"].split()[0]) / 1024, int(lines["Threads"]), len(os.listdir(f"/proc/{pid}/fd"))


def disk_mb(path, without=()):
    """Return the megabytes of the files below `path`, except below the names in `without`."""
    total = 0
    for file in Path(path).rglob("*"):
        if not set(file.relative_to(path).parts) & set(without):
            try:
                total += file.stat().st_size if file.is_file() else 0
            except FileNotFoundError:
                continue
    return total / 2**20


def sample(federation, n, start, seconds):
    """Return one row."""
    row = {"minutes": (time.monotonic() - start) / 60, "study": n, "seconds": seconds}
    for name in (SERVER, *SITES):
        memory, threads, files = of_process(long_lived(federation.processes[name].pid))
        row |= {f"{name} MB": memory, f"{name} threads": threads, f"{name} files": files}
        # The process that jobs are forked from.
        row[f"{name} warm MB"] = of_process(long_lived(federation.processes[name].pid, b"warm_process"))[0]
    site = federation.kits[SITES[0]]
    row["site disk MB"] = disk_mb(site, without=("_store.sqlite",))
    row["site store MB"] = (federation.state(SITES[0]) / "_store.sqlite").stat().st_size / 2**20
    row["server disk MB"] = disk_mb(federation.kits[SERVER])
    row["runs kept"] = sum(path.is_dir() for path in federation.runs.iterdir())
    row["load"] = os.getloadavg()[0]
    return row


def soak(args, out):
    """Run studies one after the other; return the rows."""
    rows = []
    settings = f"keep_days = {KEEP_MINUTES / 1440:.6f}"
    with (
        tempfile.TemporaryDirectory() as place,
        NVFlareFederation(place, frames(), ("support.study_programs",), settings) as federation,
    ):
        path = federation.kits[SERVER] / "local" / "feddbn_server.toml"
        path.write_text(path.read_text() + settings + "\n")
        start = time.monotonic()
        n = 0
        while time.monotonic() - start < 60 * args.minutes:
            begun = time.monotonic()
            job = federation.console.submit(study_number(n, args.rounds), f"soak-{n}")
            status = federation.console.wait(job)
            if status.endswith("COMPLETED"):
                federation.console.fetch(job, Path(place) / "out")
            else:
                print(f"study {n} ended with {status}; {federation.log(SERVER)[-3000:]}", flush=True)
            federation.hang_up()
            rows.append(sample(federation, n, start, time.monotonic() - begun) | {"status": status})
            out.write_text(json.dumps(rows, indent=1))
            print({k: v if isinstance(v, str) else round(v, 2) for k, v in rows[-1].items()}, flush=True)
            n += 1
            time.sleep(max(0.0, args.every - (time.monotonic() - begun)))
    return rows


def plot(rows, path):
    """Draw memory and disk over time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    table = pd.DataFrame(rows).set_index("minutes").rename(columns={f"{SERVER} MB": "server MB"})
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2))
    table[["server MB", *[f"{site} MB" for site in SITES]]].plot(
        ax=axes[0], ylabel="resident memory, MB", ylim=0
    )
    table[["server disk MB", "site disk MB", "site store MB"]].plot(ax=axes[1], ylabel="on disk, MB", ylim=0)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    """Run and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=float, default=45, help="seconds from one study to the next")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--plot", type=Path, default=HERE.parent / "docs" / "gallery" / "soak.png")
    args = parser.parse_args()
    out = HERE / "results" / "runtime_soak.json"
    out.parent.mkdir(exist_ok=True)
    rows = soak(args, out)
    plot(rows, args.plot)
    print(f"{len(rows)} rows -> {out}")


if __name__ == "__main__":
    main()
