"""How a fit ended. Not converging is a result with a message, not an exception."""

from __future__ import annotations

from enum import Enum

__all__ = ["Status"]


class Status(Enum):
    """Outcome of an iterative fit; the value is the sentence shown to the user."""

    CONVERGED = "converged: the graph is acyclic and all residuals are below their tolerances"
    MAX_ROUNDS = "stopped at the maximum number of rounds before every residual was below its tolerance"
    NOT_ACYCLIC = "stopped at the maximum number of rounds while the graph still had cycles; their weakest edges were cut"
    STALLED = "stopped because nothing changed any more although a residual is above its tolerance"
    EXACT = "needed no rounds: the answer is exact, in closed form or by a finite search"

    @property
    def message(self) -> str:
        """The sentence shown to the user."""
        return str(self.value)

    @property
    def is_converged(self) -> bool:
        """Whether the answer can be taken as the solution of the stated problem."""
        return self in (Status.CONVERGED, Status.EXACT)
