"""A network with hidden causes, fitted and scored from second moments.

    x_t = x_t W + lags A + u_t,    u_t = f_t L + e_t,    f ~ N(0, I_k),    e ~ N(0, s2 I)

so the residuals of a row have the covariance ``s2 I + L'L``. Given it, the weights are generalised least squares over all
equations at once; given the weights, the loads follow from the residuals' covariance by EM. W is acyclic, so its determinant
is 1 and the score is ``n (log det Omega + tr Omega^-1 S_u - d) + price (edges + loads)``, comparable with that of an
`OrderResult` of the same moments.

Edges join and leave by score and Wald statistics given the covariance, loads by what they gain in EM; a change is kept
only if the score falls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.statistics.moments import Moments

__all__ = ["FactorModel", "FactorNetwork", "paths"]

_LOAD_STEPS = 5
_ALTERNATIONS = 6
_SETTLED = 0.3
_EDGES_AT_ONCE = 4
_ROUNDS = 12
_BETTER = 0.1
_RIDGE = 1e-10


@dataclass(frozen=True)
class FactorNetwork:
    """A network and what is hidden from it.

    Attributes
    ----------
    score
        Its criterion; lower is better.
    support, weights
        ((p+1) d, d) its edges.
    loaded, loads
        (k, d) on which variables each hidden cause acts, and how strongly.
    variance
        That of the noise without the hidden causes, equal for all variables.
    """

    score: float
    support: BoolArray
    weights: FloatArray
    loaded: BoolArray
    loads: FloatArray
    variance: float


def paths(W: BoolArray) -> BoolArray:
    """(d, d) True where a path leads from row to column."""
    reach = W.copy()
    for k in range(len(W)):
        reach |= np.outer(reach[:, k], reach[k])
    return reach


class FactorModel:
    """Fits of networks with hidden causes to one set of moments.

    Parameters
    ----------
    moments
        Of lagged rows, the present moment first.
    d
        Number of variables.
    constraints
        Forbidden and required edges.
    price
        Of an edge, and of a hidden cause's effect on one variable.
    """

    def __init__(self, moments: Moments, d: int, constraints: EdgeConstraints, price: float) -> None:
        self.d, self.n, self.price = d, float(moments.n), price
        self.S: FloatArray = moments.scatter / moments.n
        self.allowed, self.required = constraints.allowed, constraints.required
        self._eye = np.eye(len(self.S))[:, :d]

    def covariance(self, loads: FloatArray, variance: float) -> FloatArray:
        """(d, d) of the residuals of a row."""
        return np.asarray(variance * np.eye(self.d) + loads.T @ loads)

    def residual_covariance(self, weights: FloatArray) -> FloatArray:
        """(d, d) as the moments have it."""
        mixing = self._eye - weights
        return np.asarray(mixing.T @ self.S @ mixing)

    def hidden_moments(
        self, Su: FloatArray, loads: FloatArray, variance: float
    ) -> tuple[FloatArray, FloatArray]:
        """Expected (d, k) products of residuals and hidden causes and (k, k) of hidden causes, given the rows."""
        gain = np.linalg.solve(self.covariance(loads, variance), loads.T)
        cross = Su @ gain
        return cross, gain.T @ cross + np.eye(len(loads)) - loads @ gain

    def settle(
        self, support: BoolArray, loaded: BoolArray, loads: FloatArray, variance: float
    ) -> FactorNetwork:
        """Fit weights and loads in turn, from loads and a variance to begin with."""
        best: FactorNetwork | None = None
        for _ in range(_ALTERNATIONS):
            weights = self._weights(support, self._precision(loads, variance))[0]
            Su = self.residual_covariance(weights)
            loads, variance = self._loads(Su, loaded, loads, variance)
            score = self._deviance(Su, loads, variance) + self.price * float(support.sum() + loaded.sum())
            is_settled = best is not None and best.score - score < _SETTLED
            if best is None or score < best.score:
                best = FactorNetwork(score, support, weights, loaded, loads, variance)
            if is_settled:
                break
        assert best is not None
        return best

    def climb(self, start: FactorNetwork) -> FactorNetwork:
        """Change edges and loads while the score falls; every hidden cause keeps two effects at least."""
        best = start
        for _ in range(_ROUNDS):
            support = self._better_edges(best)
            loaded = self._better_loads(best)
            tries = [(support, loaded), (support, best.loaded)]
            tries = [(s, m) for s, m in tries if (s != best.support).any() or (m != best.loaded).any()]
            for changed, acts in tries:
                found = self.settle(changed, acts, np.where(acts, best.loads, 0.0), best.variance)
                if found.score < best.score - _BETTER:
                    best = found
                    break
            else:
                return best
        return best

    def _precision(self, loads: FloatArray, variance: float) -> FloatArray:
        return np.asarray(np.linalg.inv(self.covariance(loads, variance)), dtype=np.float64)

    def _deviance(self, Su: FloatArray, loads: FloatArray, variance: float) -> float:
        omega = self.covariance(loads, variance)
        fit = float(np.linalg.slogdet(omega)[1]) + float((np.linalg.inv(omega) * Su).sum())
        return self.n * (fit - self.d)

    def _weights(
        self, support: BoolArray, precision: FloatArray
    ) -> tuple[FloatArray, IntArray, IntArray, FloatArray]:
        """Generalised least squares: weights, the places of the edges, and the inverse of their information."""
        i, j = np.nonzero(support)
        information = self.S[np.ix_(i, i)] * precision[np.ix_(j, j)]
        # Weights of columns that nearly follow from others are not told by these rows; a trace of a ridge settles them.
        inverse = np.asarray(
            np.linalg.inv(information + np.diag(_RIDGE * np.diag(information))), dtype=np.float64
        )
        weights: FloatArray = np.zeros_like(support, dtype=np.float64)
        weights[i, j] = inverse @ (self.S[:, : self.d] @ precision)[i, j]
        return weights, i, j, inverse

    def _loads(
        self, Su: FloatArray, loaded: BoolArray, loads: FloatArray, variance: float
    ) -> tuple[FloatArray, float]:
        """A few steps of EM."""
        acts = loaded.T.astype(np.float64)
        both, alone = acts[:, :, None] * acts[:, None, :], (1.0 - acts)[:, :, None] * np.eye(len(loads))
        for _ in range(_LOAD_STEPS):
            cross, square = self.hidden_moments(Su, loads, variance)
            fitted = np.linalg.solve(both * square + alone, (cross * acts)[:, :, None])[:, :, 0]
            left = float(np.trace(Su)) - float((fitted * cross).sum())
            loads, variance = np.asarray(fitted.T, dtype=np.float64), max(left / self.d, 1e-300)
        return loads, variance

    def _better_edges(self, network: FactorNetwork) -> BoolArray:
        """A few edges joined or removed, each the one that promises most."""
        support, d = network.support.copy(), self.d
        precision = self._precision(network.loads, network.variance)
        for _ in range(_EDGES_AT_ONCE):
            weights, i, j, inverse = self._weights(support, precision)
            spread = np.maximum(np.diag(inverse), 1e-300)
            loss = np.where(self.required[i, j], np.inf, self.n * weights[i, j] ** 2 / spread)
            may_join = self.allowed & ~support
            may_join[:d] &= ~(paths(support[:d]) | np.eye(d, dtype=bool)).T
            a, b = np.nonzero(may_join)
            shared = self.S[np.ix_(a, i)] * precision[np.ix_(b, j)]
            own = self.S[a, a] * precision[b, b]
            left = own - ((shared @ inverse) * shared).sum(axis=1)
            slope = (self.S @ (self._eye - weights) @ precision)[a, b]
            gain = np.where(left > 1e-9 * own, self.n * slope**2 / np.maximum(left, 1e-300), 0.0)
            joins = float(gain.max(initial=0.0)) - self.price
            leaves = self.price - float(loss.min(initial=np.inf))
            if max(joins, leaves) <= 1e-6:
                break
            if joins > leaves:
                support[a[gain.argmax()], b[gain.argmax()]] = True
            else:
                support[i[loss.argmin()], j[loss.argmin()]] = False
        return support

    def _better_loads(self, network: FactorNetwork) -> BoolArray:
        """For every variable the hidden causes that pay for themselves, given the rest."""
        Su = self.residual_covariance(network.weights)
        cross, square = self.hidden_moments(Su, network.loads, network.variance)
        k = len(square)
        subsets = [np.flatnonzero([code >> f & 1 for f in range(k)]) for code in range(2**k)]
        costs = np.zeros((len(subsets), self.d))
        for cost, on in zip(costs, subsets, strict=True):
            explained = (np.linalg.solve(square[np.ix_(on, on)], cross[:, on].T) * cross[:, on].T).sum(axis=0)
            cost[:] = self.price * len(on) - self.n / network.variance * explained
        loaded = np.zeros_like(network.loaded)
        for j, best in enumerate(costs.argmin(axis=0)):
            loaded[subsets[best], j] = True
        return loaded if (loaded.sum(axis=1) >= 2).all() else network.loaded
