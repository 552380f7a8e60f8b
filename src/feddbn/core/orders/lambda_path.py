"""DYNOTEARS at many penalties from one Gram matrix; the criterion of the order search picks one.

    for lambda in a falling grid:   min_C  1/2 tr((E - C)' G (E - C)) + lambda |C|_1   subject to   W acyclic
                                    start: the weights at the lambda before
        keep the edges and their order; drop edges that do not pay for themselves in an unpenalised refit
        score the refitted network by BIC

L1 shrinks what it keeps and keeps more than it should, so neither the penalised fit nor its support is
scored: the refit is. Known weakness: each solution is a local optimum, and NOTEARS-type objectives read the
order of the variables off their scales.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.fdbnl.dynotears import penalty_matrix, solve_dynotears
from feddbn.core.fdbnl.path import RunOptions
from feddbn.core.fdbnl.schedules import make_schedule
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.graphs.pruning import break_cycles
from feddbn.core.orders.average import average_within_order
from feddbn.core.orders.learn import (
    Learned,
    LearnOptions,
    NoiseChoice,
    PathPoint,
    UnitsCheck,
    compelled_edges,
    edge_firmness,
    varsortability,
)
from feddbn.core.orders.parents import ParentRegressions
from feddbn.core.orders.search import NoiseVariance, OrderResult, OrderSearch
from feddbn.core.statistics.moments import Moments

_TOL = 1e-4


def lambda_grid(
    G: FloatArray, constraints: EdgeConstraints, n_points: int = 10, smallest: float = 0.02
) -> FloatArray:
    """(n_points,) falling penalties, from the one at which every weight is 0 down to `smallest` of it."""
    d = constraints.d
    largest = float(np.abs(np.where(constraints.allowed, G[:, :d], 0.0)).max(initial=0.0))
    return np.asarray(np.geomspace(largest, smallest * largest, n_points))


def learn_by_path(
    moments: Moments, d: int, n_lags: int, constraints: EdgeConstraints, options: LearnOptions
) -> Learned:
    """Return the network of the DYNOTEARS path with the lowest criterion."""
    kind: NoiseVariance = "free" if options.noise_variance == "free" else "equal"
    G = moments.scatter / moments.n
    variance = np.diag(G)
    lambdas = np.array(options.lambdas or lambda_grid(G, constraints), dtype=np.float64)
    template = RunOptions(
        penalty=penalty_matrix(constraints, 0.0, 0.0),
        metric=np.maximum(variance, 1e-9 * float(variance.mean())),
        constraints=constraints,
        schedule=make_schedule("gram", 1, 1.0),
        tol=_TOL,
    )
    regressions = ParentRegressions(moments.scatter, moments.n, d)
    start: FloatArray | None = None
    found: list[OrderResult] = []
    path: list[PathPoint] = []
    for penalty in sorted(lambdas.tolist(), reverse=True):
        problem = replace(template, penalty=penalty_matrix(constraints, penalty, penalty))
        run = solve_dynotears(G, problem, start)
        assert run.C_raw is not None
        assert run.status is not None
        start = run.C_raw
        support = start != 0
        support[:d] = break_cycles(start[:d], constraints.required[:d])[0] != 0
        found.append(_refitted(moments, support, constraints, options, kind, regressions))
        n_present = int(found[-1].support[:d].sum())
        n_lagged = int(found[-1].support[d:].sum())
        path.append(PathPoint(penalty, n_present, n_lagged, found[-1].score, run.status.is_converged))
    best = min(found, key=lambda result: result.score)
    search = OrderSearch(moments, d, n_lags, constraints, options.criterion, kind, regressions)
    compelled = compelled_edges(best.support, best.support[:d] & ~constraints.allowed[:d].T)
    n_open = int((best.support[:d] & ~compelled).sum())
    units = UnitsCheck(0, n_open, varsortability(best.support[:d], variance[:d]))
    return Learned(
        best.support,
        best.order,
        NoiseChoice(kind),
        tuple(edge_firmness(search, best)),
        units,
        average_within_order(regressions, best, constraints),
        best.score,
        best,
        search,
        tuple(path),
    )


def _refitted(
    moments: Moments,
    support: BoolArray,
    constraints: EdgeConstraints,
    options: LearnOptions,
    kind: NoiseVariance,
    regressions: ParentRegressions,
) -> OrderResult:
    """The best network by the criterion among those found by dropping edges of `support`."""
    q, d = support.shape
    limits = EdgeConstraints(support | constraints.required, constraints.required)
    search = OrderSearch(moments, d, q // d - 1, limits, options.criterion, kind, regressions)
    return search.select_edges(search.adopt(limits.allowed), options.criterion)
