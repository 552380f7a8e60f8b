"""The moves of a search over orders: a node is taken out of the order and inserted elsewhere.

While a node travels, only its own parents and those of the node it passes can change, so the cost of all its insertions is
found in one pass over the order; a node that would neither lose a parent nor gain a useful one is passed without any algebra.
"""

from __future__ import annotations

import numpy as np

from feddbn.core.orders.ordered_network import OrderedNetwork
from feddbn.core.orders.parents import Parents
from feddbn.core.orders.screening import MANY_NODES

__all__ = ["HOPELESS", "Insertions"]

HOPELESS = 100.0
"""Score difference after an exchange from which moves of the nodes around never led back to what would count
as undecided (d = 50, n = 1000, equal and free variances: 143 of 428 exchanges)."""


class Insertions(OrderedNetwork):
    """A network within an order whose nodes can be moved."""

    @property
    def _barrier(self) -> float:
        """Above what change of the cost a node of many does not travel on: one by which exchanges are hopeless."""
        return HOPELESS * max(1.0, self.n / 1000) if self.d > MANY_NODES else np.inf

    @property
    def _barrier_beyond(self) -> float:
        """The same for a node that has passed another to exchange the two."""
        return HOPELESS if self.d > MANY_NODES else np.inf

    def _insert_best(self, node: int) -> bool:
        """Move `node` to its best place; whether that improved the cost."""
        here = self.order.index(node)
        best: tuple[float, int, dict[int, Parents]] = (-1e-7, here, {})
        for step in (-1, 1):
            found = self._scan(node, here, step)
            if found[0] < best[0]:
                best = found
        _, place, changes = best
        if place == here:
            return False
        self._apply(node, here, place, changes)
        return True

    def _scan(
        self, node: int, here: int, step: int, past: int | None = None
    ) -> tuple[float, int, dict[int, Parents]]:
        """Cost change, place and new parents of the best insertion of `node` to the left or to the right.

        With `past`, only places that far or farther count, and the change may be for the worse.
        """
        select, rank, order = self.selection.select, self._rank, self.order
        self._neighbours.update(self.selection, self.parents)
        near = self._neighbours
        own = self.parents[node]
        own_start = own_cost = self._moves(node).cost
        others = 0.0
        changes: dict[int, Parents] = {}
        best: tuple[float, int, dict[int, Parents]] = (0.0 if past is None else np.inf, here, {})
        # What would gain this node as a candidate and could use it, or would lose it and has it as a parent.
        met = near.wanted_by[node] if step < 0 else near.children[node]
        end = self._farthest(node, step)
        touched = {rank[j] for j in met}
        stops = touched if past is None else touched | {past}
        waiting = sorted(
            (place for place in stops if 0 < (place - here) * step <= (end - here) * step), key=step.__mul__
        )
        own_places = self._own_places(node, own, step)
        barrier = self._barrier if past is None else self._barrier_beyond
        place, at = here, 0
        while True:
            ahead = [other for other in own_places if 0 < (other - place) * step <= (end - place) * step]
            following = min(ahead, key=step.__mul__, default=None)
            while at < len(waiting) and (waiting[at] - place) * step <= 0:
                at += 1
            if at < len(waiting) and (following is None or (waiting[at] - following) * step < 0):
                following = waiting[at]
            if following is None:
                return best
            place = following
            passed = order[place]
            if place in own_places:
                before = self._before[passed] | (self._bits[passed] if step > 0 else 0)
                candidates = self._may_have[node] & ((before & ~self._bits[node]) | self._lags)
                own, own_cost = select(node, own, candidates)
                own_places = self._own_places(node, own, step)
            if place in touched:
                # The passed node gains or loses this one as a candidate.
                other = self._candidates(passed) ^ (self._may_have[passed] & self._bits[node])
                parents, cost = select(passed, self.parents[passed], other)
                others += cost - self._moves(passed).cost
                changes[passed] = parents
            if past is not None and (place - past) * step < 0:
                continue
            total = own_cost - own_start + others
            if total < best[0] - 1e-9:
                best = (total, place, {**changes, node: own})
            elif total > best[0] + barrier:
                return best

    def _own_places(self, node: int, parents: Parents, step: int) -> set[int]:
        """Where a node with these parents would lose one of them (to the left), or meet one that it could use."""
        if step < 0:
            met = self._neighbours.held(parents)
        else:
            met = self._neighbours.usable(node, self.selection.moves(node, parents).useful)
        return {self._rank[j] for j in met}

    def _farthest(self, node: int, step: int) -> int:
        """The last place that a node may have to the left or to the right: required edges keep their direction."""
        if step < 0:
            must = self._must_follow[node]
            return 1 + max((self._rank[j] for j in range(self.d) if must >> j & 1), default=-1) if must else 0
        after = [self._rank[j] for j in self._bound if self._must_follow[j] >> node & 1]
        return min(after, default=self.d) - 1

    def _apply(self, node: int, here: int, place: int, changes: dict[int, Parents]) -> None:
        self.order.pop(here)
        self.order.insert(place, node)
        self._place_all(self.order)
        for j, parents in changes.items():
            self.parents[j] = parents
        self._moved.update((node, *changes))
