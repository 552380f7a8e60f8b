"""What a site does when a stage of PFDBNL begins: its own order, its own support, its own threshold.

None of it leaves the site. The stages come from the server; a site that missed some of them catches up here.

Its own problem (`OwnProblem`), the centre given: its weights within an order, and the best order for them. A site knows its
quadratic, so it searches orders on its own penalised objective, pull included, as FDBNL's server does on the pooled one
(`core.optimum`): no sum is needed, and nothing of it leaves the site.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.fdbnl.path import Stage
from feddbn.core.graphs.constraints import (
    CANDIDATE_SHARE,
    EdgeConstraints,
    has_cycle,
    strongest_acyclic,
    threshold,
    topological_order,
)
from feddbn.core.optimum import BestOrder, Certificate, LassoScores, best_order, improved
from feddbn.core.orders.search import order_by_variance, order_of_gram
from feddbn.core.pfdbnl.step import objectives, pulled
from feddbn.core.solvers.lasso import ordered_columns

__all__ = ["OwnProblem", "PersonalSite", "order_of", "searched_order"]

# Lassos that a site may solve: work, not time, so that every machine finds the same order.
_MOVES = {"order": 600, "exact": 20_000}
_PROOF = {"order": 800, "exact": 300_000}
# So many variables take some 30 ms; with more, only the bound that costs nothing is given.
_FEW = 12
_WHOLE_BUDGET = 50
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
        return budgets[self.optimum] * _WHOLE_BUDGET // max(self.constraints.d, _WHOLE_BUDGET)


# With more variables a site's search keeps to its first order: at this many, moves already take up to half a minute.
_MOVES_UP_TO = 100
# Rows for each column with which variances given all others are known well enough to order by.
_ROWS_A_COLUMN = 5
# Orders that are better by less, relatively, are not worth leaving the one that the rounds have led to.
_WORTH = 1e-6


def order_of(C: FloatArray, constraints: EdgeConstraints) -> BoolArray:
    """Return the (q, d) mask of edges allowed by an order of C's W: strongest edges first, unless they close a cycle.

    Edges that C does not have, but may have, come last; if all edges together have no cycle, all of them stay. To remove the
    weakest edge of every cycle instead would be slow: the W that sites share is dense.
    """
    d = constraints.d
    strength = np.where(constraints.allowed[:d], np.abs(C[:d]), -1.0)
    edges = strongest_acyclic(strength, constraints.required[:d])
    return constraints.within_order(topological_order(edges)).allowed


def searched_order(G: FloatArray, n: float, constraints: EdgeConstraints, *, moves: bool) -> BoolArray:
    """Return the (q, d) mask of edges allowed by an order searched on a site's own (q, q) Gram matrix of n rows.

    The search is that of OneShotDBN with equal variances. It prefers orders that leave little unexplained, and so does the
    penalised least squares that goes on from there. Without `moves` it is the first order, top down; with many rows, and
    where every order is allowed, not even parents are selected for it: moves on the site's own objective follow.
    """
    if not moves and n >= _ROWS_A_COLUMN * len(G) and constraints.is_free:
        return constraints.within_order(order_by_variance(G, constraints.d)).allowed
    order = order_of_gram(G, n, constraints, moves=moves and constraints.d <= _MOVES_UP_TO)
    return constraints.within_order(order).allowed


@dataclass(frozen=True)
class PersonalSite:
    """A site between rounds.

    Attributes
    ----------
    C
        (q, d) its weights.
    allowed
        (q, d) edges the current stage permits.
    orders
        Masks (q, d) of the orders known so far: first the one that ACYCLIC ended in, then the searched one.
    is_ordered
        Whether the site has its final order; `allowed` keeps to it.
    raw, raw_objective
        The weights with the L1 penalty, and their objective with the pull. None and 0 until LASSO is over.
    path_objective
        The objective in the first order. It is noted when the searched order is tried, to compare the two.
    lower_bound
        What no acyclic network of this site has an objective below, with the centre as it was for `raw`. 0: not known.
    """

    C: FloatArray
    allowed: BoolArray
    orders: tuple[BoolArray, ...] = ()
    is_ordered: bool = False
    raw: FloatArray | None = None
    raw_objective: float = 0.0
    path_objective: float = math.nan
    lower_bound: float = 0.0

    def enter(self, stage: Stage, problem: OwnProblem, searched: BoolArray | None = None) -> PersonalSite:
        """Return the site at the beginning of `stage`. SEARCHED needs `searched`: the site's `searched_order`."""
        constraints = problem.constraints
        if stage in (Stage.WARM, Stage.ACYCLIC):
            return replace(self, allowed=constraints.allowed)
        if stage is Stage.ORDER:
            # A site that has orders comes back from the searched one.
            orders = self.orders or (order_of(self.C, constraints),)
            return replace(self, allowed=orders[0], orders=orders)
        if stage is Stage.SEARCHED:
            assert searched is not None
            before = problem.objective(self.C) if self.orders else math.nan
            return replace(self, allowed=searched, orders=(*self.orders, searched), path_objective=before)
        site = self if self.is_ordered else self._choose_order(problem)
        if stage is Stage.CHOSEN:
            return site
        if not site.is_ordered:
            site = replace(site._moved(problem), is_ordered=True)
        if stage is Stage.LASSO or site.raw is not None:
            return site
        site = site.polished(problem)
        assert site.raw is not None
        required = constraints.required & site.allowed
        support = (problem.kept(site.raw, required, CANDIDATE_SHARE) != 0) | required
        return replace(site, C=np.where(support, site.raw, 0.0), allowed=support)

    def finished(self, problem: OwnProblem, refit: bool) -> tuple[FloatArray, PersonalSite]:
        """Return the personal weights, and the site whose penalised weights, `raw`, they came from.

        With `refit` the weights are solved again without the L1 penalty, cut at the thresholds, and solved once more with the
        edges that are left. The pull stays. The centre is not averaged again after that: it would pull down the edges that
        only this site has (docs/pfdbnl.md).
        """
        required = problem.constraints.required
        if not refit:
            site = self.enter(Stage.LASSO, problem).polished(problem)
            assert site.raw is not None
            return problem.kept(site.raw, required), site
        site = self.enter(Stage.SUPPORT, problem)
        assert site.raw is not None
        here = required & site.allowed
        C = problem.refit(site.allowed)
        C = problem.refit((problem.kept(C, here) != 0) | here)
        return problem.kept(C, required), site

    def _choose_order(self, problem: OwnProblem) -> PersonalSite:
        """Return the site in the best order it knows: the one in which its own problem ends lowest, the centre given."""
        # The others' order is often the better one where own data are few. Where all must agree it is the only one.
        common = order_of(problem.centre, problem.constraints)
        if np.isinf(problem.mu):
            return replace(self, C=np.where(common, problem.centre, 0.0), allowed=common)
        own = self.orders or (order_of(self.C, problem.constraints),)
        orders = list({order.tobytes(): order for order in (*own, common)}.values())
        weights = problem.solve_in(orders, self.C)
        best = int(np.argmin([problem.objective(C) for C in weights]))
        return replace(self, C=weights[best], allowed=orders[best])

    def _moved(self, problem: OwnProblem) -> PersonalSite:
        """Move variables while that lowers the site's own objective, with the centre as it is."""
        order = problem.moved(topological_order(self.allowed[: problem.constraints.d]), self.C)
        if order is None:
            return self
        allowed = problem.constraints.within_order(order).allowed
        return replace(self, C=problem.solve(allowed, self.C), allowed=allowed)

    def polished(self, problem: OwnProblem) -> PersonalSite:
        """Return the site with C_k solved exactly for the centre in the best order it knows, kept as `raw` too.

        Within an order only edges that the rounds have kept are solved for: with a strong pull, zeros of the centre are
        known to the rounds' tolerance only, and an exact answer to them would not be sparse.
        """
        kept = self.allowed & (self.C != 0)
        C = problem.solve(kept, self.C) if problem.penalty.any() else problem.refit(kept)
        site = replace(self, C=C, raw=C, raw_objective=problem.objective(C))
        found = problem.best_order(topological_order(self.allowed[: problem.constraints.d]), C)
        if found is None:
            return site
        site = replace(site, lower_bound=found.certificate.lower_bound)
        if found.certificate.objective >= (1.0 - _WORTH) * site.raw_objective:
            return site
        allowed = problem.constraints.within_order(found.order).allowed
        same = (allowed == self.allowed).all(axis=0)
        C = problem.solve(np.where(same, kept, allowed), C)
        objective = problem.objective(C)
        if objective >= site.raw_objective:
            return site
        return replace(site, C=C, allowed=allowed, raw=C, raw_objective=objective)
