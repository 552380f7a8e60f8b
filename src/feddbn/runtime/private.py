"""Sums under differential privacy that any method can use as they are.

Clipping and noise are the sites' business (`DpGuard`). This wrapper is the server's half: it asks for
moments by way of `private_moments` and hands the method sums that are positive definite and count as many
rows as the noise is worth, so that a method that knows nothing of noise does not take noise for edges.
"""

from __future__ import annotations

from feddbn.errors import ParameterError
from feddbn.federation.private_moments import PrivateMoments, private_moments
from feddbn.federation.task import Federation, Sum, Task
from feddbn.privacy.noise_plan import NoisePlan

__all__ = ["PrivateFederation"]


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
        self.variables = getattr(federation, "variables", None)
        self.last: PrivateMoments | None = None

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return self._federation.sites

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
