import gc
import subprocess
import sys
import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare")
from nvflare.apis.client import Client
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import RunProcessKey
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.sfm.sfm_endpoint import SfmEndpoint
from nvflare.fuel.f3.stats_pool import StatsPoolManager

from feddbn.runtime.engines.nvflare.components import (
    MemoryTidy,
    forget_ended,
    release_memory,
    returned,
    start_again,
)


class Cycle:
    def __init__(self):
        self.me = self


@pytest.mark.parametrize(
    ("event", "stays"), [(EventType.JOB_STARTED, True), (EventType.JOB_COMPLETED, False)]
)
def test_what_a_job_left_in_cycles_is_collected_when_it_has_ended(event, stays):
    gc.disable()
    try:
        left = weakref.ref(Cycle())
        MemoryTidy().handle_event(event, FLContext())
        assert (left() is not None) is stays
    finally:
        gc.enable()


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_memory_freed_between_blocks_in_use_goes_back_to_the_system():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1])

    # 64 KB each: below the size that gets pages of its own.
    blocks = [bytearray(b"x") * 65536 for _ in range(1000)]
    before = resident()
    del blocks[::2]
    release_memory()
    assert before - resident() > 0.8 * 500 * 16
    assert len(blocks) == 500


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_a_large_block_goes_back_to_the_system_whatever_lives_beside_it():
    # In a process of its own, since the limit stays.
    code = """
from feddbn.runtime.engines.nvflare.components import LARGE_BYTES, keep_large_blocks_apart

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20

assert keep_large_blocks_apart()
before = resident_mb()
for _ in range(3):
    blocks = [(bytearray(4 * LARGE_BYTES), bytearray(1000)) for _ in range(40)]
    assert resident_mb() - before > 35
    small = [b for _, b in blocks]
    del blocks
    assert resident_mb() - before < 5, (before, resident_mb())
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ended_jobs_and_sessions_are_forgotten_and_nothing_else():
    numbers = [f"{n:08x}-0000-4000-8000-000000000000" for n in range(4)]
    ended, running, connected, session = numbers
    connections = ConnManager(Endpoint("server"))
    pool = StatsPoolManager.add_time_hist_pool("tidy_test", "for this test", scope="here")
    names = ["site-a", f"site-a.{ended}", f"site-a.{running}", f"site-b.{connected}", f"_admin_{session}"]
    try:
        for name in names:
            end = connections.sfm_endpoints[name] = SfmEndpoint(Endpoint(name))
            pool.record_value(f"{name}#task", 0.1)
            if connected in name:
                end.connections.append(object())
        gone = [f"site-a.{ended}", f"_admin_{session}"]
        assert forget_ended(connections, [running]) == gone
        assert list(connections.sfm_endpoints) == [name for name in names if name not in gone]
        assert list(pool.cat_bins) == [f"{name}#task" for name in names if name not in gone]
    finally:
        StatsPoolManager.pools.pop("tidy_test")
        connections.sfm_endpoints.clear()
        connections.stop()


class Engine:
    """A server with one job of a and b; b has registered again, and can start jobs when it is asked for the second time."""

    def __init__(self):
        here = {"a": Client("a", "1"), "b": Client("b", "3")}
        self.run_processes = {"job": {RunProcessKey.PARTICIPANTS: {"1": here["a"], "2": Client("b", "2")}}}
        self.client_manager = SimpleNamespace(name_to_clients=here)
        self.asked, self.started = 0, []

    def new_context(self):
        return nullcontext()

    def get_component(self, name):
        return SimpleNamespace(get_job=lambda job_id, fl_ctx: SimpleNamespace(job_id=job_id, meta={}))

    def check_client_resources(self, job, needs, fl_ctx):
        self.asked += 1
        return dict.fromkeys(needs, (self.asked > 1, "reserved"))

    def start_client_job(self, job, sites, fl_ctx):
        self.started.append((job.job_id, {site: one.token for site, one in sites.items()}))


def test_a_site_that_has_registered_again_is_started_in_jobs_that_still_run(monkeypatch):
    engine = Engine()
    assert returned(engine) == [("job", "b")]
    assert set(engine.run_processes["job"][RunProcessKey.PARTICIPANTS]) == {"1", "3"}
    assert returned(engine) == []
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert start_again(engine, "job", "b")
    assert (engine.asked, engine.started) == (2, [("job", {"b": "reserved"})])
    assert not start_again(engine, "ended", "b")
