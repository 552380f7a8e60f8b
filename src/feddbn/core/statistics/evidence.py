"""Evidence that a relation has changed, from sums of products, valid however often one looks.

An e-value is a number whose mean is at most 1 if nothing has changed. An e-process is an e-value at every look, also at a
look that was chosen because of its value. So it ever exceeds 1 / alpha with a probability of at most alpha (Ville 1939).

Columns stand in one order, causes first. The regression of a column on all columns before it has noise that is independent
of them, whichever edges there are; so no choice of edges can make the evidence wrong. The question is whether all rows
follow one regression, or one weight (or the level) has another value since a given row:

    y = X b + delta z 1[since] + e,    delta / sd(e) ~ N(0, SIZE),   z one of the columns X, of unit variance

The weights b and the variance have the right-Haar prior. The Bayes factor then does not depend on them. For given columns X
it is an e-process (Lindon and others 2022; Perez-Ortiz and others 2024). Where X holds earlier values of y, this holds as
the rows before the change grow. Universal inference needs no such limit. Its price is half a log(n) for every weight in b,
which is more than most changes are worth. With five variables and a known edge and start, a weight that changes by .2 takes
it 18 looks of 200 rows, and the Bayes factor one.

With T = LL' the products of all rows and A those since the change, ``W = L^-1 A`` has the regressions of all targets at
once, because a regression on fewer columns is a leading block:

    z'z beside X   A_zz - sum_{r<c} W_rz^2          z'y beside X   A_zy - sum_{r<c} W_rz L_yr          RSS   L_yy^2

A noise variance has the same test one level up. Each look gives the logarithm of its own mean square of residuals, weighted
by its rows; the question is whether these have another mean since a given look. Their spread between looks is estimated
too, so heavy tails make this test slow and not wrong.

When the change began is not known. Starts have the public weights 1 / (k (k + 1)), which add up to 1, and the mixture over
them is an e-process again.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import digamma

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.statistics.moments import Moments

SIZE = 0.05
"""Variance of a standardised change of a weight, a level or a log variance."""
_FEWEST = 8.0


def products(moments: Moments, columns: IntArray, origin: FloatArray, scale: FloatArray) -> FloatArray:
    """(Q, Q) sums of products of ``(z - origin) / scale`` in the order of `columns`; -1 is a column of ones."""
    q = moments.q
    whole = np.empty((q + 1, q + 1))
    whole[:q, :q] = moments.about(origin) / np.outer(scale, scale)
    whole[q, :q] = whole[:q, q] = moments.n * (moments.mean - origin) / scale
    whole[q, q] = moments.n
    return whole[np.ix_(columns, columns)]


def log_bayes_factor(zz: FloatArray, zy: FloatArray, rss: FloatArray, rows: FloatArray) -> FloatArray:
    """Log Bayes factor of ``delta ~ N(0, SIZE var(e))`` against delta = 0, of a regression on one more column z.

    Parameters
    ----------
    zz, zy
        Squares of z, and products with y, of what the other columns leave of both.
    rss, rows
        Residual sum of squares without z, and the rows that are left after the other columns.
    """
    grown = 1.0 + SIZE * zz
    share = np.clip(SIZE * zy**2 / (grown * rss), 0.0, 1.0 - 1e-15)
    return np.asarray(-0.5 * np.log(grown) - 0.5 * rows * np.log1p(-share))


def weight_evidence(total: FloatArray, since: FloatArray, n: float, first: int) -> FloatArray:
    """(k, Q - first, Q) log Bayes factors of a change of each weight since each of k starts; -inf at or after the target.

    Parameters
    ----------
    total, since
        (Q, Q) products of all rows and (k, Q, Q) of those since each start.
    n
        Number of rows, without those that levels of recordings cost.
    first
        Columns from here on are targets.
    """
    Q = len(total)
    L = np.linalg.cholesky(total)
    W = solve_triangular(L, np.eye(Q), lower=True) @ since
    zz = np.diagonal(since, axis1=1, axis2=2)[:, None, :] - np.cumsum(W**2, axis=1) + W**2
    zy = since - np.tril(L, -1) @ W
    rows = n - np.arange(Q, dtype=np.float64)[:, None]
    found = log_bayes_factor(np.maximum(zz, 0.0), zy, (np.diag(L) ** 2)[:, None], rows)
    return np.where(np.tri(Q, k=-1, dtype=bool), found, -np.inf)[:, first:]


def noise_sums(gram: FloatArray, n: float, first: int) -> FloatArray:
    """(4, Q - first) one look's part of the noise test: 1, weight, weight u, weight u^2 for u its log mean square residual.

    All are 0 where its rows are too few for residuals of its own.
    """
    rows = n - np.arange(len(gram))[first:]
    if rows[-1] < _FEWEST or not np.linalg.eigvalsh(gram)[0] > 0:
        return np.zeros((4, len(rows)))
    squares = np.diag(np.linalg.cholesky(gram))[first:] ** 2
    # The logarithm of a mean square is too small on average.
    u = np.log(squares / 2) - digamma(rows / 2)
    return np.array([np.ones(len(rows)), rows, rows * u, rows * u**2])


def noise_evidence(total: FloatArray, since: FloatArray) -> FloatArray:
    """(k, m) log Bayes factors of a change of the noise variance of m targets, from sums of `noise_sums`."""
    count, weight, first, second = total
    n = np.where(weight > 0, weight, 1.0)
    later, moved = since[:, 1], since[:, 2]
    rss = second - first**2 / n
    zz, zy = later - later**2 / n, moved - later * first / n
    # Two looks leave one row, of which nothing can be learned.
    return np.where(count > 2, log_bayes_factor(zz, zy, np.maximum(rss, 1e-300), count - 1), 0.0)


def over_starts(log_e: FloatArray, starts: FloatArray, settled: FloatArray, last: int) -> FloatArray:
    """Log of the mixture over the numbers of the looks at which a change may have begun.

    `settled` is the log of what starts that are no longer followed have left, already weighted; looks after the `last` hold
    1 each.
    """
    weights = -np.log(starts * (starts + 1.0)).reshape(-1, *[1] * (log_e.ndim - 1))
    parts = np.logaddexp(np.logaddexp.reduce(log_e + weights, axis=0), settled)
    return np.asarray(np.logaddexp(parts, -np.log(last + 1.0)))


def is_alarm(log_e: FloatArray, alpha: float) -> BoolArray:
    """(m,) which of m hypotheses are rejected by e-BH (Wang and Ramdas 2022): the k largest with e >= m / (k alpha).

    Examples
    --------
    >>> import numpy as np
    >>> is_alarm(np.log([70.0, 30.0, 1.0]), 0.05).tolist()
    [True, True, False]
    """
    m = len(log_e)
    falling = np.sort(log_e)[::-1]
    above = np.flatnonzero(falling >= np.log(m / alpha) - np.log(np.arange(1, m + 1)))
    return np.asarray(log_e >= falling[above[-1]] if len(above) else np.zeros(m, dtype=bool))
