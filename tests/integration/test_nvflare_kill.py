"""NVFlare processes killed in the middle of runs: a resumed run equals an undisturbed one, bit for bit."""

import os
import signal

import numpy as np
import pytest

pytest.importorskip("nvflare")
from nvflare_federation import SERVER
from trials import (
    SITES,
    assert_nothing_executed_twice,
    in_process,
    job_process,
    journal_of,
    make_study,
    result_of,
    wait_for_sum,
)


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
