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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.penalised.acyclicity import get_acyclicity
from feddbn.core.penalised.consensus import Decomposed, loss_and_grad
from feddbn.core.penalised.lasso import KnownInverses, Solve
from feddbn.core.penalised.path import Stage
from feddbn.core.penalised.personal_site import Members, OwnProblem, PersonalSite, objectives, searched_order
from feddbn.core.statistics.moments import completed
from feddbn.federation.programs.pfdbnl.questions import (
    Entries,
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
# What a round changes; the rest changes when a stage begins.
_BY_STAGE = (
    "C",
    "allowed",
    "orders",
    "n_orders",
    "is_ordered",
    "raw",
    "has_raw",
    "raw_objective",
    "path_objective",
    "lower_bound",
)
_BY_ROUND = (*_MEMBER, "offered", "has_offered")


@dataclass(frozen=True)
class Personal(Record):
    """Everything that K sites remember of a fit from round to round, also over a crash; every array is (K, ...).

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
    run, slot
        Number of the fit, and which of the broadcast models the site belongs to.
    offered, has_offered
        (K, q, d) the value that the server knows: all changes that it has counted, added up; and whether there is one.
    """

    prefix = "personal"
    version = 4

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
    slot: IntArray
    offered: FloatArray
    has_offered: BoolArray

    @property
    def members(self) -> Members:
        """The part that rounds work on."""
        return Members(**{name: getattr(self, name) for name in _MEMBER})

    def site(self, k: int) -> PersonalSite:
        """Return one site between rounds."""
        return PersonalSite(
            self.C[k],
            self.allowed[k],
            tuple(self.orders[k, : self.n_orders[k]]),
            bool(self.is_ordered[k]),
            self.raw[k] if self.has_raw[k] else None,
            float(self.raw_objective[k]),
            float(self.path_objective[k]),
            float(self.lower_bound[k]),
        )

    def own_problem(self, k: int, question: SharedQuestion) -> OwnProblem:
        """Return one site's convex problem, with the broadcast model it belongs to as its centre."""
        return OwnProblem(
            self.wG[k],
            self.weight[k] * question.penalty,
            question.mu,
            question.C[self.slot[k]],
            question.constraints,
            (question.w_threshold, question.a_threshold),
            question.optimum,
            question.is_proven,
        )

    def with_sites(self, sites: Mapping[int, PersonalSite]) -> Personal:
        """Return the record with some sites as they are now."""
        new: dict[str, Any] = {name: getattr(self, name).copy() for name in _BY_STAGE}
        for k, site in sites.items():
            new["C"][k], new["allowed"][k], new["is_ordered"][k] = site.C, site.allowed, site.is_ordered
            new["n_orders"][k] = len(site.orders)
            for i, order in enumerate(site.orders):
                new["orders"][k, i] = order
            if site.raw is not None:
                new["raw"][k], new["has_raw"][k] = site.raw, True
            for name in ("raw_objective", "path_objective", "lower_bound"):
                new[name][k] = getattr(site, name)
        return replace(self, **new)


def own_gram(here: Here, question: FitQuestion) -> tuple[SiteState, FloatArray, float]:
    """Return the state, the site's Gram matrix of prepared variables (q, q), and its number of rows.

    If the site lacks variables or lags, the moments of all sites (``fill``) complete the matrix: what the site does not
    measure is taken to depend on what it measures as it does elsewhere, ``z_missing = B z_own + e``, with B and the variance
    of e from there.
    """
    own_lags = question.lags_of(here.name)
    entries = Entries.of(tuple(here.data.variables), question.variables, own_lags, question.n_lags)
    state, moments = local_moments(here, question, question.design_of(here.data.variables, own_lags))
    G = moments.standardised(question.origin[entries.rows], question.scale[entries.rows])
    if not entries.is_whole:
        if question.fill is None:
            raise question.wrong(
                "this site holds other variables or lags than the study names; fit with different_variables=True"
            )
        G = completed(G, entries.rows, question.fill)
    return state, G, moments.n


def _joined(sites: Sequence[Here], question: SharedQuestion) -> list[SiteState]:
    """Return the states of sites before their first round: Gram matrices decomposed, weights those of the shared graph."""
    read = [own_gram(here, question) for here in sites]
    states, n = [state for state, _, _ in read], np.array([n for _, _, n in read])
    weight = n / question.mean_rows if question.weighting == "samples" else np.ones(len(n))
    problem = Decomposed.of(
        np.stack([w * G for w, (_, G, _) in zip(weight, read, strict=True)]), question.metric
    )
    slots = [state.get("cluster.slot", np.array([-1.0, 0.0])) for state in states]
    slot = np.array([int(where) if run == question.run else 0 for run, where in slots])
    centre = question.C[slot]
    K, q, d = centre.shape
    no, zero, none = np.zeros(K, dtype=bool), np.zeros_like(centre), np.zeros(K)
    record = Personal(
        problem.wG,
        problem.V,
        problem.e,
        weight,
        n,
        **vars(Members.start(centre)),
        allowed=np.broadcast_to(question.constraints.allowed, centre.shape),
        orders=np.zeros((K, 2, q, d), dtype=bool),
        n_orders=np.zeros(K, dtype=int),
        is_ordered=no,
        raw=zero,
        has_raw=no,
        raw_objective=none,
        path_objective=np.full(K, math.nan),
        lower_bound=none,
        serial=np.full(K, -1),
        run=np.full(K, question.run),
        slot=slot,
        offered=zero,
        has_offered=no,
    )
    return record.kept(states)


def _remembered(
    sites: Sequence[Here], question: SharedQuestion, memo: Memo
) -> tuple[list[SiteState], Personal]:
    """Return the sites' states and what they remember of this fit; a site that remembers another one begins anew.

    An answer that got lost on the way is none: a site goes on from the last that counted.
    """
    states = [here.state for here in sites]
    new = [
        k
        for k, state in enumerate(states)
        if not Personal.is_in(state) or state["personal.run"] != question.run
    ]
    for k, state in zip(new, _joined([sites[k] for k in new], question) if new else (), strict=True):
        states[k] = state
    return states, Personal.read(states, memo, sites[0].name)


def _entered(record: Personal, question: StepQuestion, memo: Memo) -> Personal:
    """Return the record with every site in the server's stage; those that come late enter it now."""
    late = np.flatnonzero(record.serial != question.serial)
    if not len(late):
        return record
    stage, entered = Stage(question.stage), {}
    for k in late.tolist():
        searched = _searched(record, k, question, memo) if stage is Stage.SEARCHED else None
        entered[k] = record.site(k).enter(stage, record.own_problem(k, question), searched)
    is_late = record.serial != question.serial
    changed = replace(
        record.with_sites(entered),
        serial=np.where(is_late, question.serial, record.serial),
        knows_h=record.knows_h & ~is_late,
    )
    if stage in (Stage.WARM, Stage.ACYCLIC):
        return replace(
            changed,
            alpha=np.where(is_late, 0.0, record.alpha),
            curvature=np.where(is_late, 0.0, record.curvature),
        )
    return replace(changed, h=np.where(is_late, 0.0, record.h))


def _searched(record: Personal, k: int, question: StepQuestion, memo: Memo) -> BoolArray:
    """Return a site's searched order, from the memo if it is there: to choose mu each fold is fitted many times."""
    G, constraints = record.wG[k] / record.weight[k], question.constraints
    known: dict[bytes, BoolArray] = memo.setdefault("pfdbnl.searched", {})
    arrays = (G, constraints.allowed, constraints.required)
    key = sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).digest()
    if key not in known:
        if len(known) >= _MOST_SEARCHED:
            known.clear()
        # A search on the penalised objective follows, pull included, unless the path's orders are wanted.
        moves = question.optimum == "path"
        known[key] = searched_order(G, float(record.n[k]), constraints, moves=moves)
    return known[key]


def _inverses(sites: Sequence[Here], memo: Memo, q: int, d: int) -> Solve:
    """Return a solver for the equations of the ordered stages, which knows the inverses of the round before."""
    numbers: dict[str, int] = memo.setdefault("pfdbnl.numbers", {})
    at = np.array([numbers.setdefault(here.name, len(numbers)) for here in sites])
    known: KnownInverses | None = memo.get("pfdbnl.inverses")
    if known is None or not known.fits(len(numbers), q, d):
        known = memo["pfdbnl.inverses"] = KnownInverses(len(numbers), q, d)
    return partial(known.solve, at)


def _step(
    sites: Sequence[Here], question: StepQuestion, memo: Memo
) -> tuple[Sequence[SiteState], FloatArray]:
    states, remembered = _remembered(sites, question, memo)
    record = _entered(remembered, question, memo)
    rules, stage = question.rules, Stage(question.stage)
    K, q, d = record.C.shape
    # The refit has no penalty.
    L = np.zeros_like(question.penalty) if stage is Stage.SUPPORT else question.penalty
    Cbar, metric = question.C[record.slot], question.metric
    members, norms = record.members.step(
        Decomposed(record.wG, record.V, record.e, metric),
        record.weight,
        L,
        record.allowed,
        Cbar,
        rules,
        get_acyclicity(question.acyclicity, sites[0].device),
        _inverses(sites, memo, q, d) if rules.is_ordered else None,
    )
    offered = rules.offered(members, metric)
    change = offered - record.offered if question.average == "running" else offered
    objective = objectives(record.wG, rules.mu, Cbar, record.weight[:, None, None] * L, members.C)
    gain = record.path_objective - objective if stage is Stage.CHOSEN else np.zeros(K)
    whole, new_member = np.zeros((K, question.n_slots, q * d)), np.zeros((K, question.n_slots))
    own = np.arange(K), record.slot
    whole[own], new_member[own] = change.reshape(K, -1), ~record.has_offered
    numbers = np.column_stack([norms, members.h, objective, np.where(np.isfinite(gain), gain, 0.0)])
    after = replace(record, **vars(members), offered=offered, has_offered=np.ones(K, dtype=bool))
    kept = after.kept(states, _BY_ROUND if record is remembered else None, memo, sites[0].name)
    return kept, np.concatenate([whole.reshape(K, -1), numbers, new_member], axis=1)


def _finish(
    sites: Sequence[Here], question: FinishQuestion, memo: Memo
) -> tuple[Sequence[SiteState], FloatArray]:
    """End the run at each site: its own graph goes into its state; what leaves is the loss of the shared graph."""
    states, record = _remembered(sites, question, memo)
    states = record.kept(states)
    vectors = []
    for k, state in enumerate(states):
        problem = record.own_problem(k, question)
        has_joined = bool(record.has_offered[k])
        if has_joined:
            final, site = record.site(k).finished(problem, question.refit)
            assert site.raw is not None
            raw, objective, bound = site.raw, site.raw_objective, site.lower_bound
        else:
            # A site that never took part has nothing of its own: it gets the consensus model.
            final, raw, objective, bound = question.shared, problem.centre, 0.0, 0.0
        wG, n, weight = record.wG[[k]], record.n[k], record.weight[k]
        # The problem carries the weight; n / weight turns it into a sum over the site's rows.
        losses = n / weight * loss_and_grad(wG, question.shared)[0][0]
        state |= {
            # The fit is over: a further one begins anew, whatever its number.
            "personal.run": np.array(-1),
            "personal.final": final,
            "personal.final_raw": raw,
            "personal.final_loss": loss_and_grad(wG, final)[0][0] / weight,
            "personal.certificate": np.array([objective, bound]),
            "personal.has_joined": np.array(float(has_joined)),
            "personal.columns": np.array(
                [float(question.variables.index(v)) for v in sites[k].data.variables]
            ),
        }
        vectors.append(np.concatenate([[objective, n], losses]))
    return states, np.stack(vectors)


def personal_arrays(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a site's own result, from its own state.

    C (q, d) and C_raw are its weights after and before the refit, target_loss (d,) the loss of each variable, has_joined
    whether it ever took part, and `columns` the positions of the variables it measures. `certificate` holds its penalised
    objective, and what no acyclic network has one below.
    """
    names = {"C": "final", "C_raw": "final_raw", "target_loss": "final_loss"}
    names |= {name: name for name in ("certificate", "has_joined", "columns")}
    return {name: state["personal." + key] for name, key in names.items() if "personal." + key in state}


register_site_task(SiteTask(StepQuestion, _step))
register_site_task(SiteTask(FinishQuestion, _finish))
register_personal_result("pfdbnl", lambda state, result: personal_arrays(state))
