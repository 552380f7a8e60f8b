"""Keep an NVFlare server's memory at what it uses; named in ``local/resources.json`` of its kit.

Most of what grows there is not in use. Every streamed message has a buffer of a megabyte in a cycle of references that
waits for the garbage collector's rare full pass; and when such buffers are freed, small blocks live between them, so that
the allocator keeps them: after a dozen studies 20 MB were free and held, 22 MB in use, as after six. Beside these the
transport keeps a record of every job's and every session's connection, and times of its messages, for good.
"""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Collection
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.fuel.f3.stats_pool import StatsPoolManager

__all__ = ["LARGE_BYTES", "MemoryTidy", "forget_ended", "keep_large_blocks_apart", "release_memory"]

LARGE_BYTES = 256 * 1024
# From glibc's malloc.h.
_M_MMAP_THRESHOLD = -3


# Jobs and sessions are named by one; sites and the server are not.
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _libc(name: str) -> Any:
    """Return a function of glibc, or None elsewhere."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None


def keep_large_blocks_apart() -> bool:
    """Let blocks of `LARGE_BYTES` or more have pages of their own; return whether the allocator agreed.

    Such a block goes back to the system when it is freed, whatever lives beside it. glibc begins with a lower limit but
    raises it with every such block that is freed, up to 32 MB, unless the limit is set. It is set for this process, not
    by an environment variable, which job processes would inherit: there it would slow down arithmetic on large arrays.
    """
    mallopt = _libc("mallopt")
    return bool(mallopt and mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES))


def release_memory() -> bool:
    """Collect cycles and give free memory back to the system; return whether the allocator had any."""
    gc.collect()
    trim = _libc("malloc_trim")
    return bool(trim and trim(0))


def forget_ended(connections: Any, running: Collection[str]) -> list[str]:
    """Drop what the transport keeps of jobs and sessions that have ended; return the names of their ends.

    Parameters
    ----------
    connections
        NVFlare's connection manager.
    running
        Ids of the jobs that run: one may have lost its connection and be about to connect again.
    """
    ended = []
    for name, end in list(connections.sfm_endpoints.items()):
        found = _ID.search(name)
        if found and found[0] not in running and not end.connections:
            connections.remove_endpoint(name)
            ended.append(name)
    living = {*running, *(number for name in list(connections.sfm_endpoints) for number in _ID.findall(name))}
    for pool in list(StatsPoolManager.pools.values()):
        times = getattr(pool, "cat_bins", None)
        if times:
            with pool.update_lock:
                for what in [w for w in times if _ID.search(w) and living.isdisjoint(_ID.findall(w))]:
                    del times[what]
    return ended


class MemoryTidy(FLComponent):  # type: ignore[misc]
    """Sets the limit when the server starts; forgets and releases after each job.

    Both events are told only in the process that outlives jobs.
    """

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Listen for the server's start and the end of jobs."""
        if event_type == EventType.SYSTEM_START:
            keep_large_blocks_apart()
        elif event_type == EventType.JOB_COMPLETED:
            try:
                engine = fl_ctx.get_engine()
                forget_ended(engine.cell.core_cell.communicator.conn_manager, list(engine.run_processes))
            except Exception as error:
                # Nothing depends on it, and another NVFlare may keep its records elsewhere.
                self.logger.debug("what has ended is not forgotten: %s", error)
            release_memory()
