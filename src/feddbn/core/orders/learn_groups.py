"""From the moments of coded columns to a network of variables of any kind.

    sum_j n log det_j + sum over edges of  (columns of source * columns of target) * c log(n) + 2 log(number of such networks)

The first part of the price is that of BIC, the second that of the extended BIC (Chen and Chen 2008): with many variables to
choose from, one of them fits by chance, and that counts for more the fewer edges there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.average import OrderPosterior, nominees_of
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.groups import GroupObjective, GroupRegressions, group_subset_fits
from feddbn.core.orders.learn import firmness_of
from feddbn.core.orders.orientation import EdgeOrientation, settle_directions
from feddbn.core.orders.parent_tables import Hyper, NodeTable, subset_sums
from feddbn.core.orders.parents import Objective, Parents
from feddbn.core.orders.search import OrderResult, OrderSearch
from feddbn.core.orders.token_tables import TABLE_SIZE, posterior_from_tables
from feddbn.core.statistics.moments import Moments

__all__ = ["GroupLearned", "GroupSearch", "edge_prices", "learn_groups"]

MOST_NODES_TO_AVERAGE = 40
_ODDS, _NETWORKS = Criterion(1.0, 1.0), Criterion(0.0, 1.0)


def edge_prices(regressions: GroupRegressions, c: float, n_present: int, n_lagged: int) -> FloatArray:
    """(q, d) the price of each possible edge in a network that has so many within a moment and across."""
    known = regressions
    odds = _ODDS.marginal(known.n, known.d, known.q // known.d - 1, n_present, n_lagged) - np.log(known.n)
    return np.asarray(c * np.log(known.n) * _n_columns(known) + odds[:, None])


def _n_columns(regressions: GroupRegressions) -> FloatArray:
    return np.outer(regressions.widths, regressions.widths[: regressions.d])


class GroupSearch(OrderSearch):
    """A search whose variables have one or several columns; needs `regressions` of them."""

    regressions: GroupRegressions

    def _objective_for(self, s2: float | None, n_present: int, n_lagged: int) -> Objective:
        price = edge_prices(self.regressions, self.criterion.c, n_present, n_lagged)
        return GroupObjective(self.n, price[:, 0], self.regressions.total, None, price)

    def _price_of(self, network: Sequence[Parents]) -> float:
        each = self.criterion.c * np.log(self.n) * _n_columns(self.regressions)
        total = sum(each[list(parents), j].sum() for j, parents in enumerate(network))
        n_networks = _NETWORKS.total(self.n, self.d, self.n_lags, *self._n_edges_of(network))
        return float(total) + n_networks


class GroupTable(NodeTable):
    """All sets of one node's nominated parents, at the prices of the search."""

    regressions: GroupRegressions
    price: FloatArray

    def weigh(self, hyper: Hyper, free: bool) -> None:
        """Recompute the summed weights; the prior is that of the prices."""
        known = self.regressions
        rss = group_subset_fits(known, self.columns, self.node)
        price = self.price[self.columns, self.node]
        masks = np.arange(2 ** len(self.columns))
        total = sum(((masks >> b & 1) * price[b] for b in range(len(price))), np.zeros(len(masks)))
        weight = np.asarray(-0.5 * (known.n - 1) * np.log(rss) - 0.5 * total)
        weight[~self.possible] = -np.inf
        self.log_sum = subset_sums(weight)
        # What is explained is only asked for where a prior is fitted.
        self.log_fit = np.full_like(self.log_sum, -np.inf)


@dataclass(frozen=True)
class GroupLearned:
    """A learned network.

    Attributes
    ----------
    network
        Order, parents and support.
    orientation
        How firmly each edge within a moment is directed by Gaussian scores.
    posterior
        Edge probabilities.
    search
        The search that found it, which answers questions about neighbouring networks.
    """

    network: OrderResult
    orientation: tuple[EdgeOrientation, ...]
    posterior: OrderPosterior
    search: GroupSearch


def learn_groups(
    moments: Moments,
    d: int,
    n_lags: int,
    columns: Sequence[Sequence[int]],
    constraints: EdgeConstraints,
    rng: np.random.Generator,
    c: float = 1.0,
    n_restarts: int = 2,
) -> GroupLearned:
    """Return the network of moments whose columns belong to variables at lags as `columns` says."""
    regressions = GroupRegressions(moments.scatter, moments.n, d, columns)
    search = GroupSearch(moments, d, n_lags, constraints, Criterion(c), "free", regressions)
    found, asked = settle_directions(search, search.run(n_restarts, rng))
    support = found.support
    price = edge_prices(regressions, c, int(support[:d].sum()), int(support[d:].sum()))
    tables: list[NodeTable] = []
    hyper = Hyper(1 / regressions.q, 1 / regressions.q, 1.0, 1.0)
    for j in range(d):
        chosen = nominees_of(regressions, j, [found], constraints)[:TABLE_SIZE]
        table = GroupTable(regressions, j, sorted(chosen), constraints)
        table.price = price
        table.weigh(hyper, True)
        tables.append(table)
    posterior = posterior_from_tables(tables, found, constraints, rng, hyper, d <= MOST_NODES_TO_AVERAGE)
    return GroupLearned(found, tuple(firmness_of(found.support, asked)), posterior, search)
