"""Moments of the parts of all rows: what would come again with other recordings, other times and other sites.

Parts are drawn with weights, ``w = T Dirichlet(1, ..., 1)`` (the Bayesian bootstrap, Rubin 1981), so that a resample is a
weighted sum of what was told once. How much more parts differ than independent rows would, by the products that decide about
edges:

    S_k = K (G_k - n_k C) K,    c_ab = T / (T - 1)  sum_k S_k,ab^2 / (n (K_aa K_bb + K_ab^2)),    c = max(1, median c_ab)

with C the covariance of all rows and K its inverse: for independent normal rows every c_ab is 1 on average. Evidence counts
n / c rows.

Of rows with empty cells that were filled in as expected, only a share f is known. Their sums vary from part to part as if
there were f n rows, and pass for n: c is 1 / f of what is seen, and weights are drawn from Dirichlet(f^2, ..., f^2), whose
variances are 1 / f^2 times as large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.moments import Moments, correlations

UNKNOWN_DISPERSION = 2.0
"""How much less rows are taken to be worth where parts are not known: of many real data sets it is 1 to 4."""
_REGULAR = 1e-6


@dataclass(frozen=True)
class PartMoments:
    """Moments of all rows, and of the parts that have any.

    Attributes
    ----------
    whole
        Of all rows.
    parts
        Of each part.
    known
        How much of the rows is known: less than 1 where empty cells were filled in.
    """

    whole: Moments
    parts: tuple[Moments, ...]
    known: float = 1.0

    @classmethod
    def of(cls, parts: tuple[Moments, ...]) -> PartMoments:
        """From all parts, some of which may be empty."""
        there, whole = tuple(one for one in parts if one.n > 0), Moments.empty(parts[0].q)
        for one in there:
            whole = whole.merge(one)
        return cls(whole, there)

    def drawn(self, rng: np.random.Generator) -> Moments:
        """The moments of a resample: as many rows, every part with a weight of its own."""
        weights = len(self.parts) * rng.dirichlet(np.full(len(self.parts), self.known**2))
        return self._weighted(weights)

    def _weighted(self, weights: FloatArray) -> Moments:
        total = Moments.empty(self.whole.q)
        for weight, one in zip(weights.tolist(), self.parts, strict=True):
            total = total.merge(Moments(weight * one.n, one.mean, weight * one.scatter))
        share = self.whole.n / total.n
        return Moments(self.whole.n, total.mean, share * total.scatter)

    def each(self, change: Callable[[Moments], Moments]) -> PartMoments:
        """The same with all moments changed in one way."""
        return PartMoments(change(self.whole), tuple(map(change, self.parts)), self.known)

    def worth(self, share: float) -> PartMoments:
        """The same where a row is worth a share of a complete one."""
        return self.each(lambda m: Moments(m.n * share, m.mean, m.scatter * share))

    def overdispersion(self, d: int) -> float:
        """How much more parts differ than independent rows would, at least 1; by pairs of the first d columns and all."""
        n_parts, n = len(self.parts), self.whole.n
        if n_parts < 2:
            return 1.0
        R, root = correlations(self.whole.scatter)
        e, V = np.linalg.eigh(R)
        K = (V / np.maximum(e, _REGULAR)) @ V.T
        mean = self.whole.mean
        square = np.zeros_like(K)
        for one in self.parts:
            G = one.about(mean) / np.outer(root, root) * n
            square += (K @ (G - one.n * R) @ K) ** 2
        known = np.outer(np.diag(K), np.diag(K)) + K**2
        ratio = n_parts / (n_parts - 1) * square / (n * known)
        above = np.triu(np.ones_like(ratio, dtype=bool), 1)[:d]
        return max(1.0, float(np.median(ratio[:d][above])) / self.known)


def redrawn(moments: Moments, rng: np.random.Generator) -> Moments:
    """The moments of as many independent normal rows with these moments (Bartlett's decomposition of a Wishart matrix)."""
    q, n = moments.q, max(round(moments.n), 2)
    R, root = correlations(moments.scatter)
    e, V = np.linalg.eigh(R)
    half = V * np.sqrt(np.maximum(e, 0.0))
    if n - 1 >= q:
        A = np.tril(rng.standard_normal((q, q)), -1)
        A[np.diag_indices(q)] = np.sqrt(rng.chisquare(n - 1 - np.arange(q)))
    else:
        A = rng.standard_normal((q, n - 1))
    L = (half @ A) * root[:, None] / np.sqrt(n - 1)
    return Moments(moments.n, moments.mean, L @ L.T)
