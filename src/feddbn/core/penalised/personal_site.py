"""The site's half of PFDBNL: its step in a round, for many sites at once, and what it does when a stage begins.

Every site k has a graph of its own, C_k. It fits the site's rows, is sparse, and is pulled towards a graph C that all
sites share. The larger mu is, the stronger is the pull:

    min over C_k, C   sum_k  w_k (loss_k(C_k) + sum(L o |C_k|)) + mu |C_k - C|^2     subject to   W_k acyclic

These parts are hard together and easy apart. So a site keeps two copies of C_k and makes them agree step by step:

    X_k = C_k   (multiplier Y_k, weight rho D)       X_k is in the loss only
    T_k = C     (multiplier U_k, weight kappa2)      T_k is in the pull only; the paper writes it with a tilde

This is ADMM with the two blocks {X_k, C} and {C_k, T_k}. One round does, in this order:

    U_k += kappa2 (T_k - C)  [fdbnl] Eq. (para), personalised
    X_k  = argmin w_k loss_k(X) + tr(Y_k'(X - C_k)) + rho/2 |X - C_k|_D^2
    C_k  = argmin w_k sum(L o |C|) + alpha h + rho1/2 h^2 + rho/2 |X_k + Y_k/(rho D) - C|_D^2
                    + m/2 |C - (C - U_k/kappa2)|^2
    T_k  = (2 mu C_k + kappa2 C - U_k) / (2 mu + kappa2)                                   the paper's closed form
    Y_k += rho D (X_k - C_k)

All are closed forms, except that of C_k while cycles are being removed: that one is a proximal step on h.

m = 2 mu kappa2 / (2 mu + kappa2). This is the curvature that mu |C_k - T_k|^2 has left after T_k was minimised out.

kappa2 = rho2 mu D / (mu + D). The others feel a site through two springs in series: its loss, which is as stiff as D (in
the units of each variable), and the pull, which is as stiff as mu (without units). With rho2 D instead of it, variables of
large variance need a thousand rounds.

Once every site has its order, the problem of C_k is convex. It is then solved exactly, without X_k: where columns nearly
depend on each other, the split would take a thousand rounds.

The paper minimises C_k and T_k in turns. That is slow if mu is large. Minimised together they give FDBNL as mu grows to
infinity. `schedule="paper"` keeps the paper's turns (`solve_personal`).
# DEVIATES [fdbnl] Algorithm 2: C_k and T_k are minimised together; see test_paper_and_rounds_solve_the_same_problem.

Every array has a leading axis for the sites, (K, ...); one site is K = 1.

When a stage begins: its own order, its own support, its own threshold. None of it leaves the site. The stages come from
the server; a site that missed some of them catches up here.

Its own problem (`OwnProblem`), the centre given: its weights within an order, and the best order for them. A site knows its
quadratic, so it searches orders on its own penalised objective, pull included, as FDBNL's server does on the pooled one
(`core.penalised.optimum`): no sum is needed, and nothing of it leaves the site.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.constraints import (
    CANDIDATE_SHARE,
    EdgeConstraints,
    has_cycle,
    strongest_acyclic,
    threshold,
    topological_order,
)
from feddbn.core.orders.search import order_by_variance, order_of_gram
from feddbn.core.penalised.acyclicity import (
    Acyclicity,
    AcyclicStart,
    dot,
    solve_acyclic_prox,
    start_within_reach,
)
from feddbn.core.penalised.consensus import Decomposed
from feddbn.core.penalised.lasso import Solve, ordered_columns, soft_threshold
from feddbn.core.penalised.optimum import BestOrder, Certificate, LassoScores, best_order, improved
from feddbn.core.penalised.path import Stage

_MEMORY = 5
"""Steps whose worst objective the next one has to beat: long ones may rise for a moment."""
_SMALLEST_STEP = 1e-3
"""Least curvature, relative to the largest of the quadratic, that a step may assume."""


@dataclass(frozen=True)
class PersonalRound:
    """The rules of one round. The server sends them together with C.

    Attributes
    ----------
    rho
        Weight of X_k = C_k, for a site with w_k = 1.
    acyclic_steps
        Most proximal steps on h. 0 if cycles do not matter yet, or if the order is fixed.
    alpha
        Multiplier of h that all sites share. None if every site has its own.
    is_exact
        Take turns as in the paper: solve C_k up to `tol`, in at most `acyclic_steps`, instead of one split step. Each round
        starts where the last one ended, so the first rounds may stop short (they do with weights up to 2).
    is_ordered
        Every site has its order, so its problem is convex: solve C_k exactly, without X_k.
    in_series
        kappa2 is that of two springs, as above. False: kappa2 = rho2 D, and D = 1 in the paper.
    """

    mu: float
    rho: float
    rho1: float
    rho2: float
    rho2_before: float
    alpha: float | None
    acyclic_steps: int = 0
    is_exact: bool = False
    is_ordered: bool = False
    in_series: bool = True
    tol: float = 1e-3

    def agreement(self, metric: FloatArray) -> FloatArray:
        """(q, 1) kappa2 per unit of rho2."""
        D = metric[:, None]
        return coupling(self.mu, 2.0 * D) / 2.0 if self.in_series else D

    def offered(self, members: Members, metric: FloatArray) -> FloatArray:
        """(K, q, d) ``T_k + U_k / kappa2``: what the server averages."""
        return members.T + members.U / (self.rho2 * self.agreement(metric))


def coupling(mu: float, kappa: FloatArray) -> FloatArray:
    """Return 2 mu kappa / (2 mu + kappa): the curvature of min_T mu |C - T|^2 + kappa/2 |T - P|^2 in C."""
    if np.isinf(mu):
        return kappa
    curvature: FloatArray = 2.0 * mu * kappa / (2.0 * mu + kappa)
    return curvature


def auxiliary(C: FloatArray, Cbar: FloatArray, U: FloatArray, mu: float, kappa: FloatArray) -> FloatArray:
    """Return T = argmin mu |C - T|^2 + tr(U'(T - Cbar)) + kappa/2 |T - Cbar|^2, kappa as (q, 1)."""
    if np.isinf(mu):
        return C
    T: FloatArray = (2.0 * mu * C + kappa * Cbar - U) / (2.0 * mu + kappa)
    return T


def pulled(wG: FloatArray, pull: FloatArray, centre: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return H and B of ``w loss(C) + pull/2 |C - centre|^2 = 1/2 tr(C'HC) - tr(B'C) + const``; pull is (q, 1)."""
    return wG + np.diag(pull[:, 0]), wG[..., : centre.shape[-1]] + pull * centre


def objectives(
    wG: FloatArray, mu: float, centre: FloatArray, penalty: FloatArray, C: FloatArray
) -> FloatArray:
    """Return (K,) w loss(C) + sum(penalty o |C|) + mu |C - centre|^2; `penalty` carries the weight."""
    R = -C
    d = C.shape[2]
    diagonal = np.einsum("kii->ki", R[:, :d])
    diagonal += 1.0
    value: FloatArray = 0.5 * dot(R, wG @ R) + dot(penalty, np.abs(C))
    if np.isinf(mu):
        return value
    gap = C - centre
    return value + mu * dot(gap, gap)


@dataclass(frozen=True)
class Members:
    """What K sites carry from round to round: C_k, T_k, U_k, Y_k (K, q, d), and what removing cycles needs.

    Attributes
    ----------
    alpha, h
        (K,) each site's multiplier of h, and h(W_k).
    curvature
        (K,) the curvature with which the last proximal step ended; the next one begins with it.
    grad_h
        (K, d, d) gradient of h at W_k; of use only where `knows_h`.
    knows_h
        (K,) whether the last step was a proximal step on h. Then `h` and `grad_h` need not be computed again.
    """

    C: FloatArray
    T: FloatArray
    U: FloatArray
    Y: FloatArray
    alpha: FloatArray
    h: FloatArray
    curvature: FloatArray
    grad_h: FloatArray
    knows_h: BoolArray

    @classmethod
    def start(cls, Cbar: FloatArray) -> Members:
        """Return the state of sites that join when the shared graph is Cbar (K, q, d): they begin with it, multipliers 0."""
        n, _, d = Cbar.shape
        zero, none = np.zeros_like(Cbar), np.zeros(n)
        return cls(Cbar, Cbar, zero, zero, none, none, none, np.zeros((n, d, d)), np.zeros(n, dtype=bool))

    def step(
        self,
        problem: Decomposed,
        weight: FloatArray,
        penalty: FloatArray,
        allowed: BoolArray,
        Cbar: FloatArray,
        rules: PersonalRound,
        acyclicity: Acyclicity,
        solve: Solve | None = None,
    ) -> tuple[Members, FloatArray]:
        """Return the states after one round, and three norms for each site that say how far it is from the end.

        The norms are (K, 3), in the metric D: |T - Cbar|^2 (does the site agree with the others?), |X - C|^2 (do its two
        copies agree?), |C - C_before|^2 (does it still move?).

        Parameters
        ----------
        problem
            The sites' losses, already multiplied by their weights.
        weight
            (K,) weights w_k of the sites.
        penalty
            (q, d) L1 penalty L, not multiplied by a weight.
        allowed
            (K, q, d) edges that each site may have.
        Cbar
            (K, q, d) the shared graph, as each site has received it.
        rules
            What the server said about this round.
        acyclicity
            The function h.
        solve
            Solves the linear systems of the ordered stages; it may remember inverses of the round before.
        """
        D, mu = problem.metric[:, None], rules.mu
        gap = self.T - Cbar
        agreement = rules.agreement(problem.metric)
        U = self.U + rules.rho2_before * agreement * gap
        kappa2 = rules.rho2 * agreement
        weighted = weight[:, None, None] * penalty
        if rules.is_exact or rules.is_ordered:
            pull = 2.0 * mu * np.ones_like(D) if rules.is_exact else coupling(mu, kappa2)
            centre = self.T if rules.is_exact else Cbar - U / kappa2
            H, B = pulled(problem.wG, pull, centre)
            if rules.acyclic_steps:
                C, h = solve_personal(H, B, weighted, allowed, self._alpha(rules), self.C, rules, acyclicity)
                new = replace(self, C=C, h=h, alpha=self.alpha + rules.rho1 * h)
            else:
                new = replace(self, C=ordered_columns(H, B, weighted, allowed, self.C, solve))
            X, Y = new.C, self.Y if rules.is_exact else np.zeros_like(self.Y)
        else:
            rho = rules.rho * weight[:, None, None]
            kappa = rho * D
            X = problem.solve(self.C, self.Y, rho)
            m = coupling(mu, kappa2)
            total = kappa + m
            V = (kappa * X + self.Y + m * (Cbar - U / kappa2)) / total
            new = self._prox(V, total, weighted, allowed, rules, acyclicity)
            Y = self.Y + kappa * (X - new.C)
        moved, split = new.C - self.C, X - new.C
        norms = np.stack([dot(D * gap, gap), dot(D * split, split), dot(D * moved, moved)], axis=1)
        return replace(new, T=auxiliary(new.C, Cbar, U, mu, kappa2), U=U, Y=Y), norms

    def _alpha(self, rules: PersonalRound) -> FloatArray:
        return self.alpha if rules.alpha is None else np.full(len(self.alpha), rules.alpha)

    def _prox(
        self,
        V: FloatArray,
        kappa: FloatArray,
        penalty: FloatArray,
        allowed: BoolArray,
        rules: PersonalRound,
        acyclicity: Acyclicity,
    ) -> Members:
        d = V.shape[2]
        C = allowed * soft_threshold(V, penalty / kappa)
        if not rules.acyclic_steps:
            return replace(self, C=C)
        W, h, grad_h = self.C[:, :d].copy(), self.h.copy(), self.grad_h.copy()
        new = np.flatnonzero(~self.knows_h)
        if len(new):
            W[new], h[new], grad_h[new] = start_within_reach(W[new], acyclicity)
        found, _ = solve_acyclic_prox(
            V[:, :d],
            kappa[:, :d],
            penalty[:, :d],
            allowed[:, :d],
            self._alpha(rules),
            rules.rho1,
            AcyclicStart(W, h, grad_h, self.curvature),
            acyclicity,
            tol=rules.tol,
            max_steps=rules.acyclic_steps,
        )
        C[:, :d] = found.W
        return replace(
            self,
            C=C,
            h=found.h,
            grad_h=found.grad_h,
            curvature=found.curvature,
            alpha=self.alpha + rules.rho1 * found.h,
            knows_h=np.ones(len(C), dtype=bool),
        )


def solve_personal(
    H: FloatArray,
    B: FloatArray,
    penalty: FloatArray,
    allowed: BoolArray,
    alpha: FloatArray,
    C0: FloatArray,
    rules: PersonalRound,
    acyclicity: Acyclicity,
) -> tuple[FloatArray, FloatArray]:
    """Return C (K, q, d) and h(W) (K,): the personal step of the paper, by proximal gradient from C0.

        min_C  1/2 tr(C'HC) - tr(B'C) + sum(L o |C|) + alpha h(W) + rho1/2 h(W)^2

    The length of a step follows the curvature that the last step has met (Barzilai and Borwein), so it is longer than the
    largest curvature would allow. A step is taken if the objective falls below the worst of the last few steps; if not, a
    shorter one is tried (SpaRSA; Wright, Nowak and Figueiredo 2009). All sites that are not done try one step per turn.
    """
    rho1, tol, max_steps = rules.rho1, rules.tol, rules.acyclic_steps
    d = C0.shape[2]
    C = np.where(allowed, C0, 0.0)
    C[:, :d], h, grad_h = start_within_reach(C[:, :d], acyclicity)
    out_C, out_h = C.copy(), h.copy()

    def values(C: FloatArray, HC: FloatArray, h: FloatArray) -> FloatArray:
        smooth = 0.5 * dot(C, HC) - dot(B, C) + alpha * h + 0.5 * rho1 * h * h
        return smooth + dot(penalty, np.abs(C))

    def gradients(HC: FloatArray, h: FloatArray, grad_h: FloatArray) -> FloatArray:
        gradient = HC - B
        gradient[:, :d] += (alpha + rho1 * h)[:, None, None] * grad_h
        return gradient

    HC = H @ C
    M = np.linalg.eigvalsh(H)[:, -1]
    floor = _SMALLEST_STEP * M
    gradient = gradients(HC, h, grad_h)
    # The values of the last few steps, the newest last.
    recent = np.full((len(C), _MEMORY), -np.inf)
    recent[:, -1] = values(C, HC, h)
    live, n_steps = np.arange(len(C)), np.zeros(len(C), dtype=int)
    while len(live):
        at_M = M[:, None, None]
        new = allowed * soft_threshold(C - gradient / at_M, penalty / at_M)
        step = new - C
        length = dot(step, step)
        h_new, grad_new = acyclicity(new[:, :d])
        HC_new = H @ new
        value = values(new, HC_new, h_new)
        reference = recent.max(axis=1)
        enough = reference - 1e-4 * M * length + 1e-12 * np.maximum(1.0, np.abs(reference))
        taken = (value <= enough) | (M > 1e20)
        h = np.where(taken, h_new, h)
        gradient_new = gradients(HC_new, h, grad_new)
        still = taken & (np.abs(step).max(axis=(1, 2), initial=0.0) <= tol)
        curvature = dot(step, gradient_new - gradient) / np.where(length > 0.0, length, 1.0)
        M = np.where(taken, np.maximum(curvature, floor), 2.0 * M)
        n_steps += taken
        done = still | (n_steps >= max_steps)
        at = taken[:, None, None]
        C, gradient = np.where(at, new, C), np.where(at, gradient_new, gradient)
        recent[taken] = np.column_stack([recent[taken, 1:], value[taken]])
        if done.any():
            out_C[live[done]], out_h[live[done]] = C[done], h[done]
            rest = ~done
            live, n_steps, M, floor, recent = live[rest], n_steps[rest], M[rest], floor[rest], recent[rest]
            C, gradient, h, H, B = C[rest], gradient[rest], h[rest], H[rest], B[rest]
            penalty, allowed, alpha = penalty[rest], allowed[rest], alpha[rest]
    return out_C, out_h


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
