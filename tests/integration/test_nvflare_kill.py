"""NVFlare processes killed in the middle of runs: a resumed run equals an undisturbed one, bit for bit."""

import json
import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("nvflare")
import study_programs  # noqa: F401
from nvflare_federation import SERVER, command_of

from feddbn.federation.journal import read_journal
from feddbn.federation.site import Site
from feddbn.federation.study import Study, StudyResult, study_method
from feddbn.runtime.in_process import InProcessFederation
from feddbn.runtime.open_site import read_data
from feddbn.runtime.settings import read_site_settings

SITES = ("site-a", "site-b", "site-c")


def make_study(name, rounds=60, pause_s=0.02, **attendance):
    return Study(
        name=name,
        method="walk",
        variables=("x0", "x1", "x2", "x3"),
        sites=SITES,
        parameters={"rounds": rounds, "pause_s": pause_s},
        attendance={"timeout_s": 3.0, **attendance},
    )


def in_process(federation, study, absent=None):
    """The study in one process on the same files; `absent` maps a sum's number to the sites it lacks."""
    sites = {}
    for name in SITES:
        settings = read_site_settings(federation.kits[name] / "local" / "feddbn_site.toml")
        sites[name] = Site(name, read_data(settings))
    inner = InProcessFederation(sites)

    class Thinned:
        sites = inner.sites
        variables = study.variables
        seq = -1

        def sum(self, task):
            self.seq += 1
            here = tuple(n for n in SITES if n not in (absent or {}).get(self.seq, ()))
            return inner.sum(replace(task, participants=here, params={**task.params, "pause_s": 0.0}))

    return study_method("walk").run(study.parameters, Thinned()).arrays["centre"]


def journal_of(federation, run_id):
    path = federation.runs / run_id / "journal.feddbn"
    return read_journal(path.read_bytes())[0] if path.exists() else None


def wait_for_sum(federation, run_id, n, timeout_s=60):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        journal = journal_of(federation, run_id)
        if journal is not None and len(journal.entries) >= n:
            return len(journal.entries)
        time.sleep(0.02)
    raise TimeoutError(f"{run_id} did not reach sum {n}: {federation.log(SERVER)[-2000:]}")


def result_of(federation, console, job, run_id):
    out = console.fetch(job, federation.root / "out" / run_id)
    return StudyResult.from_bytes((out / "result.feddbn").read_bytes()).arrays["centre"]


def assert_nothing_executed_twice(federation, run_id):
    for site in SITES:
        path = federation.state(site) / run_id / "events.jsonl"
        events = [json.loads(line) for line in path.read_text().splitlines()]
        executed = [e["seq"] for e in events if e["what"].startswith("executed")]
        assert len(executed) == len(set(executed)), (site, executed)
    counted = {
        (site, e.seq) for e in journal_of(federation, run_id).entries for site in e.answer.contributors
    }
    for site in SITES:
        path = federation.state(site) / run_id / "events.jsonl"
        events = [json.loads(line) for line in path.read_text().splitlines()]
        done = {(site, e["seq"]) for e in events if e["what"].startswith(("executed", "answered"))}
        assert {pair for pair in counted if pair[0] == site} <= done


def job_process(federation, site, job):
    return next(p for p in federation.job_processes(site) if job in command_of(p))


def test_killed_jobs_sites_and_servers_change_no_bit(federation):
    """Two site jobs are killed, then a whole site, then the server while the runs are being resumed."""
    rng = np.random.default_rng()
    studies = {
        "job-1": make_study("job-1"),
        "job-2": make_study("job-2"),
        "away": make_study("away", when_missing="continue", min_sites=2),
        "waits": make_study("waits", when_missing="wait", max_wait_s=1.0),
    }
    resumed = ("job-1", "job-2", "waits")
    with federation.console() as console:
        jobs = {run: console.submit(study, run) for run, study in studies.items()}
        for run, site in (("job-1", "site-a"), ("job-2", "site-c")):
            wait_for_sum(federation, run, int(rng.integers(1, 15)))
            os.kill(job_process(federation, site, jobs[run]), signal.SIGKILL)
        for run in ("away", "waits"):
            wait_for_sum(federation, run, int(rng.integers(1, 15)))
        federation.kill("site-b")
        ended = {run: console.wait(job, timeout_s=120) for run, job in jobs.items()}
        assert {run for run, status in ended.items() if status.endswith("COMPLETED")} == {"away"}
        entries = journal_of(federation, "away").entries
        absent = {e.seq: tuple(set(SITES) - set(e.answer.contributors)) for e in entries}
        assert ("site-b",) in absent.values()
        found = result_of(federation, console, jobs["away"], "away")
        np.testing.assert_array_equal(found, in_process(federation, studies["away"], absent))

        federation.start("site-b")
        federation.wait_until_up()
        before = {run: len(journal_of(federation, run).entries) for run in resumed}
        jobs = {run: console.submit(studies[run], run) for run in resumed}
        for run in resumed:
            wait_for_sum(federation, run, before[run] + int(rng.integers(1, 8)))
    federation.kill(SERVER)
    federation.start(SERVER)
    federation.wait_until_up()
    with federation.console() as console:
        jobs = {run: console.submit(studies[run], run) for run in resumed}
        for run in resumed:
            assert console.wait(jobs[run], timeout_s=120).endswith("COMPLETED")
            found = result_of(federation, console, jobs[run], run)
            np.testing.assert_array_equal(found, in_process(federation, studies[run]))
    for run in studies:
        assert_nothing_executed_twice(federation, run)
