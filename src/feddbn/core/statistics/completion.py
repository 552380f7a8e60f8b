"""Second moments where not everybody has measured everything."""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.scaling import correlations

__all__ = ["completed", "nearest_positive"]


def completed(G: FloatArray, rows: np.ndarray, F: FloatArray) -> FloatArray:
    """Return the (q, q) Gram matrix of a site that holds only `rows`, with the rest taken from the federation's F.

    With o the rows it holds and m the others, B = F_mo F_oo^-1::

        G_mo = B G_oo        G_mm = F_mm - B F_om + B G_oo B'

    Positive semidefinite if G and F are; equal to F if G_oo is F_oo.
    """
    q = len(F)
    o = np.asarray(rows)
    m = np.setdiff1d(np.arange(q), o)
    F_oo, F_mo = F[np.ix_(o, o)], F[np.ix_(m, o)]
    B = np.linalg.solve(F_oo, F_mo.T).T
    whole = np.empty((q, q))
    whole[np.ix_(o, o)] = G
    whole[np.ix_(m, o)] = B @ G
    whole[np.ix_(o, m)] = whole[np.ix_(m, o)].T
    whole[np.ix_(m, m)] = F[np.ix_(m, m)] - B @ F_mo.T + B @ G @ B.T
    return whole


def nearest_positive(F: FloatArray, floor: float = 1e-3) -> FloatArray:
    """Return F with its correlations' eigenvalues raised to at least `floor`, variances kept.

    Moments that were averaged entry by entry over different sites need not be positive. A negative eigenvalue shows how
    far the entries contradict each other; positive ones below its size cannot be told from such an error and are raised
    to it, or regressions on them would explode.
    """
    e, V = np.linalg.eigh(correlations(F)[0])
    R, _ = correlations((V * np.maximum(e, max(floor, -float(e[0])))) @ V.T)
    root = np.sqrt(np.diag(F))
    result: FloatArray = R * np.outer(root, root)
    return result
