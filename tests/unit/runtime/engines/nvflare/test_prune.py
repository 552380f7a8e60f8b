import os

from feddbn.runtime.engines.nvflare.housekeeping import (
    JOBS,
    TRANSFER,
    forget_jobs,
    prune_job_results,
    prune_site_jobs,
)
from feddbn.runtime.store import DAYS
from support.faults import looked_before

DAY = 86400
NOW = 1_000 * DAY
OLD, NEW, RUNNING, WAITING = (f"{k}1f9bfde-1c0a-4c66-a7f5-7d1d0a2b3c4{k}" for k in range(4))


def make(directory, days_old, *names):
    directory.mkdir(parents=True)
    for name in names:
        (directory / name).write_text("x")
    for path in (*directory.iterdir(), directory):
        os.utime(path, (NOW - days_old * DAY, NOW - days_old * DAY))


def make_server(kit):
    for job, age in ((OLD, 40), (NEW, 2), (RUNNING, 50)):
        make(kit / JOBS / job, age, "meta", "scheduled", "data", "workspace")
    make(kit / JOBS / WAITING, 60, "meta", "data")
    make(kit / TRANSFER / OLD, 40)
    make(kit / TRANSFER / NEW, 2)
    looked_before(kit / JOBS, NOW)
    looked_before(kit / TRANSFER, NOW)
    return kit


def names(directory):
    return sorted(path.name for path in directory.iterdir() if path.name != DAYS)


def test_old_job_directories_of_a_site_are_deleted_and_nothing_else(tmp_path):
    for job, age in ((OLD, 40), (NEW, 2), (RUNNING, 50)):
        make(tmp_path / job, age, "log.txt")
    make(tmp_path / "local", 400, "feddbn_site.toml")
    looked_before(tmp_path, NOW)
    assert prune_site_jobs(tmp_path, 30, keep=RUNNING, now=NOW) == [OLD]
    assert names(tmp_path) == sorted([NEW, RUNNING, "local"])


def test_the_files_of_old_jobs_go_while_the_server_runs_but_not_their_entries(tmp_path):
    kit = make_server(tmp_path)
    assert prune_job_results(kit, 30, keep=RUNNING, now=NOW) == [OLD]
    assert names(kit / JOBS) == sorted([OLD, NEW, RUNNING, WAITING])
    assert names(kit / JOBS / OLD) == ["meta", "scheduled"]
    assert names(kit / JOBS / WAITING) == ["data", "meta"]
    assert (
        names(kit / JOBS / RUNNING) == names(kit / JOBS / NEW) == ["data", "meta", "scheduled", "workspace"]
    )
    assert names(kit / TRANSFER) == [NEW]


def test_emptied_jobs_are_old_again_only_after_as_many_days(tmp_path):
    kit = make_server(tmp_path)
    prune_job_results(kit, 30, now=NOW)
    assert prune_job_results(kit, 30, now=NOW) == []


def test_entries_of_old_jobs_go_before_the_server_starts(tmp_path):
    kit = make_server(tmp_path)
    assert forget_jobs(kit, 45, now=NOW) == [RUNNING, WAITING]
    assert names(kit / JOBS) == sorted([OLD, NEW])


def test_a_kit_without_jobs_has_nothing_to_prune(tmp_path):
    assert prune_job_results(tmp_path, 30) == forget_jobs(tmp_path, 30) == prune_site_jobs(tmp_path, 30) == []
