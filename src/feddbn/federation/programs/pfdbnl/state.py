"""A site's PFDBNL state as named arrays, and the part of the federation's entries that the site holds.

Everything here stays at the site, durable between rounds: C_k, T_k, U_k, Y_k, its orders, what it has told the server
so far, and at the end its personal graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.fdbnl.local_step import LocalProblem
from feddbn.core.pfdbnl.stages import PersonalSite
from feddbn.core.pfdbnl.step import PersonalMember
from feddbn.errors import ProtocolError, StateError
from feddbn.federation.protocol.site import SiteState

__all__ = ["Entries", "SiteMemory", "pack", "unpack"]


@dataclass(frozen=True)
class Entries:
    """Which rows (of q) and columns (of d) of the federation's stack a site holds."""

    rows: np.ndarray
    columns: np.ndarray
    q: int
    d: int

    @classmethod
    def of(cls, own: tuple[str, ...], variables: tuple[str, ...], own_lags: int, n_lags: int) -> Entries:
        """Positions of a site's variables and lags among the federation's."""
        unknown = [name for name in own if name not in variables]
        if unknown:
            raise ProtocolError(
                f"this site has the variable {unknown[0]!r}, which the study does not name; add it to variables="
                " or leave the column out."
            )
        d = len(variables)
        columns = np.array([variables.index(name) for name in own])
        rows = np.concatenate([lag * d + columns for lag in range(own_lags + 1)])
        return cls(rows, columns, (n_lags + 1) * d, d)

    @property
    def is_whole(self) -> bool:
        """Whether the site holds every entry, in the federation's order."""
        return len(self.rows) == self.q and bool(np.all(self.rows == np.arange(self.q)))

    def take(self, C: FloatArray) -> FloatArray:
        """Return the site's part of a (q, d) or (q,) array."""
        if self.is_whole:
            return C
        part: FloatArray = C[self.rows] if C.ndim == 1 else C[np.ix_(self.rows, self.columns)]
        return part

    def put(self, C: FloatArray) -> FloatArray:
        """Return the site's (q_k, d_k) array among zeros, (q, d)."""
        if self.is_whole:
            return C
        whole = np.zeros((self.q, self.d))
        whole[np.ix_(self.rows, self.columns)] = C
        return whole


@dataclass(frozen=True)
class SiteMemory:
    """Everything a site remembers of a run.

    Attributes
    ----------
    sent
        (q_k, d_k) sum of all changes that the server has counted.
    run
        Number of the run this belongs to; a site forgets it when another one starts.
    slot
        Which of the broadcast models the site belongs to; 0 if there is one.
    offered
        (q_k, d_k) value whose change was sent in round `offered_round`; it counts once the server says so.
    """

    site: PersonalSite
    problem: LocalProblem
    weight: float
    n: float
    serial: int
    run: int
    slot: int
    sent: FloatArray
    offered: FloatArray
    offered_round: int

    def acknowledged(self, counted_round: int) -> SiteMemory:
        """Return the memory after learning the last round in which this site's answer was counted."""
        return replace(self, sent=self.offered) if counted_round == self.offered_round else self


_PREFIX = "personal."
_ALWAYS = ("C", "T", "U", "Y", "allowed", "orders", "wG", "V", "e", "metric", "sent", "offered", "numbers")
_SOMETIMES = (_PREFIX + "raw", _PREFIX + "grad_h")


def pack(state: SiteState, memory: SiteMemory) -> SiteState:
    """Return the site's state with this memory in it."""
    site, member, problem = memory.site, memory.site.member, memory.problem
    arrays = {
        "C": member.C,
        "T": member.T,
        "U": member.U,
        "Y": member.Y,
        "allowed": site.allowed,
        "orders": np.array(site.orders, dtype=bool).reshape(len(site.orders), *member.C.shape),
        "wG": problem.wG,
        "V": problem.V,
        "e": problem.e,
        "metric": problem.metric,
        "sent": memory.sent,
        "offered": memory.offered,
        "numbers": np.array(
            [
                member.alpha,
                member.h,
                member.curvature,
                float(site.is_ordered),
                memory.weight,
                memory.n,
                memory.serial,
                memory.run,
                memory.slot,
                memory.offered_round,
                site.raw_objective,
                site.path_objective,
            ]
        ),
    }
    sometimes = {"raw": site.raw, "grad_h": member.grad_h}
    arrays |= {name: array for name, array in sometimes.items() if array is not None}
    others = {name: array for name, array in state.items() if name not in _SOMETIMES}
    return {**others, **{_PREFIX + name: array for name, array in arrays.items()}}


def unpack(state: Mapping[str, np.ndarray]) -> SiteMemory:
    """Return the memory kept in a state."""
    if _PREFIX + "C" not in state:
        raise StateError("this site has no personal state of this run; it joins with its first round.")
    get = {name: state[_PREFIX + name] for name in _ALWAYS}
    alpha, h, curvature, is_ordered, weight, n, serial, run, slot, offered_round, objective, path = get[
        "numbers"
    ].tolist()
    member = PersonalMember(
        get["C"], get["T"], get["U"], get["Y"], alpha, h, curvature, state.get(_SOMETIMES[1])
    )
    orders = tuple(order.astype(bool) for order in get["orders"])
    site = PersonalSite(
        member,
        get["allowed"].astype(bool),
        orders,
        bool(is_ordered),
        state.get(_SOMETIMES[0]),
        objective,
        path,
    )
    problem = LocalProblem(get["wG"], member.C.shape[1], get["V"], get["e"], get["metric"])
    return SiteMemory(
        site,
        problem,
        weight,
        n,
        int(serial),
        int(run),
        int(slot),
        get["sent"],
        get["offered"],
        int(offered_round),
    )
