"""The site's half of PFDBNL: a personal graph, its auxiliary copy and their multipliers, one cheap step per round.

    min over C_k, C   sum_k  w_k (loss_k(C_k) + sum(L o |C_k|)) + mu |C_k - C|^2     subject to   W_k acyclic

Splitting. The quadratic loss sees X_k, everything else sees C_k; the pull towards the others sees T_k (the paper's
tilde), which must agree with the broadcast C:

    X_k = C_k   (multiplier Y_k, weight rho D)                   T_k = C   (multiplier U_k, weight kappa2)

With {X_k, C} and {C_k, T_k} as the two blocks this is ADMM of two blocks, and every step is closed form or a proximal
step on h alone:

    U_k += kappa2 (T_k - C)  [fdbnl] Eq. (para), personalised
    X_k  = argmin w_k loss_k(X) + tr(Y_k'(X - C_k)) + rho/2 |X - C_k|_D^2
    C_k  = argmin w_k sum(L o |C|) + alpha h + rho1/2 h^2 + rho/2 |X_k + Y_k/(rho D) - C|_D^2
                    + m/2 |C - (C - U_k/kappa2)|^2
    T_k  = (2 mu C_k + kappa2 C - U_k) / (2 mu + kappa2)                                   the paper's closed form
    Y_k += rho D (X_k - C_k)

where m = 2 mu kappa2 / (2 mu + kappa2) is what mu |C_k - T_k|^2 leaves of its curvature once T_k is minimised out.
kappa2 = rho2 mu D / (mu + D): what the others see of a site are two springs in series, its loss (D, in the units of each
variable) and the pull (mu, in none). With rho2 D instead, variables of large variance need a thousand rounds.
Once every site has its order, C_k's problem is convex and solved exactly with X_k = C_k: the split would take a thousand
rounds where columns are nearly dependent.
The paper alternates C_k and T_k instead, which crawls when mu is large; with T_k minimised out, mu -> infinity
simply is FDBNL. `schedule="paper"` keeps the paper's alternation (`solve_personal`).
# DEVIATES [fdbnl] Algorithm 2: C_k and T_k are minimised together; see test_paper_and_adaptive_solve_the_same_problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.fdbnl.local_step import LocalProblem
from feddbn.core.graphs.acyclicity import Acyclicity, start_within_reach
from feddbn.core.solvers.acyclic_prox import solve_acyclic_prox
from feddbn.core.solvers.lasso import loss_value, penalty_value, soft_threshold, solve_lasso
from feddbn.core.solvers.ordered_step import ordered_columns
from feddbn.core.solvers.sign_search import solve_active

__all__ = [
    "MEMORY",
    "SMALLEST_STEP",
    "PersonalMember",
    "PersonalRound",
    "PersonalStage",
    "auxiliary",
    "coupling",
    "objective_given",
    "solve_given",
    "solve_given_orders",
    "solve_ordered",
    "solve_personal",
]


MEMORY = 5
"""Steps whose worst objective the next one has to beat: long ones may rise for a moment."""
SMALLEST_STEP = 1e-3
"""Least curvature, relative to the largest of the quadratic, that a step may assume."""


class PersonalStage(Enum):
    """What the rounds are solving at the moment."""

    WARM = "warm"
    ACYCLIC = "acyclic"
    ORDER = "order"
    SEARCHED = "searched"
    CHOSEN = "chosen"
    LASSO = "lasso"
    SUPPORT = "support"


@dataclass(frozen=True)
class PersonalRound:
    """What the server says about one round besides C.

    Attributes
    ----------
    rho
        Weight of the site's own split X_k = C_k, per unit of the site's weight w_k.
    acyclic_steps
        Proximal steps on h at most; 0 where the order is fixed or cycles do not matter yet.
    alpha
        The shared multiplier of h; None where every site keeps its own.
    is_exact
        The paper's alternation with C_k solved to `tol` in at most `acyclic_steps`, instead of one split step. It starts
        where the last round ended: with weights up to 2 the first rounds stop short, the later ones do not.
    is_ordered
        Every site keeps to an order of its own, so its problem is convex: C_k is solved exactly, without the split.
    in_series
        kappa2 as above; the paper's is rho2 for all.
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


@dataclass(frozen=True)
class PersonalMember:
    """A site's personal state, all (q, d): C_k, T_k, U_k, Y_k, and what W_k's acyclicity needs.

    Attributes
    ----------
    alpha, h, curvature
        The site's own multiplier of h, h(W_k), and the step length its last proximal step ended with.
    grad_h
        (d, d) gradient of h at W_k, if the last step was on h: the next one starts from there.
    """

    C: FloatArray
    T: FloatArray
    U: FloatArray
    Y: FloatArray
    alpha: float = 0.0
    h: float = 0.0
    curvature: float = 0.0
    grad_h: FloatArray | None = None

    @classmethod
    def start(cls, Cbar: FloatArray) -> PersonalMember:
        """State of a site that joins when the consensus is Cbar: it starts there, with nothing to object."""
        zero = np.zeros_like(Cbar)
        return cls(Cbar, Cbar, zero, zero)

    def step(
        self,
        problem: LocalProblem,
        weight: float,
        penalty: FloatArray,
        allowed: BoolArray,
        Cbar: FloatArray,
        rules: PersonalRound,
        acyclicity: Acyclicity,
    ) -> tuple[PersonalMember, FloatArray]:
        """Return the state after the round and [|T - Cbar|^2, |X - C|^2, |C - C_before|^2, |U|^2], in the metric D.

        `penalty` is L, unweighted; `problem` already carries the weight.
        """
        D = problem.metric[:, None]
        gap = self.T - Cbar
        agreement = rules.agreement(problem.metric)
        U = self.U + rules.rho2_before * agreement * gap
        kappa2 = rules.rho2 * agreement
        if rules.is_exact:
            H, B = _pulled(problem, 2.0 * rules.mu * np.ones_like(D), self.T)
            member = self._acyclic(H, B, weight * penalty, allowed, rules, acyclicity)
            X, Y = member.C, self.Y
        elif rules.is_ordered:
            H, B = _pulled(problem, coupling(rules.mu, kappa2), Cbar - U / kappa2)
            member = replace(self, C=solve_ordered(H, B, weight * penalty, allowed, self.C))
            X, Y = member.C, np.zeros_like(self.Y)
        else:
            kappa = rules.rho * weight * D
            X = problem.solve(self.C, self.Y, rules.rho * weight)
            m = coupling(rules.mu, kappa2)
            total = kappa + m
            V = (kappa * X + self.Y + m * (Cbar - U / kappa2)) / total
            member = self._prox(V, total, weight * penalty, allowed, rules, acyclicity)
            Y = self.Y + kappa * (X - member.C)
        T = auxiliary(member.C, Cbar, U, rules.mu, kappa2)
        moved = member.C - self.C
        split = X - member.C
        norms = np.array(
            [np.vdot(D * gap, gap), np.vdot(D * split, split), np.vdot(D * moved, moved), np.vdot(U / D, U)]
        )
        stepped = PersonalMember(member.C, T, U, Y, member.alpha, member.h, member.curvature, member.grad_h)
        return stepped, norms

    def _prox(
        self,
        V: FloatArray,
        kappa: FloatArray,
        penalty: FloatArray,
        allowed: BoolArray,
        rules: PersonalRound,
        acyclicity: Acyclicity,
    ) -> PersonalMember:
        d = V.shape[1]
        C = allowed * soft_threshold(V, penalty / kappa)
        if not rules.acyclic_steps:
            return replace(self, C=C)
        alpha = self.alpha if rules.alpha is None else rules.alpha
        step = solve_acyclic_prox(
            V[:d],
            kappa[:d],
            penalty[:d],
            allowed[:d],
            alpha,
            rules.rho1,
            self.C[:d],
            acyclicity,
            curvature=self.curvature,
            tol=rules.tol,
            max_steps=rules.acyclic_steps,
            known=None if self.grad_h is None else (self.h, self.grad_h),
        )
        C[:d] = step.W
        return replace(
            self,
            C=C,
            h=step.h,
            alpha=self.alpha + rules.rho1 * step.h,
            curvature=step.curvature,
            grad_h=step.grad_h,
        )

    def _acyclic(
        self,
        H: FloatArray,
        B: FloatArray,
        penalty: FloatArray,
        allowed: BoolArray,
        rules: PersonalRound,
        acyclicity: Acyclicity,
    ) -> PersonalMember:
        if not rules.acyclic_steps:
            return replace(self, C=solve_ordered(H, B, penalty, allowed, self.C))
        alpha = self.alpha if rules.alpha is None else rules.alpha
        C, h = solve_personal(
            H,
            B,
            penalty,
            allowed,
            alpha,
            rules.rho1,
            self.C,
            acyclicity,
            tol=rules.tol,
            max_steps=rules.acyclic_steps,
        )
        return replace(self, C=C, h=h, alpha=self.alpha + rules.rho1 * h)


def solve_personal(
    H: FloatArray,
    B: FloatArray,
    penalty: FloatArray,
    allowed: BoolArray,
    alpha: float,
    rho1: float,
    C0: FloatArray,
    acyclicity: Acyclicity,
    *,
    tol: float = 1e-6,
    max_steps: int = 500,
) -> tuple[FloatArray, float]:
    """Return C and h(W): the paper's personal step, warm-started, by proximal gradient.

        min_C  1/2 tr(C'HC) - tr(B'C) + sum(L o |C|) + alpha h(W) + rho1/2 h(W)^2

    Step lengths are those of Barzilai and Borwein, which follow the curvature along the path instead of the largest one;
    a step is taken only if the objective falls below the worst of the last few (SpaRSA; Wright, Nowak and Figueiredo
    2009).
    """
    d = C0.shape[1]
    C = np.where(allowed, C0, 0.0)
    C[:d], h, grad_h = start_within_reach(C[:d], acyclicity)
    HC = H @ C
    largest = float(np.linalg.eigvalsh(H)[-1])
    M, floor = largest, SMALLEST_STEP * largest

    def value_at(C: FloatArray, HC: FloatArray, h: float) -> float:
        smooth = 0.5 * float(np.vdot(C, HC)) - float(np.vdot(B, C)) + alpha * h + 0.5 * rho1 * h * h
        return smooth + penalty_value(C, penalty)

    def gradient_at(HC: FloatArray, h: float, grad_h: FloatArray) -> FloatArray:
        gradient = HC - B
        gradient[:d] += (alpha + rho1 * h) * grad_h
        return gradient

    values = [value_at(C, HC, h)]
    gradient = gradient_at(HC, h, grad_h)
    for _ in range(max_steps):
        reference = max(values[-MEMORY:])
        while True:
            new = allowed * soft_threshold(C - gradient / M, penalty / M)
            step = new - C
            length = float(np.vdot(step, step))
            h_new, grad_new = acyclicity(new[:d])
            HC_new = H @ new
            value = value_at(new, HC_new, h_new)
            if value <= reference - 1e-4 * M * length + 1e-12 * max(1.0, abs(reference)) or M > 1e20:
                break
            M *= 2.0
        gradient_new = gradient_at(HC_new, h_new, grad_new)
        C, HC, h = new, HC_new, h_new
        values.append(value)
        if np.abs(step).max(initial=0.0) <= tol:
            break
        curvature = float(np.vdot(step, gradient_new - gradient)) / length
        gradient = gradient_new
        M = max(curvature, floor)
    return C, h


def solve_ordered(
    H: FloatArray, B: FloatArray, penalty: FloatArray, allowed: BoolArray, C0: FloatArray
) -> FloatArray:
    """Return argmin 1/2 tr(C'HC) - tr(B'C) + sum(penalty o |C|) within `allowed`, for a positive definite H."""
    site = np.zeros(B.shape[1], dtype=np.intp)

    def solve(active: BoolArray, right: FloatArray) -> FloatArray:
        return solve_active(H[None], site, active[0], right[0])[None]

    C: FloatArray = ordered_columns(solve, H[None], B[None], penalty[None], allowed[None], C0[None])[0]
    return C


def _pulled(problem: LocalProblem, pull: FloatArray, centre: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return H and B of ``w loss(C) + pull/2 |C - centre|^2 = 1/2 tr(C'HC) - tr(B'C) + const``; pull is (q, 1)."""
    return problem.wG + np.diag(pull[:, 0]), problem.wG[:, : problem.d] + pull * centre


def solve_given(
    problem: LocalProblem,
    mu: float,
    centre: FloatArray,
    penalty: FloatArray,
    allowed: BoolArray,
    C0: FloatArray | None = None,
) -> FloatArray:
    """Return argmin w loss(C) + sum(penalty o |C|) + mu |C - centre|^2 within `allowed`; convex, exact.

    `penalty` already carries the weight; without any, every column is one small linear system. mu = infinity
    returns the centre within `allowed`.
    """
    if np.isinf(mu):
        return np.where(allowed, centre, 0.0)
    H, B = _pulled(problem, np.full((len(centre), 1), 2.0 * mu), centre)
    if penalty.any():
        if mu > 0:
            return solve_ordered(H, B, penalty, allowed, np.zeros_like(centre) if C0 is None else C0)
        # Without a pull, fewer rows than columns leave H singular.
        return solve_lasso(H, penalty, allowed, C0, tol=1e-7, linear=B)
    C = np.zeros_like(centre)
    for j in range(problem.d):
        support = np.flatnonzero(allowed[:, j])
        if len(support):
            C[support, j] = np.linalg.solve(H[np.ix_(support, support)], B[support, j])
    return C


def solve_given_orders(
    problem: LocalProblem,
    mu: float,
    centre: FloatArray,
    penalty: FloatArray,
    orders: Sequence[BoolArray],
    C0: FloatArray,
) -> list[FloatArray]:
    """Return `solve_given` within each of these orders, for a finite mu: the columns of all orders are one batch."""
    H, B = _pulled(problem, np.full((len(centre), 1), 2.0 * mu), centre)
    B, penalty, C0 = (np.tile(X, (1, len(orders))) for X in (B, penalty, C0))
    return np.split(solve_ordered(H, B, penalty, np.hstack(orders), C0), len(orders), axis=1)


def objective_given(
    problem: LocalProblem, mu: float, centre: FloatArray, penalty: FloatArray, C: FloatArray
) -> float:
    """Return w loss(C) + sum(penalty o |C|) + mu |C - centre|^2."""
    value = loss_value(problem.wG, C) + penalty_value(C, penalty)
    if np.isinf(mu):
        return value
    gap = C - centre
    return value + mu * float(np.vdot(gap, gap))
