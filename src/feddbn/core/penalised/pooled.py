"""FDBNL on the summed Gram matrix: what all its runs share, the run that needs no sites, and the learner.

    min_{W, A}  1/2 tr((E - C)' G (E - C)) + sum(L o |C|)   subject to   h(W) = 0          [fdbnl] Eq. (V1)

Theory of operation
-------------------
The pooled loss depends on the rows through G only, so neither the path through the non-convex part nor its local optimum
depends on how rows are split among sites:

    WARM      the lasso without acyclicity
    ACYCLIC   acyclicity gains weight slowly, from almost nothing: a homotopy
    LASSO     h is small: the order is fixed; the convex problem within it is solved
    SUPPORT   (refit) no penalty, only the edges whose penalised weight comes near their threshold
    FINAL     (refit) no penalty, only the edges above their thresholds

Unless ``optimum="path"``, the order is not the path's own but the best that a search finds (`searched`). As the path is
only one of the starts, it is left after `most_acyclic` steps, wherever it is then. With many variables (`goes_straight`)
it is not followed at all.

Known weakness: the acyclic stage is a local method; with ``optimum="path"`` the answer depends on the penalty path.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.constraints import (
    CANDIDATE_SHARE,
    DroppedEdge,
    EdgeConstraints,
    break_cycles,
    threshold,
    topological_order,
)
from feddbn.core.orders.search import order_of_gram
from feddbn.core.penalised.acyclicity import (
    AcyclicStart,
    get_acyclicity,
    solve_acyclic_prox,
    start_within_reach,
)
from feddbn.core.penalised.lasso import penalty_value, soft_threshold, solve_by_signs
from feddbn.core.penalised.optimum import BestOrder, Certificate, LassoScores, best_order, order_as_it_is
from feddbn.core.penalised.path import (
    FOLLOW,
    RoundRecord,
    RunOptions,
    Schedule,
    Stage,
    StagedPath,
    Status,
    make_schedule,
)
from feddbn.core.statistics.diagnostics import (
    ScaleChoice,
    Units,
    choose_scale,
    summary_of_moments,
    units_of,
)
from feddbn.core.statistics.moments import Moments

MANY_NODES = 200
"""With more variables the order is OneShotDBN's, and no path is followed: its matrix exponentials and the lassos of moves
would take hours."""
BUDGETS = {"order": 6000, "exact": 300_000}
"""Lassos that a search may solve: work, not time, so that every machine finds the same order."""
OPTIMA = (*BUDGETS, "path")
_WHOLE_BUDGET = 50
# Smallest eigenvalue of the Gram matrix, as a share of the largest.
_FLOOR = 1e-14
# Where the order is searched, the path only offers a start: paths that have not ended by then never did (docs/optimum.md).
_MOST_ACYCLIC = 200.0


def goes_straight(options: RunOptions) -> bool:
    """Whether a run that searches takes the order of OneShotDBN, without a path or moves of its own."""
    return options.constraints.d > MANY_NODES and options.n_rows is not None and options.optimum != "exact"


def searched(H: FloatArray, options: RunOptions, own: list[int]) -> BestOrder:
    """Return the best order found, with its certificate, for the Gram matrix H in units of the metric.

    The search starts from the run's `own` order and, if the number of rows is known, from the first one of OneShotDBN.
    """
    constraints, root = options.constraints, np.sqrt(options.metric)[:, None]
    is_large = goes_straight(options)
    units = root[: constraints.d, 0]
    starts = [own]
    if options.n_rows is not None:
        G = root * H * root.T / options.schedule.total_weight
        first = order_of_gram(G, options.n_rows, constraints, moves=is_large)
        starts = [first] if is_large else [own, first]
    scores = LassoScores(
        H, options.penalty / (root * units), constraints.allowed, constraints.required, units**2
    )
    if is_large:
        return order_as_it_is(scores, starts[0])
    # Lassos of many variables take longer.
    budget = BUDGETS[options.optimum] * _WHOLE_BUDGET // max(constraints.d, _WHOLE_BUDGET)
    return best_order(scores, starts, budget)


class PooledRun(StagedPath):
    """A run of FDBNL so far: what the run on the Gram matrix and the one by the paper's schedule share.

    Attributes
    ----------
    C_raw
        The penalised weights, once the penalised stages are over.
    dropped
        Edges that were dropped to break cycles.
    target_loss
        (d,) the last loss of each variable.
    n_evaluations
        How often h was evaluated.
    certificate
        How far from the global minimum the penalised weights can be; None if no order was searched.
    """

    patience = 15.0
    # How exactly the acyclic step is solved, and in how many steps at most.
    _acyclic_tol = 1e-5
    _acyclic_steps = 50

    def __init__(self, options: RunOptions) -> None:
        super().__init__(options)
        self.options = options
        self.certificate: Certificate | None = None
        self.C: FloatArray = np.zeros(options.penalty.shape)
        self._iterate = self._iterate_before = self.C
        self.C_raw: FloatArray | None = None
        self.h = 0.0
        self.dropped: list[DroppedEdge] = []
        self.target_loss: FloatArray | None = None
        self.n_evaluations, self.raw_objective = 0, float("nan")
        self._allowed: BoolArray = options.constraints.allowed
        self._penalty = options.penalty
        self._acyclic: AcyclicStart | None = None

    def graph(self) -> FloatArray:
        """Return the final weights: refitted if asked for, thresholded, without cycles."""
        if self.stage is Stage.FINAL or self.C_raw is None:
            return self.C
        # Without refit this is the paper's rule: threshold the penalised weights.
        constraints, d = self.options.constraints, self.options.constraints.d
        C = threshold(self.C_raw, constraints.required, self.options.w_threshold, self.options.a_threshold)
        C[:d], dropped = break_cycles(C[:d], constraints.required[:d])
        self.dropped += [edge for edge in dropped if edge not in self.dropped]
        return C

    def _record(self, primal: float, dual: float) -> None:
        assert self.target_loss is not None
        objective = float(self.target_loss.sum()) + penalty_value(self.C, self.options.penalty)
        self.history.append(
            RoundRecord(self.round, self.stage.value, self.h, primal, dual, objective, self.rho1, self.rho2)
        )

    def _proximal_step(self, V: FloatArray, kappa: FloatArray) -> FloatArray:
        """Return argmin 1/2 |C - V|_kappa^2 + penalties [+ acyclicity]: A exactly, W warm-started."""
        C: FloatArray = self._allowed * soft_threshold(V, self._penalty / kappa)
        if self.stage is not Stage.ACYCLIC:
            return C
        d = self.options.constraints.d
        if self._acyclic is None:
            W = self._iterate[None, :d]
            self._acyclic = AcyclicStart(*start_within_reach(W, self.options.acyclicity), np.zeros(1))
            self.n_evaluations += 1
        # The next step starts where this one ends.
        self._acyclic, n_evaluations = solve_acyclic_prox(
            V[None, :d],
            kappa[None, :d],
            self._penalty[None, :d],
            self._allowed[None, :d],
            np.array([self.alpha]),
            self.rho1,
            self._acyclic,
            self.options.acyclicity,
            tol=self._acyclic_tol,
            max_steps=self._acyclic_steps,
        )
        C[:d], self.h = self._acyclic.W[0], float(self._acyclic.h[0])
        self.n_evaluations += n_evaluations
        return C

    def _next_stage(self) -> bool:
        """Enter the next stage; True if the run is over."""
        if self.stage in (Stage.ACYCLIC, Stage.LASSO):
            self._keep_raw()
            if self.options.refit:
                self._keep_support(Stage.SUPPORT)
                return False
        elif self.stage is Stage.SUPPORT:
            self._keep_support(Stage.FINAL)
            return False
        self._finish(Status.CONVERGED)
        return True

    def _keep_support(self, stage: Stage) -> None:
        """Enter a stage of the refit: its edges are those whose weight is near the thresholds, or above them."""
        options, d = self.options, self.options.constraints.d
        required = options.constraints.required
        W, dropped = break_cycles(self.C[:d], required[:d])
        self.dropped += dropped
        support = self.C != 0
        support[:d] = W != 0
        share = 1.0 if stage is Stage.FINAL else CANDIDATE_SHARE
        support &= threshold(self.C, required, share * options.w_threshold, share * options.a_threshold) != 0
        self._allowed = support | required
        self._penalty = np.zeros_like(options.penalty)
        self._enter(stage)

    def _enter(self, stage: Stage) -> None:
        self.stage, self._stage_start = stage, self.round

    def _gave_up(self) -> bool:
        """End a run that has used up its rounds; whether it had."""
        if self._is_over() and self.C_raw is None:
            self._keep_raw()
        return self.is_done

    def _keep_raw(self) -> None:
        self.C_raw, self.raw_objective = self.C, self.history[-1].objective

    def _norm(self, C: FloatArray) -> float:
        """Frobenius norm in the metric D."""
        return float(np.sqrt(np.vdot(self.options.metric[:, None] * C, C)))


class GramRun(PooledRun):
    """A run on the Gram matrix G (q, q) of all rows: call `finish`.

    WARM and ACYCLIC are proximal gradient steps with momentum. The later stages are convex and separate into one lasso, or
    regression, for each variable, each of which has an exact solution.
    """

    # The path only has to be followed; exactness is bought in the convex stages.
    _acyclic_tol = 1e-3
    _acyclic_steps = 10

    def __init__(self, G: FloatArray, options: RunOptions) -> None:
        super().__init__(options)
        self._G = G
        root = np.sqrt(options.metric)
        self._H = _raised(G / np.outer(root, root))
        self._searches = options.optimum != "path"
        if self._searches:
            self.most_acyclic = _MOST_ACYCLIC
            # Before the search a step more is taken in WARM.
            self._stage_start = 1.0
        self._lipschitz = options.schedule.total_weight
        self._gradient_before: tuple[FloatArray, FloatArray] | None = None
        self._momentum = 1.0

    def finish(self) -> None:
        """Go on to the end."""
        if self.stage is Stage.WARM:
            if self._searches and goes_straight(self.options):
                self._find_order()
            elif not self._follow_path():
                return
        while not self.is_done:
            self._solve_stage()
            if self._next_stage():
                return

    def _follow_path(self) -> bool:
        """Take the steps of WARM and ACYCLIC; False if they used up the rounds."""
        while True:
            self.target_loss, gradient = loss_and_grad(self._G, self.C)
            # At the starting point nothing has moved yet.
            moved = self._norm(self._iterate - self._iterate_before) if self.history else float("inf")
            scale = max(self._norm(self.C), 1e-12)
            self._record(moved, moved)
            if self._has_led_on(self.round - self._stage_start, moved / scale, self.h):
                if self.stage is Stage.ACYCLIC:
                    self._find_order()
                    return True
                # Acyclicity competes with the loss that is left when nothing forbids cycles: that sets its unit.
                self.rho1 *= float(self.target_loss.sum()) / len(self.target_loss)
                self._enter(Stage.ACYCLIC)
            if self._gave_up():
                return False
            self._gradient_step(gradient)

    def _gradient_step(self, gradient: FloatArray) -> None:
        """Proximal gradient step from `C` in the metric D, then momentum.

        The step length comes from the curvature seen along the path, ``<dC, dG> / |dC|_D^2``.
        """
        D = self.options.metric[:, None]
        if self._gradient_before is not None:
            dC, dG = self.C - self._gradient_before[0], gradient - self._gradient_before[1]
            length = float(np.sum(D * dC * dC))
            if length > 1e-20:
                self._lipschitz = max(self._lipschitz, 1.1 * float(np.sum(dC * dG)) / length)
        self._gradient_before = (self.C, gradient)
        kappa = self._lipschitz * D
        new = self._proximal_step(self.C - gradient / kappa, kappa)
        step = new - self._iterate
        # Restart the momentum when it points uphill (O'Donoghue and Candes 2015).
        if float(np.sum(D * (self.C - new) * step)) > 0:
            self._momentum = 1.0
        momentum = (1.0 + np.sqrt(1.0 + 4.0 * self._momentum**2)) / 2.0
        self._iterate_before, self._iterate = self._iterate, new
        self.C = self._allowed * (new + (self._momentum - 1.0) / momentum * step)
        self._momentum = momentum
        if self.stage is Stage.ACYCLIC:
            self._tighten(self.h, self._norm(step) <= FOLLOW * max(self._norm(new), 1e-12))

    def _find_order(self) -> None:
        """Fix the order: the path's, or the best one that is found."""
        constraints, d = self.options.constraints, self.options.constraints.d
        W, _ = break_cycles(self._iterate[:d], constraints.required[:d])
        order = topological_order((W != 0) | constraints.required[:d])
        if self._searches:
            found = searched(self._H, self.options, order)
            order, self.certificate = list(found.order), found.certificate
        self._allowed = constraints.within_order(order).allowed
        self.C, self.h = np.where(self._allowed, self._iterate, 0.0), 0.0
        self._enter(Stage.LASSO)

    def _solve_stage(self) -> None:
        """Solve the problem of the present convex stage."""
        root = np.sqrt(self.options.metric)[:, None]
        d, H = self.options.constraints.d, self._H
        linear = H[:, :d] * root[:d, 0]
        before = self.C
        self.C = solve_by_signs(H, linear, self._penalty / root, self._allowed, root * before) / root
        self.target_loss, _ = loss_and_grad(self._G, self.C)
        moved = self._norm(self.C - before)
        self._record(moved, moved)

    def _keep_raw(self) -> None:
        super()._keep_raw()
        if self.certificate is not None:
            self.certificate = self.certificate.reached(self.raw_objective)
        elif self._searches and self.stage is Stage.LASSO:
            # No order was open: the problem was convex from the beginning.
            self.certificate = Certificate(self.raw_objective, self.raw_objective)


def _raised(H: FloatArray) -> FloatArray:
    """Return H with all eigenvalues at least the floor: smaller ones are rounding, and would send a step far away."""
    H = (H + H.T) / 2
    lifted = H.copy()
    lifted.flat[:: len(H) + 1] -= _FLOOR * float(np.abs(H).sum(axis=0).max())
    # A Cholesky factor shows at once that all of them are.
    if not dpotrf(lifted, lower=1, overwrite_a=1)[1]:
        return H
    values, vectors = np.linalg.eigh(H)
    return np.asarray((vectors * np.maximum(values, _FLOOR * values[-1])) @ vectors.T)


def loss_and_grad(wG: FloatArray, C: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (..., d) the weighted losses of each target and (..., q, d) their gradients ``w G (C - E)`` at C, (q, d).

    The losses are the diagonal of ``w/2 (E-C)' G (E-C)``; both need one product with G, which is one for all sites.
    """
    q, d = C.shape
    R = C.copy()
    R[:d].flat[:: d + 1] -= 1.0
    gradient = (wG.reshape(-1, q) @ R).reshape(*wG.shape[:-1], d)
    return np.einsum("ij,...ij->...j", 0.5 * R, gradient), gradient


def penalty_matrix(constraints: EdgeConstraints, lambda_w: float, lambda_a: float) -> FloatArray:
    """Return the (q, d) penalties: lambda_w over W, lambda_a over A, none on required edges."""
    L = np.full(constraints.allowed.shape, float(lambda_a))
    L[: constraints.d] = lambda_w
    L[constraints.required] = 0.0
    return L


@dataclass(frozen=True)
class Penalised:
    """What was found: the finished run, whose weights are those of variables in `units`, and why they are in these."""

    run: PooledRun
    units: Units
    scale: ScaleChoice


@dataclass(frozen=True)
class PenalisedLearner:
    """DYNOTEARS with a certificate: penalised least squares over acyclic networks, from a Gram matrix.

    Attributes
    ----------
    lambda_w, lambda_a, w_threshold, a_threshold, refit, optimum, h_tol, tol, max_rounds, acyclicity
        As in `feddbn.FDBNL`.
    center, scale
        Rules for the units that penalties act in (`core.statistics.diagnostics.units_of`, `choose_scale`).
    inputs
        Positions of variables that only act on others: they have no noise that a scale could be chosen by.
    schedule
        How fast cycles get dearer.
    """

    lambda_w: float = 0.05
    lambda_a: float = 0.05
    center: str = "auto"
    scale: str = "auto"
    inputs: tuple[int, ...] = ()
    w_threshold: float = 0.2
    a_threshold: float = 0.2
    refit: bool = True
    optimum: str = "order"
    schedule: Schedule = make_schedule("gram", 1, 1.0)
    h_tol: float = 1e-8
    tol: float = 1e-6
    max_rounds: int = 1000
    acyclicity: str = "expm"

    def learn(self, gram: Moments, limits: EdgeConstraints, rng: np.random.Generator) -> Penalised:
        """Return the network of moments of lagged rows; nothing is drawn."""
        d = limits.d
        scale = choose_scale(self.scale, d, gram, inputs=self.inputs)
        units = units_of(summary_of_moments(gram, d), d, self.center, scale.rule)
        return Penalised(
            self.solve(gram.standardised(units.center, units.scale), units, limits), units, scale
        )

    def solve(self, G: FloatArray, units: Units, limits: EdgeConstraints) -> GramRun:
        """Return the finished run for G = Z'Z/n of columns in units (``C_raw`` penalised, ``C`` pruned and refitted)."""
        run = GramRun(G, self.options(units, limits))
        run.finish()
        return run

    def options(self, units: Units, limits: EdgeConstraints) -> RunOptions:
        """Return the problem of columns in units, and its limits."""
        return RunOptions(
            penalty=penalty_matrix(limits, self.lambda_w, self.lambda_a),
            # The paper's proximal term is unweighted; the other one is in units of the sources' variances.
            metric=units.metric if self.schedule.is_adaptive else np.ones(len(limits.allowed)),
            constraints=limits,
            schedule=self.schedule,
            h_tol=self.h_tol,
            tol=self.tol,
            max_rounds=self.max_rounds,
            w_threshold=self.w_threshold,
            a_threshold=self.a_threshold,
            refit=self.refit,
            acyclicity=get_acyclicity(self.acyclicity),
            optimum=self.optimum,
            n_rows=units.summary.n,
        )
