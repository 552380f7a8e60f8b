"""A sampler of orders, and sums over the orders it visits of what each implies; see `core.orders.average`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.parent_tables import Hyper, NodeTable
from feddbn.core.orders.parents import ParentRegressions

__all__ = ["OrderChain", "OrderTotals", "given_order"]


class OrderChain:
    """A sampler of orders.

    `masks[k]` is the set of columns of table k that may be parents in the present order; the log of its
    summed posterior weight is entry ``start[k] + masks[k]`` of the concatenated tables.
    """

    def __init__(self, tables: Sequence[NodeTable], order: list[int], rng: np.random.Generator) -> None:
        self.tables, self.rng, self.d = tables, rng, len(tables)
        sizes = [len(table.log_sum) for table in tables]
        self._start = np.cumsum([0, *sizes[:-1]])
        self._lag_masks = np.array([table.lag_mask for table in tables])
        # bit[m, k]: the bits that stand for node m in table k, 0 if m is not in it.
        self._bit = np.zeros((self.d, self.d), dtype=np.int64)
        for k, table in enumerate(tables):
            for m, bits in table.node_bits.items():
                self._bit[m, k] = bits
        self.restart(order)

    def restart(self, order: list[int]) -> None:
        """Continue from another order, or with tables that were weighed anew."""
        self.order = np.array(order)
        rank = np.empty(self.d, dtype=np.int64)
        rank[self.order] = np.arange(self.d)
        before = rank[:, None] < rank[None, :]
        self.masks = self._lag_masks + (self._bit * before).sum(axis=0)
        self._logs = np.concatenate([table.log_sum for table in self.tables])

    @staticmethod
    def feasible(order: list[int], constraints: EdgeConstraints) -> list[int]:
        """The order nearest to `order`, greedily, in which required parents come first."""
        waiting, result = list(order), []
        must = constraints.required[: constraints.d]
        while waiting:
            node = next(j for j in waiting if not must[waiting, j].any())
            waiting.remove(node)
            result.append(node)
        return result

    def sweep(self) -> None:
        """Draw the place of every node, in random sequence, from its conditional distribution."""
        for node, share in zip(
            self.rng.permutation(self.d).tolist(), self.rng.random(self.d).tolist(), strict=True
        ):
            self._place(node, share)

    def _place(self, node: int, share: float) -> None:
        others = self.order[self.order != node]
        bit = self._bit[node, others]
        start, without = self._start[others], self.masks[others] & ~bit
        # Going left to right, the node starts in front of everyone: all others have it as a predecessor.
        own_masks = np.empty(self.d, dtype=np.int64)
        own_masks[0] = self._lag_masks[node]
        own_masks[1:] = self._bit[others, node]
        np.cumsum(own_masks, out=own_masks)
        values = self._logs[self._start[node] + own_masks]
        values[1:] += np.cumsum(self._logs[start + without] - self._logs[start + without + bit])
        values[np.isnan(values)] = -np.inf
        values -= values.max()
        cumulated = np.cumsum(np.exp(values))
        place = min(int(np.searchsorted(cumulated, share * cumulated[-1])), self.d - 1)
        self.order = np.concatenate([others[:place], [node], others[place:]])
        without[place:] += bit[place:]
        self.masks[others] = without
        self.masks[node] = own_masks[place]


class OrderTotals:
    """Sums over sampled orders of exact expectations given the order."""

    def __init__(self, regressions: ParentRegressions) -> None:
        self.regressions = regressions
        d = regressions.d
        self.edges = np.zeros((regressions.n_edges, d))
        self.precedes = np.zeros((d, d))
        self.explained = np.zeros(d)
        self.log_sums: list[float] = []
        self.count = 0

    def evidence(self, hyper: Hyper, free: bool) -> float:
        """Mean over the sampled orders of the log marginal likelihood given the order."""
        d, n = self.regressions.d, self.regressions.n
        n_lagged = (self.regressions.q - d) * d
        value = float(np.mean(self.log_sums))
        value += d * (d - 1) / 2 * np.log1p(-hyper.pi_present) + n_lagged * np.log1p(-hyper.pi_lagged)
        if not free:
            value -= (n - 1) * d / 2 * np.log(hyper.noise_variance)
            value -= float(self.regressions.total.sum()) / (2 * hyper.noise_variance)
        return float(value)

    def add(self, chain: OrderChain) -> None:
        """Add what the chain's order implies."""
        self.count += 1
        total = 0.0
        for table, mask in zip(chain.tables, chain.masks.tolist(), strict=True):
            log_all = table.log_sum[mask]
            total += float(log_all)
            found = [(edge, bits) for edge, bits in table.edge_bits if mask & bits]
            if found:
                without = table.log_sum[[mask & ~bits for _, bits in found]]
                self.edges[[edge for edge, _ in found], table.node] += -np.expm1(
                    np.minimum(without - log_all, 0)
                )
            self.explained[table.node] += np.exp(table.log_fit[mask] - log_all)
        self.log_sums.append(total)
        position = np.empty(chain.d, dtype=int)
        position[chain.order] = np.arange(chain.d)
        self.precedes += position[:, None] < position[None, :]


def given_order(chain: OrderChain) -> OrderTotals:
    """What the chain's order alone implies."""
    totals = OrderTotals(chain.tables[0].regressions)
    totals.add(chain)
    return totals
