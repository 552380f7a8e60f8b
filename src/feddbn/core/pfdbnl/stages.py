"""What a site does when a stage of PFDBNL begins: its own order, its own support, its own threshold.

None of it leaves the site. The stages come from the server; a site that missed some of them catches up here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.fdbnl.path import Stage
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.graphs.pruning import CANDIDATE_SHARE, threshold, topological_order
from feddbn.core.orders.gram_order import order_of_gram
from feddbn.core.pfdbnl.step import objectives, pulled
from feddbn.core.solvers.ordered_step import ordered_columns

__all__ = ["OwnProblem", "PersonalSite", "order_of", "searched_order"]

# With more variables a site's search keeps to its first order: at this many, moves already take up to half a minute.
_MANY = 100


def order_of(C: FloatArray, constraints: EdgeConstraints) -> BoolArray:
    """Return the (q, d) mask of edges allowed by an order of C's W: strongest edges first, unless they close a cycle.

    Edges that C does not have, but may have, come last; if all edges together have no cycle, all of them stay. To remove the
    weakest edge of every cycle instead would be slow: the W that sites share is dense.
    """
    d = constraints.d
    required = constraints.required[:d]
    strength = np.where(constraints.allowed[:d], np.abs(C[:d]), -1.0)
    strength[required] = np.inf
    # reaches[i, j]: there is a path from i to j, or i is j.
    reaches, edges = np.eye(d, dtype=bool), np.zeros((d, d), dtype=bool)
    for flat in np.argsort(-strength, axis=None, kind="stable"):
        i, j = divmod(int(flat), d)
        if strength[i, j] < 0.0:
            break
        if not reaches[j, i]:
            edges[i, j] = True
            if not reaches[i, j]:
                reaches |= np.outer(reaches[:, i], reaches[j])
    return constraints.within_order(topological_order(edges)).allowed


def searched_order(G: FloatArray, n: float, constraints: EdgeConstraints) -> BoolArray:
    """Return the (q, d) mask of edges allowed by an order searched on a site's own (q, q) Gram matrix of n rows.

    The search is that of OneShotDBN with equal variances. It prefers orders that leave little unexplained, and so does the
    penalised least squares that goes on from there.
    """
    order = order_of_gram(G, n, constraints, moves=constraints.d <= _MANY)
    return constraints.within_order(order).allowed


@dataclass(frozen=True)
class OwnProblem:
    """One site's convex problem, the centre given: min w loss(C) + sum(L o |C|) + mu |C - centre|^2 within some edges.

    Attributes
    ----------
    wG, penalty, centre
        (q, q), (q, d) and (q, d); wG and the penalty L carry the site's weight.
    thresholds
        Of contemporaneous and lagged edges.
    """

    wG: FloatArray
    penalty: FloatArray
    mu: float
    centre: FloatArray
    constraints: EdgeConstraints
    thresholds: tuple[float, float] = (0.0, 0.0)

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
    """

    C: FloatArray
    allowed: BoolArray
    orders: tuple[BoolArray, ...] = ()
    is_ordered: bool = False
    raw: FloatArray | None = None
    raw_objective: float = 0.0
    path_objective: float = math.nan

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
        site = replace(site, is_ordered=True)
        if stage is Stage.LASSO or site.raw is not None:
            return site
        site = site.polished(problem)
        assert site.raw is not None
        required = constraints.required & site.allowed
        support = (problem.kept(site.raw, required, CANDIDATE_SHARE) != 0) | required
        return replace(site, C=np.where(support, site.raw, 0.0), allowed=support)

    def finished(self, problem: OwnProblem, refit: bool) -> tuple[FloatArray, FloatArray, float]:
        """Return the personal weights, the penalised weights they came from, and the objective of these.

        With `refit` the weights are solved again without the L1 penalty, cut at the thresholds, and solved once more with the
        edges that are left. The pull stays. The centre is not averaged again after that: it would pull down the edges that
        only this site has (docs/pfdbnl.md).
        """
        required = problem.constraints.required
        if not refit:
            site = self.enter(Stage.LASSO, problem).polished(problem)
            assert site.raw is not None
            return problem.kept(site.raw, required), site.raw, site.raw_objective
        site = self.enter(Stage.SUPPORT, problem)
        assert site.raw is not None
        here = required & site.allowed
        C = problem.refit(site.allowed)
        C = problem.refit((problem.kept(C, here) != 0) | here)
        return problem.kept(C, required), site.raw, site.raw_objective

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

    def polished(self, problem: OwnProblem) -> PersonalSite:
        """Return the site with C_k solved exactly, the centre given; `raw` keeps it.

        Only edges that the rounds have left are solved for. The centre is known up to a tolerance, so where it should be zero
        it is nearly zero; with a strong pull an exact solution would follow it and have edges everywhere.
        """
        kept = self.allowed & (self.C != 0)
        C = problem.solve(kept, self.C) if problem.penalty.any() else problem.refit(kept)
        return replace(self, C=C, raw=C, raw_objective=problem.objective(C))
