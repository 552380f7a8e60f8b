"""Total, direct and mediated effects over a horizon: sums of path weights in the unrolled graph.

The effect of i on j at horizon h is what a one-moment rise of x_i by 1 adds to x_j h steps later: the sum,
over every directed path from (i, t) to (j, t+h), of the product of the path's weights (Wright's rule). For
an acyclic W it equals the structural impulse response. A path is mediated by a set M if it visits a
variable of M strictly between its ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.dynamics import impact, require_linear
from feddbn.model.inputs import is_number, positive_int, variable_index
from feddbn.model.network import Network

__all__ = ["direct_effects", "effect_table", "mediated_effects", "total_effects"]


def total_effects(dbn: Network, horizon: int) -> FloatArray:
    """(horizon+1, d, d): entry [h, i, j] sums every path from i to j of length h in time; [0, i, i] is 1."""
    require_linear(dbn, "total_effects", "dbn.effects(source, target, horizon, at=..., by=...)")
    total = _path_sums(dbn, positive_int(horizon, "horizon", 0), blocked=[])
    total[0] += np.eye(dbn.d)
    return total


def direct_effects(dbn: Network, horizon: int) -> FloatArray:
    """(horizon+1, d, d): the weight of the single edge from i to j at lag h (0 beyond the network's lags), its average
    slope if it is curved.
    """
    if dbn.conditionals:
        require_linear(dbn, "direct_effects", "dbn.average_effects()")
    horizon = positive_int(horizon, "horizon", 0)
    direct = np.zeros((horizon + 1, dbn.d, dbn.d))
    upto = min(horizon, dbn.n_lags) + 1
    direct[:upto] = dbn.adjacency_matrices[:upto]
    return direct


def mediated_effects(dbn: Network, mediators: Sequence[str | int] | None, horizon: int) -> FloatArray:
    """(horizon+1, d, d): the part of the total effect that passes through a mediator (None: any variable
    at all).
    """
    require_linear(dbn, "mediated_effects", "dbn.do with the mediators held, at two values of the source")
    if isinstance(mediators, str):
        raise ParameterError(
            f"mediators must be a list of variables, got the text {mediators!r}; write [{mediators!r}]."
        )
    chosen = (
        range(dbn.d)
        if mediators is None
        else [variable_index(m, dbn.variables, "mediators") for m in mediators]
    )
    horizon = positive_int(horizon, "horizon", 0)
    return _path_sums(dbn, horizon, blocked=[]) - _path_sums(dbn, horizon, blocked=list(chosen))


def effect_table(
    dbn: Network,
    source: str | int,
    target: str | int,
    horizon: int,
    mediators: Sequence[str | int] | None = None,
    *,
    at: float | str | None = None,
    by: float | str | None = None,
) -> pd.DataFrame:
    """One row per horizon: total, direct, mediated (through `mediators`, or through anything) and
    cumulated total.

    They are for a rise of the source by 1, or by `by`; with `at` or `by` the table has both as columns. At which value a
    linear network is does not matter.
    """
    i = variable_index(source, dbn.variables, "source")
    j = variable_index(target, dbn.variables, "target")
    for name, value in (("at", at), ("by", by)):
        if value is not None and not is_number(value):
            raise ParameterError(f"{name} must be a finite number or None, got {value!r}.")
    total = total_effects(dbn, horizon)[:, i, j]
    table = pd.DataFrame(
        {
            "horizon": np.arange(horizon + 1),
            "total": total,
            "direct": direct_effects(dbn, horizon)[:, i, j],
            "mediated": mediated_effects(dbn, mediators, horizon)[:, i, j],
            "cumulative": np.cumsum(total),
        }
    )
    if at is None and by is None:
        return table
    step = 1.0 if by is None else float(by)
    table[table.columns[1:]] *= step
    table.insert(1, "at", np.nan if at is None else float(at))
    table.insert(2, "by", step)
    return table


def _path_sums(dbn: Network, horizon: int, blocked: list[int]) -> FloatArray:
    # R_h = (G_h + sum_l R_{h-l} A'_l)(I - W')^{-1}: G holds first edges, W' and A' lack the edges out of
    # blocked variables, so a path may start or end in a blocked variable but not pass through one.
    W, A = dbn.W.copy(), dbn.A.copy()
    W[blocked] = 0.0
    A[:, blocked] = 0.0
    B = impact(W)
    first = direct_effects(dbn, horizon)
    sums = np.zeros_like(first)
    for h in range(horizon + 1):
        arriving = first[h].copy()
        for lag in range(1, min(h, dbn.n_lags) + 1):
            arriving += sums[h - lag] @ A[lag - 1]
        sums[h] = arriving @ B
    return sums
