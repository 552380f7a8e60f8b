"""Keep an NVFlare server's memory at what it uses; named in ``local/resources.json`` of its kit.

Most of what grows there is not in use. Every streamed message has a buffer of a megabyte in a cycle of references that
waits for the garbage collector's rare full pass; and when such buffers are freed, small blocks live between them, so that
the allocator keeps them: after a dozen studies 20 MB were free and held, 22 MB in use, as after six.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent

__all__ = ["LARGE_BYTES", "MemoryTidy", "keep_large_blocks_apart", "release_memory"]

LARGE_BYTES = 256 * 1024
# From glibc's malloc.h.
_M_MMAP_THRESHOLD = -3


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


class MemoryTidy(FLComponent):  # type: ignore[misc]
    """Sets the limit when the server starts, and releases memory after each job.

    Both events are told only in the process that outlives jobs.
    """

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Listen for the server's start and the end of jobs."""
        if event_type == EventType.SYSTEM_START:
            keep_large_blocks_apart()
        elif event_type == EventType.JOB_COMPLETED:
            release_memory()
