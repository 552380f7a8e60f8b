"""One lasso at a time, quickly: block pivoting as in `sign_search`, for searches that cannot know their next questions.

    min_c  1/2 c'Hc - b'c + sum(penalty o |c|)      c zero where not allowed,  H positive definite

Where changing all wrong signs at once does not end, the solution is followed from the start: any start solves the lasso
with some other linear term, and while that term moves to b on a straight line, the solution moves on straight lines,
too, with a bend where a weight becomes zero or leaves it (as in Efron et al. 2004, where the penalty moves). At nearly
dependent columns that takes a tenth of the turns of changing one wrong sign after the other.

Python's overhead per call is most of the cost of a small lasso: LAPACK is called without wrappers, and only the weights
that are not zero are handed over.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dposv

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.solvers.sign_search import columns_by_signs

__all__ = ["followed_weights", "lasso_column", "lasso_weights", "prices"]

_PATIENCE = 6
# Bends for each weight after which the search of `sign_search` takes over, which always ends.
_BENDS = 4


def prices(b: FloatArray, penalty: FloatArray, allowed: BoolArray) -> FloatArray:
    """Return what a gradient must exceed for its weight to leave zero; of one column (q,), or of some (n, q).

    What may not be has a price that no gradient reaches.
    """
    rounding = 1e-12 * (1.0 + np.abs(b).max(axis=-1, keepdims=True))
    price: FloatArray = np.where(allowed, penalty, np.inf) + rounding
    return price


def lasso_column(
    H: FloatArray, b: FloatArray, penalty: FloatArray, allowed: BoolArray, start: FloatArray
) -> FloatArray:
    """Return the (q,) minimiser, searched from `start`."""
    c = np.zeros(len(b))
    at, x = lasso_weights(H, b, penalty, prices(b, penalty, allowed), np.where(allowed, start, 0.0))
    c[at] = x
    return c


def lasso_weights(
    H: FloatArray, b: FloatArray, penalty: FloatArray, price: FloatArray, start: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Return where the minimiser is not zero, and its weights there.

    `price` is that of `prices`; `start` is zero where weights must be.
    """
    found = _pivoted(H, b, penalty, price, np.sign(start))
    return followed_weights(H, b, penalty, price, start) if found is None else found


def followed_weights(
    H: FloatArray, b: FloatArray, penalty: FloatArray, price: FloatArray, start: FloatArray
) -> tuple[IntArray, FloatArray]:
    """The same where block pivoting from `start` is known to go round in circles."""
    sign = _followed(H, b, penalty, price, start)
    found = None if sign is None else _pivoted(H, b, penalty, price, sign)
    if found is not None:
        return found
    only = np.zeros(1, dtype=np.intp)
    c = columns_by_signs(H[None], only, b[None], penalty[None], (price < np.inf)[None], start[None])[0]
    at = c.nonzero()[0]
    return at, c[at]


def _pivoted(
    H: FloatArray, b: FloatArray, penalty: FloatArray, price: FloatArray, sign: FloatArray
) -> tuple[IntArray, FloatArray] | None:
    """Return the minimiser by block pivoting from these signs, which are changed; None where that goes round in circles."""
    is_active, free = sign != 0, None
    if not penalty.all():
        free = (penalty == 0) & (price < np.inf)
        is_active |= free
    # Active weights do not enter.
    limit, right = price.copy(), b - penalty * sign
    at = is_active.nonzero()[0]
    limit[at] = np.inf
    fewest, patience = len(b) + 1, _PATIENCE
    while patience >= 0:
        solved = _solved(H, at, right)
        if solved is None:
            return None
        x, product = solved
        residual = b - product
        leaves = x * sign.take(at) < 0
        if free is not None:
            leaves &= ~free[at]
        enters = np.abs(residual) > limit
        gone, come = at[leaves], enters.nonzero()[0]
        n_wrong = len(gone) + len(come)
        if not n_wrong:
            return (at, x) if x.all() else (at[x != 0], x[x != 0])
        patience = _PATIENCE if n_wrong < fewest else patience - 1
        fewest = min(fewest, n_wrong)
        sign[gone], right[gone], limit[gone] = 0.0, b[gone], price[gone]
        is_active[gone] = False
        towards = np.sign(residual[come])
        sign[come], right[come], limit[come] = towards, b[come] - penalty[come] * towards, np.inf
        is_active[come] = True
        at = is_active.nonzero()[0]
    return None


def _solved(H: FloatArray, at: IntArray, right: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Return the weights x that make ``(Hx)[at] = right[at]``, zero elsewhere, and Hx; None where H is not definite there."""
    if not len(at):
        return right[:0], np.zeros(len(right))
    rows = H.take(at, axis=0)
    # Of a symmetric matrix the transpose is the same, and in the order that LAPACK writes to.
    _, x, failed = dposv(rows.take(at, axis=1).T, right.take(at), overwrite_a=1, overwrite_b=1)
    return None if failed else (x, x @ rows)


def _followed(
    H: FloatArray, b: FloatArray, penalty: FloatArray, price: FloatArray, start: FloatArray
) -> FloatArray | None:
    """Return the signs (q,) of the minimiser by following the solution from `start`; None where rounding leads astray."""
    c, sign = start.copy(), np.sign(start)
    may = price < np.inf
    free = may & (penalty == 0)
    is_active = (sign != 0) | free
    product = H @ c
    # The gradient that makes the start a solution, as near to the true one as that allows.
    gradient = np.where(is_active, penalty * sign, np.clip(b - product, -penalty, penalty))
    gradient[~may] = 0.0
    way, left, last = b - product - gradient, 1.0, -1
    for _ in range(_BENDS * len(b)):
        at = is_active.nonzero()[0]
        solved = _solved(H, at, way)
        if solved is None:
            return None
        turn, shift = solved
        drift = way - shift
        # How far the way goes until a weight is zero, or a gradient has reached its penalty.
        far = np.full(len(b), np.inf)
        shrinks = (turn * sign.take(at) < 0) & ~free.take(at)
        far[at[shrinks]] = -c[at[shrinks]] / turn[shrinks]
        rest = (may & ~is_active & (drift != 0)).nonzero()[0]
        far[rest] = (penalty[rest] - np.sign(drift[rest]) * gradient[rest]) / np.abs(drift[rest])
        if last >= 0 and not is_active[last] and drift[last] * gradient[last] > 0:
            return None
        first = int(far.argmin())
        step = min(max(float(far[first]), 0.0), left)
        c[at] += step * turn
        gradient[rest] += step * drift[rest]
        left -= step
        if left <= 0.0:
            return sign
        last, is_active[first] = first, not is_active[first]
        if is_active[first]:
            sign[first] = np.sign(drift[first])
        else:
            # Its gradient is its penalty still.
            gradient[first] = penalty[first] * sign[first]
            c[first] = sign[first] = 0.0
    return None
