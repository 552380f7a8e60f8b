"""Sites that are alike, read together: their rows along a leading axis.

A simulation may have very many small sites. Those with one recording of equally many rows, and nothing missing, are one
array (K, n, d); whatever makes sums of rows makes K of them at once. Nothing is added up over sites here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.designs.lagged import Block
from feddbn.core.designs.recordings import SiteData

__all__ = ["StackedSite", "leading_axes", "side_by_side", "stacks"]

_NUMBERS_TOGETHER = 1 << 19
_LEAST_TOGETHER = 16


@dataclass(frozen=True)
class StackedSite:
    """K sites of one recording each as one site: `values` (K, n, d), finite, and all at the same times."""

    variables: tuple[str, ...]
    values: FloatArray

    def recordings(self) -> Iterator[_StackedRecording]:
        """Yield the one recording."""
        yield _StackedRecording(self.values)


@dataclass(frozen=True)
class _StackedRecording:
    values: FloatArray
    name: str = "recordings of many sites"

    def blocks(self) -> Iterator[Block]:
        yield Block(self.values)


def leading_axes(data: SiteData) -> tuple[int, ...]:
    """The leading axes of whatever is made of a site's rows: (K,) for K sites together, () for a site."""
    return data.values.shape[:-2] if isinstance(data, StackedSite) else ()


def side_by_side(parts: Sequence[FloatArray], lead: tuple[int, ...]) -> FloatArray:
    """Vectors put together along the last axis; what all sites have in common is repeated for each."""
    return np.concatenate([np.broadcast_to(part, (*lead, part.shape[-1])) for part in parts], axis=-1)


def stacks(sites: Sequence[SiteData], q: int) -> Iterator[tuple[list[int], StackedSite]]:
    """Yield the sites that are alike, with their places among `sites`, as many at once as fit into a few megabytes.

    A site takes part if it offers its rows as one array (``one_array``) and no cell is empty. `q` is the number of columns
    whose products are to be made; where only few sites would fit, there is nothing to gain, and none take part.
    """
    groups: dict[tuple[tuple[str, ...], tuple[int, ...]], list[tuple[int, FloatArray]]] = {}
    for place, data in enumerate(sites):
        rows: FloatArray | None = getattr(data, "one_array", None)
        if rows is not None:
            groups.setdefault((tuple(data.variables), rows.shape), []).append((place, rows))
    for (variables, (n, _)), members in groups.items():
        size = _NUMBERS_TOGETHER // ((n + q) * q)
        if min(size, len(members)) < _LEAST_TOGETHER:
            continue
        for first in range(0, len(members), size):
            some = members[first : first + size]
            values = np.stack([rows for _, rows in some])
            whole: BoolArray = np.asarray(np.isfinite(values).all(axis=(1, 2)))
            places = [place for (place, _), is_whole in zip(some, whole.tolist(), strict=True) if is_whole]
            if places:
                yield places, StackedSite(variables, values if whole.all() else values[whole])
