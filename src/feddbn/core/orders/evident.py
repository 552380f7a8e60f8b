"""The network near a given one that the evidence prefers: its residuals show what no network explains.

Penalties and thresholds leave weak effects out, and a turned edge leaves others open. Residuals of such a network go along
with each other and with earlier ones although the noise is as it should be. So from the given network effects are added,
left out and turned by BIC, with free noise variances, as long as that is cheaper.
"""

from __future__ import annotations

from feddbn.core.arrays import BoolArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.search import OrderSearch
from feddbn.core.statistics.moments import Moments

__all__ = ["evident_support"]


def evident_support(moments: Moments, support: BoolArray, constraints: EdgeConstraints) -> BoolArray:
    """((p+1) d, d) support of the best network that moves over orders reach from an acyclic `support`."""
    q, d = support.shape
    prices = Criterion()
    search = OrderSearch(moments, d, q // d - 1, constraints, prices.for_orders, "free")
    found = search.run_from(search.adopt(support))
    return search.select_edges(found, prices).support
