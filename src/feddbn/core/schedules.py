"""Penalty schedules of the consensus method.

`adaptive` (default) balances rho2 while the problem is convex and keeps it constant afterwards, so that the sites'
answers can reach the pooled optimum, and raises the weight of acyclicity slowly from almost nothing: a homotopy whose
path, and so whose local optimum, hardly depends on how the rows are split among sites.

`paper` is [fdbnl] Eq. (para): both penalties grow every round from 1 by phi1 = 1.6 and phi2 = 1.1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from feddbn.errors import ParameterError

__all__ = ["Schedule", "make_schedule"]

# Acyclicity constraints have many local optima. Paths of different pace, each started from the answer of the one before,
# and the best kept: chosen on simulated federations (d = 10, K = 1, 2, 16, 64) so that the objective does not depend on
# the split, and on the golden DYNOTEARS answers, one of which only the slow path finds.
ADAPTIVE_PASSES = ((1.0, 1.3), (0.1, 1.6), (10.0, 1.1), (1.0, 1.6), (0.1, 2.0))


@dataclass(frozen=True)
class Schedule:
    """Starting penalties, their growth per round, and whether the staged, unit-free path is used.

    Attributes
    ----------
    rho1, rho2, phi1, phi2
        As in the paper; with `is_adaptive`, rho1 and phi1 are replaced by `passes`.
    h_switch
        Once h is below it, the adaptive path fixes the order and solves the rest as a convex problem.
    passes
        (start relative to the loss per variable, growth per round) of rho1 for each pass of the adaptive path; the
        order with the lowest objective stays.
    """

    is_adaptive: bool
    rho1: float
    rho2: float
    phi1: float
    phi2: float
    rho1_max: float = 1e16
    h_switch: float = 1e-3
    passes: tuple[tuple[float, float], ...] = ()


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
    if name == "adaptive":
        passes = ADAPTIVE_PASSES if rho1 is None and phi1 is None else ((rho1 or 1.0, phi1 or 1.3),)
        base = Schedule(True, passes[0][0], 2.0 * total_weight / n_sites, passes[0][1], 1.0, passes=passes)
    elif name == "paper":
        base = Schedule(False, 1.0, 1.0, 1.6, 1.1)
    else:
        raise ParameterError(f"schedule={name!r} is not known; choose 'adaptive' or 'paper'.")
    given = {k: float(v) for k, v in (("rho1", rho1), ("rho2", rho2), ("phi1", phi1), ("phi2", phi2)) if v is not None}
    for key, value in given.items():
        is_growth = key.startswith("phi")
        if not (value >= 1.0 if is_growth else value > 0.0):
            raise ParameterError(f"{key}={value!r} must be {'at least 1' if is_growth else 'positive'}.")
    return replace(base, **given)
