"""Sums under differential privacy that any method can use as they are.

Clipping and noise are the sites' business (`DpGuard`). This wrapper is the server's half: it asks for
moments by way of `private_moments` and hands the method sums that are positive definite and count as many
rows as the noise is worth, so that a method that knows nothing of noise does not take noise for edges.

Server and sites must mean the same noise. They share the plan, and the number of sites over which the noise
of a sum is spread: the threshold of secure aggregation, which is therefore fixed for a whole private study.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from feddbn.errors import ParameterError
from feddbn.federation.guards.noise import DpGuard
from feddbn.federation.programs.private_moments import (
    PrivateMoments,
    guaranteed_sites,
    private_moments,
    private_moments_plan,
    study_noise_plan,
)
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Study, check_noise
from feddbn.federation.protocol.task import Federation, Sum, Task
from feddbn.privacy.noise_plan import NoisePlan
from feddbn.privacy.policy import Unit
from feddbn.privacy.secagg import DEFAULT_MIN_SITES, usual_threshold
from feddbn.runtime.simulated.secure import secure_federation

__all__ = ["PrivateFederation", "noise_aware", "private_federation"]


class PrivateFederation:
    """A federation whose moments are noisy and say so by a smaller count.

    Parameters
    ----------
    federation
        Where the sums are made; with the noise spread over sites, it must be a secure one.
    plan
        The plan the sites' guards use.
    n_guaranteed
        Sites sure to be in every sum: the threshold of secure aggregation; 1 for plain sums.
    quantile
        Share of the units that stay unclipped.

    Attributes
    ----------
    answered_tasks
        What the plan covers; every other task costs infinitely much, so methods do not ask for it.
    last
        The moments last handed out, with the clipping bound and the noise in them.
    """

    def __init__(
        self, federation: Federation, plan: NoisePlan, n_guaranteed: int, quantile: float = 0.2
    ) -> None:
        if not 1 <= n_guaranteed <= len(federation.sites):
            raise ParameterError(
                f"n_guaranteed must be between 1 and the {len(federation.sites)} sites, got {n_guaranteed}."
            )
        self._federation = federation
        self._plan = plan
        self._n_guaranteed = n_guaranteed
        self._quantile = quantile
        self.variables = federation.variables
        self.answered_tasks: frozenset[str] | None = frozenset(plan.rules)
        self.last: PrivateMoments | None = None

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return self._federation.sites

    def state_of(self, site: str) -> None:
        """Return None: what noise protects stays at the site."""

    def sum(self, task: Task) -> Sum:
        """Return a noise-aware sum of moments; other tasks pass through, and the sites' guards decide on
        them.
        """
        rule = self._plan.rules.get(task.name)
        if rule is None or rule.norm != "gram":
            return self._federation.sum(task)
        contributors: tuple[str, ...] = ()
        program = private_moments(task, None, self._plan, self._n_guaranteed, self._quantile)
        request = next(program)
        while True:
            answer = self._federation.sum(request)
            contributors = answer.contributors
            try:
                request = program.send(answer)
            except StopIteration as end:
                result: PrivateMoments = end.value
                self.last = result
                return Sum(result.noisy.moments.to_sums(), contributors)


def private_federation(
    sites: Mapping[str, Site],
    epsilon: float,
    delta: float = 1e-5,
    *,
    unit: Unit = "recording",
    clip: float | None = None,
    n_colluding: int = 0,
    min_sites: int = DEFAULT_MIN_SITES,
    rng: np.random.Generator | None = None,
) -> PrivateFederation:
    """Return a federation of sites in this process with noise and masks: each sum of moments is
    (epsilon, delta)-differentially private for each unit, and nobody sees more than the sum.

    Parameters
    ----------
    sites
        The sites; each keeps its guards and gains one that clips, adds noise and refuses a second release.
    clip
        Bound on a unit's vector; None chooses it from a noisy histogram, for a tenth of the budget.
    n_colluding
        Sites that may tell the server their own share of the noise.
    rng
        Source of the noise, for tests and benchmarks; None takes the operating system's randomness.
    """
    plan = private_moments_plan("moments", unit, epsilon, delta, clip, n_colluding)
    sources = (np.random.default_rng() if rng is None else rng).spawn(len(sites))
    guarded = {
        name: Site(name, site.data, (*site.guards, DpGuard(plan, source, epsilon, delta)))
        for (name, site), source in zip(sorted(sites.items()), sources, strict=True)
    }
    n_guaranteed = usual_threshold(len(sites), min_sites)
    return PrivateFederation(secure_federation(guarded, min_sites, n_guaranteed), plan, n_guaranteed)


def noise_aware(federation: Federation, study: Study) -> PrivateFederation:
    """Return the federation that the method of a study with noise should ask: one that admits the noise."""
    check_noise(study)
    return PrivateFederation(federation, study_noise_plan(study.privacy), guaranteed_sites(study))
