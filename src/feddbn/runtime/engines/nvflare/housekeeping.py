"""What NVFlare imports or leaves behind and studies never need; importing this needs no engine.

*Imports.* NVFlare looks for all that is installed. Every job asks for decomposers of tensors, which import torch where
that is installed: 2 to 3 CPU seconds in the server's and in each site's process of every study. A lead's session loads
the drivers of all ways to connect, and uses one.

*Old jobs* are pruned by the same rule as runs. A site's kit collects one directory per job (configuration and logs), a
server's job store one directory per job with the files for download, and its transfer directory one per download. Old
ones are emptied at the start of the next study. The server's entries keep their small ``meta`` and ``scheduled`` files
while the server runs: NVFlare's scheduler looks at every entry once a second, and one that vanishes while it looks ends
the scheduler's thread, after which no study is ever started. `forget_jobs` removes the entries before the server
starts.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from feddbn.runtime.store import delete_directories, unchanged_directories

PROGRESS_TOPIC = "feddbn.progress"
_TENSORS = tuple(f"nvflare.app_opt.pt.{name}" for name in ("decomposers", "tensor_downloader"))

_DRIVERS = tuple(
    f"nvflare.fuel.f3.drivers.{name}"
    for name in ("aio_grpc_driver", "aio_http_driver", "grpc_driver", "grpc")
)


def leave_out_tensors() -> None:
    """Let importing what packs tensors fail as if it were not installed; what travels in a study are bytes."""
    _leave_out(_TENSORS)


@contextmanager
def drivers_left_out() -> Iterator[None]:
    """Do the same for drivers of connections that kits do not use, theirs are TCP, until the block ends."""
    left_out = _leave_out(_DRIVERS)
    try:
        yield
    finally:
        for name in left_out:
            if sys.modules.get(name, "") is None:
                del sys.modules[name]


def _leave_out(modules: tuple[str, ...]) -> list[str]:
    """Tell Python that these are not to be imported; those that have been stay, and the others are returned."""
    new = [name for name in modules if name not in sys.modules]
    for name in new:
        sys.modules[name] = None  # type: ignore[assignment]
    return new


JOBS = Path("store") / "jobs"

TRANSFER = "transfer"
_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_KEPT = ("meta", "scheduled")


def _old_jobs(root: Path, keep_days: float, keep: str, now: float | None) -> list[Path]:
    old = unchanged_directories(root, keep_days, now)
    return [path for path in old if _JOB.fullmatch(path.name) and path.name != keep]


def prune_site_jobs(kit: Path, keep_days: float, keep: str = "", now: float | None = None) -> list[str]:
    """Delete the job directories of a site's kit that have not changed for `keep_days` days; return their ids.

    Job `keep` stays whatever its age.
    """
    return delete_directories(_old_jobs(Path(kit), keep_days, keep, now))


def prune_job_results(kit: Path, keep_days: float, keep: str = "", now: float | None = None) -> list[str]:
    """Delete the files for download of a server's old jobs; return the ids of the jobs that had any.

    The entries themselves stay, see above; they have the age of their status.
    """
    pruned = []
    for path in _old_jobs(Path(kit) / JOBS, keep_days, keep, now):
        if not (path / "scheduled").exists():
            # Still waiting for its sites; the file that is sent to them is needed.
            continue
        large = [item for item in path.iterdir() if item.name not in _KEPT]
        for item in large:
            with contextlib.suppress(FileNotFoundError):
                item.unlink()
        if large:
            pruned.append(path.name)
    delete_directories(_old_jobs(Path(kit) / TRANSFER, keep_days, "", now))
    return pruned


def forget_jobs(kit: Path, keep_days: float, now: float | None = None) -> list[str]:
    """Delete a server's old jobs as a whole; only while the server does not run."""
    return delete_directories(_old_jobs(Path(kit) / JOBS, keep_days, "", now))
