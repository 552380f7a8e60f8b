import gc
import subprocess
import sys
import weakref

import pytest

pytest.importorskip("nvflare")
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext

from feddbn.runtime.nvflare_tidy import MemoryTidy, release_memory


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
from feddbn.runtime.nvflare_tidy import LARGE_BYTES, keep_large_blocks_apart

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
