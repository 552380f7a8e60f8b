"""Times that are almost regular -> times on a grid, one recording at a time, batch by batch.

Whether two rows are neighbours is decided by their own distance, not by how far they are from the first row: a clock that
runs 0.1 % fast is regular, however long the recording is.
"""

from __future__ import annotations

import numpy as np

from feddbn.data.times import IntArray
from feddbn.errors import ParameterError

__all__ = ["DEFAULT_JITTER", "Grid", "check_jitter"]

DEFAULT_JITTER = 0.05


def check_jitter(jitter: float | None) -> float:
    """Return the share of the step by which a distance may be off; None is the default."""
    if jitter is None:
        return DEFAULT_JITTER
    is_number = isinstance(jitter, (int, float, np.integer, np.floating)) and not isinstance(jitter, bool)
    if not is_number or not 0 <= jitter < 0.5:
        raise ParameterError(
            f"jitter={jitter!r} must be a share of the step of at least 0 and less than 0.5, such as 0.1."
        )
    return float(jitter)


class Grid:
    """Moves the times of one recording to whole multiples of `step` after its first row."""

    def __init__(self, step: int | None, jitter: float) -> None:
        self._step = step
        self._jitter = jitter
        self._raw: int | None = None
        self._snapped = 0

    def snap(self, ticks: IntArray) -> IntArray:
        """Return the next times; what is too close, equal or earlier stays so and is refused later."""
        step = self._step
        if step is None or self._jitter == 0 or len(ticks) == 0:
            return ticks
        if self._raw is None:
            self._raw = self._snapped = int(ticks[0])
        steps = np.diff(np.concatenate([np.array([self._raw], dtype=np.int64), ticks]))
        near = np.abs(steps - step) <= self._jitter * step
        later = np.maximum(np.rint(steps / step), 2).astype(np.int64) * step
        moved = np.where(near, step, np.where(steps > step, later, steps))
        snapped = self._snapped + np.cumsum(moved)
        self._raw, self._snapped = int(ticks[-1]), int(snapped[-1])
        return np.asarray(snapped)
