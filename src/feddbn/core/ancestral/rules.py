"""Marks that follow from marks and separations (Zhang 2008: R0 to R4 and R8 to R10, for graphs without selection).

Every rule is used in a form that does not need its edges to be final: a node without which two others are not separated is a
cause of one of the two; a node that undoes their separation is a cause of neither. So marks may be put while edges are
still being removed, and a rule may look at nodes that are further apart than edges reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from feddbn.core.ancestral.marks import ARROW, CIRCLE, NONE, TAIL, Separations, WindowGraph

__all__ = ["Dependent", "orient", "put_colliders"]

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
    heads, causes = _heads(graph), _causes(graph)
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


def _heads(graph: WindowGraph) -> np.ndarray:
    return np.asarray(graph.ends == ARROW, dtype=np.float32)


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
            if len(path) < _LONGEST_PATH and ends[last, e] == ARROW and _is_parent(graph, e, c):
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


def _is_parent(graph: WindowGraph, a: int, b: int) -> bool:
    return bool(graph.ends[a, b] == ARROW and graph.ends[b, a] == TAIL)


def _cause(graph: WindowGraph, a: int, b: int) -> bool:
    """Say that a is a cause of b, so b none of a; not against what was said before."""
    if graph.ends[b, a] != CIRCLE or graph.ends[a, b] == TAIL:
        return False
    graph.mark(a, b, ARROW)
    return graph.mark(b, a, TAIL)
