"""NVFlare processes killed in the middle of runs: a resumed run equals an undisturbed one, bit for bit."""

import os
import signal
import time

import numpy as np
import pytest

pytest.importorskip("nvflare")
from support.nvflare_federation import SERVER, children
from support.trials import (
    absences,
    assert_nothing_executed_twice,
    assert_result,
    job_process,
    make_study,
    n_sums,
    resume,
    wait_for_sum,
)

pytestmark = pytest.mark.usefixtures("light")

KILLED = {"job-1": "site-a", "job-2": "site-c"}


@pytest.fixture
def federation(federation):
    federation.slow_down()
    yield federation
    federation.hurry()
    federation.revive()


def test_killed_jobs_sites_and_servers_change_no_bit(federation):
    """Two site jobs are killed, then a whole site, then the server while the runs are being resumed."""
    rng = np.random.default_rng(36)
    studies = {
        "away": make_study("away", when_missing="continue", min_sites=2),
        "waits": make_study("waits", when_missing="wait", max_wait_s=1.0),
        "job-1": make_study("job-1"),
        "job-2": make_study("job-2"),
    }
    resumed = {run: study for run, study in studies.items() if run != "away"}
    jobs = {run: federation.console.submit(study, run) for run, study in studies.items()}
    kill_at = {run: int(rng.integers(1, 9)) for run in studies}
    end = time.monotonic() + 300
    while kill_at:
        assert time.monotonic() < end, (kill_at, federation.log(SERVER)[-3000:])
        for run in [run for run, at in kill_at.items() if n_sums(federation, run) >= at]:
            if run in KILLED:
                os.kill(job_process(federation, KILLED[run], jobs[run]), signal.SIGKILL)
            del kill_at[run]
        time.sleep(0.05)
    federation.kill("site-b")
    # NVFlare itself lists it for ten more minutes; a busy machine takes a dead site for a slow one until it misses reports.
    end = time.monotonic() + 120
    while "site-b" in federation.console.sites():
        assert time.monotonic() < end, federation.log(SERVER)[-3000:]
    federation.hurry()
    ended = {run: federation.console.wait(job) for run, job in jobs.items()}
    assert not [run for run in resumed if ended[run].endswith("COMPLETED")]
    if not ended["away"].endswith("COMPLETED"):
        # A second site was slow: the lead asks again.
        jobs |= resume(federation, {"away": studies["away"]})
    assert "site-b" in {site for sites in absences(federation, "away").values() for site in sites}
    assert_result(federation, studies["away"], "away", jobs["away"])

    federation.start("site-b")
    federation.wait_until_up()
    federation.slow_down()
    before = {run: n_sums(federation, run) for run in resumed}
    for run, study in resumed.items():
        federation.console.submit(study, run)
    for run in resumed:
        wait_for_sum(federation, run, before[run] + int(rng.integers(1, 5)))
    federation.kill(SERVER)
    federation.hurry()
    federation.start(SERVER)
    federation.wait_until_up()
    jobs = resume(federation, resumed)
    for run, study in resumed.items():
        assert_result(federation, study, run, jobs[run])
        assert set(absences(federation, run).values()) == {()}
    for run in studies:
        assert_nothing_executed_twice(federation, run)


@pytest.mark.smoke
def test_a_run_survives_the_process_its_jobs_are_forked_from(federation):
    study = make_study("warm")
    job = federation.console.submit(study, "warm")
    wait_for_sum(federation, "warm", 2)
    warm = federation.warm_process("site-a")
    assert job_process(federation, "site-a", job) in children(warm)
    os.kill(warm, signal.SIGKILL)
    federation.hurry()
    # Nobody could tell how the fork ends, so the site ends it and says so.
    assert not federation.console.wait(job).endswith("COMPLETED")
    assert not federation.job_processes("site-a", job)
    job = resume(federation, {"warm": study})["warm"]
    assert "fresh interpreter" in federation.log("site-a")
    assert_result(federation, study, "warm", job)
    assert_nothing_executed_twice(federation, "warm")
    assert federation.warm_process("site-a") != warm
