"""Sums under differential privacy that any method can use as they are.

Clipping and noise are the sites' business (`DpGuard`). This wrapper is the server's half: it asks for
moments by way of `private_moments` and hands the method sums that are positive definite and count as many
rows as the noise is worth, so that a method that knows nothing of noise does not take noise for edges.

Server and sites must mean the same noise. They share the plan, and the number of sites over which the noise
of a sum is spread: the threshold of secure aggregation, which is therefore fixed for a whole private study.
"""

from __future__ import annotations

from feddbn.federation.guards.study_plan import check_noise_size
from feddbn.federation.protocol.study import Study, check_noise
from feddbn.federation.protocol.task import Federation, Sum, Task
from feddbn.federation.sums.private_moments import (
    PrivateMoments,
    guaranteed_sites,
    private_moments,
    study_noise_plan,
)
from feddbn.privacy.noise_plan import NoisePlan
from feddbn.settings import whole


class PrivateFederation:
    """A federation whose moments are noisy and say so by a smaller count.

    `federation` makes the sums; with the noise spread over sites, it must be a secure one. `n_guaranteed` sites are sure to
    be in every sum: the threshold of secure aggregation; 1 for plain sums. A share `quantile` of the units stays unclipped.
    `answered_tasks` is what the plan covers; every other task costs infinitely much, so methods do not ask for it. `last` are
    the moments last handed out, with the clipping bound and the noise in them. `unit` is what noise protects.
    """

    def __init__(
        self, federation: Federation, plan: NoisePlan, n_guaranteed: int, quantile: float = 0.2
    ) -> None:
        whole(1, len(federation.sites)).check("n_guaranteed", n_guaranteed)
        self._federation = federation
        self._plan, self.unit = plan, plan.unit
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
        """Return a noise-aware sum of moments; other tasks pass through, and the sites' guards decide on them."""
        rule = self._plan.rules.get(task.name)
        if rule is None or rule.norm != "gram":
            return self._federation.sum(task)
        contributors: tuple[str, ...] = ()
        program = private_moments(task, self._plan, self._n_guaranteed, self._quantile)
        request = next(program)
        while True:
            answer = self._federation.sum(request)
            contributors = answer.contributors
            try:
                request = program.send(answer)
            except StopIteration as end:
                self.last = result = end.value
                return Sum(result.noisy.moments.to_sums(), contributors)


def noise_aware(federation: Federation, study: Study) -> PrivateFederation:
    """Return the federation that the method of a study with noise should ask: one that admits the noise."""
    check_noise(study)
    check_noise_size(study)
    return PrivateFederation(federation, study_noise_plan(study), guaranteed_sites(study))
