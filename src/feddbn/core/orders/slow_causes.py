"""Whether a hidden cause with a memory stands for the edges between two variables.

    x_t = x_t W + x_{t-1} A_1 + ... + h_t l + e_t,     h_t = phi h_{t-1} + v_t,     h of variance 1

with loads l on two variables a and b. Such a cause looks like an edge between a and b within a time step, edges between
them over time, and lagged edges from their other causes. So pairs with several edges between them are looked at: all edges
between a and b go, a hidden cause comes, and other edges into a and b go while the score falls.

The score is that of rows given their lags, ``n (log det Omega + tr Omega^-1 S) + price (edges + 3)``. Omega and the
regression on the lags are those that the stationary process of (x, h) implies. Other variables keep their weights: given
their causes they do not depend on h.

Known weakness: the network must be stationary, and one hidden cause is looked for at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.orders.learn import refit
from feddbn.core.statistics.moments import Moments, correlations

FEWEST_BETWEEN = 2
"""Edges between two variables from which on a hidden cause of both may be simpler: it costs three numbers."""
_MOST_PAIRS = 3
_HOPELESS = 30.0
_MEMORIES = (0.8, 0.3)
_DOUBLINGS = 12
_STEPS = 60
_FAR = 1e300


@dataclass(frozen=True)
class SlowCause:
    """A hidden cause with a memory of two variables.

    Attributes
    ----------
    effects
        Positions of the two.
    support
        (q, d) the edges that are left beside it.
    memory
        phi.
    gain
        By how much it scores better (negative: worse) than the network without.
    """

    effects: tuple[int, int]
    support: BoolArray
    memory: float
    gain: float


def slow_cause(
    moments: Moments, support: BoolArray, price: float, required: BoolArray | None = None
) -> SlowCause | None:
    """Return the hidden cause of two variables that scores best in place of edges of `support`, (q, d); None if none can be.

    `price` is that of an edge; edges that are `required` stay.
    """
    q, d = support.shape
    if q < 2 * d:
        return None
    may_go = support & ~required if required is not None else support
    between = may_go.reshape(-1, d, d).sum(axis=0)
    between = np.triu(between + between.T, 1)
    pairs = sorted(map(tuple, np.argwhere(between >= FEWEST_BETWEEN).tolist()), key=lambda ab: -between[ab])
    found = [_Pair(moments, support, may_go, price, (a, b)).best() for a, b in pairs[:_MOST_PAIRS]]
    return max((one for one in found if one is not None), key=lambda one: one.gain, default=None)


class _Pair:
    """Fits with a hidden cause of two variables, to correlations."""

    def __init__(
        self, moments: Moments, support: BoolArray, may_go: BoolArray, price: float, pair: tuple[int, int]
    ) -> None:
        self.n, self.d, self.S = float(moments.n), support.shape[1], correlations(moments.scatter)[0]
        self.support, self.may_go, self.price, self.pair = support, may_go, price, list(pair)
        plain = Moments(self.n, np.zeros(len(self.S)), self.S * self.n)
        self.weights, _, self.variances = refit(plain, support)
        deviance = self._deviance(self.weights, self.variances, np.zeros(self.d), 0.0)
        self.base = deviance + price * float(support.sum())
        self.places = [(i, j) for j in self.pair for i in np.flatnonzero(support[:, j]).tolist()]

    def best(self) -> SlowCause | None:
        """The best network with the hidden cause; None if none is near, or the process is not stationary."""
        d, (a, b) = self.d, self.pair
        if not self.base < _FAR:
            return None
        goes = [{i % d, j} == {a, b} and bool(self.may_go[i, j]) for i, j in self.places]
        free = ~np.array(goes, dtype=bool)
        others = [k for k, (i, j) in enumerate(self.places) if free[k] and i % d != j and self.may_go[i, j]]
        score, x = np.inf, np.zeros(0)
        for start in self._starts(free):
            score, x = min((score, x), self._fit(free, start), key=lambda fit: fit[0])
            if score - self.price * len(others) > self.base + _HOPELESS:
                return None
        # Weakest first: each goes if the rest explains the rows as well without it.
        for k in sorted(others, key=lambda k: abs(float(x[k]))):
            fewer = free.copy()
            fewer[k] = False
            other, then = self._fit(fewer, x)
            if other < score:
                score, x, free = other, then, fewer
        support = self.support.copy()
        for place, stays in zip(self.places, free, strict=True):
            support[place] = stays
        return SlowCause((a, b), support, float(np.tanh(x[-1])), self.base - score)

    def _starts(self, free: BoolArray) -> Iterator[FloatArray]:
        """Parameters to begin with: weights at `places`, log variances and loads of the two, and of the memory the artanh."""
        C = np.eye(len(self.S))[:, self.pair]
        weights = np.zeros(len(self.places))
        for k, j in enumerate(self.pair):
            own = [m for m, (_, target) in enumerate(self.places) if target == j and free[m]]
            at = [self.places[m][0] for m in own]
            weights[own] = np.linalg.lstsq(self.S[np.ix_(at, at)], self.S[at, j], rcond=None)[0]
            C[at, k] -= weights[own]
        left = C.T @ self.S @ C
        variances, shared = np.diag(left), float(left[0, 1])
        loads = np.minimum(np.sqrt(abs(shared)), 0.7 * np.sqrt(variances)) * np.array(
            [1.0, np.sign(shared) or 1.0]
        )
        for memory in _MEMORIES:
            yield np.concatenate([weights, np.log(variances - loads**2), loads, [np.arctanh(memory)]])

    def _fit(self, free: BoolArray, start: FloatArray) -> tuple[float, FloatArray]:
        """Score and parameters; weights that are not `free` are 0."""
        moves = np.append(free, np.ones(5, dtype=bool))
        x = np.where(moves, start, 0.0)
        sources, targets = np.array(self.places).T

        def cost(some: FloatArray) -> float:
            x[moves] = some
            weights, variances, loads = self.weights.copy(), self.variances.copy(), np.zeros(self.d)
            weights[sources, targets] = x[:-5]
            variances[self.pair], loads[self.pair] = np.exp(x[-5:-3]), x[-3:-1]
            return self._deviance(weights, variances, loads, float(np.tanh(x[-1]))) / self.n

        # A step of the search may leave all bounds; such a place is far from every solution (`_FAR`).
        with np.errstate(over="ignore", invalid="ignore"):
            found = minimize(cost, x[moves], method="BFGS", options={"maxiter": _STEPS})
        x[moves] = found.x
        n_kept = float(self.support.sum()) - float((~free).sum())
        return float(found.fun) * self.n + self.price * (n_kept + 3.0), x

    def _deviance(self, weights: FloatArray, variances: FloatArray, loads: FloatArray, phi: float) -> float:
        """``n (log det Omega + tr Omega^-1 S)`` of rows given their lags."""
        d, q = self.d, len(self.S)
        p = q // d - 1
        B = np.linalg.inv(np.eye(d) - weights[:d])
        # The state is [x_t, ..., x_{t-p+1}, h_t] as a row; it goes on by F.
        m = p * d + 1
        F, G = np.zeros((m, m)), np.zeros((d + 1, m))
        F[: p * d, :d] = weights[d:] @ B
        F[: (p - 1) * d, d : p * d] = np.eye((p - 1) * d)
        F[-1, :d], F[-1, -1] = phi * loads @ B, phi
        G[:d, :d], G[-1, :d], G[-1, -1] = B, loads @ B, 1.0
        noise = np.append(variances, 1.0 - phi * phi)
        P, power = (G.T * noise) @ G, F
        for _ in range(_DOUBLINGS):
            P = P + power.T @ P @ power
            power = power @ power
        if not (np.abs(power).max() < 1e-3 and np.isfinite(P).all()):
            return _FAR
        cross = (P @ F)[: p * d, :d]
        try:
            R = np.linalg.solve(P[: p * d, : p * d], cross)
            omega = P[:d, :d] - cross.T @ R
            C = np.vstack([np.eye(d), -R])
            sign, size = np.linalg.slogdet(omega)
            fit = float(size + np.trace(np.linalg.solve(omega, C.T @ self.S @ C)))
        except np.linalg.LinAlgError:
            return _FAR
        return self.n * fit if sign > 0 else _FAR
