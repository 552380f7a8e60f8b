"""FDBNL: the server's half as a state machine, fed with sums only or with the summed Gram matrix, and the site's half.

    min_{W, A}  1/2 tr((E - C)' G (E - C)) + sum(L o |C|)   subject to   h(W) = 0          [fdbnl] Eq. (V1)

Theory of operation
-------------------
Broadcast `C` (with `ask`, `rho2_before`, `rho2`, `relaxation`); feed the sum of the sites' vectors to `advance`; repeat
until `is_done`. What the server learns about a broadcast point's residuals it learns from the next sum.

The path asks for gradients, whose sum is the pooled gradient whatever the split; so the path through the non-convex part,
and with it the local optimum, is the same for one site and for sixty-four, and on the summed Gram matrix itself
(`PenalisedLearner`), which needs no sites:

    WARM      the lasso without acyclicity
    ACYCLIC   acyclicity gains weight slowly, from almost nothing: a homotopy
    LASSO     h is small: the order is fixed; the convex problem within it is solved to tolerance
    SUPPORT   (refit) no penalty, only the edges whose penalised weight comes near their threshold
    FINAL     (refit) no penalty, only the edges above their thresholds

By the end of ACYCLIC the gradients have shown the pooled quadratic in all directions that matter (`SeenGram`), so a
convex stage minimises it and checks the answer with the next gradient: one or two rounds, however ill-conditioned the
data. Consensus ADMM in their place took some 20 rounds a stage on mild data and more than 900 on strong weights split
over 64 sites.

Unless ``optimum="path"``, the order is not the path's own but the best that a search finds on that quadratic
(`searched`). So that all of it is seen, and to the last digit, the first p + 1 points are zero and, for every
lag, the weights 1 from each variable to itself; the path goes on from zero. As it is only one of the starts, it is left
after `most_acyclic` rounds, wherever it is then. With many variables (`goes_straight`) it is not followed at all. After
p + 1 different points the summed gradients determine the pooled quadratic, so the search needs no further sum, and its
answer does not depend on how rows are split among sites.

The paper's schedule is [fdbnl] Algorithm 1: consensus ADMM with h in the global step throughout (stage ACYCLIC, then
the refits if asked for). Stopping on h alone would accept the first iterate W = 0, which is acyclic and has learned
nothing. # DEVIATES [fdbnl] stopping: h AND residuals; see test_zero_is_not_an_answer.

Known weakness: the acyclic stage is a local method; with ``optimum="path"`` the answer depends on the penalty path.

The site's half of FDBNL's rounds: functions of its Gram matrix, its state and the broadcast C; many sites at once.

    gradient     w_k G_k (C - E)                                                          rounds
    C_k = argmin  w_k loss_k(C) + tr(U_k'(C - Cbar)) + rho2/2 |C - Cbar|_D^2              the paper's
        = (w_k G_k + rho2 D)^-1 (w_k G_k E - U_k + rho2 D Cbar)                            [fdbnl] Eq. (Local)

The paper writes the same solution, with D = I, as two Schur complements per round. One eigendecomposition of
``D^-1/2 w_k G_k D^-1/2`` serves every round and every rho2, so a round costs two small products, whatever the number of
rows was. D = diag(variances of the sources) makes a round independent of the units of the variables.

The site's arrays have a leading axis for the sites, (K, ...); one site is K = 1.

What summed gradients tell about the pooled Gram matrix (`SeenGram`), and a bound on what they do not tell: every target's
loss has the same matrix G, and a gradient at C is ``G (C - E)``: d products of G with known vectors. In units of the
metric D, where seen directions have the orthonormal basis Q and ``P = G Q``,

    B = P Q' + Q P' - Q (Q'P) Q' + L (I - Q Q')

agrees with G on everything seen and lies above it elsewhere if L is at least the largest eigenvalue of G. So the
quadratic with B bounds the loss from above and touches it where the gradient was taken: minimising it can only help,
and is exact as soon as all directions have been seen, after about p + 1 different points.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.backend.device import HOST, Device, product
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


def goes_straight(options: RunOptions) -> bool:
    """Whether a run that searches takes the order of OneShotDBN, without a path or moves of its own."""
    return options.constraints.d > MANY_NODES and options.n_rows is not None and options.optimum != "exact"


def searched(seen: SeenGram, lipschitz: float, options: RunOptions, own: list[int]) -> BestOrder:
    """Return the best order found, with its certificate, for the quadratic seen so far.

    The search starts from the run's `own` order and, if the number of rows is known, from the first one of OneShotDBN.
    """
    constraints, root = options.constraints, seen.root
    is_large = goes_straight(options)
    units = root[: constraints.d, 0]
    H = seen.scaled(lipschitz, FINE)
    starts = [own]
    if options.n_rows is not None:
        G = root * H * root.T / options.schedule.total_weight
        first = order_of_gram(G, options.n_rows, constraints, moves=is_large)
        starts = [first] if is_large else [own, first]
    scores = LassoScores(
        H,
        options.penalty / (root * units),
        constraints.allowed,
        constraints.required,
        units**2,
        seen.basis,
    )
    if is_large:
        found = order_as_it_is(scores, starts[0])
    else:
        # Lassos of many variables take longer.
        found = best_order(
            scores, starts, BUDGETS[options.optimum] * _WHOLE_BUDGET // max(constraints.d, _WHOLE_BUDGET)
        )
    if scores.is_exact:
        return found
    # Lassos that use what has not been seen are only bounded from above.
    return BestOrder(found.order, Certificate.nothing_known(found.certificate.objective))


_RELAXATION = 1.6
# Where the order is searched, the path only offers a start: paths that have not ended by then never did (docs/optimum.md).
_MOST_ACYCLIC = 200.0
_MOST_SEARCHES = 5
# Rounds of a convex stage, which needs one or two, that may pass without halving what is left.
_MOST_STALLED = 40


class ConsensusRun(StagedPath):
    """The run so far: broadcast `C`, `ask` and the numbers that go with it; feed sums to `advance` until `is_done`.

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

    def __init__(self, options: RunOptions) -> None:
        super().__init__(options)
        self.options = options
        self.certificate: Certificate | None = None
        self._searches = options.schedule.is_adaptive and options.optimum != "path"
        if self._searches:
            self.most_acyclic = _MOST_ACYCLIC
        self._is_large = self._searches and goes_straight(options)
        self._order: list[int] = []
        self._n_searches = self._n_probed = 0
        self._nearest, self._nearest_at = float("inf"), 0
        n_points = len(options.penalty) // options.constraints.d
        self._n_probes = n_points if self._searches and n_points < options.max_rounds else 0
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
        self._lipschitz = options.schedule.total_weight
        self._gradient_before: tuple[FloatArray, FloatArray] | None = None
        self._seen = SeenGram(options.metric)
        self._contributors: object = None
        self._joined, self._momentum = False, 1.0

    @property
    def ask(self) -> Ask:
        """What to ask of the sites about `C`."""
        if self.options.schedule.is_adaptive:
            return Ask.GRADIENT
        return Ask.STEP if self._joined else Ask.ZERO

    @property
    def relaxation(self) -> float:
        """How far sites overshoot: convex problems converge faster with it."""
        return 1.0 if self.stage is Stage.ACYCLIC else _RELAXATION

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

    def advance(self, total: FloatArray, n_sites: int, contributors: object = None) -> None:
        """Take the sum of one round's vectors (see `gradient_answers`, `Consensus`) and decide what comes next.

        `contributors` tells sums over different sites apart: their gradients are of different problems.
        """
        q, d = self.C.shape
        message = total[: q * d].reshape(q, d)
        self.target_loss = np.array(total[q * d + 1 :])
        scale = max(self._norm(self.C), 1e-12)
        if self.options.schedule.is_adaptive:
            if contributors != self._contributors:
                self._seen.forget()
                self._contributors = contributors
                if self.certificate is not None and self.C_raw is None:
                    self.certificate = Certificate.nothing_known(self.certificate.objective)
            self._advance_by_gradient(message, scale)
        else:
            self._advance_by_consensus(message, float(total[q * d]), n_sites, scale)

    def _advance_by_gradient(self, gradient: FloatArray, scale: float) -> None:
        self._seen.see(self.C, gradient)
        if self.stage is Stage.WARM and self._n_probed < self._n_probes:
            self._probe(gradient)
            return
        C = self.C
        if self.stage in (Stage.WARM, Stage.ACYCLIC):
            # At a stage's starting point nothing has moved yet.
            is_start = self.round == self._stage_start
            moved = float("inf") if is_start else self._norm(self._iterate - self._iterate_before)
        else:
            best = self._minimise_bound(C, gradient)
            moved = self._norm(best - C)
        self._record(moved, moved)
        while self._stage_is_finished(moved, scale):
            if self._next_stage():
                return
            if self.stage is not Stage.ACYCLIC:
                best = self._minimise_bound(C, gradient)
            moved = float("inf")
        is_convex = self.stage not in (Stage.WARM, Stage.ACYCLIC)
        if self._gave_up(moved if is_convex else None):
            return
        if not is_convex:
            self._gradient_step(gradient)
        else:
            self.C = best

    def _probe(self, gradient: FloatArray) -> None:
        """Broadcast the next point that shows more of G; after the last one, go on from the first."""
        self._record(float("inf"), float("inf"))
        if not self._n_probed:
            self._first = (self.C, gradient)
        self._n_probed += 1
        if self._n_probed < self._n_probes:
            q, d = self.C.shape
            self.C = np.eye(q, d, -self._n_probed * d)
            return
        self.C, gradient = self._first
        self._stage_start = self.round
        if self._is_large and self._seen.basis is None:
            self._enter(Stage.LASSO)
            self.C = self._minimise_bound(self.C, gradient)
        else:
            self._gradient_step(gradient)

    def _advance_by_consensus(self, message: FloatArray, gap: float, n_sites: int, scale: float) -> None:
        primal, dual = float("inf"), float("inf")
        if self.ask is Ask.STEP:
            primal = float(np.sqrt(max(gap, 0.0) / n_sites))
            dual = self._norm(self._iterate - self._iterate_before)
        self._record(primal, dual)
        self._joined = True
        if self._stage_is_finished(max(primal, dual), scale) and self._next_stage():
            return
        if not self._gave_up():
            self._consensus_step(message / n_sites, n_sites)

    def _record(self, primal: float, dual: float) -> None:
        assert self.target_loss is not None
        objective = float(self.target_loss.sum()) + penalty_value(self.C, self.options.penalty)
        self.history.append(
            RoundRecord(self.round, self.stage.value, self.h, primal, dual, objective, self.rho1, self.rho2)
        )

    def _minimise_bound(self, C: FloatArray, gradient: FloatArray) -> FloatArray:
        """Return the minimiser of the present convex stage's problem, with what has been seen of G in place of G.

        `gradient` is the loss's at C; around that point the model has no error to first order.
        """
        root = self._seen.root
        B = self._seen.scaled(self._lipschitz, *((FINE,) if self._searches else ()))
        linear = B @ (root * C) - gradient / root
        return solve_by_signs(B, linear, self._penalty / root, self._allowed, root * C) / root

    def _gradient_step(self, gradient: FloatArray) -> None:
        """Proximal gradient step from `C` in the metric D, then momentum.

        The step length comes from the curvature seen along the path, ``<dC, dG> / |dC|_D^2``: a property of the pooled
        problem that needs no extra sum.
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

    def _consensus_step(self, V: FloatArray, n_sites: int) -> None:
        rho2 = self.rho2
        new = self._proximal_step(V, n_sites * rho2 * self.options.metric[:, None])
        self._iterate_before, self._iterate = self.C, new
        self.C = new
        self.rho2_before = rho2
        if self.stage is Stage.ACYCLIC:
            self._tighten(self.h, True)

    def _proximal_step(self, V: FloatArray, kappa: FloatArray) -> FloatArray:
        """Return argmin 1/2 |C - V|_kappa^2 + penalties [+ acyclicity]: A exactly, W warm-started."""
        C: FloatArray = self._allowed * soft_threshold(V, self._penalty / kappa)
        if self.stage is not Stage.ACYCLIC:
            return C
        d, schedule = self.options.constraints.d, self.options.schedule
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
            # The path only has to be followed; exactness is bought in the convex stages.
            tol=1e-3 if schedule.is_adaptive else 1e-5,
            max_steps=10 if schedule.is_adaptive else 50,
        )
        C[:d], self.h = self._acyclic.W[0], float(self._acyclic.h[0])
        self.n_evaluations += n_evaluations
        return C

    def _stage_is_finished(self, residual: float, scale: float) -> bool:
        options = self.options
        elapsed = self.round - self._stage_start
        led_on = self._has_led_on(elapsed, residual / scale, self.h)
        if led_on is not None:
            return led_on
        tol = 1e-3 if self.stage is Stage.SUPPORT else options.tol
        small = residual <= tol * max(1.0, scale) and (options.schedule.is_adaptive or elapsed > 2)
        return small and (self.stage is not Stage.ACYCLIC or self.h <= options.h_tol)

    def _next_stage(self) -> bool:
        """Enter the next stage; True if the run is over."""
        options = self.options
        if self.stage is Stage.WARM:
            # The acyclicity competes with the loss that is left when nothing forbids cycles: that sets its unit.
            assert self.target_loss is not None
            self.rho1 *= float(self.target_loss.sum()) / len(self.target_loss)
            self._enter(Stage.ACYCLIC)
            return False
        if self.stage is Stage.ACYCLIC and options.schedule.is_adaptive:
            self._enter(Stage.LASSO)
            return False
        if self.stage is Stage.LASSO and self._search_again():
            return False
        if self.stage in (Stage.ACYCLIC, Stage.LASSO):
            self._keep_raw()
            if options.refit:
                self._enter(Stage.SUPPORT)
                return False
        elif self.stage is Stage.SUPPORT:
            self._enter(Stage.FINAL)
            return False
        self._finish(Status.CONVERGED)
        return True

    def _enter(self, stage: Stage) -> None:
        options, d = self.options, self.options.constraints.d
        constraints = options.constraints
        if stage is Stage.LASSO:
            W, _ = break_cycles(self._iterate[:d], constraints.required[:d])
            edges = (W != 0) | constraints.required[:d]
            self._order = topological_order(edges)
            if self._searches:
                self._search_order()
            self._allowed = constraints.within_order(self._order).allowed
            self.C = np.where(self._allowed, self._iterate, 0.0)
            self.h = 0.0
        elif stage in (Stage.SUPPORT, Stage.FINAL):
            W, dropped = break_cycles(self.C[:d], constraints.required[:d])
            self.dropped += dropped
            support = self.C != 0
            support[:d] = W != 0
            share = 1.0 if stage is Stage.FINAL else CANDIDATE_SHARE
            limits = (share * options.w_threshold, share * options.a_threshold)
            support &= threshold(self.C, constraints.required, *limits) != 0
            self._allowed = support | constraints.required
            self._penalty = np.zeros_like(options.penalty)
        self.stage, self._stage_start, self._nearest = stage, self.round, float("inf")

    def _search_order(self) -> bool:
        """Take the best order known for what has been seen of the data; whether it is another one."""
        self._n_searches += 1
        found = searched(self._seen, self._lipschitz, self.options, self._order)
        before, self._order, self.certificate = self._order, list(found.order), found.certificate
        return before != self._order

    def _search_again(self) -> bool:
        """Search the order once more if sums have shown more since; whether that gave another one."""
        if self.certificate is None or self.certificate.lower_bound > 0 or self._n_searches >= _MOST_SEARCHES:
            return False
        if not self._search_order():
            return False
        self._allowed = self.options.constraints.within_order(self._order).allowed
        self._stage_start = self.round
        return True

    def _has_stalled(self, moved: float) -> bool:
        """End a run whose convex stage has stopped getting nearer: its data are not known well enough; whether it had."""
        if moved < 0.5 * self._nearest:
            self._nearest, self._nearest_at = moved, self.round
        if not self._searches or self.round - max(self._nearest_at, self._stage_start) <= _MOST_STALLED:
            return False
        self._finish(Status.STALLED)
        return True

    def _gave_up(self, moved: float | None = None) -> bool:
        """End a run that has used up its rounds, or moves without end in a convex stage; whether it had."""
        if ((moved is not None and self._has_stalled(moved)) or self._is_over()) and self.C_raw is None:
            self._keep_raw()
        return self.is_done

    def _keep_raw(self) -> None:
        self.C_raw, self.raw_objective = self.C, self.history[-1].objective
        if self.certificate is not None:
            self.certificate = self.certificate.reached(self.raw_objective, has_converged=not self.is_done)
        elif self._searches and self.stage is Stage.LASSO and not self.is_done:
            # No order was open: the problem was convex from the beginning.
            self.certificate = Certificate(self.raw_objective, self.raw_objective)

    def _norm(self, C: FloatArray) -> float:
        """Frobenius norm in the metric D."""
        return float(np.sqrt(np.vdot(self.options.metric[:, None] * C, C)))


def penalty_matrix(constraints: EdgeConstraints, lambda_w: float, lambda_a: float) -> FloatArray:
    """Return the (q, d) penalties: lambda_w over W, lambda_a over A, none on required edges."""
    L = np.full(constraints.allowed.shape, float(lambda_a))
    L[: constraints.d] = lambda_w
    L[constraints.required] = 0.0
    return L


@dataclass(frozen=True)
class Penalised:
    """What was found: the finished run, whose weights are those of variables in `units`, and why they are in these."""

    run: ConsensusRun
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
    device
        Who multiplies large matrices.
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
    device: Device = HOST

    def learn(self, gram: Moments, limits: EdgeConstraints, rng: np.random.Generator) -> Penalised:
        """Return the network of moments of lagged rows; nothing is drawn."""
        d = limits.d
        scale = choose_scale(self.scale, d, gram, inputs=self.inputs)
        units = units_of(summary_of_moments(gram, d), d, self.center, scale.rule)
        return Penalised(
            self.solve(gram.standardised(units.center, units.scale), units, limits), units, scale
        )

    def solve(self, G: FloatArray, units: Units, limits: EdgeConstraints) -> ConsensusRun:
        """Return the finished run for G = Z'Z/n of columns in units (``C_raw`` penalised, ``C`` pruned and refitted)."""
        run = ConsensusRun(self.options(units, limits))
        while not run.is_done:
            run.advance(gradient_answers(G[None], run.C, self.device)[0], 1)
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
            acyclicity=get_acyclicity(self.acyclicity, self.device),
            optimum=self.optimum,
            n_rows=units.summary.n,
        )


_TIMES = 80.0
"""Rounds of a fit, about."""


class Ask(Enum):
    """What the server asks of a site in one round, always about the broadcast point C.

    GRADIENT  the gradient of the site's loss (schedule "rounds", throughout)
    ZERO      the first round of a consensus whose duals start at zero (the paper's schedule)
    STEP      a consensus round: update the dual with C, then solve
    GRAM      nothing about C: the site's weighted Gram matrix (schedule "gram" with sites of equal weight)
    """

    GRADIENT = "gradient"
    ZERO = "zero"
    STEP = "step"
    GRAM = "gram"


def loss_and_grad(wG: FloatArray, C: FloatArray, device: Device = HOST) -> tuple[FloatArray, FloatArray]:
    """Return (K, d) the weighted losses of each target and (K, q, d) their gradients ``w G (C - E)`` at C, (q, d).

    The losses are the diagonal of ``w/2 (E-C)' G (E-C)``; both need one product with G, which is one for all sites.
    """
    q, d = C.shape
    R = C.copy()
    R[:d].flat[:: d + 1] -= 1.0
    gradient = product(wG.reshape(-1, q), R, device, _TIMES).reshape(-1, q, d)
    return np.einsum("ij,kij->kj", 0.5 * R, gradient), gradient


def gradient_answers(wG: FloatArray, C: FloatArray, device: Device = HOST) -> FloatArray:
    """Return (K, q d + 1 + d) the vectors to be summed when gradients are asked for: ``[gradient; 0; losses]``.

    The zero stands where a consensus round has its residual, so that all rounds of a run have the same shape.
    """
    losses, gradient = loss_and_grad(wG, C, device)
    n = len(wG)
    return np.concatenate([gradient.reshape(n, -1), np.zeros((n, 1)), losses], axis=1)


@dataclass(frozen=True)
class Decomposed:
    """``w D^-1/2 G D^-1/2 = v diag(e) v'`` of K sites with one metric D (q,): wG, V = D^-1/2 v (K, q, q), e (K, q, 1)."""

    wG: FloatArray
    V: FloatArray
    e: FloatArray
    metric: FloatArray

    @classmethod
    def of(cls, wG: FloatArray, metric: FloatArray) -> Decomposed:
        """Decompose once; tiny negative eigenvalues from rounding become zero."""
        root = np.sqrt(metric)
        e, v = np.linalg.eigh(wG / np.outer(root, root))
        return cls(wG, v / root[:, None], np.maximum(e, 0.0)[:, :, None], metric)

    def solve(self, Cbar: FloatArray, U: FloatArray, rho2: FloatArray | float) -> FloatArray:
        """Return (K, q, d) every C_k; Cbar is (q, d) or (K, q, d), rho2 a number or (K, 1, 1)."""
        right = self.wG[:, :, : U.shape[2]] - U + rho2 * self.metric[:, None] * Cbar
        solution: FloatArray = self.V @ ((self.V.transpose(0, 2, 1) @ right) / (self.e + rho2))
        return solution


@dataclass(frozen=True)
class Consensus:
    """Sites' own C_k and duals U_k, both (K, q, d)."""

    C: FloatArray
    U: FloatArray

    def answers(
        self,
        problem: Decomposed,
        ask: Ask,
        Cbar: FloatArray,
        rho2_before: float,
        rho2: float,
        relaxation: float = 1.0,
    ) -> tuple[Consensus, FloatArray]:
        """Return the states after the round and (K, q d + 1 + d) the vectors to be summed.

        A vector is ``[C_k + U_k/(rho2 D), flattened; |C_k - Cbar|_D^2; loss per variable at Cbar]``. With
        ``relaxation`` > 1 a site reports a point beyond its own solution (Boyd et al. 2011, section 3.4.3).
        """
        D, n = problem.metric[:, None], len(self.C)
        primal, U = np.zeros(n), np.zeros_like(self.U)
        if ask is Ask.STEP:
            gap = self.C - Cbar
            primal = np.einsum("kij,kij->k", D * gap, gap)
            U = self.U + rho2_before * (D * gap)  # [fdbnl] Eq. (para): beta_k and gamma_k, stacked
        C = problem.solve(Cbar, U, rho2)
        if relaxation != 1.0:
            C = relaxation * C + (1.0 - relaxation) * Cbar
        message = (C + U / (rho2 * D)).reshape(n, -1)
        losses, _ = loss_and_grad(problem.wG, Cbar)
        return Consensus(C, U), np.concatenate([message, primal[:, None], losses], axis=1)


# A direction counts as seen if it is at least this share of the largest one: below it, rounding would be amplified.
_SEEN = 1e-5
_FLOOR = 1e-10
# Above so many columns decompositions are avoided where there are quicker ways.
_MANY = 400
FINE = 1e-14
"""Smallest eigenvalue, as a share of the largest, where directions were chosen so that all of them are known well."""


class SeenGram:
    """The matrix B above, from gradients taken so far.

    Parameters
    ----------
    metric
        (q,) diagonal of D.
    """

    def __init__(self, metric: FloatArray) -> None:
        self.root = np.sqrt(metric)[:, None]
        self.forget()

    def forget(self) -> None:
        """Begin anew: the gradients to come are of another federation."""
        self._Q = self._P = np.zeros((len(self.root), 0))
        self._scaled: tuple[tuple[float, float, int], FloatArray] | None = None

    @property
    def basis(self) -> FloatArray | None:
        """(q, r) orthonormal basis of the directions seen, in units of the metric; None once these are all."""
        return None if self._Q.shape[1] == len(self.root) else self._Q

    def see(self, C: FloatArray, gradient: FloatArray) -> None:
        """Take the summed gradient (q, d) at C."""
        q, d = C.shape
        if self._Q.shape[1] == q:
            return
        S, Y = C.copy(), gradient / self.root
        S[:d].flat[:: d + 1] -= 1.0
        S *= self.root
        largest = float(np.linalg.norm(S, axis=0).max())
        # Twice is enough for an orthogonal remainder (Parlett 1998, section 6.9).
        for _ in range(2):
            inside = self._Q.T @ S
            S, Y = S - self._Q @ inside, Y - self._P @ inside
        if q > _MANY and self._see_all(S, Y, largest):
            return
        U, size, Vt = np.linalg.svd(S, full_matrices=False)
        new = size > _SEEN * largest
        self._Q = np.hstack([self._Q, U[:, new]])
        self._P = np.hstack([self._P, (Y @ Vt[new].T) / size[new]])

    def _see_all(self, S: FloatArray, Y: FloatArray, largest: float) -> bool:
        """Take new directions that are all seen well by a QR decomposition, which is quicker; whether they are."""
        Q, R = np.linalg.qr(S)
        size = np.abs(np.diag(R))
        # The inverse of R shows its smallest singular value.
        if not size.min() > _SEEN * largest:
            return False
        inverse, failed = dtrtri(R)
        if failed or float(np.linalg.norm(inverse)) * _SEEN * largest >= 1.0:
            return False
        self._Q, self._P = np.hstack([self._Q, Q]), np.hstack([self._P, Y @ inverse])
        return True

    def scaled(self, lipschitz: float, least: float = _FLOOR) -> FloatArray:
        """Return B in units of the metric, ``D^-1/2 B D^-1/2``, with L at least `lipschitz`; positive definite.

        ``Q'P`` is symmetric up to the errors of the sums. Eigenvalues below those errors are not known; raised to
        them, or to the share `least` of the largest, they cannot send a step far away.
        """
        key = (lipschitz, least, self._Q.shape[1])
        if self._scaled is None or self._scaled[0] != key:
            self._scaled = key, self._bound(lipschitz, least)
        return self._scaled[1]

    def _bound(self, lipschitz: float, least: float) -> FloatArray:
        Q, P = self._Q, self._P
        if len(Q) > _MANY and Q.shape[1] == len(Q):
            return self._whole(lipschitz, least)
        inner = Q.T @ P
        error = float(np.abs(inner - inner.T).max(initial=0.0))
        inner = (inner + inner.T) / 2
        lipschitz = max(lipschitz, float(np.linalg.eigvalsh(inner)[-1])) if len(inner) else lipschitz
        cross = (P - Q @ inner) @ Q.T
        B: FloatArray = Q @ (inner - lipschitz * np.eye(len(inner))) @ Q.T + cross + cross.T
        B.flat[:: len(B) + 1] += lipschitz
        floor = max(least * lipschitz, error)
        values, vectors = np.linalg.eigh(B)
        if values[0] >= floor:
            return B
        return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)

    def _whole(self, lipschitz: float, least: float) -> FloatArray:
        """The same once all directions are known: ``B = P Q'``, which a Cholesky factor shows to be above the floor."""
        B = self._P @ self._Q.T
        error = float(np.abs(B - B.T).max())
        B = (B + B.T) / 2
        floor = max(least * max(lipschitz, float(np.abs(B).sum(axis=0).max())), error)
        lifted = B.copy()
        lifted.flat[:: len(B) + 1] -= floor
        if not dpotrf(lifted, lower=1, overwrite_a=1)[1]:
            return B
        values, vectors = np.linalg.eigh(B)
        return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)
