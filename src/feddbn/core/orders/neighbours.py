"""Who touches whom in a network within an order: what a node meets while it travels through the order.

A node that passes another changes something only if the other could use it as a parent (to the left) or has it as one (to the
right), or the other way round. In a sparse network these are few, however many variables there are.
"""

from __future__ import annotations

from collections.abc import Sequence

from feddbn.core.orders.parent_sets import Columns, ParentSelection
from feddbn.core.orders.parents import Parents

__all__ = ["Neighbours"]


class Neighbours:
    """For each node, who has it as a parent and who could use it as one, kept up to date.

    Parameters
    ----------
    bits
        For each variable its columns within a moment.
    may_have
        For each node the columns that it may have as parents.

    Attributes
    ----------
    children
        For each node those that have it as a parent.
    wanted_by
        For each node those whose cost would fall with it as a further parent.
    """

    def __init__(self, bits: Sequence[Columns], may_have: Sequence[Columns]) -> None:
        d = len(bits)
        self._owner = {m: node for node, columns in enumerate(bits) for m in _members(columns)}
        self._within = [may & sum(bits) for may in may_have]
        self._selection: ParentSelection | None = None
        self._parents: list[Parents | None] = [None] * d
        self._holds: list[set[int]] = [set() for _ in range(d)]
        self._wants: list[set[int]] = [set() for _ in range(d)]
        self.children: list[set[int]] = [set() for _ in range(d)]
        self.wanted_by: list[set[int]] = [set() for _ in range(d)]

    def update(self, selection: ParentSelection, parents: Sequence[Parents]) -> None:
        """Make it those of a network; only what changed since the last time is looked at."""
        if selection is not self._selection:
            changed: Sequence[int] = range(len(parents))
        elif parents == self._parents:
            return
        else:
            changed = [
                j for j, pair in enumerate(zip(parents, self._parents, strict=True)) if pair[0] is not pair[1]
            ]
        self._selection, self._parents = selection, list(parents)
        for j in changed:
            _replace(j, self._holds, self.held(parents[j]), self.children)
            _replace(
                j,
                self._wants,
                self.owners(selection.moves(j, parents[j]).useful & self._within[j]),
                self.wanted_by,
            )

    def forget(self, node: int) -> None:
        """Look at a node again though its parents stay, as it looks at other columns."""
        self._parents[node] = None

    def around(self, node: int) -> set[int]:
        """Those that a node has, could use, is had or could be used by."""
        return self._holds[node] | self._wants[node] | self.children[node] | self.wanted_by[node]

    def held(self, parents: Parents) -> set[int]:
        """The variables that some parents within the moment belong to."""
        return {self._owner[m] for m in parents if m in self._owner}

    def usable(self, node: int, useful: Columns) -> set[int]:
        """The variables among some columns that a node may have as parents."""
        return self.owners(useful & self._within[node])

    def owners(self, columns: Columns) -> set[int]:
        """The variables that columns within the moment belong to."""
        return {self._owner[m] for m in _members(columns)}


def _replace(node: int, known: list[set[int]], now: set[int], inverse: list[set[int]]) -> None:
    for other in known[node] - now:
        inverse[other].discard(node)
    for other in now - known[node]:
        inverse[other].add(node)
    known[node] = now


def _members(columns: Columns) -> list[int]:
    found = []
    while columns:
        lowest = columns & -columns
        found.append(lowest.bit_length() - 1)
        columns ^= lowest
    return found
