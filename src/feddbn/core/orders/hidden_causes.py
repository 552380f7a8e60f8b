"""Whether hidden common causes describe the rows better than the edges found between their effects.

Second moments tell an edge from a hidden cause where something else depends on it: causes of the edge's source would act
along it, so a false edge needs further false edges that cancel them; and noise of one variance stays so only without it.
The best network, with one variance but for exceptions that are paid for, is therefore compared with networks in which one
or two hidden causes stand for edges, at the same price for every weight (`factor_network`).

Theory of operation: a hidden cause of a, b, c looks like a cause a of b and c with a large noise. So searches begin where all
edges from one or two nodes are replaced by hidden causes; the best go on over orders (the hidden causes expected given the
rows are columns like any other), and are then shaken: three neighbours get a hidden cause, or edges are turned.

Known weaknesses: the search is local, and misses about one pair of hidden causes in ten. Variances that differ much
without any hidden cause leave nothing to compare with; hidden causes are then not found. A hidden cause whose effects have
no other causes and cause nothing cannot be told from edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import BoolArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.factor_network import FactorModel, FactorNetwork, paths
from feddbn.core.orders.search import OrderResult, OrderSearch
from feddbn.core.statistics.moments import Moments

__all__ = ["HiddenCauses", "find_hidden_causes", "score_with_exceptions"]

FEWEST_VARIABLES = 4
MOST_VARIABLES = 20
"""The search takes about 5 s at 20 variables, and longer the more there are."""
CLEAR_GAIN = 10.0
"""By how much hidden causes, their price paid, must score better than the best network: odds of 150 to 1."""
FEWEST_EFFECTS = 3
"""A hidden cause of two is an edge whose direction is open."""
_MOST_ROOTS = 8
_HOPELESS = 150.0
_PROMISING = 15.0
_FINALISTS = 3
_SHAKES = 40


@dataclass(frozen=True)
class HiddenCauses:
    """Hidden causes that explain the rows better than edges.

    Attributes
    ----------
    effects
        For each hidden cause the variables on which it acts, ascending.
    gain
        By how much the score is better than that of the best network without them.
    network
        The network with them.
    """

    effects: tuple[tuple[int, ...], ...]
    gain: float
    network: FactorNetwork


def score_with_exceptions(network: OrderResult, n: float, price: float) -> float:
    """Score of a network whose noises have one variance but for exceptions, each at the price of a parameter.

    The variances that are alike are neighbours in size, so all such groups can be tried.
    """
    variances = np.sort(network.rss / n)
    d, logs = len(variances), np.log(variances)
    costs = [
        n * ((j - i) * np.log(variances[i:j].mean()) + logs[:i].sum() + logs[j:].sum())
        + np.log(n) * (d - (j - i))
        for i in range(d)
        for j in range(i + 1, d + 1)
    ]
    return float(min(costs)) + price * float(network.support.sum())


def find_hidden_causes(
    moments: Moments,
    d: int,
    n_lags: int,
    constraints: EdgeConstraints,
    criterion: Criterion,
    rng: np.random.Generator,
    enough: float = CLEAR_GAIN,
) -> HiddenCauses | None:
    """Return one or two hidden causes if they explain the moments better by `enough`, None if not.

    Not looked for among fewer than 4 or more than 20 variables.
    """
    if not FEWEST_VARIABLES <= d <= MOST_VARIABLES:
        return None
    prices = Criterion(criterion.for_orders.c)
    price = prices.c * float(np.log(moments.n))
    found = [
        OrderSearch(moments, d, n_lags, constraints, prices, kind).run(2, rng) for kind in ("equal", "free")
    ]
    base = min(score_with_exceptions(network, moments.n, price) for network in found)
    search = _Search(FactorModel(moments, d, constraints, price), constraints, prices, rng)
    best = search.run(found[1], base + _HOPELESS)
    if best is None or base - best.score < enough or best.loaded.sum(axis=1).max() < FEWEST_EFFECTS:
        return None
    effects = tuple(tuple(np.flatnonzero(acts).tolist()) for acts in best.loaded)
    return HiddenCauses(effects, base - best.score, best)


class _Search:
    """A search in progress."""

    def __init__(
        self, model: FactorModel, constraints: EdgeConstraints, prices: Criterion, rng: np.random.Generator
    ) -> None:
        self.model, self.limits, self.prices, self.rng = model, constraints, prices, rng

    def run(self, network: OrderResult, hopeless: float) -> FactorNetwork | None:
        """The best network with hidden causes found from one without; None if all starts are worse than `hopeless`."""
        starts = sorted((self.model.climb(s) for s in self._starts(network)), key=lambda s: s.score)
        if not starts or starts[0].score > hopeless:
            return None
        best = min((self._reordered(start) for start in starts[:_FINALISTS]), key=lambda s: s.score)
        for shake in range(_SHAKES):
            other = self._turned(best) if shake % 4 == 3 else self._moved(best)
            if other is None:
                continue
            other = self.model.climb(other)
            if other.score < best.score + _PROMISING:
                other = self._reordered(other)
            if other.score < best.score:
                best = other
        return best

    def _starts(self, network: OrderResult) -> list[FactorNetwork]:
        """Networks in which hidden causes stand for the edges from one or two nodes, those with the most noise first."""
        d, S = self.model.d, self.model.S
        weights = np.zeros(network.support.shape)
        for j, parents in enumerate(network.parents):
            on = list(parents)
            weights[on, j] = np.linalg.lstsq(S[np.ix_(on, on)], S[on, j], rcond=None)[0]
        variances = network.rss / self.model.n
        common = float(np.median(variances))
        may_go = network.support & ~self.model.required
        roots = [a for a in np.argsort(-variances) if may_go[a].any()][:_MOST_ROOTS]
        chosen = [[a] for a in roots] + [[a, b] for k, a in enumerate(roots) for b in roots[k + 1 :]]
        found = []
        for nodes in chosen:
            support = network.support.copy()
            loads = np.zeros((len(nodes), d))
            for load, a in zip(loads, nodes, strict=True):
                effects = may_go[a]
                support[a, effects] = False
                load[effects] = weights[a, effects] * np.sqrt(variances[a])
                load[a] = np.sqrt(max(variances[a] - common, 0.3 * variances[a]))
            found.append(self.model.settle(support, loads != 0, loads, common))
        return found

    def _reordered(self, network: FactorNetwork) -> FactorNetwork:
        """Search over orders with the expected hidden causes as further columns, fit again, until nothing is gained."""
        while True:
            support, loaded = self._search_orders(network)
            if (loaded.sum(axis=1) < 2).any():
                loaded = network.loaded
            loads = np.where(loaded, network.loads, 0.0)
            other = self.model.climb(self.model.settle(support, loaded, loads, network.variance))
            if other.score >= network.score - 0.5:
                return network
            network = other

    def _search_orders(self, network: FactorNetwork) -> tuple[BoolArray, BoolArray]:
        model, d, q, k = self.model, self.model.d, len(self.model.S), len(network.loads)
        mixing = np.eye(q)[:, :d] - network.weights
        gain = np.linalg.solve(model.covariance(network.loads, network.variance), network.loads.T)
        cross = model.S @ mixing @ gain
        _, square = model.hidden_moments(
            model.residual_covariance(network.weights), network.loads, network.variance
        )
        # Hidden causes stand where a lag more would; the other columns of that lag may be no one's parents.
        joint = np.eye(q + d)
        joint[:q, :q], joint[:q, q : q + k], joint[q : q + k, :q] = model.S, cross, cross.T
        joint[q : q + k, q : q + k] = square
        allowed, required, support = (np.zeros((q + d, d), dtype=bool) for _ in range(3))
        allowed[:q], required[:q], support[:q] = self.limits.allowed, self.limits.required, network.support
        allowed[q : q + k], support[q : q + k] = True, network.loaded
        moments = Moments(model.n, np.zeros(q + d), joint * model.n)
        limits = EdgeConstraints(allowed, required)
        search = OrderSearch(moments, d, q // d, limits, self.prices, "equal")
        found = search.run_from(search.adopt(support)).support
        return found[:q], found[q : q + k]

    def _moved(self, network: FactorNetwork) -> FactorNetwork | None:
        """A hidden cause of a node and two of its neighbours instead of one of the hidden causes, or a second one."""
        model, d, support = self.model, self.model.d, network.support.copy()
        linked = support[:d] | support[:d].T | (network.loaded.T.astype(int) @ network.loaded.astype(int) > 0)
        np.fill_diagonal(linked, False)
        node = int(self.rng.integers(d))
        neighbours = np.flatnonzero(linked[node])
        if len(neighbours) < 2:
            return None
        three = np.array([node, *self.rng.choice(neighbours, 2, replace=False)])
        support[np.ix_(three, three)] &= model.required[np.ix_(three, three)]
        place = int(self.rng.integers(2))
        kept = [f for f in range(len(network.loads)) if f != place]
        rest = network.loads[kept]
        only = model.settle(support, network.loaded[kept], rest, network.variance)
        shared = model.residual_covariance(only.weights) - only.loads.T @ only.loads
        sizes, directions = np.linalg.eigh(shared[np.ix_(three, three)])
        load = np.zeros((1, d))
        load[0, three] = directions[:, -1] * np.sqrt(max(sizes[-1] - only.variance, 0.3 * only.variance))
        loads = np.concatenate([only.loads, load])
        return model.settle(support, np.concatenate([only.loaded, load != 0]), loads, only.variance)

    def _turned(self, network: FactorNetwork) -> FactorNetwork | None:
        """The same with two edges turned, or without them where that would close a cycle."""
        model, d, support = self.model, self.model.d, network.support.copy()
        for _ in range(2):
            edges = np.argwhere(support[:d] & ~model.required[:d])
            if not len(edges):
                return None
            a, b = edges[self.rng.integers(len(edges))]
            support[a, b] = False
            support[b, a] = model.allowed[b, a] and not paths(support[:d])[a, b]
        return model.settle(support, network.loaded, network.loads, network.variance)
