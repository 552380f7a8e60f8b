"""Schedules: who makes the steps of FDBNL, and how fast its penalties grow.

`gram` (the default of FDBNL): the server makes the steps itself, on the summed Gram matrix.

`rounds` (the default of PFDBNL): every step is a sum over sites; FDBNL's is one of gradients.

Both raise the weight of acyclicity only as fast as the weights follow: a homotopy whose path, and so whose local optimum,
does not depend on how the rows are split among sites; then they solve the convex rest, so that the answer is the pooled
optimum within the order found. FDBNL needs no rho2 for it; PFDBNL does.

`paper` is [fdbnl] Eq. (para): both penalties grow every round from 1 by phi1 = 1.6 and phi2 = 1.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from feddbn.errors import ParameterError

__all__ = ["SCHEDULES", "Schedule", "make_schedule"]

SCHEDULES = ("gram", "rounds", "paper")

# Relative error of a product of many growths.
_ROUNDING = 1e-8


@dataclass(frozen=True)
class Schedule:
    """Starting penalties, their growth per round, and whether the staged, unit-free path is used.

    Attributes
    ----------
    rho1, rho2, phi1, phi2
        As in the paper; with `is_adaptive`, rho1 is relative to the loss per variable.
    total_weight
        Sum of the sites' weights: 1 if they are shares of the rows.
    h_switch
        Once h is below it, the adaptive path fixes the order and solves the rest as a convex problem.
    """

    is_adaptive: bool
    rho1: float
    rho2: float
    phi1: float
    phi2: float
    total_weight: float
    rho1_max: float = 1e16
    h_switch: float = 1e-3

    def has_rho2(self, value: float, rounds: int, in_turns: bool = False) -> bool:
        """Whether rho2 can have this value after at most so many rounds; `in_turns`: rounds may count in part."""
        if not value > 0:
            return False
        grown, growth = math.log(value / self.rho2), math.log(self.phi2)
        times = grown / growth if growth and not in_turns else 0.0
        is_whole = abs(times - round(times)) <= _ROUNDING
        return is_whole and -_ROUNDING <= grown <= rounds * growth + _ROUNDING


def make_schedule(
    name: str,
    n_sites: int,
    total_weight: float,
    *,
    rho1: float | None = None,
    rho2: float | None = None,
    phi1: float | None = None,
    phi2: float | None = None,
) -> Schedule:
    """Return a schedule by name; `total_weight` is the sum of the sites' weights.

    Arguments that are not None replace the schedule's own value.
    """
    if name in ("gram", "rounds"):
        # Chosen on the golden DYNOTEARS answers and simulated federations; a slower growth changes little.
        base = Schedule(True, 1.0, 2.0 * total_weight / n_sites, 1.3, 1.0, total_weight)
    elif name == "paper":
        base = Schedule(False, 1.0, 1.0, 1.6, 1.1, total_weight)
    else:
        raise ParameterError(f"schedule={name!r} is not known; choose one of {', '.join(SCHEDULES)}.")
    given = {
        k: float(v)
        for k, v in (("rho1", rho1), ("rho2", rho2), ("phi1", phi1), ("phi2", phi2))
        if v is not None
    }
    for key, value in given.items():
        is_growth = key.startswith("phi")
        if not (value >= 1.0 if is_growth else value > 0.0):
            raise ParameterError(f"{key}={value!r} must be {'at least 1' if is_growth else 'positive'}.")
    return replace(base, **given)  # type: ignore[arg-type]
