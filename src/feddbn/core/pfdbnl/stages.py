"""What a site does when a stage of PFDBNL begins: its own order, its own support, its own threshold.

None of it leaves the site. The stages come from the server; a site that missed some of them catches up here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.fdbnl.local_step import LocalProblem
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.graphs.pruning import CANDIDATE_SHARE, threshold, topological_order
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.search import OrderSearch
from feddbn.core.pfdbnl.step import (
    PersonalMember,
    PersonalStage,
    objective_given,
    solve_given,
    solve_given_orders,
)
from feddbn.core.statistics.moments import Moments

__all__ = ["PersonalSite", "order_of", "searched_order"]


# With more variables a site's search keeps to its first order: at this many, moves already take up to half a minute.
_MANY = 100


def order_of(C: FloatArray, constraints: EdgeConstraints) -> BoolArray:
    """Return the (q, d) mask of edges allowed by an order of C's W: strongest edges first, unless they close a cycle.

    Edges that C lacks but the constraints allow come last: where these are acyclic, all of them stay. Unlike removing
    the weakest edges on cycles, this stays quick for the dense W of a consensus.
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

    The search is OneShotDBN's with equal variances: like the penalised least squares it starts, it prefers orders that
    leave little unexplained.
    """
    d = constraints.d
    q = len(G)
    moments = Moments(n, np.zeros(q), n * G)
    search = OrderSearch(moments, d, q // d - 1, constraints, Criterion().for_orders, "equal")
    search.start_top_down(prefer_high=False)
    if d <= _MANY:
        search.improve()
    return constraints.within_order(search.order).allowed


@dataclass(frozen=True)
class PersonalSite:
    """A site between rounds.

    Attributes
    ----------
    member
        C_k and its companions.
    allowed
        (q, d) edges the current stage permits.
    orders
        Masks of the orders found so far: where the path to acyclicity ended, then the searched one.
    is_ordered
        Whether `allowed` is within the order that stays.
    raw, raw_objective
        The penalised personal weights and their objective, pull included, once the penalised stages are over.
    path_objective
        The objective where the path's orders have led, once the searched one is tried.
    """

    member: PersonalMember
    allowed: BoolArray
    orders: tuple[BoolArray, ...] = field(default=())
    is_ordered: bool = False
    raw: FloatArray | None = None
    raw_objective: float = 0.0
    path_objective: float = math.nan

    def enter(
        self,
        stage: PersonalStage,
        problem: LocalProblem,
        penalty: FloatArray,
        constraints: EdgeConstraints,
        mu: float,
        Cbar: FloatArray,
        thresholds: tuple[float, float] = (0.0, 0.0),
        searched: BoolArray | None = None,
    ) -> PersonalSite:
        """Return the site at the beginning of `stage`; `penalty` carries the site's weight.

        `searched` is what SEARCHED needs: the site's `searched_order`.
        """
        if stage in (PersonalStage.WARM, PersonalStage.ACYCLIC):
            member = replace(self.member, alpha=0.0, curvature=0.0, grad_h=None)
            return replace(self, member=member, allowed=constraints.allowed)
        settled = replace(self.member, h=0.0, grad_h=None)
        if stage is PersonalStage.ORDER:
            # A site that has orders comes back from the searched one.
            orders = self.orders or (order_of(settled.C, constraints),)
            return replace(self, member=settled, allowed=orders[0], orders=orders)
        if stage is PersonalStage.SEARCHED:
            assert searched is not None
            before = objective_given(problem, mu, Cbar, penalty, settled.C) if self.orders else math.nan
            orders = (*self.orders, searched)
            return replace(self, member=settled, allowed=searched, orders=orders, path_objective=before)
        site = self if self.is_ordered else self._choose_order(problem, penalty, constraints, mu, Cbar)
        if stage is PersonalStage.CHOSEN:
            return site
        site = replace(site, is_ordered=True)
        if stage is PersonalStage.LASSO:
            return site
        if site.raw is not None:
            return site
        site = site.polished(problem, penalty, mu, Cbar)
        assert site.raw is not None
        required = constraints.required & site.allowed
        w_limit, a_limit = (CANDIDATE_SHARE * limit for limit in thresholds)
        support = (threshold(site.raw, required, w_limit, a_limit) != 0) | required
        member = replace(site.member, C=np.where(support, site.raw, 0.0))
        return replace(site, member=member, allowed=support)

    def gain(self, stage: PersonalStage, objective: float) -> float:
        """Return by how much the second start is better for this site; 0 while that is not the question."""
        is_known = stage is PersonalStage.CHOSEN and math.isfinite(self.path_objective)
        return self.path_objective - objective if is_known else 0.0

    def finished(
        self,
        problem: LocalProblem,
        penalty: FloatArray,
        constraints: EdgeConstraints,
        mu: float,
        Cbar: FloatArray,
        thresholds: tuple[float, float],
        refit: bool,
    ) -> tuple[FloatArray, FloatArray, float]:
        """Return the personal weights, the penalised ones they came from and the objective of these.

        With `refit`: no penalty but the pull, on the support; thresholded; once more on what is left. The centre is not
        averaged again after thresholds: that would pull every site's own edges down (docs/pfdbnl.md).
        """
        stage = PersonalStage.SUPPORT if refit else PersonalStage.LASSO
        site = self.enter(stage, problem, penalty, constraints, mu, Cbar, thresholds)
        if not refit:
            site = site.polished(problem, penalty, mu, Cbar)
        assert site.raw is not None
        if not refit:
            return threshold(site.raw, constraints.required, *thresholds), site.raw, site.raw_objective
        nothing = np.zeros_like(penalty)
        C = solve_given(problem, mu, Cbar, nothing, site.allowed, site.member.C)
        kept = threshold(C, constraints.required & site.allowed, *thresholds) != 0
        C = solve_given(problem, mu, Cbar, nothing, kept | (constraints.required & site.allowed), C)
        return threshold(C, constraints.required, *thresholds), site.raw, site.raw_objective

    def _choose_order(
        self,
        problem: LocalProblem,
        penalty: FloatArray,
        constraints: EdgeConstraints,
        mu: float,
        Cbar: FloatArray,
    ) -> PersonalSite:
        """Keep the order in which the site's own convex problem, with the centre as it is, ends lowest."""
        # The others' order is often the better one where own data are few. Where all must agree it is the only one.
        common = order_of(Cbar, constraints)
        if np.isinf(mu):
            best = common, np.where(common, Cbar, 0.0)
        else:
            own = self.orders or (order_of(self.member.C, constraints),)
            orders = list({order.tobytes(): order for order in (*own, common)}.values())
            weights = solve_given_orders(problem, mu, Cbar, penalty, orders, self.member.C)
            values = [objective_given(problem, mu, Cbar, penalty, C) for C in weights]
            k = int(np.argmin(values))
            best = orders[k], weights[k]
        member = replace(self.member, C=best[1], h=0.0, grad_h=None)
        return replace(self, member=member, allowed=best[0])

    def polished(
        self, problem: LocalProblem, penalty: FloatArray, mu: float, Cbar: FloatArray
    ) -> PersonalSite:
        """Return the site with C_k solved exactly for the centre Cbar, kept as `raw` too.

        Only edges that the rounds have kept are solved for: with a strong pull, zeros of the centre are known to the
        rounds' tolerance only, and an exact answer to them would not be sparse.
        """
        kept = self.allowed & (self.member.C != 0)
        C = solve_given(problem, mu, Cbar, penalty, kept, self.member.C)
        objective = objective_given(problem, mu, Cbar, penalty, C)
        return replace(self, member=replace(self.member, C=C), raw=C, raw_objective=objective)
