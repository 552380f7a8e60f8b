"""The site's half of a PFDBNL round, for many sites at once.

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
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.fdbnl.site import Decomposed
from feddbn.core.graphs.acyclicity import Acyclicity, start_within_reach
from feddbn.core.solvers.acyclic_prox import AcyclicStart, solve_acyclic_prox
from feddbn.core.solvers.lasso import Solve, ordered_columns, soft_threshold

__all__ = [
    "Members",
    "PersonalRound",
    "auxiliary",
    "coupling",
    "objectives",
    "pulled",
    "solve_personal",
]

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
    value: FloatArray = 0.5 * _dot(R, wG @ R) + _dot(penalty, np.abs(C))
    if np.isinf(mu):
        return value
    gap = C - centre
    return value + mu * _dot(gap, gap)


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
        norms = np.stack([_dot(D * gap, gap), _dot(D * split, split), _dot(D * moved, moved)], axis=1)
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


def _dot(X: FloatArray, Y: FloatArray) -> FloatArray:
    """(K,) sum of the products of corresponding entries, per site."""
    product: FloatArray = np.einsum("kij,kij->k", X, Y)
    return product


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
        smooth = 0.5 * _dot(C, HC) - _dot(B, C) + alpha * h + 0.5 * rho1 * h * h
        return smooth + _dot(penalty, np.abs(C))

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
        length = _dot(step, step)
        h_new, grad_new = acyclicity(new[:, :d])
        HC_new = H @ new
        value = values(new, HC_new, h_new)
        reference = recent.max(axis=1)
        enough = reference - 1e-4 * M * length + 1e-12 * np.maximum(1.0, np.abs(reference))
        taken = (value <= enough) | (M > 1e20)
        h = np.where(taken, h_new, h)
        gradient_new = gradients(HC_new, h, grad_new)
        still = taken & (np.abs(step).max(axis=(1, 2), initial=0.0) <= tol)
        curvature = _dot(step, gradient_new - gradient) / np.where(length > 0.0, length, 1.0)
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
