"""Systems of which the last variables are hidden: how these act, and what is left to see."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from feddbn.errors import ParameterError
from feddbn.sim.settings import check_number, check_whole
from feddbn.sim.systems import MAX_RADIUS, System

__all__ = ["HiddenVariables"]


@dataclass(frozen=True)
class HiddenVariables:
    """Hidden variables, which come after those that are seen.

    Attributes
    ----------
    n_latent
        How many there are; 0 for none.
    strength
        By how much the weights of their effects on others are multiplied.
    lagged
        Whether they have a past: if not, they are noise that acts on several variables in the moment in which it comes.
    """

    n_latent: int = 0
    strength: float = 1.0
    lagged: bool = True

    def __post_init__(self) -> None:
        check_whole("n_latent", self.n_latent, 0)
        check_number("latent_strength", self.strength, 0.0)
        if not isinstance(self.lagged, (bool, np.bool_)):
            raise ParameterError(f"latent_lagged must be True or False, got {self.lagged!r}.")

    def names(self, seen: tuple[str, ...]) -> tuple[str, ...]:
        """Names of all variables: ``hidden0, hidden1, ...`` after those that are seen."""
        return (*seen, *(f"hidden{k}" for k in range(self.n_latent)))

    def act(self, system: System) -> System:
        """The system with hidden variables as strong and as lasting as they are to be; damped if that makes it unstable."""
        n_seen = len(system.W) - self.n_latent
        W, A = system.W.copy(), system.A.copy()
        W[n_seen:] *= self.strength
        own = np.einsum("lii->li", A)[:, n_seen:].copy()
        A[:, n_seen:] *= self.strength
        hidden = np.arange(n_seen, len(W))
        A[:, hidden, hidden] = own
        if not self.lagged:
            A[:, n_seen:] = A[:, :, n_seen:] = 0.0
        changed = replace(system, W=W, A=A)
        radius = changed.spectral_radius
        return changed.damped(MAX_RADIUS / radius) if radius > MAX_RADIUS else changed

    def seen(self, system: System) -> System:
        """The part of a system that is seen: edges between its variables."""
        n = len(system.W) - self.n_latent
        order = system.order[system.order < n]
        return replace(system, W=system.W[:n, :n], A=system.A[:, :n, :n], order=order)
