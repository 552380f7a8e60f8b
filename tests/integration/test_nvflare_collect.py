"""A collection between real processes: a site that is started late, and one that is killed while it holds its masks."""

import json
import os
import signal
import time

import numpy as np
import pytest

pytest.importorskip("nvflare")
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import StudyResult, study_method
from feddbn.runtime.server.results import read_outcome
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.simulated.secure import secure_federation
from feddbn.runtime.site.open_site import read_data
from support.trials import SITES, assert_nothing_executed_twice, job_process, make_study

PAUSE_S = 4.0


@pytest.fixture
def federation(federation):
    federation.slow_down()
    yield federation
    federation.hurry()
    federation.revive()


def collected(federation, study):
    return study.model_copy(
        update={
            "privacy": study.privacy.model_copy(update={"secure_aggregation": True, "protection": "exact"})
        }
    )


def masked_in_process(federation, study):
    sites = {}
    for name in study.sites:
        settings = read_site_settings(federation.kits[name] / "local" / "feddbn_site.toml")
        sites[name] = Site(name, read_data(settings))
    quick = {**study.parameters, "pause_s": 0.0}
    return study_method("walk").run(quick, secure_federation(sites)).arrays["centre"]


def wait_for_word(federation, run, word, timeout_s=120):
    path, end = federation.runs / run / "events.jsonl", time.monotonic() + timeout_s
    while not (path.exists() and word in path.read_text()):
        assert time.monotonic() < end, federation.log("localhost")[-3000:]
        time.sleep(0.1)


def start_and_wait(federation, name, timeout_s=60):
    """Start a site that was killed; the server may not have noticed yet that it was away."""
    word = "Connected to server"
    before, end = federation.log(name).count(word), time.monotonic() + timeout_s
    federation.start(name)
    while federation.log(name).count(word) <= before:
        assert time.monotonic() < end, federation.log(name)[-2000:]
        time.sleep(0.1)


def outcome(federation, job, run):
    assert federation.console.wait(job, 120.0)
    return read_outcome(federation.console.fetch(job, federation.root / "out" / run))


def test_a_late_site_and_a_killed_one_change_no_bit(federation):
    study = make_study(
        "collected", rounds=1, pause_s=PAUSE_S, when_missing="collect", timeout_s=20.0, window_h=1.0
    )
    study = collected(federation, study)
    federation.kill("site-c")
    job = federation.console.submit(study, "collected")
    first = outcome(federation, job, "collected")
    assert first["state"] == "collecting", first
    assert first["awaited"] == ["site-c"]
    assert "site-a, site-b" in first["sentence"]

    start_and_wait(federation, "site-c")
    job = federation.console.submit(study, "collected")
    # All have keys, and hold their masks; one dies before its answer has left.
    wait_for_word(federation, "collected", "collecting masked answers")
    time.sleep(1.0)
    os.kill(job_process(federation, "site-a", job), signal.SIGKILL)
    federation.hurry()
    assert not federation.console.wait(job, 120.0).endswith("COMPLETED")

    job = federation.console.submit(study, "collected")
    assert federation.console.wait(job, 120.0).endswith("COMPLETED"), federation.log("localhost")[-3000:]
    out = federation.console.fetch(job, federation.root / "out" / "collected")
    found = StudyResult.from_bytes((out / "result.feddbn").read_bytes()).arrays["centre"]
    np.testing.assert_array_equal(found, masked_in_process(federation, study))
    events = [
        json.loads(line) for line in (federation.runs / "collected" / "events.jsonl").read_text().splitlines()
    ]
    # One agreement on keys for all three jobs.
    keys = [e for e in events if e.get("task") == "keys (sum 0)" and not e.get("sites")]
    assert len(keys) == 1
    assert set(next(e for e in events if e["what"] == "sum")["sites"]) == set(SITES)
    assert_nothing_executed_twice(federation, "collected")
