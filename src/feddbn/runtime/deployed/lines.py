"""Files of lines that survive a crash.

A line is on disk when `append_lines` returns, and a site acts only after that. So half a line at the end of a file is about
something that did not happen: it is not read, and the next line takes its place.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO

__all__ = ["append_lines", "flush_directory", "for_owner", "whole_length", "whole_part"]


def for_owner(path: str, flags: int) -> int:
    """Open a file that only its owner reads; an `opener` of `open`."""
    return os.open(path, flags, 0o600)


def flush_directory(path: Path) -> None:
    """Have the names in a directory on disk."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def whole_part(content: bytes) -> bytes:
    """Return the content of a file without half a line at its end."""
    return content[: content.rfind(b"\n") + 1]


def whole_length(file: IO[bytes]) -> int:
    """Return the length of a file without half a line at its end; reads one byte if there is none."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 1, 0))
    if file.read(1) in (b"", b"\n"):
        return size
    file.seek(0)
    return len(whole_part(file.read()))


def _write_all(file: IO[bytes], content: bytes) -> None:
    # Without a buffer, which would try again to write what failed when the file is closed.
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def append_lines(path: Path, *lines: str) -> None:
    """Add lines to a file, new or not, in place of half a line at its end; they are on disk when the call returns.

    If that fails the file ends as before: what could not be written did not happen.
    """
    is_new = not path.exists()
    with open(path, "ab+", opener=for_owner, buffering=0) as file:
        end = whole_length(file)
        file.truncate(end)
        try:
            _write_all(file, b"".join(line.rstrip("\n").encode() + b"\n" for line in lines))
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(end)
            raise
    if is_new:
        flush_directory(path.parent)
