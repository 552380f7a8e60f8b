"""Devices: who multiplies large matrices, and which work is worth carrying to them.

Theory of operation
-------------------
A device is an argument, never a global: a site has one, a server's program has one, and neither travels, since it says
where sums are made and not which. It takes double-precision arrays of numpy and gives such arrays back, so nothing but the
few functions that are worth it knows of devices:

    on = device.of(flops, n_bytes, times)   # the device itself if the work pays, else numpy
    X = on.put(array); Y = on.get(X @ X)    # numpy and torch share operators, slices, `matmul` and `multiply`

Work pays if a call is long and every byte that is carried is used often enough. "auto" also asks whether a fit has so
much of it that the seconds torch and a GPU take to start are worth it. All other work stays with numpy, to the bit what
it is without a GPU. The limits were measured (docs/performance.md).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from threadpoolctl import ThreadpoolController

from feddbn.core.arrays import FloatArray

DEVICES = ("cpu", "auto", "cuda")
"""What a user may say: numpy; a GPU where torch finds one, else numpy; a GPU, or an error."""

_LEAST_FLOPS = 5e7
"""Operations of one call from which a GPU is quicker than one core: some two milliseconds of it."""
_LEAST_FLOPS_PER_BYTE = 20.0
"""Below it, one core multiplies about as fast as the bytes travel."""
WORTH_STARTING = 2e11
"""Operations that take one core as long as torch and a GPU take to start: some six seconds."""


class Device(Protocol):
    """Something that computes with arrays of its own."""

    name: str
    xp: Any

    def of(self, flops: float, n_bytes: float, times: float = 1.0) -> Device:
        """Return where work of so many operations on so many bytes is done best; a fit does it `times`."""
        ...

    def put(self, array: FloatArray) -> Any:
        """Return an array of the device."""
        ...

    def get(self, array: Any) -> FloatArray:
        """Return an array of numpy."""
        ...

    def empty(self, shape: Sequence[int]) -> Any:
        """Return an array of the device that nothing was written to."""
        ...


class Host:
    """Numpy, which has nothing to carry."""

    name = "cpu"
    xp: Any = np

    def __reduce__(self) -> Any:
        # Sent to another process, numpy is that process's own: there is one `HOST` everywhere.
        return "HOST"

    def of(self, flops: float, n_bytes: float, times: float = 1.0) -> Device:
        """Return itself: there is no other device."""
        return self

    def put(self, array: FloatArray) -> FloatArray:
        """Return the array itself."""
        return array

    def get(self, array: Any) -> FloatArray:
        """Return the array itself."""
        return np.asarray(array)

    def empty(self, shape: Sequence[int]) -> FloatArray:
        """Return an array that nothing was written to."""
        return np.empty(tuple(shape))


HOST: Device = Host()


def pays(flops: float, n_bytes: float) -> bool:
    """Whether work is long enough, and uses what is carried often enough, for a GPU."""
    return flops >= max(_LEAST_FLOPS, _LEAST_FLOPS_PER_BYTE * n_bytes)


def product(A: FloatArray, B: FloatArray, device: Device = HOST, times: float = 1.0) -> FloatArray:
    """Return ``A @ B`` of two matrices; a fit does it `times`."""
    flops = 2.0 * A.size * B.shape[1]
    chosen = device.of(flops, 8.0 * (A.size + B.size + len(A) * B.shape[1]), times)
    return chosen.get(chosen.put(A) @ chosen.put(B))


def one_thread() -> AbstractContextManager[object]:
    """Return a context in which linear algebra uses one thread."""
    limit: AbstractContextManager[object] = _libraries(len(sys.modules)).limit(limits=1)
    return limit


@functools.lru_cache(maxsize=1)
def _libraries(n_modules: int) -> ThreadpoolController:
    """The thread pools of this process. Looking for them takes milliseconds, so it is done when a module was added."""
    return ThreadpoolController()
