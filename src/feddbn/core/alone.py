"""Is the network of all sites better for a site than its own? A comparison on rows that neither was learned from.

Theory of operation
-------------------
A site learns a network of its own from its own rows, by the rule by which the network of all sites was learned: what differs
is whose rows it was, and not what a method prefers. Where that is BIC, the site adds edges to the network of all sites and
takes edges away, in the order of that network; in Gaussian likelihood another order costs at most a few edges. Where it is
penalties and thresholds, it solves the same problem.

Every fifth of every recording is held out once. Weights are fitted to the other rows, but for those whose lags overlap, and
predict the held-out rows from the rows before them. What is compared is the log-likelihood of whole rows: of an acyclic
network it is the sum over variables of that of the residuals, and networks that differ only by directions that data cannot
tell score the same. Noise variances are the site's own for both, so that a site with larger noise than the others does not
count against the weights. Of all its rows a site would learn better than of four fifths; the expected difference, half the
number of its parameters times ``1/m - 1/n``, is given back to its own network. Edges that BIC selects are selected without
the held-out rows; penalties select from all rows of the site, as they did from all rows of all sites.

*The network of all sites has seen the held-out rows.* Least squares without them is known without asking anybody: with
the second moments H of all rows, those H_h of the held-out rows Z_h, and their residuals r under the weights b, ::

    b_without = b - (H - H_h)^-1 Z_h' r

is exact for a given support. H is what the site does not know. It is taken for the site's own second moments times the number
of all rows over the number of its own; where sites differ so much that this is wrong, the networks differ far more than this
corrects.

*Empty cells.* A row counts for the cells that it has: log p(present cells of x_t | present cells before). What goes before
has one model for both networks, the site's own covariance, by EM on the rows that are learned from.

*Equal* means that the mean difference over blocks of rows is within what its spread allows, a t-test at 5 per cent, or less
than half a per cent of the noise's variance, on average over variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from feddbn.core.statistics.missing import expected_moments, known_n, known_pairs
from feddbn.core.statistics.moments import Moments, correlations

MOST_NUMBERS = 1 << 23
"""Values of rows that are held at once; of more rows the last ones of each recording are taken."""
N_FOLDS = 5
"""Parts of every recording that are held out in turn."""
LEVEL = 0.05
"""Two-sided, for each site."""
MARGIN = 0.005
"""Differences of less than this share of the noise's variance, on average over variables, matter to nobody."""
FEWEST_BLOCKS = 5
"""With fewer blocks of held-out rows their spread is not known."""
ROWS_A_COLUMN = 3
_MOST_BLOCKS = 40
_SHORTEST = 5
_EM_STEPS, _STEPS_OF_A_FOLD = 20, 3
_SAME = 1e-3
_TOGETHER = 1 << 20
_RIDGE = 1e-9


@dataclass(frozen=True)
class Rows:
    """Lagged rows ``[x_t, ..., x_{t-p}]`` of a site, NaN where a cell is empty.

    Attributes
    ----------
    values
        (n, q) recording by recording, in the order of time.
    recording
        (n,) of which recording each of them is.
    time
        (n,) the time of x_t in its recording, in steps.
    """

    values: FloatArray
    recording: FloatArray
    time: FloatArray

    def folds(self, n_lags: int) -> Iterator[tuple[BoolArray, BoolArray]]:
        """Rows to learn from and rows that are held out: one fifth of every recording after the other."""
        fold = np.full(len(self.time), -1)
        near = np.zeros((N_FOLDS, len(self.time)), dtype=bool)
        for name in np.unique(self.recording):
            here = self.recording == name
            time = self.time[here]
            edges = np.linspace(time[0], time[-1] + 1, N_FOLDS + 1)
            fold[here] = np.clip(np.searchsorted(edges, time, side="right") - 1, 0, N_FOLDS - 1)
            for k in range(N_FOLDS):
                near[k, here] = (time > edges[k] - 1) & (time < edges[k + 1] + n_lags)
        for k in range(N_FOLDS):
            yield ~near[k], (fold == k)


@dataclass(frozen=True)
class Verdict:
    """What a site finds.

    Attributes
    ----------
    gain
        By how much the log-likelihood of a held-out row is larger under the network of all sites, on average, in nats.
    error
        Standard error of that.
    n_rows, n_blocks
        Held-out rows, and blocks of them.
    n_edges
        Edges of the site's own network.
    d
        Number of variables.
    """

    gain: float
    error: float
    n_rows: int
    n_blocks: int
    n_edges: int
    d: int

    def to_array(self) -> FloatArray:
        """As numbers."""
        return np.array(
            [self.gain, self.error, self.n_rows, self.n_blocks, self.n_edges, self.d], dtype=np.float64
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
        return self.n_blocks >= FEWEST_BLOCKS and self.error > 0

    @property
    def sign(self) -> int:
        """1: the network of all sites is better, -1: the site's own is, 0: no difference can be told."""
        if not self.is_told:
            return 0
        limit = max(stdtrit(self.n_blocks - 1, 1 - LEVEL / 2) * self.error, MARGIN / 2 * self.d)
        return int(self.gain > limit) - int(self.gain < -limit)


def compared(
    rows: Rows,
    weights: FloatArray,
    intercept: FloatArray | None,
    limits: EdgeConstraints,
    n_total: float,
    start: FloatArray | None = None,
    inputs: Sequence[int] = (),
    learner: PenalisedLearner | None = None,
    restore: Callable[[Moments], Moments] = lambda moments: moments,
) -> Verdict:
    """Compare a network with the one that a site learns from its own rows, on rows that neither was learned from.

    Parameters
    ----------
    weights, intercept
        ((p+1) d, d) and (d,) of the network of all sites; None: rows have no level.
    limits
        Edges that may be there.
    n_total
        Rows that it was learned from, over all sites.
    start
        (q + 1, q) mean and covariance of rows to start EM from, where cells are empty.
    inputs
        Variables that only act on others: nobody predicts them.
    learner
        By which the site finds its own edges; None: by BIC.
    restore
        Puts back into moments what was taken off the rows along with levels (`core.designs.gram.restored`), as was done for
        the network of all sites.
    """
    q, d = weights.shape
    values, n = rows.values, len(rows.values)
    if n < ROWS_A_COLUMN * q:
        return Verdict(0.0, 0.0, n, 0, 0, d)
    every, model = _moments_of(values, start)
    # What does not vary here tells nothing about a network.
    spread = np.diag(every.scatter)[:d] / every.n
    same = np.union1d(np.array(inputs, dtype=int), np.flatnonzero(spread <= 1e-12 * every.mean[:d] ** 2))
    chosen = None
    if learner is not None:
        chosen = learner.learn(restore(every), limits, np.random.default_rng(0)).run.graph() != 0
    difference, n_edges = np.empty(n), 0
    for learns, is_held in rows.folds(q // d - 1):
        found, own_model = _moments_of(values[learns], model, _STEPS_OF_A_FOLD)
        earlier = restore(found)
        held = values[is_held]
        shared = _without(weights, intercept, every, _expected(held, own_model), max(n_total, n))
        support = _own_support(earlier, limits, weights != 0) if chosen is None else chosen
        own = refit(earlier, support)[:2]
        for mine, theirs in zip(own, shared, strict=True):
            mine[..., same] = theirs[..., same]
        n_parameters = support.sum(axis=0, dtype=float) + 1.0
        if intercept is None:
            own, n_parameters = (own[0], np.zeros(d)), n_parameters - 1.0
        given = held, own_model, found
        # Of all its rows the site would learn a little better.
        better = n_parameters.sum() / 2 * (1 / earlier.n - 1 / every.n)
        difference[is_held] = (
            _log_likelihoods(*given, *shared, np.zeros(d))
            - _log_likelihoods(*given, *own, n_parameters)
            - better
        )
        n_edges += int(support.sum())
    gain, error, n_blocks = blocked(difference, rows.recording)
    return Verdict(gain, error, n, n_blocks, round(n_edges / N_FOLDS), d)


def _own_support(moments: Moments, limits: EdgeConstraints, start: BoolArray) -> BoolArray:
    """The edges that BIC selects from a site's own moments: it adds to and takes from those of a network, in its order."""
    prices = Criterion()
    search = OrderSearch(moments, limits, prices, "free")
    return search.select_edges(search.adopt(start & limits.allowed), prices).support


def blocked(difference: FloatArray, recording: FloatArray) -> tuple[float, float, int]:
    """Mean of a series, its standard error from blocks of neighbours within recordings, and how many blocks there are."""
    n = len(difference)
    length = max(_SHORTEST, -(-n // _MOST_BLOCKS))
    place = np.arange(n)
    begins = np.concatenate([[True], np.diff(recording) != 0])
    since = place - np.maximum.accumulate(np.where(begins, place, 0))
    block = np.cumsum(begins | (since % length == 0)) - 1
    sizes, totals = np.bincount(block).astype(float), np.bincount(block, difference)
    k, mean = len(sizes), float(difference.mean())
    if k < 2:
        return mean, 0.0, k
    return mean, float(np.sqrt(np.square(totals - mean * sizes).sum() * k / (k - 1)) / n), k


def _moments_of(
    rows: FloatArray, start: FloatArray | None, steps: int = _EM_STEPS
) -> tuple[Moments, FloatArray]:
    """The moments of rows, as many as they are worth, and (q + 1, q) mean and covariance; by EM where cells are empty."""
    if not np.isnan(rows).any():
        found = Moments.of_rows(rows)
        return found, np.vstack([found.mean, found.scatter / max(found.n, 1.0)])
    q = rows.shape[1]
    if start is None:
        mean = np.nanmean(rows, axis=0)
        start = np.vstack([mean, np.diag(np.nanvar(rows, axis=0))])
    model = start
    for _ in range(steps):
        found = _expected(rows, model)
        after = np.vstack([found.mean, found.scatter / max(found.n, 1.0)])
        is_same = np.abs(correlations(after[1:])[0] - correlations(model[1:])[0]).max() < _SAME
        model = after
        if is_same:
            break
    n = known_n(known_pairs(rows, model[1:])) if q > 1 else found.n
    return Moments(n, found.mean, found.scatter / found.n * n), model


def _expected(rows: FloatArray, model: FloatArray) -> Moments:
    return expected_moments(rows, model[1:], model[0])


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


def _log_likelihoods(
    rows: FloatArray,
    model: FloatArray,
    earlier: Moments,
    B: FloatArray,
    level: FloatArray,
    n_parameters: FloatArray,
) -> FloatArray:
    """(n,) log-likelihood of the present cells of x_t given those before, but for constants."""
    q, d = B.shape
    residual = np.eye(q, d) - B
    offset = earlier.mean @ residual - level
    squares = ((earlier.scatter @ residual) * residual).sum(axis=0) + earlier.n * offset**2
    # What follows exactly from other columns has no noise but rounding.
    least = 1e-12 * np.diag(earlier.scatter)[:d] / earlier.n + 1e-300
    variance = np.maximum(squares / np.maximum(earlier.n - n_parameters, 1.0), least)
    found = np.empty(len(rows))
    whole = ~np.isnan(rows).any(axis=1)
    r = rows[whole] @ residual - level
    found[whole] = -0.5 * (np.log(variance) + r**2 / variance).sum(axis=1)
    if whole.all():
        return found
    mean, covariance = _joint(model, B, level, variance)
    some = rows[~whole]
    present: BoolArray = ~np.isnan(some)
    centred = np.where(present, some - mean, 0.0)
    before = present.copy()
    before[:, :d] = False
    found[~whole] = _density(centred, present, covariance) - _density(centred, before, covariance)
    return found


def _joint(
    model: FloatArray, B: FloatArray, level: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of rows: what goes before as in `model`, the last row from it by the network."""
    d = B.shape[1]
    inverse = np.linalg.inv(np.eye(d) - B[:d].T)
    A = inverse @ B[d:].T
    past = model[1:][d:, d:]
    cross = A @ past
    now = A @ past @ A.T + (inverse * variance) @ inverse.T
    mean = np.concatenate([inverse @ level + A @ model[0, d:], model[0, d:]])
    return mean, np.block([[now, cross], [cross.T, past]])


def _density(centred: FloatArray, present: BoolArray, covariance: FloatArray) -> FloatArray:
    """(n,) log-density of the present cells, but for constants; absent ones stand aside with variance 1."""
    scale = np.sqrt(np.diag(covariance))
    R, z = covariance / np.outer(scale, scale), centred / scale
    found, size = np.empty(len(z)), max(_TOGETHER // max(R.size, 1), 1)
    for first in range(0, len(z), size):
        part = present[first : first + size]
        S = np.where(part[:, :, None] & part[:, None, :], R, 0.0)
        S[:, np.arange(len(R)), np.arange(len(R))] = 1.0 + _RIDGE
        L = np.linalg.cholesky(S)
        u = np.linalg.solve(L, (z[first : first + size] * part)[:, :, None])[:, :, 0]
        logs = 2 * np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1) + 2 * (part * np.log(scale)).sum(
            axis=1
        )
        found[first : first + size] = -0.5 * (logs + np.square(u).sum(axis=1))
    return found
