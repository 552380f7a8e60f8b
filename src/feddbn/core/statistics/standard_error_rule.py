"""Which candidate to take, from losses and their standard errors alone."""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError

__all__ = ["RULES", "choose"]

RULES = ("one-standard-error", "best")


def choose(loss: FloatArray, standard_error: FloatArray, rule: str = "one-standard-error") -> int:
    """Return the index of the simplest candidate whose loss is not clearly above the lowest.

    Candidates come simplest first; `standard_error` is that of the difference to the best (paired), so it is zero
    there. "best" ignores it.
    """
    if rule not in RULES:
        raise ParameterError(f"rule={rule!r} is not known; choose one of {', '.join(RULES)}.")
    best = int(np.argmin(loss))
    if rule == "best":
        return best
    return int(np.flatnonzero(loss <= loss[best] + standard_error)[0])
