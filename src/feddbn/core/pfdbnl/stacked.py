"""The rounds of PFDBNL at many sites at once: the formulas of `personal_step` with a leading axis for the sites.

Only what every round does is here. What a site does when a stage begins (its order, its support) is `personal_site`'s;
`StackedMembers.member` and `put_member` go from one form to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.fdbnl.local_step import LocalProblem
from feddbn.core.graphs.acyclicity import Acyclicity
from feddbn.core.graphs.stacked_acyclicity import (
    StackedSteps,
    acyclic_prox_of_all,
    starts_within_reach,
    values_and_grads,
)
from feddbn.core.pfdbnl.step import (
    MEMORY,
    SMALLEST_STEP,
    PersonalMember,
    PersonalRound,
    auxiliary,
    coupling,
)
from feddbn.core.solvers.lasso import soft_threshold
from feddbn.core.solvers.ordered_step import StackedInverses, ordered_columns

__all__ = ["StackedMembers", "StackedProblems", "personal_of_all"]


@dataclass(frozen=True)
class StackedProblems:
    """`LocalProblem` of K sites with one metric: wG, V (K, q, q), e (K, q, 1), metric (q,), weight (K, 1, 1)."""

    wG: FloatArray
    V: FloatArray
    e: FloatArray
    metric: FloatArray
    weight: FloatArray
    d: int

    @classmethod
    def room(cls, n_sites: int, d: int, metric: FloatArray) -> StackedProblems:
        """Return room for the problems of so many sites."""
        q = len(metric)
        square = (n_sites, q, q)
        return cls(
            np.zeros(square), np.zeros(square), np.zeros((n_sites, q, 1)), metric, np.ones((n_sites, 1, 1)), d
        )

    def put(self, k: int, problem: LocalProblem, weight: float) -> LocalProblem:
        """Take a site's problem in and return it as a view, so that it is held once."""
        self.wG[k], self.V[k], self.e[k, :, 0], self.weight[k] = problem.wG, problem.V, problem.e, weight
        return LocalProblem(self.wG[k], self.d, self.V[k], self.e[k, :, 0], self.metric)

    def take(self, at: NDArray[np.intp]) -> StackedProblems:
        """Return some of the sites' problems."""
        return StackedProblems(self.wG[at], self.V[at], self.e[at], self.metric, self.weight[at], self.d)

    def solve(self, C: FloatArray, U: FloatArray, rho2: FloatArray) -> FloatArray:
        """Return `LocalProblem.solve` of every site; `rho2` is (K, 1, 1)."""
        right = self.wG[:, :, : self.d] - U + rho2 * self.metric[:, None] * C
        solution: FloatArray = self.V @ ((self.V.transpose(0, 2, 1) @ right) / (self.e + rho2))
        return solution

    def pulled(self, pull: FloatArray, centre: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return H and B of every ``w loss(C) + pull/2 |C - centre|^2``; pull is (q, 1)."""
        return self.wG + np.diag(pull[:, 0]), self.wG[:, :, : self.d] + pull * centre

    def objective(self, mu: float, centre: FloatArray, penalty: FloatArray, C: FloatArray) -> FloatArray:
        """Return (K,) `personal_step.objective_given` of every site; `penalty` carries the weight."""
        R = -C
        diagonal = np.einsum("kii->ki", R[:, : self.d])
        diagonal += 1.0
        value: FloatArray = 0.5 * _dot(R, self.wG @ R) + _dot(penalty, np.abs(C))
        if np.isinf(mu):
            return value
        gap = C - centre
        return value + mu * _dot(gap, gap)


@dataclass
class StackedMembers:
    """`PersonalMember` of K sites: C, T, U, Y (K, q, d), alpha, h, curvature (K,), grad_h (K, d, d) where `knows_h`."""

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
    def room(cls, n_sites: int, q: int, d: int) -> StackedMembers:
        """Return room for the states of so many sites."""
        C, T, U, Y = np.zeros((4, n_sites, q, d))
        alpha, h, curvature = np.zeros((3, n_sites))
        return cls(C, T, U, Y, alpha, h, curvature, np.zeros((n_sites, d, d)), np.zeros(n_sites, dtype=bool))

    def take(self, at: NDArray[np.intp]) -> StackedMembers:
        """Return a copy of some of the sites' states."""
        return StackedMembers(*(array[at] for array in vars(self).values()))

    def put(self, at: NDArray[np.intp], members: StackedMembers) -> None:
        """Write some of the sites' states back."""
        for mine, new in zip(vars(self).values(), vars(members).values(), strict=True):
            mine[at] = new

    def member(self, k: int) -> PersonalMember:
        """Return a copy of one site's state."""
        C, T, U, Y = (array[k].copy() for array in (self.C, self.T, self.U, self.Y))
        alpha, h, curvature = (float(array[k]) for array in (self.alpha, self.h, self.curvature))
        return PersonalMember(
            C, T, U, Y, alpha, h, curvature, self.grad_h[k].copy() if self.knows_h[k] else None
        )

    def put_member(self, k: int, member: PersonalMember) -> None:
        """Write one site's state."""
        for name in ("C", "T", "U", "Y", "alpha", "h", "curvature"):
            getattr(self, name)[k] = getattr(member, name)
        self.knows_h[k] = member.grad_h is not None
        if member.grad_h is not None:
            self.grad_h[k] = member.grad_h

    def step(
        self,
        problems: StackedProblems,
        penalty: FloatArray,
        allowed: BoolArray,
        Cbar: FloatArray,
        rules: PersonalRound,
        acyclicity: Acyclicity,
        inverses: StackedInverses,
        at: NDArray[np.intp],
    ) -> FloatArray:
        """Do `PersonalMember.step` at every site, in place, and return (K, 4) its norms.

        `penalty` is (q, d), unweighted; `allowed` and `Cbar` are (K, q, d). `at` are the sites' numbers in `inverses`.
        """
        D, mu = problems.metric[:, None], rules.mu
        gap, before = self.T - Cbar, self.C
        agreement = rules.agreement(problems.metric)
        self.U = self.U + rules.rho2_before * agreement * gap
        kappa2 = rules.rho2 * agreement
        weighted = problems.weight * penalty
        if rules.is_exact:
            pull = 2.0 * mu * np.ones_like(D)
            H, B = problems.pulled(pull, self.T)
            if rules.acyclic_steps:
                alpha = self._alpha(rules)
                self.C, self.h = personal_of_all(
                    H,
                    B,
                    weighted,
                    allowed,
                    alpha,
                    rules.rho1,
                    self.C,
                    acyclicity,
                    tol=rules.tol,
                    max_steps=rules.acyclic_steps,
                )
                self.alpha = self.alpha + rules.rho1 * self.h
            else:
                self.C = ordered_columns(
                    partial(inverses.solve, at, pull, H), H, B, weighted, allowed, self.C
                )
            X = self.C
        elif rules.is_ordered:
            pull = coupling(mu, kappa2)
            H, B = problems.pulled(pull, Cbar - self.U / kappa2)
            self.C = ordered_columns(partial(inverses.solve, at, pull, H), H, B, weighted, allowed, self.C)
            X, self.Y = self.C, np.zeros_like(self.Y)
        else:
            rho = rules.rho * problems.weight
            kappa = rho * D
            X = problems.solve(self.C, self.Y, rho)
            m = coupling(mu, kappa2)
            total = kappa + m
            V = (kappa * X + self.Y + m * (Cbar - self.U / kappa2)) / total
            self._prox(V, total, weighted, allowed, rules, acyclicity)
            self.Y = self.Y + kappa * (X - self.C)
        self.T = auxiliary(self.C, Cbar, self.U, mu, kappa2)
        moved, split = self.C - before, X - self.C
        return np.stack(
            [_dot(D * gap, gap), _dot(D * split, split), _dot(D * moved, moved), _dot(self.U / D, self.U)],
            axis=1,
        )

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
    ) -> None:
        d = V.shape[2]
        C = allowed * soft_threshold(V, penalty / kappa)
        if rules.acyclic_steps:
            W, h, grad_h = self.C[:, :d].copy(), self.h.copy(), self.grad_h.copy()
            new = np.flatnonzero(~self.knows_h)
            if len(new):
                W[new], h[new], grad_h[new] = starts_within_reach(W[new], acyclicity)
            found = acyclic_prox_of_all(
                V[:, :d],
                kappa[:, :d],
                penalty[:, :d],
                allowed[:, :d],
                self._alpha(rules),
                rules.rho1,
                StackedSteps(W, h, grad_h, self.curvature),
                acyclicity,
                tol=rules.tol,
                max_steps=rules.acyclic_steps,
            )
            C[:, :d] = found.W
            self.h, self.grad_h, self.curvature = found.h, found.grad_h, found.curvature
            self.alpha = self.alpha + rules.rho1 * self.h
            self.knows_h = np.ones(len(C), dtype=bool)
        self.C = C


def _dot(X: FloatArray, Y: FloatArray) -> FloatArray:
    """(K,) sum of the products of corresponding entries, per site."""
    product: FloatArray = np.einsum("kij,kij->k", X, Y)
    return product


def personal_of_all(
    H: FloatArray,
    B: FloatArray,
    penalty: FloatArray,
    allowed: BoolArray,
    alpha: FloatArray,
    rho1: float,
    C0: FloatArray,
    acyclicity: Acyclicity,
    *,
    tol: float,
    max_steps: int,
) -> tuple[FloatArray, FloatArray]:
    """Return `personal_step.solve_personal` of every site: (K, q, d) weights and (K,) h.

    One turn is one trial step of every site that is not done.
    """
    d = C0.shape[2]
    C = np.where(allowed, C0, 0.0)
    C[:, :d], h, grad_h = starts_within_reach(C[:, :d], acyclicity)
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
    floor = SMALLEST_STEP * M
    gradient = gradients(HC, h, grad_h)
    # The values of the last few steps, the newest last.
    recent = np.full((len(C), MEMORY), -np.inf)
    recent[:, -1] = values(C, HC, h)
    live, n_steps = np.arange(len(C)), np.zeros(len(C), dtype=int)
    while len(live):
        at_M = M[:, None, None]
        new = allowed * soft_threshold(C - gradient / at_M, penalty / at_M)
        step = new - C
        length = _dot(step, step)
        h_new, grad_new = values_and_grads(new[:, :d], acyclicity)
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
