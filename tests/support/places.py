"""Where tests keep what they write."""

import tempfile
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def quick_folder():
    """A folder in memory where there is such a place: nothing waits for a disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        yield Path(folder)
