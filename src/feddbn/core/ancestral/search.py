"""The search for an ancestral graph: edges are removed where nodes turn out to be independent, marks put as they follow.

In the manner of LPCMCI (Gerhardus and Runge 2020): pairs are tested given all causes of theirs that are known, which makes
tests strong where series remember themselves; what a pass found out about causes, the next one begins with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.ancestral.independence import Independence
from feddbn.core.ancestral.marks import ARROW, NONE, TAIL, Marks, Separations, WindowGraph
from feddbn.core.ancestral.rules import orient, put_colliders
from feddbn.core.arrays import FloatArray

__all__ = ["FoundMarks", "SearchOptions", "search"]

# An arrowhead that rests on a new dependence needs more than the usual evidence: what it rests on was chosen among many.
_STRONGLY = 0.1


@dataclass(frozen=True)
class SearchOptions:
    """How to search.

    Attributes
    ----------
    alpha
        Pairs with a larger p-value are independent.
    n_passes
        How often all edges are looked at: each pass after the first begins anew, knowing the causes that were found.
    max_conditions
        Most nodes to condition on beyond known causes; None for no limit.
    max_subsets
        Most subsets of one size that are tried for a pair: those of the nodes that go most with it.
    """

    alpha: float = 0.01
    n_passes: int = 3
    max_conditions: int | None = None
    max_subsets: int = 2000


@dataclass(frozen=True, eq=False)
class FoundMarks:
    """What a search found.

    Attributes
    ----------
    marks
        (d, d, p+1) strings.
    values, p_values
        (d, d, p+1): the weakest partial correlation of each pair over all that was tried, and its p-value.
    n_tests
        How many partial correlations were looked at.
    """

    marks: Marks
    values: FloatArray
    p_values: FloatArray
    n_tests: int


def search(
    test: Independence, d: int, n_lags: int, options: SearchOptions, inputs: Sequence[int] = ()
) -> FoundMarks:
    """Learn the ancestral graph of d variables over a window of ``n_lags + 1`` moments; `test` knows ``2 n_lags`` lags.

    `inputs` are variables that only act on others: an edge with one of them is an effect of it.
    """
    run = _Run(test, WindowGraph.complete(d, n_lags, inputs), options, inputs)
    for _ in range(options.n_passes - 1):
        run.remove_edges()
        run.look_beyond()
        orient(run.graph, run.known, run.dependent, to_the_end=False)
        run.begin_again()
    run.remove_edges()
    run.remove_by_wider_sets()
    run.look_beyond()
    put_colliders(run.graph, run.known, run.dependent)
    orient(run.graph, run.known, run.dependent, to_the_end=True)
    return FoundMarks(run.graph.words(), run.known.values, run.known.p_values, run.n_tests)


class _Run:
    """A search under way."""

    def __init__(
        self, test: Independence, graph: WindowGraph, options: SearchOptions, inputs: Sequence[int]
    ) -> None:
        self.test, self.graph, self.options, self._inputs = test, graph, options, inputs
        self.known = Separations(graph)
        self.n_tests = 0
        self._p_values: dict[tuple[int, int, frozenset[int]], float] = {}
        self._tried: set[tuple[object, ...]] = set()

    def begin_again(self) -> None:
        """All edges are back; of what was found only causes are remembered."""
        old = self.graph
        self.graph = WindowGraph.complete(old.d, old.n_lags, self._inputs)
        self.known = Separations(self.graph)
        self._tried.clear()
        for y in range(old.d):
            for x in old.parents(y):
                self.graph.mark(x, y, ARROW)
                self.graph.mark(y, x, TAIL)

    def remove_edges(self, *, wider: bool = False) -> None:
        """Try larger and larger sets of conditions, and smaller ones again when new causes are known."""
        size, most = 0, self.options.max_conditions
        while most is None or size <= most:
            removed, largest = self._one_size(size, wider)
            if removed and self._new_causes():
                size = 0
            elif size >= largest:
                return
            else:
                size += 1

    def remove_by_wider_sets(self) -> None:
        """Try nodes that share no edge with a pair but may stand between them, as FCI does.

        Colliders limit where to look; their marks are taken back, for edges are not final before this.
        """
        before = self.graph.ends.copy()
        put_colliders(self.graph, self.known, self.dependent)
        orient(self.graph, self.known, self.dependent, to_the_end=False)
        self.remove_edges(wider=True)
        self.graph.ends[:] = np.where(self.graph.ends != NONE, before, NONE)

    def look_beyond(self) -> None:
        """Find what separates nodes that are more than p moments apart, if they have a neighbour in common."""
        graph = self.graph
        adjacent = graph.ends != NONE
        common = (adjacent.astype(np.float32) @ adjacent.astype(np.float32)) > 0
        for x, y in np.argwhere(common[graph.n_inside :, : graph.d]):
            self._separate(int(x) + graph.n_inside, int(y))

    def _separate(self, x: int, y: int) -> None:
        graph, most = self.graph, self.options.max_conditions
        always = sorted({*graph.parents(x), *graph.parents(y)} - {x, y})
        others = [a for a in graph.neighbours(y) if graph.ends[y, a] != ARROW and a not in always]
        for size in range(1 + (len(others) if most is None else min(most, len(others)))):
            sets = self._separating(x, y, always, others, size)
            if sets:
                self.known.keep(x, y, sorted(sets, key=lambda given: -sets[given]))
                return

    def _one_size(self, size: int, wider: bool) -> tuple[bool, int]:
        """Test all edges given sets of one size, then remove; say whether any was removed, and how large sets can be."""
        graph, separated, largest = self.graph, [], 0
        for x, y in graph.pairs():
            causes = {*graph.parents(x), *graph.parents(y)} - {x, y}
            always = sorted(a for a in causes if a < graph.n_inside)
            sets: dict[frozenset[int], float] = {}
            for others in self._candidates(x, y, always, wider):
                largest = max(largest, len(others))
                if len(others) >= size:
                    sets |= self._separating(x, y, always, others, size)
            if sets:
                separated.append((x, y, sorted(sets, key=lambda given: -sets[given])))
        for x, y, found in separated:
            self.known.keep(x, y, found)
            graph.remove(x, y)
        return bool(separated), largest

    def _separating(
        self, x: int, y: int, always: list[int], others: list[int], size: int
    ) -> dict[frozenset[int], float]:
        """Sets of a size that separate x from y, with their p-values."""
        trial = (x, y, size, tuple(always), tuple(others) if size else ())
        if trial in self._tried:
            return {}
        self._tried.add(trial)
        values, p_values, sets = self.test.subsets(x, y, always, others, size, self.options.max_subsets)
        self.n_tests += len(values)
        k = int(np.argmin(np.abs(values)))
        self.known.note(x, y, float(values[k]), float(p_values[k]))
        return {
            frozenset([*always, *sets[k].tolist()]): float(p_values[k])
            for k in np.flatnonzero(p_values > self.options.alpha)
        }

    def _candidates(self, x: int, y: int, always: list[int], wider: bool) -> list[list[int]]:
        """Sets whose subsets may separate x from y: around y and, if both are now, x; not around a cause of the other."""
        ends = self.graph.ends
        around = [(y, x)] if x >= self.graph.d else [(y, x), (x, y)]
        found = []
        for of, other in around:
            if ends[other, of] == TAIL:
                continue
            near = self._reachable(of, other) if wider else self.graph.neighbours(of)
            may_cause = [a for a in near if wider or ends[of, a] != ARROW]
            found.append([a for a in may_cause if a not in (x, y) and a not in always])
        return found

    def _reachable(self, of: int, other: int) -> list[int]:
        """Nodes at the end of paths from `of` on which every node may be a collider and a cause of one of the two."""
        graph = self.graph
        ends, reached = graph.ends, set()
        stack = [(of, a) for a in graph.neighbours(of) if a != other]
        visited = set(stack)
        while stack:
            before, node = stack.pop()
            if not self._may_cause(node, of, other):
                continue
            reached.add(node)
            for after in graph.neighbours(node):
                step = (node, after)
                if after in (before, of) or step in visited:
                    continue
                if (ends[before, node] == ARROW and ends[after, node] == ARROW) or ends[
                    before, after
                ] != NONE:
                    visited.add(step)
                    stack.append(step)
        return sorted(reached)

    def _may_cause(self, node: int, of: int, other: int) -> bool:
        """Whether a node within p moments may be a cause of one of two: not if it is later or marked otherwise for both."""
        ends, d = self.graph.ends, self.graph.d
        return node < self.graph.n_inside and any(
            node // d >= target // d and ends[target, node] != ARROW for target in (of, other)
        )

    def dependent(self, a: int, b: int, given: frozenset[int], strongly: bool = False) -> bool:
        """Whether a and b go together given others."""
        key = (min(a, b), max(a, b), given)
        if key not in self._p_values:
            self.n_tests += 1
            self._p_values[key] = self.test.one(a, b, sorted(given))[1]
        return self._p_values[key] <= self.options.alpha * (_STRONGLY if strongly else 1.0)

    def _new_causes(self) -> bool:
        """Put the marks that follow; say whether causes are known that were not."""
        before = self._n_causes()
        orient(self.graph, self.known, self.dependent, to_the_end=False)
        return self._n_causes() > before

    def _n_causes(self) -> int:
        ends = self.graph.ends
        return int(((ends == ARROW) & (ends.T == TAIL)).sum())
