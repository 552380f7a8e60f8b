"""The search for an ancestral graph: edges are removed where nodes turn out to be independent, marks put as they follow.

Marks follow from marks and separations (Zhang 2008: R0 to R4 and R8 to R10, for graphs without selection).

Every rule is used in a form that does not need its edges to be final: a node without which two others are not separated
is a cause of one of the two; a node that undoes their separation is a cause of neither. So marks may be put while edges
are still being removed, and a rule may look at nodes that are further apart than edges reach.

In the manner of LPCMCI (Gerhardus and Runge 2020): pairs are tested given all causes of theirs that are known, which
makes tests strong where series remember themselves; what a pass found out about causes, the next one begins with.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Protocol

import numpy as np
from scipy.special import stdtr

from feddbn.core.ancestral.marks import ARROW, CIRCLE, NONE, TAIL, Marks, Separations, WindowGraph
from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.statistics.moments import Moments, correlations
from feddbn.errors import ParameterError

Answers = tuple[FloatArray, FloatArray, IntArray]
"""Partial correlations, their p-values, and the sets (rows of nodes) they are given, beyond those that are always given."""
_SMALLEST = 1e-12


class PartialCorrelations:
    """Partial correlations with Student's t test.

    Parameters
    ----------
    correlation
        (N, N) correlations of the nodes.
    n
        Number of rows, or what they are worth.
    """

    def __init__(self, correlation: FloatArray, n: float) -> None:
        self.correlation, self.n = correlation, float(n)

    def subsets(
        self, x: int, y: int, always: Sequence[int], others: Sequence[int], size: int, most: int
    ) -> Answers:
        """Test x against y given `always` and each subset of `others` of a size.

        At most `most` subsets: `others` are taken by how strongly they go with x and y.
        """
        others = others if size else ()
        left = self._given([x, y, *others], always)
        if size == 0:
            chosen = np.zeros((1, 0), dtype=np.int64)
            both = left[None, :2, :2]
        else:
            order = 2 + np.argsort(-_strengths(left), kind="stable")
            while len(order) > size and comb(len(order), size) > most:
                order = order[:-1]
            chosen = order[_places(len(order), size)]
            index = np.concatenate([np.broadcast_to([0, 1], (len(chosen), 2)), chosen], axis=1)
            both = _remaining(left[index[:, :, None], index[:, None, :]])
        values = _coefficients(both)
        nodes = np.asarray([x, y, *others], dtype=np.int64)
        return values, self._p_values(values, len(always) + size), nodes[chosen]

    def one(self, x: int, y: int, given: Sequence[int]) -> tuple[float, float]:
        """Partial correlation of x and y given others, and its p-value."""
        values = _coefficients(self._given([x, y], given)[None, :2, :2])
        return float(values[0]), float(self._p_values(values, len(given))[0])

    def _given(self, nodes: Sequence[int], always: Sequence[int]) -> FloatArray:
        """Covariances of nodes after others are taken off."""
        R = self.correlation
        own: FloatArray = R[np.ix_(nodes, nodes)]
        if not len(always):
            return own
        across = R[np.ix_(always, nodes)]
        inner = R[np.ix_(always, always)]
        try:
            taken = np.linalg.solve(inner, across)
        except np.linalg.LinAlgError:
            taken = np.linalg.lstsq(inner, across, rcond=None)[0]
        return np.asarray(own - across.T @ taken)

    def _p_values(self, values: FloatArray, n_given: int) -> FloatArray:
        """Two-sided p-values; 1 without degrees of freedom, which shows nothing."""
        freedom = self.n - n_given - 2.0
        if freedom < 1.0:
            return np.ones_like(values)
        size = np.minimum(np.abs(values), 1.0)
        with np.errstate(divide="ignore"):
            t = size * np.sqrt(freedom / np.maximum(1.0 - size * size, 0.0))
        return np.asarray(2.0 * stdtr(freedom, -t))


def _strengths(left: FloatArray) -> FloatArray:
    """How much of x or of y each other node takes away."""
    own = np.maximum(np.diag(left), _SMALLEST)
    shares = left[:2, 2:] ** 2 / np.outer(own[:2], own[2:])
    return np.asarray(shares.max(axis=0))


@functools.lru_cache(maxsize=256)
def _places(n: int, size: int) -> IntArray:
    """All subsets of a size of n places."""
    return np.array(list(combinations(range(n), size)), dtype=np.int64).reshape(-1, size)


def _remaining(blocks: FloatArray) -> FloatArray:
    """(m, 2, 2) covariances of the first two of each block given its others."""
    across, inner = blocks[:, 2:, :2], blocks[:, 2:, 2:]
    size = inner.shape[1]
    # A condition that follows from others adds nothing: a grain of noise keeps the matrix invertible.
    inner = inner + _SMALLEST * np.eye(size)
    return np.asarray(blocks[:, :2, :2] - np.swapaxes(across, 1, 2) @ np.linalg.solve(inner, across))


def _coefficients(both: FloatArray) -> FloatArray:
    """Correlations of (m, 2, 2) covariances of standardised nodes; 0 where one of the two follows from the conditions."""
    own = np.minimum(both[:, 0, 0], both[:, 1, 1])
    size = np.sqrt(np.maximum(both[:, 0, 0] * both[:, 1, 1], 0.0))
    found = np.divide(both[:, 0, 1], size, out=np.zeros(len(both)), where=own > 1e-10)
    return np.asarray(np.clip(found, -1.0, 1.0))


_LONGEST_PATH = 6


class Dependent(Protocol):
    """Whether two nodes go together given others; `strongly` asks for more evidence."""

    def __call__(self, a: int, b: int, given: frozenset[int], strongly: bool = False) -> bool:
        """Return the answer."""
        ...


def put_colliders(graph: WindowGraph, known: Separations, dependent: Dependent) -> bool:
    """R0: arrowheads at b of ``a *-* b *-* c`` if a and c are separated, but not if b is given, too; whether any is new.

    Most sets that separate them must be without b. All are found before any is put, so that no order of the variables
    matters.
    """
    found: list[tuple[int, int]] = []
    ends = graph.ends
    for b in range(len(ends)):
        for a, c in _apart(graph, b):
            if TAIL in (ends[a, b], ends[c, b]) or ends[a, b] == ends[c, b] == ARROW:
                continue
            if _collide(known, dependent, a, b, c):
                found += [(a, b), (c, b)]
    return sum(graph.mark(a, b, ARROW) for a, b in found) > 0


def orient(graph: WindowGraph, known: Separations, dependent: Dependent, *, to_the_end: bool) -> bool:
    """Apply R1, R2, R3 and R8 until nothing changes, with `to_the_end` R4, R9 and R10, too; say whether anything changed."""
    changed = False
    while True:
        news = any([_r1(graph, known, dependent), _r2(graph), _r3(graph, known), _r8(graph)])
        if not news and to_the_end:
            news = any([_r4(graph, known), _r9(graph, known), _r10(graph, known)])
        if not news:
            return changed
        changed = True


def _apart(graph: WindowGraph, b: int) -> Iterator[tuple[int, int]]:
    """Pairs of neighbours of b that share no edge, where one of the three is now."""
    near = np.flatnonzero(graph.ends[b])
    for k, m in np.argwhere(np.triu(graph.ends[np.ix_(near, near)] == NONE, 1)):
        if min(near[k], b) < graph.d:
            yield int(near[k]), int(near[m])


def _collide(known: Separations, dependent: Dependent, a: int, b: int, c: int) -> bool:
    """Whether b is a cause of neither a nor c: they are separated, but not if b is given, which goes with both."""
    separation = known.between(a, c)
    if separation is None:
        return False
    given, moved = separation
    a_now, b_now, c_now = a - moved, b - moved, c - moved
    return (
        b_now >= 0
        and b_now not in given
        and known.share(a, c, b) < 0.5
        and dependent(a_now, c_now, given | {b_now}, strongly=True)
        and dependent(a_now, b_now, given)
        and dependent(b_now, c_now, given)
    )


def _r1(graph: WindowGraph, known: Separations, dependent: Dependent) -> bool:
    """``a *-> b o-* c``, and a and c are separated, mostly by sets with b, but not without it: b is a cause of c."""
    ends, changed = graph.ends, False
    for c, b in np.argwhere(ends == CIRCLE).tolist():
        # All shifts of a pair are there; those suffice in which one of the three can be now.
        apart = (ends[:, b] == ARROW) & (ends[:, c] == NONE)
        for a in np.flatnonzero(apart).tolist():
            if a == c or min(a, b, c) >= graph.d or ends[c, b] != CIRCLE:
                continue
            separation = known.between(a, c)
            if separation is None:
                continue
            given, moved = separation
            if (
                b - moved in given
                and known.holds(a, c, b)
                and dependent(a - moved, c - moved, given - {b - moved})
                and not _is_denied(graph, known, dependent, b, c)
            ):
                changed |= _cause(graph, b, c)
    return changed


def _is_denied(graph: WindowGraph, known: Separations, dependent: Dependent, b: int, c: int) -> bool:
    """Whether some other neighbour of b shows that b is no cause of c: then the data contradict each other."""
    apart = (graph.ends[:, b] != NONE) & (graph.ends[:, c] == NONE)
    return any(a != c and _collide(known, dependent, a, b, c) for a in np.flatnonzero(apart).tolist())


def _r2(graph: WindowGraph) -> bool:
    """``a --> b *-> c`` or ``a *-> b --> c``, and ``a *-o c``: c is no cause of a."""
    heads, causes = (graph.ends == ARROW).astype(np.float32), _causes(graph)
    follows = (graph.ends == CIRCLE) & ((causes @ heads + heads @ causes) > 0)
    return sum(graph.mark(a, c, ARROW) for a, c in np.argwhere(follows).tolist()) > 0


def _r8(graph: WindowGraph) -> bool:
    """``a --> b --> c`` and ``a o-* c``: a is a cause of c."""
    causes = _causes(graph)
    follows = (graph.ends.T == CIRCLE) & ((causes @ causes) > 0)
    return sum(_cause(graph, a, c) for a, c in np.argwhere(follows).tolist()) > 0


def _r3(graph: WindowGraph, known: Separations) -> bool:
    """``a *-> b <-* c``, d among what separates a from c, ``d *-o b``: b is no cause of d."""
    ends, changed = graph.ends, False
    for e, b in np.argwhere(ends == CIRCLE).tolist():
        into = np.flatnonzero((ends[:, b] == ARROW) & (ends[e] != NONE))
        if ends[e, b] != CIRCLE or len(into) < 2:
            continue
        for k, m in np.argwhere(np.triu(ends[np.ix_(into, into)] == NONE, 1)).tolist():
            if known.holds(int(into[k]), int(into[m]), e):
                changed |= graph.mark(e, b, ARROW)
    return changed


def _causes(graph: WindowGraph) -> np.ndarray:
    return np.asarray((graph.ends == ARROW) & (graph.ends.T == TAIL), dtype=np.float32)


def _r4(graph: WindowGraph, known: Separations) -> bool:
    """Discriminating paths ``e *-> q <-> ... <-> b o-* c``, all q causes of c, e and c separated.

    If b is among what separates e from c it is a cause of c, else a collider.
    """
    ends, changed = graph.ends, False
    for q, b, c in _collider_triples(graph):
        if ends[c, b] != CIRCLE:
            continue
        start = _discriminated_by(graph, known, q, b, c)
        if start is None:
            continue
        if known.holds(start, c, b):
            changed |= _cause(graph, b, c)
        else:
            changed |= any([graph.mark(c, b, ARROW), graph.mark(q, b, ARROW), graph.mark(b, c, ARROW)])
    return changed


def _collider_triples(graph: WindowGraph) -> list[tuple[int, int, int]]:
    """q, b, c with ``q <-* b o-* c`` and ``q --> c``."""
    ends = graph.ends
    return [
        (q, b, c)
        for c, b in np.argwhere(ends == CIRCLE).tolist()
        for q in graph.parents(c)
        if ends[b, q] == ARROW
    ]


def _discriminated_by(graph: WindowGraph, known: Separations, q: int, b: int, c: int) -> int | None:
    """The far end of a discriminating path that ends in q, b, c."""
    ends = graph.ends
    paths: list[tuple[int, ...]] = [(q,)]
    while paths:
        path = paths.pop(0)
        last = path[-1]
        for e in graph.neighbours(last):
            if e in path or e in (b, c) or ends[e, last] != ARROW:
                continue
            if ends[e, c] == NONE and known.between(e, c) is not None:
                return e
            is_parent = ends[e, c] == ARROW and ends[c, e] == TAIL
            if len(path) < _LONGEST_PATH and ends[last, e] == ARROW and is_parent:
                paths.append((*path, e))
    return None


def _r9(graph: WindowGraph, known: Separations) -> bool:
    """``a o-> c`` and an uncovered path from a to c that may point to c, whose second node has no edge with c."""
    ends, changed = graph.ends, False
    for c, a in _open_causes(graph):
        for b in graph.neighbours(a):
            if b == c or ends[b, c] != NONE or not _may_point(graph, a, b) or not known.holds(c, b, a):
                continue
            if _uncovered(graph, known, (a, b), c):
                changed |= _cause(graph, a, c)
                break
    return changed


def _r10(graph: WindowGraph, known: Separations) -> bool:
    """``a o-> c``, two causes of c at the ends of uncovered paths from a, which leave a in directions that are separated."""
    changed = False
    for c, a in _open_causes(graph):
        into = [b for b in graph.parents(c) if b != a]
        firsts: dict[int, set[int]] = {}
        for m in graph.neighbours(a):
            if m != c and _may_point(graph, a, m):
                firsts[m] = {b for b in into if b == m or _uncovered(graph, known, (a, m), b)}
        names = list(firsts)
        if any(
            len(firsts[m] | firsts[w]) > 1 and firsts[m] and firsts[w]
            for k, m in enumerate(names)
            for w in names[k + 1 :]
            if graph.ends[m, w] == NONE and known.holds(m, w, a)
        ):
            changed |= _cause(graph, a, c)
    return changed


def _open_causes(graph: WindowGraph) -> list[tuple[int, int]]:
    """(c, a) of all ``a o-> c`` with one of them now."""
    ends = graph.ends
    return [
        (c, a)
        for c in range(len(ends))
        for a in graph.neighbours(c)
        if ends[a, c] == ARROW and ends[c, a] == CIRCLE and min(a, c) < graph.d
    ]


def _uncovered(graph: WindowGraph, known: Separations, path: tuple[int, ...], goal: int) -> bool:
    """Whether an uncovered path that may point forward leads on from `path` to `goal`."""
    last, before = path[-1], path[-2]
    if last == goal:
        return True
    if len(path) > _LONGEST_PATH:
        return False
    return any(
        node not in path
        and graph.ends[node, before] == NONE
        and _may_point(graph, last, node)
        and known.holds(before, node, last)
        and _uncovered(graph, known, (*path, node), goal)
        for node in graph.neighbours(last)
    )


def _may_point(graph: WindowGraph, a: int, b: int) -> bool:
    return bool(graph.ends[b, a] != ARROW and graph.ends[a, b] != TAIL)


def _cause(graph: WindowGraph, a: int, b: int) -> bool:
    """Say that a is a cause of b, so b none of a; not against what was said before."""
    if graph.ends[b, a] != CIRCLE or graph.ends[a, b] == TAIL:
        return False
    graph.mark(a, b, ARROW)
    return graph.mark(b, a, TAIL)


# An arrowhead that rests on a new dependence needs more than the usual evidence: what it rests on was chosen among many.
_STRONGLY = 0.1


@dataclass(frozen=True)
class MarkLearner:
    """The search for marks: how to search.

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

    def learn(self, gram: Moments, limits: EdgeConstraints, rng: np.random.Generator) -> FoundMarks:
        """Return the ancestral graph of moments of lagged rows with twice as many lags as the limits; nothing is drawn.

        Variables that nothing may act on only act on others: an edge with one of them is an effect of it. The search knows
        no other limits.
        """
        d, n_lags, inputs = limits.d, limits.n_lags, limits.inputs
        free = EdgeConstraints.none(d, n_lags).allowed
        free[:, list(inputs)] = False
        if limits.required.any() or not np.array_equal(limits.allowed, free):
            raise ParameterError("a search for marks has no limits but variables that nothing may act on.")
        test = PartialCorrelations(correlations(gram.scatter)[0], gram.n)
        run = _Run(test, WindowGraph.complete(d, n_lags, inputs), self, inputs)
        for _ in range(self.n_passes - 1):
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


class _Run:
    """A search under way."""

    def __init__(
        self, test: PartialCorrelations, graph: WindowGraph, options: MarkLearner, inputs: Sequence[int]
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
        """Find what separates nodes that are more than p time steps apart, if they have a neighbour in common."""
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
        """Whether a node within p time steps may be a cause of one of two: not if it is later, or marked so for both."""
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
        before = _causes(self.graph).sum()
        orient(self.graph, self.known, self.dependent, to_the_end=False)
        return bool(_causes(self.graph).sum() > before)
