"""Jobs forked from a process that has imported ahead behave like `python -m`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from feddbn.errors import StateError
from feddbn.runtime.server.warm_start import WarmStart
from support.saying import refused

if not hasattr(os, "fork"):
    pytest.skip("needs fork", allow_module_level=True)

JOB = """
import json, os, random, subprocess, sys, time
import numpy as np

if __name__ == "__main__":
    what, out = sys.argv[1:]
    if what == "tell":
        facts = {
            "argv": sys.argv[1:], "pid": os.getpid(), "group": os.getpgid(0), "session": os.getsid(0),
            "directory": os.getcwd(), "environment": dict(os.environ), "random": random.random(),
            "numpy": float(np.random.random()), "warm": "imported_ahead" in sys.modules,
        }
        json.dump(facts, open(out, "w"))
        sys.exit(3)
    if what == "sleep":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        with open(out + ".part", "w") as file:
            file.write(str(child.pid))
        os.rename(out + ".part", out)
        time.sleep(60)
"""
PATIENCE_S = 60.0


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "some_job.py").write_text(JOB)
    (tmp_path / "imported_ahead.py").write_text("import numpy\n")
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(1.5)\n")
    (tmp_path / "starts_a_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    paths = [str(tmp_path), *[p for p in sys.path if p]]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return tmp_path


@pytest.fixture
def warm(place):
    start = WarmStart(["some_job", "imported_ahead", "no_such_module"])
    start.start()
    yield start
    start.close()


def launch(warm, what, out, **more):
    return warm.launch(
        "some_job", [what, str(out)], {**os.environ, **more}, "job 1234abcd", patience_s=PATIENCE_S
    )


def wait_for(condition, timeout_s=300.0):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_job_has_its_own_process_session_arguments_and_environment(warm, place):
    jobs = [launch(warm, "tell", place / f"{n}.json", ONLY_HERE=str(n)) for n in range(2)]
    assert [job.wait() for job in jobs] == [3, 3]
    assert [job.poll() for job in jobs] == [3, 3]
    told = [json.loads((place / f"{n}.json").read_text()) for n in range(2)]
    for n, (job, facts) in enumerate(zip(jobs, told, strict=True)):
        assert facts["argv"] == ["tell", str(place / f"{n}.json")]
        assert facts["pid"] == facts["group"] == facts["session"] == job.pid != warm.pid
        assert facts["environment"] == {**os.environ, "ONLY_HERE": str(n)}
        assert facts["directory"] == os.getcwd()
        assert facts["warm"]
    assert told[0]["random"] != told[1]["random"]
    assert told[0]["numpy"] != told[1]["numpy"]


def test_a_job_that_is_terminated_takes_its_children_along(warm, place):
    job = launch(warm, "sleep", place / "child")
    wait_for((place / "child").exists)
    child = int((place / "child").read_text())
    assert job.poll() is None
    assert is_alive(child)
    if sys.platform == "linux":
        assert Path(f"/proc/{job.pid}/comm").read_text().strip() == "job 1234abcd"
    job.terminate()
    assert job.wait() == -signal.SIGKILL
    wait_for(lambda: not is_alive(child))
    job.terminate()


def test_a_job_that_was_killed_from_outside_is_reported_and_others_go_on(warm, place):
    first, second = launch(warm, "sleep", place / "a"), launch(warm, "sleep", place / "b")
    os.kill(first.pid, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    assert second.poll() is None
    second.terminate()
    assert second.wait() == -signal.SIGKILL


def test_jobs_end_with_the_process_they_were_forked_from_and_a_new_one_is_started(warm, place):
    job = launch(warm, "sleep", place / "child")
    old = warm.pid
    os.kill(old, signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    wait_for(lambda: not is_alive(job.pid))
    wait_for(lambda: warm.pid is None)
    with refused(StateError, code="restarted"):
        launch(warm, "tell", place / "refused.json")
    assert warm.pid not in (None, old)
    assert launch(warm, "tell", place / "told.json").wait() == 3
    assert not (place / "refused.json").exists()


def test_a_job_that_nobody_waits_for_any_more_never_runs(place):
    warm = WarmStart(["some_job", "slow_to_import"])
    warm.start()
    try:
        with refused(StateError, code="not-ready"):
            warm.launch("some_job", ["tell", str(place / "late")], dict(os.environ), "job", patience_s=0.1)
        assert launch(warm, "tell", place / "told").wait() == 3
        assert not (place / "late").exists()
    finally:
        warm.close()


def test_nothing_is_forked_from_a_process_with_threads(place, capfd):
    warm = WarmStart(["some_job", "starts_a_thread"])
    warm.start()
    try:
        with pytest.raises(StateError):
            launch(warm, "tell", place / "told")
        wait_for(lambda: warm.pid is None)
        with refused(StateError, code="cannot-fork"):
            launch(warm, "tell", place / "told")
        assert warm.pid is None
        assert not (place / "told").exists()
        assert "1 threads" in capfd.readouterr().err
    finally:
        warm.close()


def test_the_process_to_fork_from_dies_with_the_one_that_started_it(place):
    code = (
        "from feddbn.runtime.server.warm_start import WarmStart; import time; w = WarmStart(['some_job']); w.start(); "
        "print(w.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as site:
        pid = int(site.stdout.readline())
        assert is_alive(pid)
        site.kill()
    wait_for(lambda: not is_alive(pid))
