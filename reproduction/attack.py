"""What an honest-but-curious server computes from plain messages: each site's Gram matrix, and rows out of
it.

FDBNL. The server knows every C it broadcast, rho2 and D, and from the messages ``C_k + U_k / (rho2 D)`` it
follows each site's dual U_k, which starts at 0. The site's optimality condition

    w_k G_k (C_k - E) = rho2 D (C - C_k) - U_k

gives d columns of a linear system in ``w_k G_k`` a round; after p + 1 rounds the system is square.

PFDBNL. From ``T_k + U_k / rho2`` the server follows U_k, T_k and with them C_k. The optimality condition of
C_k holds as an equation wherever C_k is not zero; G_k is symmetric, so q (q + 1) / 2 such equations are
enough.

With secure aggregation there is one message for all sites, so there is one estimate X for all of them, and

    sum_k |X - G_k|^2  >=  sum_k |mean(G) - G_k|^2     for every X:

no attacker beats guessing the federation's mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm, orthogonal_procrustes

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError

Ask = Literal["zero", "step"]


class ConsensusAttack:
    """Reconstructs ``w_k G_k`` from one site's FDBNL messages.

    Parameters
    ----------
    q, d
        Columns of z and variables.
    metric
        (q,) diagonal of D; ones by default.
    """

    def __init__(self, q: int, d: int, metric: FloatArray | None = None) -> None:
        self._q, self._d = q, d
        self._D = (np.ones(q) if metric is None else metric)[:, None]
        self._E = np.eye(q, d)
        self._C: FloatArray | None = None
        self._U = np.zeros((q, d))
        self._left: list[FloatArray] = []
        self._right: list[FloatArray] = []

    @property
    def n_rounds(self) -> int:
        """Rounds seen."""
        return len(self._left)

    def observe(
        self,
        Cbar: FloatArray,
        message: FloatArray,
        rho2: float,
        rho2_before: float | None = None,
        relaxation: float = 1.0,
        ask: Ask = "step",
    ) -> None:
        """Take one round: the broadcast (q, d), the message (its first q d entries are used) and rho2.

        `ask` says what the message is: "zero", the first round; "step", any later one.
        """
        M = np.asarray(message, dtype=np.float64).ravel()[: self._q * self._d].reshape(self._q, self._d)
        if ask == "zero" or self._C is None:
            self._U = np.zeros((self._q, self._d))
        else:
            self._U = self._U + (rho2 if rho2_before is None else rho2_before) * self._D * (self._C - Cbar)
        self._C = M - self._U / (rho2 * self._D)
        # An over-relaxed site reports a point beyond its own solution; both are on a line through Cbar.
        solution = Cbar + (self._C - Cbar) / relaxation
        self._left.append(solution - self._E)
        self._right.append(rho2 * self._D * (Cbar - solution) - self._U)

    def estimate(self) -> FloatArray:
        """Return the symmetric (q, q) estimate; the least-norm one as long as there are too few rounds."""
        X, Y = np.concatenate(self._left, axis=1), np.concatenate(self._right, axis=1)
        B = np.linalg.lstsq(X.T, Y.T, rcond=None)[0].T
        return np.asarray((B + B.T) / 2)


@dataclass(frozen=True)
class PersonalRound:
    """What a PFDBNL server knows about one round besides the site's message."""

    Cbar: FloatArray
    rho2: float
    mu: float
    penalty: FloatArray
    alpha: float
    rho1: float


class PersonalAttack:
    """Reconstructs ``G_k`` from one site's PFDBNL messages ``T_k + U_k / rho2``.

    Parameters
    ----------
    q, d
        Columns of z and variables.
    T0
        (q, d) auxiliary variable before the first round; zeros by default.
    """

    def __init__(self, q: int, d: int, T0: FloatArray | None = None) -> None:
        self._q, self._d = q, d
        self._T = np.zeros((q, d)) if T0 is None else T0
        self._U = np.zeros((q, d))
        self._before: PersonalRound | None = None
        self._rows: list[FloatArray] = []
        self._right: list[FloatArray] = []
        self._index = _symmetric_index(q)

    @property
    def n_equations(self) -> int:
        """Equations in the q (q + 1) / 2 unknowns so far."""
        return sum(len(right) for right in self._right)

    def observe(self, known: PersonalRound, message: FloatArray) -> None:
        """Take one round in which this site took part."""
        if self._before is not None:
            self._U = self._U + self._before.rho2 * (self._T - known.Cbar)
        q, d, mu, rho2 = self._q, self._d, known.mu, known.rho2
        M = np.asarray(message, dtype=np.float64).ravel()[: q * d].reshape(q, d)
        T = M - self._U / rho2
        C = ((2 * mu + rho2) * T - rho2 * known.Cbar + self._U) / (2 * mu)
        W = C[:d]
        growth = expm(W * W)
        h = float(np.trace(growth)) - d
        smooth = 2 * mu * (C - self._T)
        smooth[:d] += (known.alpha + known.rho1 * h) * 2 * W * growth.T
        # Rounding leaves about 1e-16 where the site had an exact zero, whose subgradient the server cannot
        # know.
        active = np.abs(C) > 1e-10
        R = C - np.eye(q, d)
        i, j = np.nonzero(active)
        equations = np.zeros((len(i), q * (q + 1) // 2))
        np.add.at(equations, (np.arange(len(i))[:, None], self._index[i]), R[:, j].T)
        self._rows.append(equations)
        self._right.append(-(smooth + known.penalty * np.sign(C))[i, j])
        self._T, self._before = T, known

    def estimate(self) -> FloatArray:
        """Return the symmetric (q, q) estimate; the least-norm one as long as there are too few equations."""
        unknown = np.linalg.lstsq(np.concatenate(self._rows), np.concatenate(self._right), rcond=None)[0]
        return np.asarray(unknown[self._index])


def _symmetric_index(q: int) -> NDArray[np.intp]:
    """(q, q) position of entry (i, j) of a symmetric matrix in the list of its upper triangle."""
    index = np.zeros((q, q), dtype=np.intp)
    rows, columns = np.triu_indices(q)
    index[rows, columns] = index[columns, rows] = np.arange(len(rows))
    return index


def relative_error(estimate: FloatArray, truth: FloatArray) -> float:
    """Return ``|estimate - truth| / |truth|`` in Frobenius norm."""
    return float(np.linalg.norm(estimate - truth) / np.linalg.norm(truth))


def rms_error(estimates: Sequence[FloatArray], truths: Sequence[FloatArray]) -> float:
    """Return ``sqrt(sum_k |X_k - G_k|^2 / sum_k |G_k|^2)``: one error for all sites."""
    squares = sum(float(np.sum((x - g) ** 2)) for x, g in zip(estimates, truths, strict=True))
    return float(np.sqrt(squares / sum(float(np.sum(g**2)) for g in truths)))


def mean_guess_error(truths: Sequence[FloatArray]) -> float:
    """Return the `rms_error` of guessing the mean for every site: no single guess does better."""
    mean = np.mean(truths, axis=0)
    return rms_error([mean] * len(truths), truths)


def rows_from_gram(cross_products: FloatArray, n: int) -> FloatArray:
    """Return (n, q) rows with ``rows' rows = cross_products``; the data up to a rotation if n <= q."""
    q = len(cross_products)
    if not 1 <= n <= q:
        raise ParameterError(f"rows follow from a Gram matrix only for 1 <= n <= {q}, got n={n}.")
    values, vectors = np.linalg.eigh(cross_products)
    return np.asarray(np.sqrt(np.maximum(values[-n:], 0.0))[:, None] * vectors[:, -n:].T)


def rotation_distance(guess: FloatArray, rows: FloatArray) -> float:
    """Return the smallest ``|Q guess - rows| / |rows|`` over orthogonal Q."""
    # orthogonal_procrustes minimises |A R - B|; transposing puts the rotation on the rows.
    Q, _ = orthogonal_procrustes(guess.T, rows.T)
    return float(np.linalg.norm(Q.T @ guess - rows) / np.linalg.norm(rows))
