"""Is the network of all sites better for a site than its own? A comparison on rows that neither was learned from.

Theory of operation
-------------------
A site learns a network of its own from its own rows, by the rule by which the network of all sites was learned: what differs
is whose rows it was, and not what a method prefers. Where that is BIC, the site adds edges to the network of all sites and
takes edges away, in the order of that network; in Gaussian likelihood another order costs at most a few edges. Where it is
penalties and thresholds, it solves the same problem.

The site's rows are in parts, of which every fourth is held out in turn. Weights are fitted to the other parts and predict the
held-out rows from the rows before them. What is compared is the log-likelihood of whole rows: of an acyclic network it is the
sum over variables of that of the residuals, so that second moments of the parts are all it needs, and networks that differ
only by directions that data cannot tell score the same. Noise variances are the site's own for both, so that a site with
larger noise than the others does not count against the weights. Of all its rows a site would learn better than of three
fourths; the expected difference, half the number of its parameters times ``1/m - 1/n``, is given back to its own network.
Edges that BIC selects are selected without the held-out rows; penalties select from all rows of the site, as they did from
all rows of all sites.

*The network of all sites has seen the held-out rows.* Least squares without them is known without asking anybody: with
the second moments H of all rows, those H_h of the held-out rows Z_h, and their residuals r under the weights b, ::

    b_without = b - (H - H_h)^-1 Z_h' r

is exact for a given support. H is what the site does not know. It is taken for the site's own second moments times the number
of all rows over the number of its own; where sites differ so much that this is wrong, the networks differ far more than this
corrects.

*Empty cells* are as expected given the others of their row, for both networks alike, as in the moments of all sites.

*Equal* means that the mean difference over parts is within what its spread allows, a t-test at 5 per cent, or less than half
a per cent of the noise's variance, on average over variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.orders.learn import refit
from feddbn.core.orders.parents import Criterion
from feddbn.core.orders.search import OrderSearch
from feddbn.core.penalised.pooled import PenalisedLearner
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.parts import PartMoments

N_PARTS = 12
"""Of the rows of a site: enough to know the spread of differences."""
N_FOLDS = 4
"""Every fourth part is held out in turn."""
LEVEL = 0.05
"""Two-sided, for each site."""
MARGIN = 0.005
"""Differences of less than this share of the noise's variance, on average over variables, matter to nobody."""
FEWEST_PARTS = 5
"""With fewer parts the spread of their differences is not known."""
ROWS_A_COLUMN = 3


@dataclass(frozen=True)
class Verdict:
    """What a site finds.

    Attributes
    ----------
    gain
        By how much the log-likelihood of a held-out row is larger under the network of all sites, on average, in nats.
    error
        Standard error of that.
    n_rows, n_parts
        Held-out rows, and parts of them.
    n_edges
        Edges of the site's own network.
    d
        Number of variables.
    """

    gain: float
    error: float
    n_rows: int
    n_parts: int
    n_edges: int
    d: int

    def to_array(self) -> FloatArray:
        """As numbers."""
        return np.array(
            [self.gain, self.error, self.n_rows, self.n_parts, self.n_edges, self.d], dtype=np.float64
        )

    @classmethod
    def from_array(cls, stored: FloatArray) -> Verdict:
        """Inverse of `to_array`."""
        gain, error, *counts = stored.tolist()
        return cls(gain, error, *map(int, counts))

    @property
    def word(self) -> str:
        """What the network of all sites is for this one."""
        return ("equal", "better", "worse")[self.sign]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"verdict": self.word, **asdict(self)}

    @property
    def is_told(self) -> bool:
        """Whether there are rows enough to tell."""
        return self.n_parts >= FEWEST_PARTS and self.error > 0

    @property
    def sign(self) -> int:
        """1: the network of all sites is better, -1: the site's own is, 0: no difference can be told."""
        if not self.is_told:
            return 0
        limit = max(stdtrit(self.n_parts - 1, 1 - LEVEL / 2) * self.error, MARGIN / 2 * self.d)
        return int(self.gain > limit) - int(self.gain < -limit)


def compared(
    parts: Sequence[Moments],
    worth: float,
    weights: FloatArray,
    intercept: FloatArray | None,
    limits: EdgeConstraints,
    n_total: float,
    inputs: Sequence[int] = (),
    learner: PenalisedLearner | None = None,
    restore: Callable[[Moments], Moments] = lambda moments: moments,
) -> Verdict:
    """Compare a network with the one that a site learns from its own rows, on rows that neither was learned from.

    Parameters
    ----------
    parts
        Moments of the site's lagged rows ``[x_t, ..., x_{t-p}]``, part by part; some may be empty.
    worth
        How many complete rows one of these rows is worth, where cells are empty.
    weights, intercept
        ((p+1) d, d) and (d,) of the network of all sites; None: rows have no level.
    limits
        Edges that may be there.
    n_total
        Rows that it was learned from, over all sites.
    inputs
        Variables that only act on others: nobody predicts them.
    learner
        By which the site finds its own edges; None: by BIC.
    restore
        Puts back into moments what was taken off the rows along with levels (`core.designs.gram.restored`), as was done for
        the network of all sites.
    """
    q, d = weights.shape
    there = [one for one in parts if one.n > 0]
    every = PartMoments.of(tuple(parts)).whole
    n = round(every.n)
    if n < ROWS_A_COLUMN * q or len(there) < FEWEST_PARTS:
        return Verdict(0.0, 0.0, n, 0, 0, d)
    # What does not vary here tells nothing about a network.
    spread = np.diag(every.scatter)[:d] / every.n
    same = np.union1d(np.array(inputs, dtype=int), np.flatnonzero(spread <= 1e-12 * every.mean[:d] ** 2))
    slow = restore(every).scatter / every.n - every.scatter / every.n

    def known(moments: Moments) -> Moments:
        """What a site learns its own network from."""
        m = moments.n * worth
        return Moments(m, moments.mean, (moments.scatter / moments.n + slow) * m)

    chosen = None
    if learner is not None:
        chosen = learner.learn(known(every), limits, np.random.default_rng(0)).run.graph() != 0
    differences, n_edges = np.zeros(len(there)), 0
    for fold in range(N_FOLDS):
        held = PartMoments.of(tuple(there[fold::N_FOLDS])).whole
        found = every.without(held)
        earlier = known(found)
        shared = _without(weights, intercept, every, held, max(n_total, n * worth))
        support = _own_support(earlier, limits, weights != 0) if chosen is None else chosen
        own = refit(earlier, support)[:2]
        for mine, theirs in zip(own, shared, strict=True):
            mine[..., same] = theirs[..., same]
        n_parameters = support.sum(axis=0, dtype=float) + 1.0
        if intercept is None:
            own, n_parameters = (own[0], np.zeros(d)), n_parameters - 1.0
        # Of all its rows the site would learn a little better.
        better = n_parameters.sum() / 2 * (1 / earlier.n - 1 / (every.n * worth))
        for k in range(fold, len(there), N_FOLDS):
            one = there[k]
            differences[k] = (
                _log_likelihood(one, found, *shared, np.zeros(d))
                - _log_likelihood(one, found, *own, n_parameters)
                - one.n * better
            )
        n_edges += int(support.sum())
    sizes, gain, k = np.array([one.n for one in there]), differences.sum() / every.n, len(there)
    error = np.sqrt(np.square(differences - gain * sizes).sum() * k / (k - 1)) / every.n
    return Verdict(float(gain), float(error), n, k, round(n_edges / N_FOLDS), d)


def _own_support(moments: Moments, limits: EdgeConstraints, start: BoolArray) -> BoolArray:
    """The edges that BIC selects from a site's own moments: it adds to and takes from those of a network, in its order."""
    prices = Criterion()
    search = OrderSearch(moments, limits, prices, "free")
    return search.select_edges(search.adopt(start & limits.allowed), prices).support


def _without(
    weights: FloatArray, intercept: FloatArray | None, every: Moments, later: Moments, n_total: float
) -> tuple[FloatArray, FloatArray]:
    """Weights and intercept as if the later rows had not been among all rows."""
    q, d = weights.shape
    has_level = intercept is not None
    level = np.zeros(d) if intercept is None else intercept

    def about_zero(moments: Moments) -> FloatArray:
        """(q + 1, q + 1) second moments of the rows with a one in front; without levels there is no one."""
        whole = np.zeros((q + 1, q + 1))
        whole[1:, 1:] = moments.scatter + (moments.n * np.outer(moments.mean, moments.mean))
        if has_level:
            whole[0, 0] = moments.n
            whole[0, 1:] = whole[1:, 0] = moments.n * moments.mean
        return whole

    H, H_h = about_zero(every) * (n_total / every.n), about_zero(later)
    B = np.vstack([level, weights])
    residual = np.vstack([np.zeros(d), np.eye(q, d)]) - B
    score = H_h @ residual
    found = B.copy()
    for j in range(d):
        S = np.concatenate([[0] if has_level else [], 1 + np.flatnonzero(weights[:, j])]).astype(int)
        if len(S):
            left = (H - H_h)[np.ix_(S, S)]
            found[S, j] -= np.linalg.lstsq(left, score[S, j], rcond=None)[0]
    return found[1:], found[0]


def _log_likelihood(
    later: Moments, earlier: Moments, B: FloatArray, level: FloatArray, n_parameters: FloatArray
) -> float:
    """The log-likelihood of later rows given those before them, but for constants; noise variances are of earlier rows."""
    # What follows exactly from other columns has no noise but rounding.
    least = 1e-12 * np.diag(earlier.scatter)[: len(level)] / earlier.n + 1e-300
    variance = np.maximum(
        _residual_squares(earlier, B, level) / np.maximum(earlier.n - n_parameters, 1.0), least
    )
    return float(-0.5 * (later.n * np.log(variance) + _residual_squares(later, B, level) / variance).sum())


def _residual_squares(moments: Moments, B: FloatArray, level: FloatArray) -> FloatArray:
    """(d,) sums of squares of the residuals of rows with these moments."""
    residual = np.eye(*B.shape) - B
    offset = moments.mean @ residual - level
    return np.asarray(((moments.scatter @ residual) * residual).sum(axis=0) + moments.n * offset**2)
