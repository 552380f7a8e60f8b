"""What summed gradients tell about the pooled Gram matrix, and a bound on what they do not tell.

Every target's loss has the same matrix G, and a gradient at C is ``G (C - E)``: d products of G with known vectors. In
units of the metric D, where seen directions have the orthonormal basis Q and ``P = G Q``,

    B = P Q' + Q P' - Q (Q'P) Q' + L (I - Q Q')

agrees with G on everything seen and lies above it elsewhere if L is at least the largest eigenvalue of G. So the
quadratic with B bounds the loss from above and touches it where the gradient was taken: minimising it can only help,
and is exact as soon as all directions have been seen, after about p + 1 different points.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from feddbn.core.arrays import FloatArray

__all__ = ["FINE", "SeenGram"]

# A direction counts as seen if it is at least this share of the largest one: below it, rounding would be amplified.
_SEEN = 1e-5
_FLOOR = 1e-10
# Above so many columns decompositions are avoided where there are quicker ways.
_MANY = 400
FINE = 1e-14
"""Smallest eigenvalue, as a share of the largest, where directions were chosen so that all of them are known well."""


class SeenGram:
    """The matrix B above, from gradients taken so far.

    Parameters
    ----------
    metric
        (q,) diagonal of D.
    """

    def __init__(self, metric: FloatArray) -> None:
        self.root = np.sqrt(metric)[:, None]
        self.forget()

    def forget(self) -> None:
        """Begin anew: the gradients to come are of another federation."""
        self._Q = self._P = np.zeros((len(self.root), 0))
        self._scaled: tuple[tuple[float, float, int], FloatArray] | None = None

    @property
    def basis(self) -> FloatArray | None:
        """(q, r) orthonormal basis of the directions seen, in units of the metric; None once these are all."""
        return None if self._Q.shape[1] == len(self.root) else self._Q

    def see(self, C: FloatArray, gradient: FloatArray) -> None:
        """Take the summed gradient (q, d) at C."""
        q, d = C.shape
        if self._Q.shape[1] == q:
            return
        S, Y = C.copy(), gradient / self.root
        S[:d].flat[:: d + 1] -= 1.0
        S *= self.root
        largest = float(np.linalg.norm(S, axis=0).max())
        # Twice is enough for an orthogonal remainder (Parlett 1998, section 6.9).
        for _ in range(2):
            inside = self._Q.T @ S
            S, Y = S - self._Q @ inside, Y - self._P @ inside
        if q > _MANY and self._see_all(S, Y, largest):
            return
        U, size, Vt = np.linalg.svd(S, full_matrices=False)
        new = size > _SEEN * largest
        self._Q = np.hstack([self._Q, U[:, new]])
        self._P = np.hstack([self._P, (Y @ Vt[new].T) / size[new]])

    def _see_all(self, S: FloatArray, Y: FloatArray, largest: float) -> bool:
        """Take new directions that are all seen well by a QR decomposition, which is quicker; whether they are."""
        Q, R = np.linalg.qr(S)
        size = np.abs(np.diag(R))
        # The inverse of R shows its smallest singular value.
        if not size.min() > _SEEN * largest:
            return False
        inverse, failed = dtrtri(R)
        if failed or float(np.linalg.norm(inverse)) * _SEEN * largest >= 1.0:
            return False
        self._Q, self._P = np.hstack([self._Q, Q]), np.hstack([self._P, Y @ inverse])
        return True

    def scaled(self, lipschitz: float, least: float = _FLOOR) -> FloatArray:
        """Return B in units of the metric, ``D^-1/2 B D^-1/2``, with L at least `lipschitz`; positive definite.

        ``Q'P`` is symmetric up to the errors of the sums. Eigenvalues below those errors are not known; raised to
        them, or to the share `least` of the largest, they cannot send a step far away.
        """
        key = (lipschitz, least, self._Q.shape[1])
        if self._scaled is None or self._scaled[0] != key:
            self._scaled = key, self._bound(lipschitz, least)
        return self._scaled[1]

    def _bound(self, lipschitz: float, least: float) -> FloatArray:
        Q, P = self._Q, self._P
        if len(Q) > _MANY and Q.shape[1] == len(Q):
            return self._whole(lipschitz, least)
        inner = Q.T @ P
        error = float(np.abs(inner - inner.T).max(initial=0.0))
        inner = (inner + inner.T) / 2
        lipschitz = max(lipschitz, float(np.linalg.eigvalsh(inner)[-1])) if len(inner) else lipschitz
        cross = (P - Q @ inner) @ Q.T
        B: FloatArray = Q @ (inner - lipschitz * np.eye(len(inner))) @ Q.T + cross + cross.T
        B.flat[:: len(B) + 1] += lipschitz
        floor = max(least * lipschitz, error)
        values, vectors = np.linalg.eigh(B)
        if values[0] >= floor:
            return B
        return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)

    def _whole(self, lipschitz: float, least: float) -> FloatArray:
        """The same once all directions are known: ``B = P Q'``, which a Cholesky factor shows to be above the floor."""
        B = self._P @ self._Q.T
        error = float(np.abs(B - B.T).max())
        B = (B + B.T) / 2
        floor = max(least * max(lipschitz, float(np.abs(B).sum(axis=0).max())), error)
        lifted = B.copy()
        lifted.flat[:: len(B) + 1] -= floor
        if not dpotrf(lifted, lower=1, overwrite_a=1)[1]:
            return B
        values, vectors = np.linalg.eigh(B)
        return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)
