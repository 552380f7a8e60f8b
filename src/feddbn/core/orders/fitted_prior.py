"""The prior of edges and weights with the largest evidence; see `core.orders.average` for the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from feddbn.core.orders.order_chain import OrderChain, OrderTotals, given_order
from feddbn.core.orders.parent_tables import Hyper
from feddbn.core.orders.parents import ParentRegressions
from feddbn.core.orders.search import OrderResult

__all__ = ["fit_prior"]

_MAX_G_RATIO = 10.0
_HIGHEST_MOMENT = 3
_FIRST_VARIANCE = 0.15
_MOST_STEPS = 60
_MOST_OF_RATIO = 100.0
"""Weights ten times as large as one variable alone could explain another by: room for parents that partly cancel."""
_NO_RESIDUAL = 1e-12


def fit_prior(
    collect: Callable[[OrderChain], OrderTotals],
    chain: OrderChain,
    regressions: ParentRegressions,
    best: OrderResult,
    n_em: int,
) -> Hyper:
    """Return the prior fitted by `n_em` EM steps from the order of `best`; its tables are weighed on the way.

    `collect` turns the chain into sums over orders: sampled ones, or the given one alone.
    """
    fit = _fit_g_prior if best.noise_variance == "free" else _fit_independent
    return fit(collect, chain, regressions, best, n_em)


def _fit_g_prior(
    collect: Callable[[OrderChain], OrderTotals],
    chain: OrderChain,
    regressions: ParentRegressions,
    best: OrderResult,
    n_em: int,
) -> Hyper:
    """Free variances: the prior after `n_em` EM steps, at the order of the moment prior with the largest evidence."""
    fitted: dict[int, tuple[float, Hyper]] = {}

    def evidence(order: int) -> float:
        if order not in fitted:
            hyper, value = _first_hyper(regressions, best, order), -np.inf
            chain.restart(list(best.order))
            for _ in range(n_em):
                for table in chain.tables:
                    table.weigh(hyper, True)
                chain.restart(chain.order.tolist())
                totals = collect(chain)
                value = totals.evidence(hyper, True)
                hyper = _updated(hyper, totals, regressions)
            fitted[order] = (value, hyper)
        return fitted[order][0]

    order = 0 if evidence(0) >= evidence(1) else 1
    while 0 < order < _HIGHEST_MOMENT and evidence(order + 1) > evidence(order):
        order += 1
    return fitted[order][1]


def _fit_independent(
    collect: Callable[[OrderChain], OrderTotals],
    chain: OrderChain,
    regressions: ParentRegressions,
    best: OrderResult,
    n_em: int,
) -> Hyper:
    """Equal variances: the prior with the largest evidence given the best order, then `n_em` EM steps over orders.

    The variance of the weights climbs by factors of two; a moment of higher order starts from the one before. It
    is bounded by the ratio of the variables' variances, because a parent cannot explain more than a variable varies.
    Where less than one edge is expected there are no weights to learn their size from, and evidence rises with
    whatever excludes edges, up to variances of 1e20 on white noise: it is not followed then.
    """
    order = list(best.order)
    varying = regressions.column_total[regressions.column_total > 0]
    largest = _MOST_OF_RATIO * float(regressions.total.max() / varying.min())

    def stepped(hyper: Hyper, collect: Callable[[OrderChain], OrderTotals]) -> tuple[float, Hyper, bool]:
        """The evidence of a prior, the prior with the shares of edges and the noise it finds, whether it expects an edge."""
        for table in chain.tables:
            table.weigh(hyper, False)
        chain.restart(order)
        totals = collect(chain)
        residual = regressions.total * np.maximum(1 - totals.explained / totals.count, _NO_RESIDUAL)
        s2 = float(residual.sum()) / ((regressions.n - 1) * regressions.d)
        fitted = replace(_with_shares(hyper, totals), noise_variance=s2)
        return totals.evidence(hyper, False), fitted, float(totals.edges.sum()) >= totals.count

    def climbed(hyper: Hyper) -> tuple[float, Hyper, bool]:
        here = stepped(hyper, given_order)
        for factor in (2.0, 0.5):
            there = stepped(replace(here[1], g=here[1].g * factor), given_order)
            climbs = there[0] > here[0]
            for _ in range(_MOST_STEPS):
                is_learned = factor < 1 or (there[2] and there[1].g <= largest)
                if there[0] <= here[0] or not is_learned:
                    break
                here, there = there, stepped(replace(there[1], g=there[1].g * factor), given_order)
            if climbs:
                break
        return here

    start = replace(_first_hyper(regressions, best, 0), g=_FIRST_VARIANCE)
    found = climbed(start)
    for moment_order in range(1, _HIGHEST_MOMENT + 1):
        narrower = (2 * moment_order - 1) / (2 * moment_order + 1)
        higher = climbed(replace(found[1], moment_order=moment_order, g=found[1].g * narrower))
        if higher[0] <= found[0] or not higher[2]:
            break
        found = higher
    hyper = found[1]
    for _ in range(n_em):
        _, hyper, _ = stepped(hyper, collect)
    return hyper


def _first_hyper(regressions: ParentRegressions, best: OrderResult, moment_order: int) -> Hyper:
    d, n = regressions.d, regressions.n
    n_lags = regressions.q // d - 1
    n_present = max(float(best.support[:d].sum()), 1.0)
    n_lagged = max(float(best.support[d:].sum()), 1.0)
    s2 = float(best.rss.sum()) / max(n * d - n_present - n_lagged, 1.0)
    # A moment prior of scale g and order r has 2r + 1 times the variance of a normal one.
    g = n / (3 * (2 * moment_order + 1))
    return Hyper(_share(n_present, d * (d - 1) / 2), _share(n_lagged, n_lags * d * d), g, s2, moment_order)


def _updated(hyper: Hyper, totals: OrderTotals, regressions: ParentRegressions) -> Hyper:
    """One EM step with free variances: pi from expected counts, g from explained variance per edge."""
    n, shrink = regressions.n, hyper.g / (1 + hyper.g)
    hyper = _with_shares(hyper, totals)
    explained = totals.explained / totals.count
    ratio = float((n * explained / np.maximum(1 - shrink * explained, 1e-12)).sum())
    g = (ratio / max(float(totals.edges.sum()) / totals.count, 1.0) - 1) / (2 * hyper.moment_order + 1)
    return replace(hyper, g=float(np.clip(g, 1.0, _MAX_G_RATIO * n)))


def _with_shares(hyper: Hyper, totals: OrderTotals) -> Hyper:
    """The prior with edge probabilities from expected counts."""
    d = totals.edges.shape[1]
    n_present, n_lagged = (float(part.sum()) / totals.count for part in (totals.edges[:d], totals.edges[d:]))
    return replace(
        hyper,
        pi_present=_share(n_present, d * (d - 1) / 2),
        pi_lagged=_share(n_lagged, (len(totals.edges) - d) * d),
    )


def _share(count: float, possible: float) -> float:
    return float(np.clip((count + 0.5) / (possible + 1.0), 1e-4, 0.95))
