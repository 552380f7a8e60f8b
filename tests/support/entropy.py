"""Bytes that sites make keys, masks and noise of: as good as the operating system's, and the same in each run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


class Entropy:
    """A source of bytes for each name; one that is asked for again, as by a site that restarts, goes on where it was."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._sources: dict[str, Callable[[int], bytes]] = {}

    def __call__(self, name: str) -> Callable[[int], bytes]:
        if name not in self._sources:
            self._sources[name] = np.random.default_rng([self._seed, *name.encode()]).bytes
        return self._sources[name]


def seeded(seed: int = 0) -> Callable[[int], bytes]:
    """One source, as for the keys of a federation that is set up."""
    return Entropy(seed)("keys")
