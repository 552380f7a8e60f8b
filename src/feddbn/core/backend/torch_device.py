"""Torch as a device: double precision on a GPU, or on the CPU for tests, and how a user names one.

The only file that imports torch, and only once a GPU is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.backend.device import DEVICES, HOST, WORTH_STARTING, Device, Host, pays
from feddbn.errors import MissingExtra, ParameterError
from feddbn.settings import word


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch", "gpu") from None
    return torch


class TorchDevice:
    """Arrays of torch in double precision.

    Parameters
    ----------
    where
        Torch's name of the place: "cuda" or "cpu".
    takes_all
        Whether work goes there however small it is; for tests and measurements.
    """

    def __init__(self, where: str, *, takes_all: bool = False) -> None:
        self.name = where
        self.xp: Any = _torch()
        self._takes_all = takes_all

    def __reduce__(self) -> Any:
        return partial(TorchDevice, self.name, takes_all=self._takes_all), ()

    def of(self, flops: float, n_bytes: float, times: float = 1.0) -> Device:
        """Return itself for work that pays, else numpy; who named the device has counted what it takes to start."""
        return self if self._takes_all or pays(flops, n_bytes) else HOST

    def put(self, array: FloatArray) -> Any:
        """Return a tensor on the device; never one that shares memory with `array`."""
        given = np.ascontiguousarray(array)
        if not given.flags.writeable:
            # Torch warns of arrays that it could not write to.
            given = given.copy()
        tensor = self.xp.from_numpy(given)
        return tensor.clone() if self.name == "cpu" else tensor.to(self.name)

    def get(self, array: Any) -> FloatArray:
        """Return an array of numpy."""
        return np.asarray(array.cpu().numpy())

    def empty(self, shape: Sequence[int]) -> Any:
        """Return a tensor that nothing was written to."""
        return self.xp.empty(tuple(shape), dtype=self.xp.float64, device=self.name)


def open_gpu() -> TorchDevice:
    """Return the GPU; an error says whether torch or the GPU is missing."""
    device = TorchDevice("cuda")
    if not device.xp.cuda.is_available():
        raise ParameterError(
            "device='cuda' needs a GPU, and torch finds none here; use device='auto', which goes without, or 'cpu'."
        )
    return device


class AutoDevice(Host):
    """Numpy, and a GPU for work that pays if torch finds one; torch is not even imported before such work comes."""

    name = "auto"

    def __init__(self) -> None:
        self._found: Device | None = None

    def __reduce__(self) -> Any:
        # Another process looks for a GPU of its own.
        return AutoDevice, ()

    def of(self, flops: float, n_bytes: float, times: float = 1.0) -> Device:
        """Return the GPU if there is one and the work pays, else numpy."""
        if not (pays(flops, n_bytes) and times * flops >= WORTH_STARTING):
            return HOST
        if self._found is None:
            try:
                self._found = open_device("cuda")
            except (MissingExtra, ParameterError):
                self._found = HOST
        return self._found


def open_device(name: str) -> Device:
    """Return the device that a user named; the sentence of an error says what is missing."""
    word(*DEVICES).check("device", name)
    if name == "cpu":
        return HOST
    if name == "auto":
        return AutoDevice()
    return open_gpu()
