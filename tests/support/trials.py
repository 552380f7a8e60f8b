"""What kill tests and soak runs share: slow studies, their reference in process, and the proof from the logs."""

import json
import time
from dataclasses import replace

import numpy as np

import support.study_programs  # noqa: F401
from feddbn.federation.protocol.messages import read_journal
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Study, StudyResult, study_method
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.site.open_site import read_data
from feddbn.runtime.store import Store
from support.nvflare_federation import SERVER
from support.study_files import ABOUT

SITES = ("site-a", "site-b", "site-c")


def make_study(name, rounds=60, pause_s=0.5, **attendance):
    """A study whose sites dawdle until the federation is told to hurry."""
    return Study(
        name=name,
        about=ABOUT,
        method="walk",
        variables=("x0", "x1", "x2", "x3"),
        sites=SITES,
        parameters={"rounds": rounds, "pause_s": pause_s},
        attendance={"timeout_s": 3.0, **attendance},
    )


def in_process(federation, study, absent=None):
    """The study in one process on the same files; `absent` maps a sum's number to the sites it lacks."""
    sites = {}
    for name in study.sites:
        settings = read_site_settings(federation.kits[name] / "local" / "feddbn_site.toml")
        sites[name] = Site(name, read_data(settings))
    inner = InProcessFederation(sites)

    class Thinned:
        sites = inner.sites
        variables = study.variables
        seq = -1

        def sum(self, task):
            self.seq += 1
            here = tuple(n for n in study.sites if n not in (absent or {}).get(self.seq, ()))
            return inner.sum(replace(task, participants=here, question=replace(task.question, pause_s=0.0)))

    return study_method("walk").run(study.parameters, Thinned()).arrays["centre"]


def journal_of(federation, run_id):
    return read_journal(Store(federation.runs).records(run_id, "journal"))


def n_sums(federation, run_id):
    journal = journal_of(federation, run_id)
    return 0 if journal is None else len(journal.entries)


def wait_for_sum(federation, run_id, n, timeout_s=240):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = n_sums(federation, run_id)
        if found >= n:
            return found
        time.sleep(0.05)
    raise TimeoutError(f"{run_id} did not reach sum {n}: {federation.log(SERVER)[-2000:]}")


def resume(federation, studies, attempts=4):
    """Submit runs, and again those that stopped for want of a site, as their lead would; return run -> job.

    On a busy machine a site may take longer than a timeout; that stops a run and must never spoil it.
    """
    done, waiting = {}, dict(studies)
    for _ in range(attempts):
        jobs = {run: federation.console.submit(study, run) for run, study in waiting.items()}
        for run, job in jobs.items():
            if federation.console.wait(job).endswith("COMPLETED"):
                done[run] = job
                del waiting[run]
        if not waiting:
            return done
    raise AssertionError(f"{sorted(waiting)} did not finish: {federation.log(SERVER)[-3000:]}")


def result_of(federation, job, run_id):
    out = federation.console.fetch(job, federation.root / "out" / run_id)
    return StudyResult.from_bytes((out / "result.feddbn").read_bytes()).arrays["centre"]


def absences(federation, run_id):
    """Sum -> the sites it lacks, as the server's journal says."""
    journal = journal_of(federation, run_id)
    named = set(journal.header.sites)
    return {e.seq: tuple(sorted(named - set(e.answer.contributors))) for e in journal.entries}


def assert_result(federation, study, run_id, job):
    """The run's result is, bit for bit, that of one process with the same participation."""
    expected = in_process(federation, study, absences(federation, run_id))
    np.testing.assert_array_equal(result_of(federation, job, run_id), expected)


def assert_nothing_executed_twice(federation, run_id):
    sites = journal_of(federation, run_id).header.sites
    for site in sites:
        path = federation.state(site) / run_id / "events.jsonl"
        events = [json.loads(line) for line in path.read_text().splitlines()]
        executed = [e["seq"] for e in events if e["what"].startswith("executed")]
        assert len(executed) == len(set(executed)), (site, executed)
    counted = {
        (site, e.seq) for e in journal_of(federation, run_id).entries for site in e.answer.contributors
    }
    for site in sites:
        path = federation.state(site) / run_id / "events.jsonl"
        events = [json.loads(line) for line in path.read_text().splitlines()]
        done = {(site, e["seq"]) for e in events if e["what"].startswith(("executed", "answered"))}
        assert {pair for pair in counted if pair[0] == site} <= done


def job_process(federation, site, job):
    return next(iter(federation.job_processes(site, job)))
