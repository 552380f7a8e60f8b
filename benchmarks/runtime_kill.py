"""Kill trials on NVFlare processes on loopback: kill -9 at a random round, resume, compare every bit.

    python benchmarks/runtime_kill.py job --trials 10 --seed 0
    python benchmarks/runtime_kill.py site --trials 10 --seed 1
    python benchmarks/runtime_kill.py server --trials 10 --seed 2
    python benchmarks/runtime_kill.py table              # the table of all trials so far

The methods take turns: FDBNL, PFDBNL (personal networks included) and FDBNL under secure aggregation. Each
result is compared with the same study in one process: shared and personal W and A must have the same bits.
Where a killed site stays away and the study goes on without it, the reference has the same participation.
The sites' event logs must show that no task was executed twice and none that was counted is missing. Rows are
appended to benchmarks/results/runtime_kill.jsonl.
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
import pandas as pd

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from runtime_soak import VARIABLES, frames  # noqa: E402

from feddbn.core.encoding import decode  # noqa: E402
from feddbn.federation.protocol.study import StudyResult  # noqa: E402
from support.conformance import in_process, make_study  # noqa: E402
from support.nvflare_federation import SERVER, NVFlareFederation  # noqa: E402
from support.trials import (  # noqa: E402
    SITES,
    absences,
    assert_nothing_executed_twice,
    job_process,
    n_sums,
    resume,
    wait_for_sum,
)

ROWS = HERE / "results" / "runtime_kill.jsonl"
MASKED = {"secure_aggregation": True, "protection": "exact", "min_sites": 3}
TURNS = (("fdbnl", {}), ("pfdbnl", {}), ("fdbnl", {"privacy": MASKED}))
TIMEOUT_S = 5.0


def the_study(turn, run, **attendance):
    """Return a study of this turn's method."""
    method, changes = TURNS[turn % len(TURNS)]
    rules = {"timeout_s": TIMEOUT_S, **attendance}
    return make_study(method, SITES, VARIABLES, name=run, attendance=rules, **changes)


def personal(federation, run):
    """Return site -> its personal arrays, of the sites that have any."""
    out = {}
    for site in SITES:
        path = federation.state(site) / run / "personal.feddbn"
        if path.exists():
            out[site] = decode(path.read_bytes())[1]
    return out


class Thinned:
    """A federation in this process whose sums lack the sites that the journal says were missing."""

    def __init__(self, inner, absent):
        self._inner, self._absent, self._seq = inner, absent, -1
        self.sites, self.variables = inner.sites, inner.variables
        self.answered_tasks, self.state_of = None, lambda site: None

    def sum(self, task):
        from dataclasses import replace

        self._seq += 1
        asked = self.sites if task.participants is None else task.participants
        here = tuple(site for site in asked if site not in self._absent.get(self._seq, ()))
        return self._inner.sum(replace(task, participants=here))


def thinned(study, federation, absent):
    """Return the study's result in this process with the same participation."""
    from feddbn.data import read_sites
    from feddbn.federation.protocol.site import Site
    from feddbn.federation.protocol.study import study_method
    from feddbn.runtime.simulated.in_process import InProcessFederation

    sites = read_sites({site: federation.data()[site] for site in study.sites})
    inner = InProcessFederation({name: Site(name, site) for name, site in sites.items()})
    return study_method(study.method).run(study.parameters, Thinned(inner, absent))


def assert_same_bits(federation, study, run, job, undisturbed):
    """Compare shared arrays with one process, personal ones with the run that nothing disturbed."""
    out = federation.console.fetch(job, federation.root / "out" / run)
    found = StudyResult.from_bytes((out / "result.feddbn").read_bytes())
    absent = {seq: sites for seq, sites in absences(federation, run).items() if sites}
    if absent:
        expected = thinned(study, federation, absent)
    else:
        expected = in_process(study, federation.data())
        assert_equal(personal(federation, run), undisturbed)
    assert_equal({"shared": found.arrays}, {"shared": expected.arrays})
    assert np.any(found.arrays["W_raw"] != 0)
    assert np.any(found.arrays["A_raw"] != 0)
    assert_nothing_executed_twice(federation, run)
    return len(absent)


def assert_equal(found, expected):
    """Same names, same arrays, same bits."""
    assert found.keys() == expected.keys(), (sorted(found), sorted(expected))
    for name, arrays in expected.items():
        assert arrays.keys() == found[name].keys()
        for key, array in arrays.items():
            np.testing.assert_array_equal(found[name][key], array, err_msg=f"{name} {key}")


def trial(federation, kind, turn, run, rng, undisturbed):
    """Kill, restart, resume, compare; return the row."""
    # Where a site is killed, every second study goes on without it; a masked one needs all three sites.
    goes_on = kind == "site" and turn % 2 == 1 and "privacy" not in TURNS[turn % len(TURNS)][1]
    rules = {"when_missing": "continue", "min_sites": 2} if goes_on else {"max_wait_s": 1.0}
    study = the_study(turn, run, **rules)
    start = time.monotonic()
    job = federation.console.submit(study, run)
    at = wait_for_sum(federation, run, int(rng.integers(1, 25)))
    site = str(rng.choice(SITES))
    if kind == "job":
        os.kill(job_process(federation, site, job), signal.SIGKILL)
    elif kind == "site":
        federation.kill(site)
    else:
        federation.kill(SERVER)
    federation.hurry()
    status = "lost" if kind == "server" else federation.console.wait(job)
    stopped_at = n_sums(federation, run)
    if kind == "site":
        federation.start(site)
    if kind == "server":
        federation.start(SERVER)
    if kind != "job":
        federation.wait_until_up()
    if not status.endswith("COMPLETED"):
        job = resume(federation, {run: study})[run]
    federation.slow_down()
    n_absent = assert_same_bits(federation, study, run, job, undisturbed[study.method])
    return {
        "killed": kind,
        "method": study.method + ("-masked" if study.privacy.secure_aggregation else ""),
        "rule": "continue" if goes_on else "wait",
        "victim": SERVER if kind == "server" else site,
        "killed_at": at,
        "stopped_at": stopped_at,
        "sums": n_sums(federation, run),
        "first_job": status,
        "sums_without_a_site": n_absent,
        "seconds": time.monotonic() - start,
        "load": os.getloadavg()[0],
    }


def run_trials(args):
    """Run the trials of one kind."""
    rng = np.random.default_rng(args.seed)
    ROWS.parent.mkdir(exist_ok=True)
    modules = ("support.paced_programs",)
    with (
        tempfile.TemporaryDirectory() as place,
        NVFlareFederation(place, frames(), modules) as federation,
    ):
        federation.hurry()
        whole = {
            f"whole-{method}": the_study(turn, f"whole-{method}")
            for turn, (method, _) in enumerate(TURNS[:2])
        }
        resume(federation, whole)
        undisturbed = {study.method: personal(federation, run) for run, study in whole.items()}
        federation.slow_down()
        for k in range(args.first, args.first + args.trials):
            row = {"seed": args.seed, "trial": k}
            row |= trial(federation, args.what, k, f"{args.what}-{k}", rng, undisturbed)
            with open(ROWS, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print({key: round(v, 1) if isinstance(v, float) else v for key, v in row.items()}, flush=True)


def table():
    """Print one line per kind of victim."""
    rows = pd.DataFrame([json.loads(line) for line in ROWS.read_text().splitlines()])
    for kind, part in rows.groupby("killed"):
        print(
            f"| {kind} | {len(part)} | {part.killed_at.min()}-{part.killed_at.max()} of {part.sums.min()}-{part.sums.max()} "
            f"| {', '.join(f'{n} {m}' for m, n in part.method.value_counts().items())} "
            f"| {int((part.sums_without_a_site > 0).sum())} |"
        )


def main():
    """Run or print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["job", "site", "server", "table"])
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial, to run in pieces")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    table() if args.what == "table" else run_trials(args)


if __name__ == "__main__":
    main()
