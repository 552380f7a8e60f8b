"""How large an effect must be so that a method finds it, how often it is found, and how many rows that takes.

The effect is standardised: what one standard deviation of a cause, beside the other causes, does to its target, in standard
deviations of the target's noise. It is b = r / sqrt(1 - r^2) with r the partial correlation, so asinh(b) is Fisher's z of r.
In m rows left beside controls and levels, sqrt(m) z has a standard deviation of about 1. A method takes an edge where its
estimate is above a *cut*::

    sqrt(m) |z| > sqrt(constant + per_log_row log(n)) + sqrt(m) asinh(threshold)

BIC has its price for the middle term, a method with a threshold the last one. Where a method chooses by a prior that it fits,
or by how many other edges there are, the cut is measured (`measured_rule`): covariances of networks with planted edges are
drawn with the sampling error of n rows, the method learns from each, and a probit curve is fitted to which of the planted
edges it takes at which sqrt(m) |z|.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import asinh, exp, inf, log, sinh, sqrt

import numpy as np
import scipy.linalg
from scipy.optimize import brentq, minimize
from scipy.special import expit, log_ndtr, ndtr, ndtri

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.constraints import causes_first
from feddbn.core.statistics.discoveries import threshold
from feddbn.core.statistics.missing import known_n, known_pairs
from feddbn.core.statistics.moments import Moments
from feddbn.errors import ParameterError

POWER = 0.8
LARGEST = 1.0
"""A study that finds no effect of this size cannot tell: nearly half of a target's variance would have one cause."""
EFFECTS = (0.1, 0.2, 0.3, 0.5)
"""Effects that are told about."""
CONTROLS = 2
"""Other causes of a target, where nobody knows better."""
_MOST_ROWS = 1e12


@dataclass(frozen=True)
class Rule:
    """When a method takes an edge: `spread` is how much the cut differs between edges, `lost` the share never taken.

    Examples
    --------
    BIC at two log(n) an edge, with 1,000 rows:

    >>> rule = Rule(per_log_row=2.0)
    >>> round(rule.smallest(1000), 3), round(rule.power(0.15, 1000), 2), round(rule.rows(0.15))
    (0.145, 0.84, 927)
    """

    constant: float = 0.0
    per_log_row: float = 0.0
    threshold: float = 0.0
    spread: float = 0.0
    lost: float = 0.0

    def _places(self, n: float, controls: float) -> tuple[float, float, float]:
        """Roots of the rows left, cut, and what an effect is divided by."""
        root = sqrt(max(n - controls - 3.0, 0.0))
        cut = sqrt(max(self.constant + self.per_log_row * log(max(n, 1.0)), 0.0)) + root * asinh(
            self.threshold
        )
        return root, cut, sqrt(1 + self.spread**2)

    def power(self, effect: float, n: float, controls: float = CONTROLS) -> float:
        """Return how often an effect of this size is found in n rows."""
        root, cut, scale = self._places(n, controls)
        if root < 1:
            return 0.0
        at = root * asinh(abs(effect))
        return float((1 - self.lost) * (ndtr((at - cut) / scale) + ndtr((-at - cut) / scale)))

    def smallest(self, n: float, power: float = POWER, controls: float = CONTROLS) -> float:
        """Return the smallest effect that is found with this power; inf if none up to `LARGEST` is."""
        root, cut, scale = self._places(n, controls)
        if root < 1 or power >= 1 - self.lost:
            return inf
        found = sinh(max(cut + float(ndtri(power / (1 - self.lost))) * scale, 0.0) / root)
        return found if found <= LARGEST else inf

    def rows(self, effect: float, power: float = POWER, controls: float = CONTROLS) -> float:
        """Return with how many rows an effect is found with this power; inf if there is no such number."""
        least = controls + 4.0
        if not effect or self.power(effect, _MOST_ROWS, controls) < power:
            return inf
        if self.power(effect, least, controls) >= power:
            return least
        gap = brentq(lambda at: self.power(effect, exp(at), controls) - power, log(least), log(_MOST_ROWS))
        return exp(float(gap))


def priced_rule(criterion: str, d: int, n_lags: int, factor: float | None = None) -> Rule:
    """Return the rule of BIC or EBIC with this multiplier of log(n).

    EBIC also charges the log odds against an edge, where there are three lagged edges for every two variables.
    """
    if criterion == "bic":
        return Rule(per_log_row=2.0 if factor is None else factor)
    possible, used = (n_lags * d * d, 1.5 * d) if n_lags else (d * (d - 1) / 2, 0.5 * d)
    return Rule(log(max((possible - used + 0.5) / (used + 0.5), 1.0)), 1.0 if factor is None else factor)


def discovery_rule(fdr: float, d: int, n_lags: int) -> Rule:
    """Return about the rule of discoveries at this level; `measured_rule` is closer, and slow.

    Three lagged edges for every two variables are found. Tests are beside all columns. In a `usual_network` that
    leaves causes a standard deviation that is smaller by a factor of 1.2, give or take .25, than beside the other causes.
    """
    tested, found = (n_lags * d * d, 1.5 * d) if n_lags else (d * (d - 1) / 2, 0.5 * d)
    t = threshold(fdr, round(tested), found)
    # What other columns know of a cause is noise in its estimate beside the other causes.
    return Rule((1.2 * t) ** 2, spread=sqrt(1.2**2 - 1 + (0.25 * t) ** 2))


@dataclass(frozen=True)
class Linear:
    """A network: weights ((p+1) d, d) of the stack [W; A_1; ...] and (d,) variances of noise."""

    weights: FloatArray
    variances: FloatArray

    def covariance(self) -> FloatArray:
        """((p+1) d, (p+1) d) of lagged rows in the long run; ValueError if it is not stable."""
        q, d = self.weights.shape
        now = np.linalg.inv(np.eye(d) - self.weights[:d])
        innovation = (now.T * self.variances) @ now
        F, Q = np.zeros((q, q)), np.zeros((q, q))
        # Row l d + i of the stack acts on the present: the transpose of what a column of states needs.
        F[:d, : q - d] = (self.weights[d:] @ now).T
        F[d:, : q - d] = np.eye(q - d)
        Q[:d, :d] = innovation
        if q > d and np.abs(np.linalg.eigvals(F)).max() > _STABLE:
            raise ValueError("this network is not stable")
        return np.asarray(scipy.linalg.solve_discrete_lyapunov(F, Q))


_STABLE = 0.99


def usual_network(d: int, n_lags: int, rng: np.random.Generator) -> Linear:
    """Draw a network of ordinary density: own pasts of .2 to .6, of other causes one in every two targets at either lag.

    Noise variances differ, as units do.
    """
    C = np.zeros(((n_lags + 1) * d, d))
    place = rng.permutation(d)
    size = rng.uniform(0.3, 0.5, C.shape) * rng.choice([-1.0, 1.0], C.shape)
    present = (rng.random((d, d)) < 1 / max(d - 1, 1)) & (place[:, None] < place[None, :])
    C[:d][present] = size[:d][present]
    if n_lags:
        lagged = rng.random((n_lags * d, d)) < 0.5 / max(d - 1, 1) / n_lags
        C[d:][lagged] = size[d:][lagged]
        C[d : 2 * d][np.diag_indices(d)] = rng.uniform(0.2, 0.6, d)
    sd = np.exp(rng.normal(scale=0.5, size=d))
    return Linear(C * sd / np.tile(sd, n_lags + 1)[:, None], sd**2)


def planted(
    network: Linear, effects: FloatArray, rng: np.random.Generator
) -> tuple[Linear, list[tuple[int, int]], FloatArray]:
    """Add edges of these effects, each to a target of its own; return the network, the edges and the covariance.

    Edges are lagged where there are lags. ValueError if the network is not stable.
    """
    C, v = network.weights.copy(), network.variances
    q, d = C.shape
    place = np.argsort(causes_first(range(d), C[:d] != 0))
    edges: list[tuple[int, int]] = []
    for j in rng.permutation(d).tolist():
        open_to_it = (C[:, j] == 0) & (np.arange(q) % d != j)
        open_to_it[:d] &= (q == d) & (place < place[j])
        free = np.flatnonzero(open_to_it)
        if len(free) and len(edges) < len(effects):
            edges.append((int(rng.choice(free)), j))
    signs = rng.choice([-1.0, 1.0], len(edges))
    S = Linear(C, v).covariance()
    for _ in range(_PLANTINGS):
        for (m, j), b, sign in zip(edges, effects, signs, strict=False):
            P = np.setdiff1d(np.flatnonzero(C[:, j]), [m])
            left = S[m, m] - S[m, P] @ np.linalg.solve(S[np.ix_(P, P)], S[P, m])
            C[m, j] = sign * b * sqrt(v[j] / left)
        S = Linear(C, v).covariance()
    return Linear(C, v), edges, S


def stable(
    network: Callable[[np.random.Generator], Linear],
    rng: np.random.Generator,
    effects: FloatArray | None = None,
) -> tuple[Linear, list[tuple[int, int]], FloatArray]:
    """Draw until a network with these edges, in half of its targets at most, is stable; see `planted`.

    Effects become smaller with every try, so that a pilot which is nearly unstable has some, too.
    """
    for k in range(_TRIES):
        one = network(rng)
        here = np.zeros(0) if effects is None else 0.95**k * effects[: max(one.weights.shape[1] // 2, 1)]
        try:
            return planted(one, here, rng)
        except ValueError:
            continue
    raise ParameterError(
        "the network is not stable: with further edges it grows without end.", code="not-stable"
    )


_TRIES = 50
_PLANTINGS = 8
"""How often weights are set again: planted edges change the variances that effects are standardised by."""


def known_share(S: FloatArray, missing: float, rng: np.random.Generator) -> float:
    """Return what a row is worth of which this share of the cells is missing, where rows have this covariance."""
    if not missing:
        return 1.0
    rows = np.where(rng.random((_PATTERNS, len(S))) < missing, np.nan, 0.0)
    return known_n(known_pairs(rows, S)) / _PATTERNS


_PATTERNS = 400


def measured_rule(
    learn: Callable[[Moments], BoolArray],
    network: Callable[[np.random.Generator], Linear],
    n: float,
    rng: np.random.Generator,
    n_edges: int = 240,
) -> Rule:
    """Measure when a method takes an edge.

    Parameters
    ----------
    learn
        From moments of lagged rows to the edges ((p+1) d, d) that the method takes.
    network
        Draws the network that edges are planted in, or returns the one of a pilot.
    n
        How many rows; half of the draws have half to twice as many, so that the cut is known as a function of rows.
    n_edges
        Planted edges to judge by.
    """
    seen: list[tuple[float, float, bool]] = []
    while len(seen) < n_edges:
        rows = n * (1.0 if rng.random() < 0.5 else 2.0 ** rng.uniform(-1, 1))
        strong = np.sinh(rng.uniform(2.0, 5.5, MOST_PLANTED) / sqrt(max(rows - CONTROLS - 3, 1.0)))
        whole, edges, S = stable(network, rng, np.minimum(strong, 2 * LARGEST))
        q, d = whole.weights.shape
        moments = drawn_moments(S, max(rows, q + 2.0), rng)
        found = learn(moments)
        found = found if q > d else found | found.T
        for m, j in edges:
            P = np.setdiff1d(np.flatnonzero(whole.weights[:, j]), [m])
            K = np.linalg.inv(moments.scatter[np.ix_([j, m, *P], [j, m, *P])])
            z = asinh(abs(float(K[0, 1])) / sqrt(K[0, 0] * K[1, 1] - K[0, 1] ** 2))
            seen.append((z * sqrt(max(moments.n - len(P) - 3, 1.0)), log(moments.n / n), bool(found[m, j])))
    at, log_rows, taken = np.array(seen).T
    return _fitted_rule(at, log_rows, taken > 0, log(n))


MOST_PLANTED = 12


def drawn_moments(S: FloatArray, n: float, rng: np.random.Generator) -> Moments:
    """Return the moments of n independent normal rows with this covariance, without drawing rows (Bartlett 1933)."""
    q = len(S)
    factor = np.tril(rng.normal(size=(q, q)), -1)
    factor[np.diag_indices(q)] = np.sqrt(rng.chisquare(n - 1 - np.arange(q)))
    root = np.linalg.cholesky(S) @ factor
    return Moments(float(n), np.zeros(q), root @ root.T)


def _fitted_rule(at: FloatArray, log_rows: FloatArray, found: BoolArray, log_n: float) -> Rule:
    """The curve of which edges are found; weak priors keep a step, and an edge that was lost, finite."""

    def parts(x: FloatArray) -> tuple[FloatArray, float, float]:
        return np.sqrt(np.maximum(x[0] ** 2 + x[1] * log_rows, 0.01)), exp(x[2]), float(expit(x[3]))

    def cost(x: FloatArray) -> float:
        cut, spread, lost = parts(x)
        taken = np.log1p(-lost) + log_ndtr((at - cut) / spread)
        each = np.where(found, taken, np.log(-np.expm1(np.minimum(taken, -1e-12))))
        return float(((x[1] - 1) ** 2 + (x[2] + 1) ** 2 + (x[3] + 4) ** 2) / 2 - each.sum())

    x = minimize(cost, [3.5, 1.0, -1.0, -4.0], method="Nelder-Mead", options={"maxiter": 2000}).x
    _, spread, lost = parts(x)
    return Rule(float(x[0] ** 2 - x[1] * log_n), float(x[1]), 0.0, spread, lost)
