"""Forward-backward selection of one node's parents among the columns it may have.

Theory of operation: what can be gained by one column more or less depends on the node, its parents and the
objective, not on which columns are candidates. So the few useful moves of every set are listed once, best
first, and a selection among any candidates is a walk along these lists: while orders are searched, nearly all
selections need no algebra. Sets of columns are integers, bit m for column m.

A move is made only if the cost really falls: near-collinear columns promise what rounding cannot keep. So no set
comes twice and every selection ends.

Known weakness: forward-backward selection with exchanges is greedy; it can miss a pair of parents that only
help together.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from feddbn.core.arrays import BoolArray, IntArray
from feddbn.core.orders.parents import Objective, ParentRegressions, Parents

__all__ = ["Columns", "Moves", "ParentSelection", "columns_of"]

Columns = int
"""A set of columns: bit m is set if column m belongs to it."""

_IMPROVEMENT = 1e-9
_MOST_REMEMBERED = 200_000
_MOST_OF_A_NODE = 100
"""The same for each of many nodes: what is remembered of one does not depend on how many others there are."""


def columns_of(members: BoolArray) -> Columns:
    """The set of the columns marked True."""
    return int.from_bytes(np.packbits(members, bitorder="little").tobytes(), "little")


class Moves(NamedTuple):
    """What one set of parents costs a node, and which single changes would lower that.

    Attributes
    ----------
    cost
        Data term plus the price of the parents.
    columns, changes
        The columns whose addition lowers the cost and by how much it changes, the largest improvement first.
    drops
        ``(column, change of the cost)``, likewise.
    useful
        `columns` as a set.
    """

    cost: float
    columns: array[int]
    changes: array[float]
    drops: list[tuple[int, float]]
    useful: Columns

    @property
    def additions(self) -> Iterable[tuple[int, float]]:
        """Pairs of `columns` and `changes`."""
        return zip(self.columns, self.changes, strict=True)


class ParentSelection:
    """Selections under one objective.

    Parameters
    ----------
    regressions
        Fits of nodes on columns.
    objective
        What a fit costs.
    required
        For each node the columns that always stay.
    """

    def __init__(
        self, regressions: ParentRegressions, objective: Objective, required: Sequence[Parents]
    ) -> None:
        self.regressions, self.objective, self.required = regressions, objective, required
        self._max_parents = regressions.max_parents
        n_nodes = max(len(required), 1)
        self._most_remembered = (
            _MOST_OF_A_NODE if regressions.is_screened else max(_MOST_REMEMBERED // n_nodes, 1)
        )
        self._moves: list[dict[Parents, Moves]] = [{} for _ in required]
        self._selected: list[dict[tuple[Parents, Columns], tuple[Parents, float]]] = [{} for _ in required]

    def forget(self, node: int) -> None:
        """Select a node's parents anew, as it looks at other columns."""
        self._moves[node].clear()
        self._selected[node].clear()

    def moves(self, node: int, parents: Parents) -> Moves:
        """Return the cost of a set of parents and the changes that lower it."""
        known = self._moves[node]
        found = known.get(parents)
        if found is None:
            if len(known) >= self._most_remembered:
                known.clear()
            found = known[parents] = self._compute(node, parents)
        return found

    def _compute(self, node: int, parents: Parents) -> Moves:
        fit = self.regressions.fit(node, parents)
        additions, gained = _NO_COLUMNS, _NO_CHANGES
        drops: list[tuple[int, float]] = []
        useful: Columns = 0
        if len(parents) < self._max_parents:
            deltas = self.objective.add_deltas(node, fit)
            columns = (deltas < -_IMPROVEMENT).nonzero()[0]
            if len(columns):
                deltas = deltas[columns]
                if fit.columns is not None:
                    columns = fit.columns[columns]
                best_first = deltas.argsort(kind="stable")
                additions = array("i", columns[best_first].astype(np.int32).tobytes())
                gained = array("d", deltas[best_first].tobytes())
                useful = _set_of(columns)
        if parents:
            changes = self.objective.drop_deltas(node, fit, parents)
            if min(changes) < -_IMPROVEMENT:
                drops = _best_first(parents, changes)
        return Moves(self.objective.cost(node, fit, parents), additions, gained, drops, useful)

    def select(
        self, node: int, start: Parents, candidates: Columns, exchange: bool = False
    ) -> tuple[Parents, float]:
        """Return a set of parents that no single addition, removal (or exchange) improves, and its cost.

        Parameters
        ----------
        start
            Where the search begins; columns that are neither candidates nor required leave first.
        candidates
            Which columns may be parents.
        exchange
            Also try to replace one parent by another.
        """
        if exchange:
            return self._search(node, start, candidates, True)
        if self.regressions.is_screened:
            # What is not looked at changes nothing.
            candidates &= self.regressions.column_set(node)
        known, key = self._selected[node], (start, candidates)
        found = known.get(key)
        if found is None:
            if len(known) >= self._most_remembered:
                known.clear()
            found = known[key] = self._search(node, start, candidates, False)
        return found

    def _search(
        self, node: int, start: Parents, candidates: Columns, exchange: bool
    ) -> tuple[Parents, float]:
        fixed = self.required[node]
        parents = tuple(sorted({m for m in start if candidates >> m & 1} | set(fixed)))
        moves = self.moves(node, parents)
        refused: Columns = 0
        while True:
            best, move = -_IMPROVEMENT, -1
            open_to_it = moves.useful & candidates & ~refused
            if open_to_it:
                best, move = next((change, m) for m, change in moves.additions if open_to_it >> m & 1)
            for m, delta in moves.drops:
                if delta >= best:
                    break
                if m not in fixed and not refused >> m & 1:
                    best, move = delta, m
                    break
            if move >= 0:
                changed = _toggled(parents, move)
                there = self.moves(node, changed)
                if there.cost < moves.cost:
                    parents, moves = changed, there
                else:
                    refused |= 1 << move
                continue
            if exchange:
                better = self._exchanged(node, parents, moves.cost, candidates)
                if better is not None:
                    parents, moves = better, self.moves(node, better)
                    continue
            return parents, moves.cost

    def _exchanged(self, node: int, parents: Parents, now: float, candidates: Columns) -> Parents | None:
        """The best replacement of one parent; a parent's removal alone improves nothing, so that only the
        useful additions to what is left come into question.
        """
        found: list[tuple[float, Parents]] = []
        for m in parents:
            if m in self.required[node]:
                continue
            rest = tuple(k for k in parents if k != m)
            without = self.moves(node, rest)
            if not without.useful & candidates & ~(1 << m):
                continue
            for k, delta in without.additions:
                if k != m and candidates >> k & 1:
                    change = without.cost + delta - now
                    if change < -1e-7:
                        found.append((change, tuple(sorted((*rest, k)))))
                    break
        found.sort(key=lambda one: one[0])
        return next((better for _, better in found if self.moves(node, better).cost < now), None)


_NO_COLUMNS, _NO_CHANGES = array("i"), array("d")


def _set_of(columns: IntArray) -> Columns:
    members = np.zeros(int(columns[-1]) + 1, dtype=bool)
    members[columns] = True
    return columns_of(members)


def _best_first(columns: Sequence[int], deltas: Sequence[float]) -> list[tuple[int, float]]:
    pairs = sorted(zip(deltas, columns, strict=True))
    return [(m, delta) for delta, m in pairs if delta < -_IMPROVEMENT]


def _toggled(parents: Parents, column: int) -> Parents:
    if column in parents:
        return tuple(m for m in parents if m != column)
    return tuple(sorted((*parents, column)))
