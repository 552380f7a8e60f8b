"""Does a site look like the others? Each finds out by itself, from sums over all sites and its own numbers.

With s the profile of a site (`survey.lagged_profile`) and the sums of s and s^2 over K sites, a site takes its own part
off and knows mean and variance of the others. It needs no one else's numbers, and only the number of sites that do not
fit is ever added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from feddbn.core.arrays import FloatArray

__all__ = ["FEWEST_SITES", "Comparison", "compared"]

FEWEST_SITES = 4
"""With fewer sites nobody can say who is the odd one."""
_UNITS_FACTOR = 3.0
_UNITS_Z = 6.0
_CORRELATIONS_Z2 = 5.0
_CORRELATIONS_SIZE = 0.15
_IS_EXCHANGED = 0.4
_NEARLY = 1 - 1e-9


@dataclass(frozen=True)
class Comparison:
    """How one site compares with the others.

    Attributes
    ----------
    factors
        (d,) its standard deviations over those of the others.
    distance
        Mean square of the differences of its correlations, in units of how much sites differ; about 1 for a site that fits.
    sentences
        What does not fit, in words for its owner; empty if all is well.
    """

    factors: FloatArray
    distance: float
    sentences: tuple[str, ...]

    @property
    def objects(self) -> bool:
        """Whether this site had better stay out of the sums."""
        return bool(self.sentences)


def compared(
    own: FloatArray,
    n: float,
    total: FloatArray,
    squares: FloatArray,
    n_sites: float,
    variables: Sequence[str],
) -> Comparison | None:
    """Compare a site's profile from `n` rows with the sums over `n_sites` sites, itself among them; None if they are few."""
    if n_sites < FEWEST_SITES:
        return None
    d, others = len(variables), n_sites - 1
    mean = (total - own) / others
    spread = np.maximum((squares - own**2) / others - mean**2, 0.0) * others / (others - 1)
    scales, links = slice(0, d), slice(d, len(own))
    z2 = np.empty(len(own))
    for part, sampling in ((scales, 0.5 / n), (links, 1.0 / n)):
        # Few sites tell little about one number's spread, so that of its kind is looked at, too.
        common = max(float(spread[part].mean()), sampling)
        variance = (np.maximum(spread[part], sampling) + common) / 2 * (1 + 1 / others)
        z2[part] = (own[part] - mean[part]) ** 2 / variance
    factors = np.exp(own[scales] - mean[scales])
    # A site where everything varies more has more noise, or one gain for all: that is not one column in other units.
    usual = float(np.median(factors)) if d > 2 else 1.0
    sentences = []
    for i in np.flatnonzero(z2[scales] > _UNITS_Z**2):
        if max(factors[i] / usual, usual / factors[i]) > _UNITS_FACTOR:
            sentences.append(_units_sentence(variables[int(i)], float(factors[i])))
    if len(own) > d:
        variance = (own[links] - mean[links]) ** 2 / np.maximum(z2[links], 1e-300)
        distance = float(z2[links].mean())
        size = float(np.sqrt(np.mean((own[links] - mean[links]) ** 2)))
        is_other = distance > _CORRELATIONS_Z2 and size > _CORRELATIONS_SIZE
        sentence = _links_sentence(
            _matrix(own[links]), _matrix(mean[links]), _matrix(variance), variables, is_other
        )
        sentences += [sentence] if sentence else []
    else:
        distance = 0.0
    return Comparison(factors, distance, tuple(sentences))


def _units_sentence(name: str, factor: float) -> str:
    how = f"{factor:.3g} times as much" if factor > 1 else f"only {factor:.2g} times as much"
    return f"{name} varies {how} here as at the other sites: is it in other units?"


def _links_sentence(
    here: FloatArray, there: FloatArray, variance: FloatArray, variables: Sequence[str], is_other: bool
) -> str:
    """What is wrong with a site's correlations: the columns whose exchange explains it, or only that they are other ones."""
    d = len(variables)
    lags = d * np.arange(len(here) // d)[:, None]
    weight = 1.0 / np.where(variance > 0, variance, np.inf)

    def misfit(order: list[int], looked_at: Sequence[int]) -> float:
        """Mean square of differences of the correlations of some columns, if columns were in this order."""
        index, rows = (np.array(order) + lags).ravel(), (np.array(looked_at) + lags).ravel()
        difference = here[np.ix_(index[rows], index)] - there[rows]
        return float((difference**2 * weight[rows]).mean())

    order, is_exchanged = list(range(d)), False
    for _ in range(d):
        best, found = _IS_EXCHANGED, None
        # Two columns do not fit only if one of them does not: all but a few pairs need no look of their own.
        alone = [misfit(order, (i,)) for i in range(d)]
        for i, j in combinations(range(d), 2):
            if alone[i] + alone[j] < _NEARLY * 2 * _CORRELATIONS_Z2:
                continue
            before = misfit(order, (i, j))
            if before < _CORRELATIONS_Z2:
                continue
            other = order.copy()
            other[i], other[j] = other[j], other[i]
            ratio = misfit(other, (i, j)) / before
            if ratio < best:
                best, found = ratio, other
        if found is None:
            break
        order, is_exchanged = found, True
    if is_exchanged:
        moved = [(variables[order[i]], variables[i]) for i in range(d) if order[i] != i]
        pairs = ", ".join(f"what is called {a} behaves like {b}" for a, b in moved)
        return f"columns look mixed up at this site: {pairs} at the other sites."
    if is_other:
        return "the variables of this site are related to each other in another way than at the other sites."
    return ""


def _matrix(upper: FloatArray) -> FloatArray:
    q = round((1 + np.sqrt(1 + 8 * len(upper))) / 2)
    whole = np.zeros((q, q))
    whole[np.triu_indices(q, 1)] = upper
    return np.asarray(whole + whole.T)
