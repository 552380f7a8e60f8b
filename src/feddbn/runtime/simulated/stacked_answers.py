"""The FDBNL rounds of many simulated sites, computed together, one vector for each site.

`StackedFederation` needs only the sum of the sites' vectors; under secure aggregation every site masks its
own. The formulas are those of `core.fdbnl.site.SiteMember` and `core.fdbnl.local_step.LocalProblem` with a leading axis
for the sites.

Rules of the file
-----------------
- Only a simulation may do this: sites with guards answer for themselves.
- The numbers are those of the sites' own programs up to rounding; see test_stacked_answers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.fdbnl.local_step import LocalProblem
from feddbn.core.fdbnl.site import Ask
from feddbn.errors import StateError
from feddbn.federation.programs.fdbnl import weighted_gram
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Task

__all__ = ["StackedAnswers"]


class StackedAnswers:
    """Answers of all sites to one task, (K, n), or None for a task that every site must answer for itself."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self._sites = [sites[name] for name in sorted(sites)]
        self._is_guarded = any(site.guards for site in self._sites)
        self._steps: _Steps | None = None

    def __call__(self, task: Task) -> FloatArray | None:
        """Return the vectors, in the order of the sites' names."""
        if task.name != "fdbnl-step" or task.participants is not None or self._is_guarded:
            return None
        if task.params["round"] == 0:
            self._steps = _Steps(self._sites, task)
        elif self._steps is None:
            raise StateError("these sites have no state of this run; a run starts with round 0.")
        return self._steps.answers(task)


class _Steps:
    """All sites' problems and states: wG, V (K, q, q), e (K, q, 1), C and U (K, q, d)."""

    def __init__(self, sites: list[Site], task: Task) -> None:
        q = len(task.arrays["center"])
        self.wG = np.empty((len(sites), q, q))
        for k, site in enumerate(sites):
            site.state, self.wG[k] = weighted_gram(site.data, site.state, task)

    def _join(self, metric: FloatArray, d: int) -> None:
        """Decompose every Gram matrix; the duals are zero."""
        problems = [LocalProblem.from_gram(wG, 1.0, d, metric) for wG in self.wG]
        self.V = np.stack([problem.V for problem in problems])
        self.Vt = np.ascontiguousarray(self.V.transpose(0, 2, 1))
        self.e = np.stack([problem.e for problem in problems])[:, :, None]
        self.D = metric[:, None]
        self.C = np.zeros((*self.wG.shape[:2], d))
        self.U = np.zeros_like(self.C)

    def answers(self, task: Task) -> FloatArray:
        """Return (K, q d + 1 + d), the vectors of `core.fdbnl.site`; the states move on."""
        Cbar, ask = task.arrays["C"], Ask(task.params["ask"])
        q, d = Cbar.shape
        R = Cbar.copy()
        R[:d].flat[:: d + 1] -= 1.0
        # One product for all sites.
        gradient = (self.wG.reshape(-1, q) @ R).reshape(-1, q, d)
        out = np.zeros((len(self.wG), q * d + 1 + d))
        np.einsum("ij,kij->kj", 0.5 * R, gradient, out=out[:, q * d + 1 :])
        message = out[:, : q * d].reshape(-1, q, d)
        if ask is Ask.GRADIENT:
            message[...] = gradient
            return out
        before, rho2, relaxation = (float(task.params[k]) for k in ("rho2_before", "rho2", "relaxation"))  # type: ignore[arg-type]
        if ask is Ask.ZERO:
            self._join(task.arrays["metric"], d)
        else:
            gap = self.C - Cbar
            scaled = self.D * gap
            out[:, q * d] = np.einsum("kij,kij->k", scaled, gap)
            self.U = self.U + before * scaled  # [fdbnl] Eq. (para): beta_k and gamma_k, stacked
        right = self.wG[:, :, :d] - self.U + rho2 * self.D * Cbar
        self.C = self.V @ ((self.Vt @ right) / (self.e + rho2))
        if relaxation != 1.0:
            self.C = relaxation * self.C + (1.0 - relaxation) * Cbar
        message[...] = self.C + self.U / (rho2 * self.D)
        return out
