"""NVFlare processes killed in the middle of runs: a resumed run equals an undisturbed one, bit for bit."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
pytest.importorskip("nvflare")
import study_programs  # noqa: F401
from feddbn.federation.journal import read_journal
from feddbn.federation.site import Site
from feddbn.federation.study import Study, StudyResult, study_method
from feddbn.federation.task import run_program
from feddbn.runtime.in_process import InProcessFederation
from feddbn.runtime.open_site import read_data
from feddbn.runtime.settings import read_site_settings
from nvflare_federation import SERVER, NVFlareFederation, command_of

SITES = ("site-a", "site-b", "site-c")


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with NVFlareFederation(tmp_path_factory.mktemp("nvflare"), SITES) as running:
        yield running


def make_study(name, rounds=60, pause_s=0.02, **attendance):
    return Study(
        name=name,
        method="walk",
        variables=("u", "v"),
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
        seq = -1

        def sum(self, task):
            from dataclasses import replace

            self.seq += 1
            here = tuple(n for n in SITES if n not in (absent or {}).get(self.seq, ()))
            return inner.sum(replace(task, participants=here, params={**task.params, "pause_s": 0.0}))

    program = study_method("walk").program(study.parameters, study.variables, SITES)
    return run_program(program, Thinned()).arrays["centre"]


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


def test_a_killed_site_job_and_its_resume_change_no_bit(federation):
    rng = np.random.default_rng()
    runs = {"kill-job-1": "site-a", "kill-job-2": "site-c"}
    studies = {run: make_study(run) for run in runs}
    with federation.console() as console:
        jobs = {run: console.submit(study, run) for run, study in studies.items()}
        for run, site in runs.items():
            wait_for_sum(federation, run, int(rng.integers(1, 20)))
            os.kill(job_process(federation, site, jobs[run]), signal.SIGKILL)
        for job in jobs.values():
            assert not console.wait(job, timeout_s=60).endswith("COMPLETED")
        jobs = {run: console.submit(study, run) for run, study in studies.items()}
        for run, study in studies.items():
            assert console.wait(jobs[run], timeout_s=90).endswith("COMPLETED")
            np.testing.assert_array_equal(
                result_of(federation, console, jobs[run], run), in_process(federation, study)
            )
            assert_nothing_executed_twice(federation, run)


def test_a_site_that_stays_away_is_left_out_and_one_that_returns_joins_the_next_segment(federation):
    rng = np.random.default_rng()
    away = make_study("kill-site-1", when_missing="continue", min_sites=2)
    waits = make_study("kill-site-2", when_missing="wait", max_wait_s=1.0)
    with federation.console() as console:
        jobs = {study.name: console.submit(study, study.name) for study in (away, waits)}
        for name in jobs:
            wait_for_sum(federation, name, int(rng.integers(1, 20)))
        federation.kill("site-b")
        statuses = {name: console.wait(job, timeout_s=120) for name, job in jobs.items()}
        assert statuses["kill-site-1"].endswith("COMPLETED")
        entries = journal_of(federation, "kill-site-1").entries
        absent = {e.seq: tuple(set(SITES) - set(e.answer.contributors)) for e in entries}
        assert ("site-b",) in absent.values()
        found = result_of(federation, console, jobs["kill-site-1"], "kill-site-1")
        np.testing.assert_array_equal(found, in_process(federation, away, absent))
        assert not statuses["kill-site-2"].endswith("COMPLETED")
        federation.start("site-b")
        federation.wait_until_up()
        job = console.submit(waits, "kill-site-2")
        assert console.wait(job, timeout_s=90).endswith("COMPLETED")
        np.testing.assert_array_equal(
            result_of(federation, console, job, "kill-site-2"), in_process(federation, waits)
        )
    assert_nothing_executed_twice(federation, "kill-site-1")
    assert_nothing_executed_twice(federation, "kill-site-2")


def test_a_killed_server_and_the_resume_change_no_bit(federation):
    rng = np.random.default_rng()
    studies = {run: make_study(run) for run in ("kill-server-1", "kill-server-2")}
    with federation.console() as console:
        for run, study in studies.items():
            console.submit(study, run)
        for run in studies:
            wait_for_sum(federation, run, int(rng.integers(1, 20)))
        federation.kill(SERVER)
    before = {run: len(journal_of(federation, run).entries) for run in studies}
    federation.start(SERVER)
    federation.wait_until_up()
    with federation.console() as console:
        jobs = {run: console.submit(study, run) for run, study in studies.items()}
        for run, study in studies.items():
            assert console.wait(jobs[run], timeout_s=120).endswith("COMPLETED")
            np.testing.assert_array_equal(
                result_of(federation, console, jobs[run], run), in_process(federation, study)
            )
            assert_nothing_executed_twice(federation, run)
            assert 0 < before[run] < 60
