"""What a node costs after some others: the value of its lasso, from a Gram matrix, computed once.

    f_j(U) = w_j min_c  1/2 (e_j - c)'H(e_j - c) + sum(penalty_j o |c|)      c zero outside the lags and the nodes in U
    or       w_j min_c  1/2 c'Hc - b_j'c + const_j + sum(penalty_j o |c|)    where something else pulls at the weights, too

For a given order the paper's problem is the sum of these over the nodes, U being the nodes before j. A set is a whole
number whose bits are its members.

Theory of operation: if the lasso with more candidates, T, uses only members of U, it is also the lasso with U. So a value
is looked up from all candidates downwards, leaving out what U lacks, and most sets need no lasso of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.solvers.lasso_column import followed_weights, lasso_weights, prices
from feddbn.core.solvers.sign_search import pivoted

__all__ = ["LassoScores", "members", "set_of"]

# Solutions that leave the span of what is known of H by more than this share are not exact.
_OUTSIDE = 1e-6
# Fewer lassos are quicker one by one.
_FEW = 24


def set_of(nodes: Iterable[int]) -> int:
    """Return the set of these nodes."""
    found = 0
    for node in nodes:
        found |= 1 << int(node)
    return found


def members(nodes: int) -> list[int]:
    """Return the nodes of a set, ascending."""
    return [i for i in range(nodes.bit_length()) if nodes >> i & 1]


@dataclass(frozen=True, slots=True)
class _Solved:
    """A lasso's value, which nodes it uses, and the weights that are not zero: where, and how much."""

    value: float
    used: int
    at: IntArray
    x: FloatArray


class LassoScores:
    """Values of the lassos of d nodes.

    Parameters
    ----------
    H
        (q, q) positive definite; the first d columns are the nodes.
    penalty, allowed
        (q, d) penalties, and which edges may be.
    required
        (q, d) edges that must be: their sources come first.
    weight
        (d,) what a node's lasso counts; None: 1. With the squared units of the nodes, every lasso is solved in its own.
    linear, constant
        (q, d) b and (d,) const of the second form above; None: those of the first, the columns of H and half its diagonal.
    known
        (q, r) orthonormal basis of the directions in which H is known; elsewhere it lies above the true matrix. None: all.
    start
        (q, d) weights from which a node's first lasso is searched; None: zero.

    Attributes
    ----------
    n_solved
        Lassos solved so far: what a search has cost, whatever the machine.
    is_exact
        Whether all of them kept to the known directions, so that they are those of the true matrix.
    """

    def __init__(
        self,
        H: FloatArray,
        penalty: FloatArray,
        allowed: BoolArray,
        required: BoolArray | None = None,
        weight: FloatArray | None = None,
        known: FloatArray | None = None,
        linear: FloatArray | None = None,
        constant: FloatArray | None = None,
        start: FloatArray | None = None,
    ) -> None:
        self.q, self.d = penalty.shape
        self._H, self._penalty, self._known = H, np.ascontiguousarray(penalty.T), known
        self._weight = np.ones(self.d) if weight is None else weight
        self._linear = H[: self.d] if linear is None else np.ascontiguousarray(linear.T)
        self._constant = 0.5 * np.diag(H)[: self.d] if constant is None else constant
        self._start = np.zeros((self.d, self.q)) if start is None else np.ascontiguousarray(start.T)
        self._allowed = np.ascontiguousarray(allowed.T)
        self._price = prices(self._linear, self._penalty, self._allowed)
        self._bits = [1 << i for i in range(self.d)]
        self.all = (1 << self.d) - 1
        self.may_have = [set_of(np.flatnonzero(column[: self.d])) for column in self._allowed]
        must = np.zeros((self.d, self.d), dtype=bool) if required is None else required[: self.d]
        self.must_follow = [set_of(np.flatnonzero(column)) for column in must.T]
        self.n_solved, self.is_exact = 0, True
        self._solved: list[dict[int, _Solved]] = [{} for _ in range(self.d)]
        self.solve_together([(j, self.all, math.inf) for j in range(self.d)])
        self.lowest = [self.value(j, self.all) for j in range(self.d)]

    def is_content(self, node: int, before: int) -> bool:
        """Whether a node with these predecessors has all that it would ever use."""
        top = self._solved[node][self.may_have[node]]
        return not (top.used | self.must_follow[node]) & ~before

    def uses(self, node: int) -> int:
        """Return what a node uses if all others come before it."""
        return self._solved[node][self.may_have[node]].used

    def value(self, node: int, before: int, enough: float = math.inf) -> float:
        """Return f_j(U); infinity if it is found to be at least `enough`, which may take no further lasso."""
        while True:
            found, T, near = self._known_about(node, before, enough)
            if found is not None:
                return found
            self._solve_one(node, T, near)

    def learn(self, before: Sequence[int], C: FloatArray) -> None:
        """Take note of the lassos of all nodes, (q, d), each after its set, that were solved elsewhere."""
        self._keep([(j, U & self.may_have[j]) for j, U in enumerate(before)], C.T)

    def bounds(
        self, nodes: Sequence[int], before: Sequence[int]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return (n,) the values of some nodes after some sets, and two (n, d) bounds (`moves` says which).

        At most what each would gain by one more predecessor; at least what it would lose without one that it uses.
        """
        value, C, at = np.zeros(len(nodes)), np.zeros((len(nodes), self.q)), list(nodes)
        may = self._allowed[at, : self.d]
        self.solve_together([(j, U, math.inf) for j, U in zip(nodes, before, strict=True)])
        for k, (node, U) in enumerate(zip(nodes, before, strict=True)):
            value[k] = self.value(node, U)
            one = self._found(node, U)
            C[k, one.at] = one.x
            may[k, members(U & self.may_have[node])] = False
        left = np.abs(self._linear[at] - C @ self._H)[:, : self.d] - self._penalty[at, : self.d]
        left -= 1e-12 * (1.0 + np.abs(self._linear[at]).max(axis=1, initial=0.0))[:, None]
        weight = self._weight[at, None]
        gain = weight * np.where(may, np.maximum(left, 0.0), 0.0) ** 2 / (2.0 * self._stiffness)
        return value, gain, weight * self._stiffness * C[:, : self.d] ** 2 / 2.0

    @cached_property
    def _stiffness(self) -> FloatArray:
        """(d,) the least curvature along a node's weight, whatever the others answer."""
        return 1.0 / np.diag(np.linalg.inv(self._H))[: self.d]

    def _found(self, node: int, before: int) -> _Solved:
        known, T = self._solved[node], self.may_have[node]
        exactly = known.get(T & before)
        if exactly is not None:
            return exactly
        while missing := known[T].used & ~before:
            T &= ~missing
        return known[T]

    def solve_together(self, asked: Sequence[tuple[int, int, float]]) -> None:
        """Solve what `value` needs for some (node, before, enough), many lassos at a time: quicker than one by one."""
        waiting = asked
        while waiting:
            still, new = [], {}
            for one in waiting:
                found, T, near = self._known_about(*one)
                if found is None:
                    still.append(one)
                    new[one[0], T] = near
            if len(new) < _FEW:
                return
            self._solve_many(new)
            waiting = still

    def _known_about(self, node: int, before: int, enough: float) -> tuple[float | None, int, _Solved | None]:
        """Return the value if it is known; else the candidates to solve for next, and a lasso near to that."""
        known, T, near = self._solved[node], self.may_have[node], None
        exactly = known.get(T & before)
        if exactly is not None:
            return (math.inf if exactly.value >= enough else exactly.value), T, near
        while True:
            one = known.get(T)
            if one is None:
                return None, T, near
            if one.value >= enough:
                return math.inf, T, near
            missing = one.used & ~before
            if not missing:
                return one.value, T, near
            T, near = T & ~missing, one

    def _nearest(self, node: int, T: int, near: _Solved | None) -> _Solved | None:
        """Return the lasso to search from: of those with one candidate more or less, that of the nearest value."""
        if near is None or (near.used & ~T).bit_count() <= 1:
            return near
        known, found, least = self._solved[node], near, math.inf
        for bit in self._bits:
            one = known.get(T ^ bit)
            if one is not None and abs(one.value - near.value) < least:
                found, least = one, abs(one.value - near.value)
        return found

    def _solve_one(self, node: int, T: int, near: _Solved | None) -> None:
        price, b, penalty = self._price[node].copy(), self._linear[node], self._penalty[node]
        price[members(self.may_have[node] & ~T)] = np.inf
        start, near = np.zeros(self.q), self._nearest(node, T, near)
        if near is None:
            start[:] = self._start[node]
        else:
            start[near.at] = near.x
        start[price == np.inf] = 0.0
        at, x = lasso_weights(self._H, b, penalty, price, start)
        if self._known is not None:
            start[:] = 0.0
            start[at] = x
            self._look_outside(start[None])
        # At the minimum the gradient of a weight is its penalty.
        fit = self._constant[node] - 0.5 * float(x @ (b[at] - penalty[at] * np.sign(x)))
        self.n_solved += 1
        self._solved[node][T] = _Solved(self._weight[node] * fit, set_of(at[at < self.d].tolist()), at, x)

    def _solve_many(self, new: dict[tuple[int, int], _Solved | None]) -> None:
        nodes = np.array([node for node, _ in new])
        allowed = self._allowed[nodes]
        n_bytes = (self.d + 7) // 8
        bits = np.frombuffer(b"".join(T.to_bytes(n_bytes, "little") for _, T in new), dtype=np.uint8)
        sets = np.unpackbits(bits.reshape(-1, n_bytes), axis=1, count=self.d, bitorder="little")
        allowed[:, : self.d] &= sets.astype(bool)
        c = self._start[nodes]
        for row, ((node, T), last) in zip(c, new.items(), strict=True):
            near = self._nearest(node, T, last)
            if near is not None:
                row[:] = 0.0
                row[near.at] = near.x
        c *= allowed
        here = np.zeros(len(new), dtype=np.intp)
        B, penalty = self._linear[nodes], self._penalty[nodes]
        for k in pivoted(self._H[None], here, B, penalty, allowed, c).tolist():
            price = np.where(allowed[k], self._price[nodes[k]], np.inf)
            at, x = followed_weights(self._H, B[k], penalty[k], price, c[k])
            c[k] = 0.0
            c[k, at] = x
        self._keep(list(new), c)

    def _keep(self, solved: list[tuple[int, int]], c: FloatArray) -> None:
        """Remember the solutions c (n, q) of the lassos of some nodes with some candidates."""
        nodes = np.array([node for node, _ in solved])
        slope = 0.5 * (c @ self._H) - self._linear[nodes]
        fit = self._constant[nodes] + np.einsum("ni,ni->n", c, slope)
        values = self._weight[nodes] * (fit + np.einsum("ni,ni->n", self._penalty[nodes], np.abs(c)))
        used = np.packbits(c[:, : self.d] != 0, axis=1, bitorder="little")
        self._look_outside(c)
        self.n_solved += len(solved)
        for (node, T), value, bits, row in zip(solved, values.tolist(), used, c, strict=True):
            at = row.nonzero()[0]
            self._solved[node][T] = _Solved(value, int.from_bytes(bits.tobytes(), "little"), at, row[at])

    def _look_outside(self, c: FloatArray) -> None:
        """Notice solutions c (n, q) that leave the known directions."""
        if self._known is not None:
            # The node itself has always been seen.
            outside = np.abs(c - (c @ self._known) @ self._known.T).max(axis=1)
            size = np.abs(c).max(axis=1)
            self.is_exact &= bool((outside <= _OUTSIDE * np.maximum(size, _OUTSIDE)).all())
