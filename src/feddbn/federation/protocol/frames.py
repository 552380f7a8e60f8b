"""Records one after the other in a file that only grows, each behind its length."""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["framed", "frames"]


def framed(record: bytes) -> bytes:
    """Return a record as it is written."""
    return struct.pack("<Q", len(record)) + record


def frames(stored: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield where each record begins and the record; one that is cut short at the end is left out."""
    offset = 0
    while offset + 8 <= len(stored):
        (length,) = struct.unpack_from("<Q", stored, offset)
        end = offset + 8 + length
        if end > len(stored):
            return
        yield offset, stored[offset + 8 : end]
        offset = end
