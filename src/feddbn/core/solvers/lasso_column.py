"""One lasso at a time, quickly: block pivoting as in `sign_search`, for searches that cannot know their next questions.

Where changing all wrong signs at once does not end, one at a time is changed, the last, until fewer are wrong than ever
before (Judice and Pires 1994).

    min_c  1/2 c'Hc - b'c + sum(penalty o |c|)      c zero where not allowed,  H positive definite

Python's overhead per call is most of the cost of a small lasso: LAPACK is called without wrappers.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dposv

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.solvers.sign_search import columns_by_signs

__all__ = ["lasso_column"]

_PATIENCE = 6
# Turns for each weight after which the search of `sign_search` takes over, which always ends.
_TURNS = 4


def lasso_column(
    H: FloatArray, b: FloatArray, penalty: FloatArray, allowed: BoolArray, start: FloatArray
) -> FloatArray:
    """Return the (q,) minimiser, searched from `start`; what pivoting does not end is left to `sign_search`."""
    free = allowed & (penalty == 0)
    has_free = bool(free.any())
    active = (allowed & (start != 0)) | free
    sign = np.sign(start)
    # What may not be has a price that no gradient reaches.
    price = np.where(allowed, penalty, np.inf) + 1e-12 * (1.0 + float(np.abs(b).max()))
    fewest, patience = len(b) + 1, _PATIENCE
    for _ in range(_TURNS * len(b)):
        at = active.nonzero()[0]
        if len(at):
            rows = H[at]
            _, x, failed = dposv(rows[:, at], b[at] - penalty[at] * sign[at])
            if failed:
                break
            residual = b - x @ rows
        else:
            x, residual = b[:0], b
        leaves = x * sign[at] < 0
        if has_free:
            leaves &= ~free[at]
        enters = (np.abs(residual) > price) & ~active
        n_wrong = int(leaves.sum()) + int(enters.sum())
        if not n_wrong:
            c = np.zeros(len(b))
            c[at] = x
            return c
        patience = _PATIENCE if n_wrong < fewest else patience - 1
        fewest = min(fewest, n_wrong)
        gone = at[leaves]
        if patience < 0:
            # Changed all at once they go round in circles: only the last of them.
            last_in = int(enters.nonzero()[0][-1]) if enters.any() else -1
            last_out = int(gone[-1]) if len(gone) else -1
            gone = gone[-1:] if last_out > last_in else gone[:0]
            enters &= False
            if last_in > last_out:
                enters[last_in] = True
        active[gone] = False
        sign[gone] = 0.0
        sign[enters] = np.sign(residual[enters])
        active |= enters
    only = np.zeros(1, dtype=np.intp)
    return np.asarray(columns_by_signs(H[None], only, b[None], penalty[None], allowed[None], start[None])[0])
