"""Many simulated sites in one process, at the speed of one large product per round.

Theory of operation
-------------------
Gradients and losses at the broadcast point are linear in w_k G_k, so their sums come from the sum of the Gram matrices.
A consensus round is two products with a site's eigenvectors (see `core.fdbnl.local_step`). Written in those coordinates,

    w_k G_k = D V_k diag(e_k) V_k' D,   V_k' D V_k = I
    c_k = V_k' D C_k,   u_k = V_k' U_k,   z_k = V_k' D Cbar
    c_k = (e_k V_k' D E - u_k + rho2 z_k) / (e_k + rho2)               [fdbnl] Eq. (Local), elementwise
    sum_k C_k + U_k / (rho2 D) = sum_k V_k (c_k + u_k / rho2)

the products of all sites are one matrix product each, ``[V_1 ... V_K]' (D Cbar)`` and ``[V_1 ... V_K] [c_1; ...]``,
norms are preserved, and everything else is elementwise. Work goes through chunks of sites to bound memory.

Rules of the file
-----------------
- Only a simulation may do this: sites with guards, and tasks to some of the sites, go through the sites themselves.
- The numbers are those of `InProcessFederation` up to rounding; see test_stacked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.fdbnl.local_step import LocalLoss
from feddbn.core.fdbnl.site import Ask, gradient_answer
from feddbn.errors import StateError
from feddbn.federation.programs.fdbnl import weighted_gram
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Sum, Task
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.stacked_personal import CHUNK, StackedPersonal

__all__ = ["StackedFederation"]


class StackedFederation(InProcessFederation):
    """Sites of a simulation whose FDBNL and PFDBNL rounds are computed together; other tasks are asked site by site."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        super().__init__(sites)
        self._in_order = [self.site(name) for name in self.sites]
        self._is_guarded = any(site.guards for site in self._in_order)
        self._members: _Gradients | _Members | None = None
        self._personal = StackedPersonal(self._sites)

    def sum(self, task: Task) -> Sum:
        """Return the sum of the sites' vectors."""
        if (
            task.name == "personal-step"
            and not self._is_guarded
            and self._personal.knows(task.participants or ())
        ):
            return self._personal.sum(task)
        self._personal.write_back()
        if task.name != "fdbnl-step" or task.participants is not None or self._is_guarded:
            return super().sum(task)
        if task.params["round"] == 0:
            kind = _Gradients if Ask(task.params["ask"]) is Ask.GRADIENT else _Members
            self._members = kind.start(self._in_order, task)
        elif self._members is None:
            raise StateError("these sites have no state of this run; a run starts with round 0.")
        return Sum(self._members.answer(task), self.sites)


def _grams(sites: list[Site], task: Task) -> Iterator[tuple[int, FloatArray]]:
    """Yield (number of the first site, (k, q, q) the w_k G_k) of each chunk of sites, reading every site once."""
    q = len(task.arrays["center"])
    size = max(1, CHUNK // (q * q))
    for first in range(0, len(sites), size):
        chunk = sites[first : first + size]
        G = np.empty((len(chunk), q, q))
        for k, site in enumerate(chunk):
            site.state, G[k] = weighted_gram(site.data, site.state, task)
        yield first, G


@dataclass
class _Gradients:
    """The sum of all sites' losses."""

    loss: LocalLoss

    @classmethod
    def start(cls, sites: list[Site], task: Task) -> _Gradients:
        """Read every site once."""
        q, d = task.arrays["C"].shape
        gram = np.zeros((q, q))
        for _, G in _grams(sites, task):
            gram += G.sum(axis=0)
        return cls(LocalLoss(gram, d))

    def answer(self, task: Task) -> FloatArray:
        """Return the sum over sites of `core.fdbnl.site.gradient_answer`."""
        return gradient_answer(self.loss, task.arrays["C"])


@dataclass
class _Members:
    """All sites in the coordinates of their eigenvectors, stacked.

    Attributes
    ----------
    loss
        The sum of all sites' losses.
    Vt
        (K q, q) the V_k' below each other.
    e
        (K q, 1) eigenvalues.
    pull
        (K q, d) e_k V_k' D E: the site's own solution pulls with it.
    c, u
        (K q, d) local weights and duals.
    """

    loss: LocalLoss
    metric: FloatArray
    Vt: FloatArray
    e: FloatArray
    pull: FloatArray
    c: FloatArray
    u: FloatArray
    n_sites: int

    @classmethod
    def start(cls, sites: list[Site], task: Task) -> _Members:
        """Read every site once and decompose its Gram matrix."""
        q, d = task.arrays["C"].shape
        metric = task.arrays["metric"]
        root = np.sqrt(metric)
        rows = len(sites) * q
        gram = np.zeros((q, q))
        Vt, e = np.empty((rows, q)), np.empty((rows, 1))
        for first, G in _grams(sites, task):
            gram += G.sum(axis=0)
            values, vectors = np.linalg.eigh(G / np.outer(root, root))
            at = slice(first * q, (first + len(G)) * q)
            e[at] = np.maximum(values, 0.0).reshape(-1, 1)
            Vt[at] = vectors.transpose(0, 2, 1).reshape(-1, q) / root
        pull = Vt[:, :d] * metric[:d]
        pull *= e
        empty = np.zeros((rows, d))
        return cls(LocalLoss(gram, d), metric, Vt, e, pull, empty, empty.copy(), len(sites))

    def answer(self, task: Task) -> FloatArray:
        """Return the sum over sites of `core.fdbnl.site.SiteMember.answer`; the state moves on."""
        Cbar, ask = task.arrays["C"], Ask(task.params["ask"])
        q, d = Cbar.shape
        before, rho2, relaxation = (float(task.params[k]) for k in ("rho2_before", "rho2", "relaxation"))  # type: ignore[arg-type]
        DC = self.metric[:, None] * Cbar
        message, primal = np.zeros((q, d)), 0.0
        size = max(1, CHUNK // (q * q)) * q
        for first in range(0, self.n_sites * q, size):
            at = slice(first, first + size)
            Vt, e, c, u = self.Vt[at], self.e[at], self.c[at], self.u[at]
            z = Vt @ DC
            if ask is Ask.ZERO:
                u[:] = 0.0
            else:
                c -= z
                primal += float(np.vdot(c, c))
                c *= before
                u += c  # [fdbnl] Eq. (para): beta_k and gamma_k, stacked
            np.multiply(z, rho2, out=c)
            c += self.pull[at]
            c -= u
            c *= relaxation / (e + rho2)
            if relaxation != 1.0:
                z *= 1.0 - relaxation
                c += z
            np.divide(u, rho2, out=z)
            z += c
            message += Vt.T @ z
        return np.concatenate([message.ravel(), [primal], self.loss.target_loss(Cbar)])
