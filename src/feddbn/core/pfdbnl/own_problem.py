"""One site's own problem, the centre given: its weights within an order, and the best order for them.

A site knows its quadratic, so it searches orders on its own penalised objective, pull included, as FDBNL's server does on
the pooled one (`core.optimum`): no sum is needed, and nothing of it leaves the site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints, has_cycle
from feddbn.core.graphs.pruning import threshold
from feddbn.core.optimum.certified import BestOrder, Certificate, best_order
from feddbn.core.optimum.moves import improved
from feddbn.core.optimum.scores import LassoScores
from feddbn.core.pfdbnl.step import objectives, pulled
from feddbn.core.solvers.ordered_step import ordered_columns

__all__ = ["OwnProblem"]

# Lassos that a site may solve: work, not time, so that every machine finds the same order.
_MOVES = {"order": 600, "exact": 20_000}
_PROOF = {"order": 800, "exact": 300_000}
# So many variables take some 30 ms; with more, only the bound that costs nothing is given.
_FEW = 12
_MANY = 50
# Moves that lower the objective by less, relatively, are not made: rounds do not know it better.
_BETTER = 1e-5


@dataclass(frozen=True)
class OwnProblem:
    """One site's convex problem, the centre given: min w loss(C) + sum(L o |C|) + mu |C - centre|^2 within some edges.

    Attributes
    ----------
    wG, penalty, centre
        (q, q), (q, d) and (q, d); wG and the penalty L carry the site's weight.
    thresholds
        Of contemporaneous and lagged edges.
    optimum
        "path": the orders that the rounds lead to; else the best that a search finds: "order" within a small budget of
        work, "exact" within a large one.
    is_proven
        Whether the best order is to be proven, where the budget allows it; else its bound is a simple one.
    """

    wG: FloatArray
    penalty: FloatArray
    mu: float
    centre: FloatArray
    constraints: EdgeConstraints
    thresholds: tuple[float, float] = (0.0, 0.0)
    optimum: str = "path"
    is_proven: bool = False

    def objective(self, C: FloatArray) -> float:
        """Return the objective at C, penalty included."""
        return float(objectives(self.wG[None], self.mu, self.centre, self.penalty[None], C[None])[0])

    def solve(self, allowed: BoolArray, C0: FloatArray) -> FloatArray:
        """Return the minimiser, searched from C0; mu = infinity returns the centre within `allowed`."""
        return self.solve_in([allowed], C0)[0]

    def solve_in(self, orders: Sequence[BoolArray], C0: FloatArray) -> list[FloatArray]:
        """Return the minimiser within each of these orders: the columns of all orders are one batch."""
        if np.isinf(self.mu):
            return [np.where(order, self.centre, 0.0) for order in orders]
        H, B = self._pulled()
        B, penalty, C0 = (np.tile(X, (1, len(orders))) for X in (B, self.penalty, C0))
        C = ordered_columns(H[None], B[None], penalty[None], np.hstack(orders)[None], C0[None])[0]
        return np.split(C, len(orders), axis=1)

    def refit(self, allowed: BoolArray) -> FloatArray:
        """Return the minimiser without the L1 penalty: every column is one small linear system."""
        if np.isinf(self.mu):
            return np.where(allowed, self.centre, 0.0)
        H, B = self._pulled()
        C = np.zeros_like(self.centre)
        for j in range(C.shape[1]):
            support = np.flatnonzero(allowed[:, j])
            if len(support):
                C[support, j] = np.linalg.solve(H[np.ix_(support, support)], B[support, j])
        return C

    def _pulled(self) -> tuple[FloatArray, FloatArray]:
        return pulled(self.wG, np.full((len(self.centre), 1), 2.0 * self.mu), self.centre)

    def kept(self, C: FloatArray, required: BoolArray, share: float = 1.0) -> FloatArray:
        """Return C without weights below `share` of their thresholds; required edges stay."""
        return threshold(C, required, *(share * limit for limit in self.thresholds))

    @property
    def has_search(self) -> bool:
        """Whether orders are searched: not where all must agree, nor where there is no choice."""
        is_open = np.isfinite(self.mu) and has_cycle(self.constraints.allowed[: self.constraints.d])
        return self.optimum != "path" and bool(is_open)

    def scores(self, C: FloatArray | None = None) -> LassoScores:
        """What every variable costs after some others: lassos of H and B, in units of the variables.

        They are searched from the weights C, where these are given.
        """
        d, (H, B) = self.constraints.d, self._pulled()
        root = np.sqrt(np.diag(H))
        units = root[:d]
        constant = 0.5 * np.diag(self.wG)[:d] + self.mu * np.einsum("ij,ij->j", self.centre, self.centre)
        return LassoScores(
            H / np.outer(root, root),
            self.penalty / np.outer(root, units),
            self.constraints.allowed,
            self.constraints.required,
            units**2,
            linear=B / np.outer(root, units),
            constant=constant / units**2,
            start=None if C is None else C * root[:, None] / units,
        )

    def moved(self, order: Sequence[int], C: FloatArray | None = None) -> list[int] | None:
        """Return the order that moves of single variables lead to from this one; None without a search.

        C, if given, are weights near to those within the order.
        """
        if not self.has_search:
            return None
        scores, before, passed = self.scores(C), [0] * self.constraints.d, 0
        for node in order:
            before[node], passed = passed, passed | 1 << node
        # The lassos within the order are one batch.
        start = self.centre if C is None else C
        within = self.solve(self.constraints.within_order(order).allowed, start)
        root = np.sqrt(np.diag(self._pulled()[0]))
        scores.learn(before, within * root[:, None] / root[: self.constraints.d])
        return improved(scores, order, self._budget(_MOVES), _BETTER)[0]

    def best_order(self, order: Sequence[int], C: FloatArray | None = None) -> BestOrder | None:
        """Return the best order known, with its certificate, searched from this one; None without a search. C as above."""
        if not self.has_search:
            return None
        if self.optimum == "exact" or (self.is_proven and self.constraints.d <= _FEW):
            return best_order(self.scores(C), [order], _PROOF[self.optimum])
        # Moves are made before the last rounds, which change little, and the bound costs little: every variable after all
        # others that it could use.
        edges = [self.constraints.within_order(order).allowed, self.constraints.allowed]
        value, lowest = map(self.objective, self.solve_in(edges, self.centre if C is None else C))
        return BestOrder(tuple(order), Certificate(value, min(lowest, value)))

    def _budget(self, budgets: Mapping[str, int]) -> int:
        # Lassos of many variables take longer.
        return budgets[self.optimum] * _MANY // max(self.constraints.d, _MANY)
