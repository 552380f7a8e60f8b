"""A PFDBNL task as one site understands it: its own part of every array, its own place in every list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.fdbnl.dynotears import penalty_matrix
from feddbn.core.fdbnl.local_step import LocalProblem
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.pfdbnl.stages import PersonalSite, searched_order
from feddbn.core.pfdbnl.step import PersonalMember, PersonalRound, PersonalStage
from feddbn.core.statistics.completion import completed
from feddbn.errors import ProtocolError
from feddbn.federation.programs.pfdbnl.state import Entries, SiteMemory, unpack
from feddbn.federation.programs.statistics import local_moments
from feddbn.federation.protocol.site import SiteData, SiteState
from feddbn.federation.protocol.task import Param, Task

__all__ = ["Asked", "join", "local_gram", "own_number", "remember"]


def own_number(params: Mapping[str, Param], key: str) -> int:
    """Return this site's number in a list that is in the order of ``names``."""
    names, values = params["names"], params[key]
    if (
        not isinstance(names, (tuple, list))
        or not isinstance(values, (tuple, list))
        or params["site"] not in names
    ):
        raise ProtocolError(
            f"the task does not say what {key!r} is for this site; its name is not in the study."
        )
    return int(values[list(names).index(params["site"])])


@lru_cache(maxsize=8)
def _free(d: int, n_lags: int, lambda_w: float, lambda_a: float) -> tuple[EdgeConstraints, FloatArray]:
    """Return constraints that forbid nothing and their penalties; the same in every round, so never to be written."""
    constraints = EdgeConstraints.none(d, n_lags)
    L = penalty_matrix(constraints, lambda_w, lambda_a)
    for array in (constraints.allowed, constraints.required, L):
        array.setflags(write=False)
    return constraints, L


@dataclass(frozen=True)
class Asked:
    """A task as the site understands it: its own part of every array."""

    models: FloatArray | None
    constraints: EdgeConstraints
    L: FloatArray
    params: Mapping[str, Param]

    @classmethod
    def of(cls, task: Task) -> Asked:
        """Read a task."""
        params = task.params
        d = len(params["variables"])  # type: ignore[arg-type]
        lambdas = float(params["lambda_w"]), float(params["lambda_a"])  # type: ignore[arg-type]
        if "allowed" in task.arrays:
            constraints = EdgeConstraints(task.arrays["allowed"] != 0, task.arrays["required"] != 0)
            L = penalty_matrix(constraints, *lambdas)
        else:
            constraints, L = _free(d, int(params["n_lags"]), *lambdas)  # type: ignore[arg-type]
        return cls(task.arrays.get("C"), constraints, L, params)

    def number(self, name: str) -> float:
        """Return a parameter as a float."""
        return float(self.params[name])  # type: ignore[arg-type]

    @property
    def stage(self) -> PersonalStage:
        """The stage the server is in."""
        return PersonalStage(self.params["stage"])

    @property
    def counted(self) -> int:
        """The last round in which this site's answer was counted; -1 if it never was."""
        return own_number(self.params, "counted")

    @property
    def n_slots(self) -> int:
        """Number of broadcast models."""
        return int(self.number("n_slots"))

    def columns(self, held: Sequence[str]) -> FloatArray:
        """Positions of the site's variables among the study's."""
        names = list(self.params["variables"])  # type: ignore[arg-type]
        return np.array([float(names.index(name)) for name in held])

    def centre(self, slot: int) -> FloatArray:
        """The site's part of the model it belongs to."""
        if self.models is None:
            raise ProtocolError("this task needs the broadcast array 'C'.")
        centre: FloatArray = self.models[slot]
        return centre

    def new_member(self, slot: int) -> FloatArray:
        """What a site adds to the counts of members: one in its slot, the first time it is counted."""
        counts = np.zeros(self.n_slots)
        counts[slot] = float(self.counted < 0)
        return counts

    def penalty(self) -> FloatArray:
        """The stage's penalty: none while refitting."""
        return np.zeros_like(self.L) if self.stage is PersonalStage.SUPPORT else self.L

    def rules(self) -> PersonalRound:
        """What the round asks of a participant."""
        alpha = self.params["alpha"]
        return PersonalRound(
            mu=self.number("mu"),
            rho=self.number("rho"),
            rho1=self.number("rho1"),
            rho2=self.number("rho2"),
            rho2_before=self.number("rho2_before"),
            alpha=None if alpha is None else float(alpha),  # type: ignore[arg-type]
            acyclic_steps=int(self.number("acyclic_steps")),
            is_exact=bool(self.params["is_exact"]),
            is_ordered=bool(self.params["is_ordered"]),
            in_series=bool(self.params["in_series"]),
            tol=self.number("tol"),
        )

    def entered(self, state: SiteState, memory: SiteMemory) -> tuple[SiteState, SiteMemory]:
        """Return the memory in the stage the server is in; the state keeps an order that was searched for it."""
        serial = int(self.number("serial"))
        if memory.serial == serial:
            return state, memory
        searched = None
        if self.stage is PersonalStage.SEARCHED:
            state, searched = _searched(state, memory, self.constraints)
        site = memory.site.enter(
            self.stage,
            memory.problem,
            memory.weight * self.L,
            self.constraints,
            self.number("mu"),
            self.centre(memory.slot),
            (self.number("w_threshold"), self.number("a_threshold")),
            searched,
        )
        return state, replace(memory, site=site, serial=serial)


def _searched(
    state: SiteState, memory: SiteMemory, constraints: EdgeConstraints
) -> tuple[SiteState, BoolArray]:
    """Return the site's searched order, from its state if it was searched before: it does not depend on mu.

    The selection of mu fits each of its folds many times.
    """
    G = memory.problem.wG / memory.weight
    known = sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in (G, *vars(constraints).values())))
    key = f"personal.searched.{known.hexdigest()[:16]}"
    if key not in state:
        state = {**state, key: searched_order(G, memory.n, constraints)}
    return state, state[key].astype(bool)


def local_gram(data: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray, float]:
    """Return the site's Gram matrix of prepared variables, (q, q), and its number of rows.

    Where the site lacks variables or lags, the others' moments (``fill``) complete it: given what the site has seen,
    what it has not seen behaves as in the federation, ``z_missing = B z_own + e`` with B and e's variance from there.
    """
    n_lags, own_lags = int(task.params["n_lags"]), own_number(task.params, "lags")  # type: ignore[arg-type]
    variables: tuple[str, ...] = tuple(task.params["variables"])  # type: ignore[arg-type]
    entries = Entries.of(tuple(data.variables), variables, own_lags, n_lags)
    own = replace(task, params={**task.params, "variables": tuple(data.variables), "n_lags": own_lags})
    state, moments = local_moments(data, state, own)
    scale = task.arrays["scale"][entries.rows]
    G = moments.about(task.arrays["center"][entries.rows]) / moments.n / np.outer(scale, scale)
    if not entries.is_whole:
        if "fill" not in task.arrays:
            raise ProtocolError(
                "this site holds other variables or lags than the study names; fit with different_variables=True."
            )
        G = completed(G, entries.rows, task.arrays["fill"])
    return state, G, moments.n


def join(data: SiteData, state: SiteState, task: Task, asked: Asked) -> tuple[SiteState, SiteMemory]:
    """Return a site's memory before its first round: its Gram matrix decomposed, itself at the consensus."""
    state, G, n = local_gram(data, state, task)
    weight = n / asked.number("mean_rows") if task.params["weighting"] == "samples" else 1.0
    problem = LocalProblem.from_gram(G, weight, asked.constraints.d, task.arrays["metric"])
    run = int(asked.number("run"))
    slot = int(state["cluster.slot"][1]) if "cluster.slot" in state and state["cluster.slot"][0] == run else 0
    centre = asked.centre(slot)
    site = PersonalSite(PersonalMember.start(centre), asked.constraints.allowed)
    nothing = np.zeros_like(centre)
    return state, SiteMemory(site, problem, weight, n, -1, run, slot, nothing, nothing, -1)


def remember(data: SiteData, state: SiteState, task: Task, asked: Asked) -> tuple[SiteState, SiteMemory]:
    """Return what the site remembers of this run, or its memory before its first round.

    A site that was never counted begins anew: what it may remember is an answer that got lost, or another fit.
    """
    if asked.counted >= 0 and "personal.C" in state:
        memory = unpack(state)
        if memory.run == int(asked.number("run")):
            return state, memory.acknowledged(asked.counted)
    return join(data, state, task, asked)
