"""The site's half of PFDBNL: what it remembers, how it joins and enters stages, its rounds and its end.

What leaves a site in a round, always added up with the other participants:

    the change of T_k + U_k / kappa2 since its last answer
    three norms that say how far it is from the end (`Members.step`)
    h(W_k), its objective, and how much lower the searched order is
    whether it is new

Its graph, its order and its edges never leave; `personal_arrays` reads them from the site's own state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from hashlib import sha256

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.penalised.acyclicity import get_acyclicity
from feddbn.core.penalised.consensus import Decomposed
from feddbn.core.penalised.lasso import KnownInverses, Solve
from feddbn.core.penalised.path import Stage
from feddbn.core.penalised.personal_site import Members, OwnProblem, PersonalSite, objectives, searched_order
from feddbn.core.penalised.pooled import loss_and_grad
from feddbn.federation.programs.pfdbnl.questions import (
    FinishQuestion,
    FitQuestion,
    SharedQuestion,
    StepQuestion,
)
from feddbn.federation.protocol.site import Here, Memo, Record, SiteState, SiteTask, register_site_task
from feddbn.federation.protocol.study import register_personal_result
from feddbn.federation.sums.gram import local_moments

_MOST_SEARCHED = 4096
_MEMBER = tuple(item.name for item in fields(Members))


@dataclass(frozen=True)
class Personal(Record):
    """Everything that a site remembers of a fit from round to round, also over a crash.

    Attributes
    ----------
    wG, V, e, weight, n
        The site's weighted Gram matrix, decomposed (`core.penalised.consensus.Decomposed`), its weight and its rows.
    C, T, U, Y, alpha, h, curvature, grad_h, knows_h
        As in `core.penalised.personal_site.Members`.
    allowed, orders, n_orders, is_ordered, raw, has_raw, raw_objective, path_objective, lower_bound
        As in `core.penalised.personal_site.PersonalSite`; there is room for two orders.
    serial
        Number of the stage the site is in; -1 before its first.
    run
        Number of the fit.
    offered, has_offered
        (q, d) the value that the server knows: all changes that it has counted, added up; and whether there is one.
    """

    prefix = "personal"

    wG: FloatArray
    V: FloatArray
    e: FloatArray
    weight: FloatArray
    n: FloatArray
    C: FloatArray
    T: FloatArray
    U: FloatArray
    Y: FloatArray
    alpha: FloatArray
    h: FloatArray
    curvature: FloatArray
    grad_h: FloatArray
    knows_h: BoolArray
    allowed: BoolArray
    orders: BoolArray
    n_orders: IntArray
    is_ordered: BoolArray
    raw: FloatArray
    has_raw: BoolArray
    raw_objective: FloatArray
    path_objective: FloatArray
    lower_bound: FloatArray
    serial: IntArray
    run: IntArray
    offered: FloatArray
    has_offered: BoolArray

    @property
    def members(self) -> Members:
        """The part that rounds work on, of one site."""
        return Members(**{name: getattr(self, name)[None] for name in _MEMBER})

    def with_members(self, members: Members) -> Personal:
        """Return the record after a round."""
        return replace(self, **{name: np.asarray(array[0]) for name, array in vars(members).items()})

    @property
    def site(self) -> PersonalSite:
        """The site between rounds."""
        return PersonalSite(
            self.C,
            self.allowed,
            tuple(self.orders[: int(self.n_orders)]),
            bool(self.is_ordered),
            self.raw if self.has_raw else None,
            float(self.raw_objective),
            float(self.path_objective),
            float(self.lower_bound),
        )

    def with_site(self, site: PersonalSite) -> Personal:
        """Return the record of the site as it is now."""
        orders = self.orders.copy()
        for i, order in enumerate(site.orders):
            orders[i] = order
        return replace(
            self,
            C=site.C,
            allowed=site.allowed,
            orders=orders,
            n_orders=np.array(len(site.orders)),
            is_ordered=np.array(site.is_ordered),
            raw=self.raw if site.raw is None else site.raw,
            has_raw=np.array(site.raw is not None or bool(self.has_raw)),
            raw_objective=np.array(site.raw_objective),
            path_objective=np.array(site.path_objective),
            lower_bound=np.array(site.lower_bound),
        )

    def own_problem(self, question: SharedQuestion) -> OwnProblem:
        """Return the site's convex problem, with the broadcast model as its centre."""
        return OwnProblem(
            self.wG,
            float(self.weight) * question.penalty,
            question.mu,
            question.C,
            question.constraints,
            (question.w_threshold, question.a_threshold),
            question.optimum,
            question.is_proven,
        )


def own_gram(here: Here, question: FitQuestion) -> tuple[SiteState, FloatArray, float]:
    """Return the state, the site's Gram matrix of prepared variables (q, q), and its number of rows."""
    question.require_variables(here.data)
    state, moments = local_moments(here, question)
    return state, moments.standardised(question.origin, question.scale), moments.n


def _joined(here: Here, question: SharedQuestion) -> SiteState:
    """Return the state before the first round: Gram matrix decomposed, weights those of the shared graph."""
    state, G, n = own_gram(here, question)
    weight = n / question.mean_rows if question.weighting == "samples" else 1.0
    problem = Decomposed.of((weight * G)[None], question.metric)
    centre = question.C
    no, zero, none = np.array(False), np.zeros_like(centre), np.array(0.0)
    start = {name: array[0] for name, array in vars(Members.start(centre[None])).items()}
    record = Personal(
        problem.wG[0],
        problem.V[0],
        problem.e[0],
        np.array(weight),
        np.array(n),
        **start,
        allowed=question.constraints.allowed,
        orders=np.zeros((2, *centre.shape), dtype=bool),
        n_orders=np.array(0),
        is_ordered=no,
        raw=zero,
        has_raw=no,
        raw_objective=none,
        path_objective=np.array(math.nan),
        lower_bound=none,
        serial=np.array(-1),
        run=np.array(question.run),
        offered=zero,
        has_offered=no,
    )
    return record.kept(state)


def _remembered(here: Here, question: SharedQuestion) -> tuple[SiteState, Personal]:
    """Return the state and what the site remembers of this fit; one that remembers another fit begins anew.

    An answer that got lost on the way is none: a site goes on from the last that counted.
    """
    state = here.state
    if state.get("personal.run", -1) != question.run:
        state = _joined(here, question)
    return state, Personal.read(state)


def _entered(record: Personal, question: StepQuestion, memo: Memo) -> Personal:
    """Return the record in the server's stage; a site that comes late enters it now."""
    if record.serial == question.serial:
        return record
    stage = Stage(question.stage)
    searched = _searched(record, question, memo) if stage is Stage.SEARCHED else None
    entered = record.with_site(record.site.enter(stage, record.own_problem(question), searched))
    entered = replace(entered, serial=np.array(question.serial), knows_h=np.array(False))
    none = np.array(0.0)
    if stage in (Stage.WARM, Stage.ACYCLIC):
        return replace(entered, alpha=none, curvature=none)
    return replace(entered, h=none)


def _searched(record: Personal, question: StepQuestion, memo: Memo) -> BoolArray:
    """Return the searched order, from the memo if it is there: to choose mu each fold is fitted many times."""
    G, constraints = record.wG / record.weight, question.constraints
    known: dict[bytes, BoolArray] = memo.setdefault("pfdbnl.searched", {})
    arrays = (G, constraints.allowed, constraints.required)
    key = sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).digest()
    if key not in known:
        if len(known) >= _MOST_SEARCHED:
            known.clear()
        # A search on the penalised objective follows, pull included, unless the path's orders are wanted.
        moves = question.optimum == "path"
        known[key] = searched_order(G, float(record.n), constraints, moves=moves)
    return known[key]


def _inverses(memo: Memo, q: int, d: int) -> Solve:
    """Return a solver for the equations of the ordered stages, which knows the inverses of the round before."""
    known: KnownInverses | None = memo.get("pfdbnl.inverses")
    if known is None or not known.fits(q, d):
        known = memo["pfdbnl.inverses"] = KnownInverses(q, d)
    return known.solve


def _step(here: Here, question: StepQuestion) -> tuple[SiteState, FloatArray]:
    state, remembered = _remembered(here, question)
    record = _entered(remembered, question, here.memo)
    rules, stage = question.rules, Stage(question.stage)
    # The refit has no penalty.
    L = np.zeros_like(question.penalty) if stage is Stage.SUPPORT else question.penalty
    Cbar, metric, weight = question.C, question.metric, float(record.weight)
    members, norms = record.members.step(
        Decomposed(record.wG[None], record.V[None], record.e[None], metric),
        record.weight[None],
        L,
        record.allowed[None],
        Cbar[None],
        rules,
        get_acyclicity(question.acyclicity),
        _inverses(here.memo, *record.C.shape) if rules.is_ordered else None,
    )
    offered = rules.offered(members, metric)[0]
    change = offered - record.offered if question.average == "running" else offered
    objective = objectives(record.wG[None], rules.mu, Cbar, weight * L[None], members.C)[0]
    gain = float(record.path_objective) - objective if stage is Stage.CHOSEN else 0.0
    is_new = float(not record.has_offered)
    numbers = [*norms[0], members.h[0], objective, gain if np.isfinite(gain) else 0.0, is_new]
    after = replace(record.with_members(members), offered=offered, has_offered=np.array(True))
    return after.kept(state), np.concatenate([change.ravel(), numbers])


def _finish(here: Here, question: FinishQuestion) -> tuple[SiteState, FloatArray]:
    """End the run: the site's own graph goes into its state; what leaves is the loss of the shared graph."""
    state, record = _remembered(here, question)
    problem = record.own_problem(question)
    has_joined = bool(record.has_offered)
    if has_joined:
        final, site = record.site.finished(problem, question.refit)
        assert site.raw is not None
        raw, objective, bound = site.raw, site.raw_objective, site.lower_bound
    else:
        # A site that never took part has nothing of its own: it gets the consensus model.
        final, raw, objective, bound = question.shared, problem.centre, 0.0, 0.0
    n, weight = float(record.n), float(record.weight)
    # The problem carries the weight; n / weight turns it into a sum over the site's rows.
    losses = n / weight * loss_and_grad(record.wG, question.shared)[0]
    own = {
        # The fit is over: a further one begins anew, whatever its number.
        "personal.run": np.array(-1),
        "personal.final": final,
        "personal.final_raw": raw,
        "personal.final_loss": loss_and_grad(record.wG, final)[0] / weight,
        "personal.certificate": np.array([objective, bound]),
        "personal.has_joined": np.array(float(has_joined)),
    }
    return {**record.kept(state), **own}, np.concatenate([[objective, n], losses])


def personal_arrays(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a site's own result, from its own state.

    C (q, d) and C_raw are its weights after and before the refit, target_loss (d,) the loss of each variable, and
    has_joined whether it ever took part. `certificate` holds its penalised objective, and what no acyclic network has one
    below.
    """
    names = {"C": "final", "C_raw": "final_raw", "target_loss": "final_loss"}
    names |= {name: name for name in ("certificate", "has_joined")}
    return {name: state["personal." + key] for name, key in names.items() if "personal." + key in state}


register_site_task(SiteTask(StepQuestion, _step))
register_site_task(SiteTask(FinishQuestion, _finish))
register_personal_result("pfdbnl", lambda state, result: personal_arrays(state))
