"""Parts of NVFlare that studies never use, kept from being imported: it looks for all that is installed.

Every job asks for decomposers of tensors, which import torch where that is installed: 2 to 3 CPU seconds in the server's
and in each site's process of every study. A lead's session loads the drivers of all ways to connect, and uses one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["drivers_left_out", "leave_out_tensors"]

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
