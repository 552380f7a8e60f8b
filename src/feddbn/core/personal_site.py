"""What a site does when a stage of PFDBNL begins: its own order, its own support, its own threshold.

None of it leaves the site. The stages come from the server; a site that missed some of them catches up here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from feddbn.core.constraints import EdgeConstraints
from feddbn.core.graph import CANDIDATE_SHARE, threshold, topological_order
from feddbn.core.lagged import FloatArray
from feddbn.core.local_step import LocalProblem
from feddbn.core.personal_step import PersonalMember, PersonalStage, objective_given, solve_given

__all__ = ["PersonalSite", "order_of"]

BoolArray = NDArray[np.bool_]


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
        Masks of the orders found so far, one per pass.
    is_ordered
        Whether `allowed` is within the order that stays.
    raw, raw_objective
        The penalised personal weights and their objective, pull included, once the penalised stages are over.
    """

    member: PersonalMember
    allowed: BoolArray
    orders: tuple[BoolArray, ...] = field(default=())
    is_ordered: bool = False
    raw: FloatArray | None = None
    raw_objective: float = 0.0

    def enter(
        self,
        stage: PersonalStage,
        problem: LocalProblem,
        penalty: FloatArray,
        constraints: EdgeConstraints,
        mu: float,
        Cbar: FloatArray,
        thresholds: tuple[float, float] = (0.0, 0.0),
    ) -> PersonalSite:
        """Return the site at the beginning of `stage`; `penalty` carries the site's weight."""
        if stage in (PersonalStage.WARM, PersonalStage.ACYCLIC):
            member = replace(self.member, alpha=0.0, curvature=0.0, grad_h=None)
            return replace(self, member=member, allowed=constraints.allowed)
        if stage is PersonalStage.ORDER:
            order = order_of(self.member.C, constraints)
            member = replace(self.member, h=0.0, grad_h=None)
            return replace(self, member=member, allowed=order, orders=(*self.orders, order))
        site = self if self.is_ordered else self._choose_order(problem, penalty, constraints, mu, Cbar)
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
        orders = self.orders or (order_of(self.member.C, constraints),)
        # The others' order costs one small lasso and is often the better one where own data are few. Where all must
        # agree it is the only one.
        common = order_of(Cbar, constraints)
        best: tuple[float, BoolArray, FloatArray] | None = None
        candidates = (common,) if np.isinf(mu) else (*orders, common)
        for k, order in enumerate(candidates):
            if any(np.array_equal(order, earlier) for earlier in candidates[:k]):
                continue
            C = solve_given(problem, mu, Cbar, penalty, order, self.member.C, tol=1e-5)
            value = objective_given(problem, mu, Cbar, penalty, C)
            if best is None or value < best[0]:
                best = (value, order, C)
        assert best is not None
        member = replace(self.member, C=best[2], h=0.0, grad_h=None)
        return replace(self, member=member, allowed=best[1], is_ordered=True)

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
