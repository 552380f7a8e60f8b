"""DYNOTEARS on a Gram matrix: the pooled problem every federated method is measured against.

    min_{W, A}  1/2 tr((E - C)' G (E - C)) + sum(L o |C|)   subject to   h(W) = 0          [fdbnl] Eq. (V1)

Solved by the state machine that serves many sites, so that a fit on the summed matrix and one by rounds follow the same
path to the same optimum.
"""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.backend.device import HOST, Device
from feddbn.core.fdbnl.path import RunOptions
from feddbn.core.fdbnl.server import ConsensusRun
from feddbn.core.fdbnl.site import gradient_answers
from feddbn.core.graphs.constraints import EdgeConstraints

__all__ = ["penalty_matrix", "solve_dynotears"]


def penalty_matrix(constraints: EdgeConstraints, lambda_w: float, lambda_a: float) -> FloatArray:
    """Return the (q, d) penalties: lambda_w over W, lambda_a over A, none on required edges."""
    L = np.full(constraints.allowed.shape, float(lambda_a))
    L[: constraints.d] = lambda_w
    L[constraints.required] = 0.0
    return L


def solve_dynotears(
    G: FloatArray, options: RunOptions, start: FloatArray | None = None, device: Device = HOST
) -> ConsensusRun:
    """Return the finished run for the Gram matrix G = Z'Z/n (``C_raw`` penalised, ``C`` pruned and refitted).

    `start` (q, d) are weights to begin from, for example those at the next larger penalty.
    """
    run = ConsensusRun(options)
    if start is not None:
        run.start_at(start)
    while not run.is_done:
        run.advance(gradient_answers(G[None], run.C, device)[0], 1)
    return run
