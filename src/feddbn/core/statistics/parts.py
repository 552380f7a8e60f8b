"""How much the parts of all rows differ: what would come again with other recordings, other times and other sites.

Parts differ more than independent rows would, by the products that decide about edges, c times as much:

    S_k = K (G_k - n_k C) K,    c_ab = T / (n m) sum_k S_k,ab^2 / (K_aa K_bb + K_ab^2)

with C the covariance of all rows, K its inverse and T parts. For independent normal rows c_ab m is a chi-squared variable
with T - 1 degrees of freedom; m is the median of these. c, the median of all c_ab, is over how many rows one independent row
is spread: evidence counts n / c rows, and resamples are those of n / c normal rows (`redrawn`). As one number is taken from
many pairs, few parts are enough: four tell it as well as twelve, and each is of more rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri

from feddbn.core.statistics.moments import Moments, correlations

UNKNOWN_DISPERSION = 2.0
"""How much less rows are taken to be worth where parts are not known: of many real data sets it is 1 to 4."""
_REGULAR = 1e-6


@dataclass(frozen=True)
class PartMoments:
    """Moments of all rows, and of the parts that have any."""

    whole: Moments
    parts: tuple[Moments, ...]

    @classmethod
    def of(cls, parts: tuple[Moments, ...]) -> PartMoments:
        """From all parts, some of which may be empty."""
        there, whole = tuple(one for one in parts if one.n > 0), Moments.empty(parts[0].q)
        for one in there:
            whole = whole.merge(one)
        return cls(whole, there)

    def overdispersion(self, d: int) -> float:
        """How much more parts differ than independent rows would; by pairs of the first d columns and all."""
        n_parts, n = len(self.parts), self.whole.n
        if n_parts < 2:
            return UNKNOWN_DISPERSION
        R, root = correlations(self.whole.scatter)
        e, V = np.linalg.eigh(R)
        K = (V / np.maximum(e, _REGULAR)) @ V.T
        mean = self.whole.mean
        square = np.zeros_like(K)
        for one in self.parts:
            G = one.about(mean) / np.outer(root, root) * n
            square += (K @ (G - one.n * R) @ K) ** 2
        by_chance = np.outer(np.diag(K), np.diag(K)) + K**2
        ratio = n_parts * square / (n * by_chance * chdtri(n_parts - 1, 0.5))
        above = np.triu(np.ones_like(ratio, dtype=bool), 1)[:d]
        return float(np.median(ratio[:d][above]))


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
    # What has one value keeps it.
    L[np.diag(moments.scatter) <= 0] = 0.0
    return Moments(moments.n, moments.mean, L @ L.T)
