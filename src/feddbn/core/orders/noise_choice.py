"""Equal or free noise variances: the two searches, and what decides between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import chdtrc

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.parents import ParentRegressions
from feddbn.core.orders.screening import regressions_of
from feddbn.core.orders.search import NoiseVariance, OrderResult, OrderSearch
from feddbn.core.statistics.moments import Moments

__all__ = [
    "NoiseChoice",
    "Searches",
    "bartlett",
    "choose_noise",
    "needed_advantage",
    "price_of_free",
    "variance_difference",
]

DOUBTFUL = 0.01
"""Below this p-value of Bartlett's test, equal variances are put to the scores. A search that assumes them makes residual
variances as equal as it can, also by wrong edges, so a statistic below BIC's price does not settle it."""
CLEAR_ADVANTAGE = 10.0
"""By how much free variances must score better where Bartlett's statistic is doubtful but below BIC's price: odds of 150
to 1, "very strong" in Kass and Raftery (1995). (Seeds 100 to 139: of 320 networks with exponential or Laplace noise of equal
variance two are then taken for unequal, without it 13; of 234 with Gaussian noise none either way.)"""

Searches = dict[NoiseVariance, tuple[OrderSearch, OrderResult]]


@dataclass(frozen=True)
class NoiseChoice:
    """Equal or free noise variances, and the sentence that says why."""

    kind: NoiseVariance
    reason: str


def bartlett(rss: FloatArray, n_parents: Sequence[int], n: float) -> float:
    """Bartlett's statistic of residual sums of squares on so many parents each: large if variances differ.

    With few rows the free-variance search fits noise and its BIC is too good; this statistic knows how many
    degrees of freedom each node has left.
    """
    left = np.array([max(n - 1 - k, 1.0) for k in n_parents])
    total = float(left.sum())
    pooled = float(rss.sum()) / total
    statistic = total * np.log(pooled) - float(left @ np.log(rss / left))
    correction = 1 + (float((1 / left).sum()) - 1 / total) / (3 * max(len(left) - 1, 1))
    return float(statistic / correction)


def variance_difference(network: OrderResult, n: float) -> float:
    """`bartlett` of a network."""
    return bartlett(network.rss, [len(parents) for parents in network.parents], n)


def price_of_free(d: int, n: float) -> float:
    """What BIC charges for free variances: equal ones have d - 1 parameters less."""
    return (d - 1) * float(np.log(n))


def needed_advantage(equal: OrderResult, n: float) -> float:
    """By how much free variances, their price paid, must score better than this network; inf if they need not be tried."""
    d, unequal = len(equal.parents), variance_difference(equal, n)
    if unequal > price_of_free(d, n):
        return 0.0
    return CLEAR_ADVANTAGE if float(chdtrc(max(d - 1, 1), max(unequal, 0.0))) < DOUBTFUL else np.inf


def choose_noise(
    moments: Moments,
    d: int,
    n_lags: int,
    constraints: EdgeConstraints,
    criterion: Criterion,
    asked: Literal["auto", "equal", "free"],
    n_restarts: int,
    rng: np.random.Generator,
    regressions: ParentRegressions | None = None,
    kind_of_search: type[OrderSearch] = OrderSearch,
) -> tuple[Searches, NoiseChoice]:
    """Search as asked, or with equal variances and, if these are in doubt, with free ones; say which and why."""
    # The fits of a node on a set of parents are the same under both noise models.
    known = regressions or regressions_of(moments.scatter, moments.n, d)

    def searched(kind: NoiseVariance) -> tuple[OrderSearch, OrderResult]:
        search = kind_of_search(moments, d, n_lags, constraints, criterion.for_orders, kind, known)
        return search, search.run(n_restarts, rng)

    if asked != "auto":
        found = searched(asked)
        return {asked: found}, NoiseChoice(asked, f"{asked} noise variances, as asked")
    searches: Searches = {"equal": searched("equal")}
    equal = searches["equal"][1]
    price = price_of_free(d, moments.n)
    unequal, advantage = variance_difference(equal, moments.n), needed_advantage(equal, moments.n)
    statistic = f"Bartlett's statistic of the equal-variance network is {unequal:.1f}, its price {price:.1f}"
    if not np.isfinite(advantage):
        return searches, NoiseChoice("equal", f"equal noise variances: {statistic}")
    searches["free"] = searched("free")
    free = searches["free"][1]
    free_score = free.score + price
    kind: NoiseVariance = "free" if free_score + advantage < equal.score else "equal"
    variances = free.rss / moments.n
    reason = (
        f"{kind} noise variances: BIC {equal.score:.1f} with equal, {free_score:.1f} with free ones; "
        f"the fitted free variances differ by a factor of {variances.max() / variances.min():.3g}; {statistic}"
    )
    return searches, NoiseChoice(kind, reason)
