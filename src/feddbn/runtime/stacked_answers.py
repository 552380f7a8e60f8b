"""The FDBNL rounds of many simulated sites, computed together, one vector for each site.

`StackedFederation` needs only the sum of the sites' vectors; under secure aggregation every site masks its
own. The formulas are those of `core.member.SiteMember` and `core.local_step.LocalProblem` with a leading axis
for the sites.

Rules of the file
-----------------
- Only a simulation may do this: sites with guards answer for themselves.
- The numbers are those of the sites' own programs up to rounding; see test_stacked_answers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from feddbn.core.lagged import FloatArray
from feddbn.core.local_step import LocalProblem
from feddbn.core.member import Ask
from feddbn.errors import StateError
from feddbn.federation.site import Site
from feddbn.federation.statistics import local_moments
from feddbn.federation.task import Task

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
        q, d = task.arrays["C"].shape
        center, scale, metric = (task.arrays[name] for name in ("center", "scale", "metric"))
        problems = []
        for site in sites:
            site.state, moments = local_moments(site.data, site.state, task)
            G = moments.about(center) / moments.n / np.outer(scale, scale)
            share = task.params["weighting"] == "samples"
            weight = moments.n / float(task.params["n_total"]) if share else 1.0  # type: ignore[arg-type]
            problems.append(LocalProblem.from_gram(G, weight, d, metric))
        self.wG = np.stack([problem.wG for problem in problems])
        self.V = np.stack([problem.V for problem in problems])
        self.Vt = np.ascontiguousarray(self.V.transpose(0, 2, 1))
        self.e = np.stack([problem.e for problem in problems])[:, :, None]
        self.D = metric[:, None]
        self.C = np.zeros((len(sites), q, d))
        self.U = np.zeros((len(sites), q, d))

    def answers(self, task: Task) -> FloatArray:
        """Return (K, q d + 2 + d), the vectors of `SiteMember.answer`; the states move on."""
        Cbar, ask = task.arrays["C"], Ask(task.params["ask"])
        q, d = Cbar.shape
        R = Cbar.copy()
        R[:d].flat[:: d + 1] -= 1.0
        # One product for all sites.
        gradient = (self.wG.reshape(-1, q) @ R).reshape(-1, q, d)
        out = np.zeros((len(self.wG), q * d + 2 + d))
        out[:, q * d + 2 :] = 0.5 * np.einsum("ij,kij->kj", R, gradient)
        message = out[:, : q * d].reshape(-1, q, d)
        if ask is Ask.GRADIENT:
            message[...] = gradient
            return out
        before, rho2, relaxation = (float(task.params[k]) for k in ("rho2_before", "rho2", "relaxation"))  # type: ignore[arg-type]
        if ask is Ask.ZERO:
            self.U = np.zeros_like(self.U)
        elif ask is Ask.JOIN:
            self.U = -gradient
        else:
            gap = self.C - Cbar
            scaled = self.D * gap
            out[:, q * d] = np.einsum("kij,kij->k", scaled, gap)
            self.U = self.U + before * scaled  # [fdbnl] Eq. (para): beta_k and gamma_k, stacked
        right = self.wG[:, :, :d] - self.U + rho2 * self.D * Cbar
        self.C = self.V @ ((self.Vt @ right) / (self.e + rho2))
        if relaxation != 1.0:
            self.C = relaxation * self.C + (1.0 - relaxation) * Cbar
        dual = self.U / self.D
        message[...] = self.C + dual / rho2
        out[:, q * d + 1] = np.einsum("kij,kij->k", self.U, dual)
        return out
