"""Which of the federation's variables and lags a site holds, and questions to sites that may hold different ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.errors import ProtocolError
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.task import MOST_LAGS, Scope, names, wholes

__all__ = ["Entries", "PartialQuestion"]


@dataclass(frozen=True, kw_only=True)
class PartialQuestion(RowsQuestion):
    """A question that means something of its own to every site; lists are in the order of `sites`.

    Attributes
    ----------
    lags
        How many lags each site uses, at most `n_lags`.
    """

    sites: tuple[str, ...] = names()
    lags: tuple[int, ...] = wholes(0, MOST_LAGS)

    def check(self) -> None:
        """Every site has its lags, none more than there are."""
        super().check()
        if len(self.lags) != len(self.sites) or max(self.lags, default=0) > self.n_lags:
            raise self.wrong("'lags' must have one number for each of 'sites', at most n_lags")

    def check_scope(self, scope: Scope) -> None:
        """Sites are the study's, and all have its number of lags."""
        super().check_scope(scope)
        scope.require(tuple(sorted(self.sites)) == scope.sites, self.name, "'sites' are not the study's")
        scope.require(set(self.lags) == {self.n_lags}, self.name, "'lags' of sites differ")

    def place_of(self, site: str) -> int:
        """Return the site's place in the lists."""
        try:
            return self._places[site]
        except KeyError:
            raise self.wrong(f"it does not name the site {site!r}, so this site has no part in it") from None

    @cached_property
    def _places(self) -> dict[str, int]:
        return {site: place for place, site in enumerate(self.sites)}

    def lags_of(self, site: str) -> int:
        """Return the site's own number of lags."""
        return self.lags[self.place_of(site)]


@dataclass(frozen=True)
class Entries:
    """Which rows (of q) and columns (of d) of the federation's stack a site holds."""

    rows: IntArray
    columns: IntArray
    q: int

    @classmethod
    def of(cls, own: tuple[str, ...], variables: tuple[str, ...], own_lags: int, n_lags: int) -> Entries:
        """Positions of a site's variables and lags among the federation's."""
        unknown = [name for name in own if name not in variables]
        if unknown:
            raise ProtocolError(
                f"this site has the variable {unknown[0]!r}, which the study does not name; add it to variables="
                " or leave the column out."
            )
        d = len(variables)
        columns = np.array([variables.index(name) for name in own])
        rows = np.concatenate([lag * d + columns for lag in range(own_lags + 1)])
        return cls(rows, columns, (n_lags + 1) * d)

    @property
    def is_whole(self) -> bool:
        """Whether the site holds every entry, in the federation's order."""
        return len(self.rows) == self.q and bool(np.all(self.rows == np.arange(self.q)))

    def take(self, C: FloatArray) -> FloatArray:
        """Return the site's part of a (q, d) or (q,) array."""
        if self.is_whole:
            return C
        part: FloatArray = C[self.rows] if C.ndim == 1 else C[np.ix_(self.rows, self.columns)]
        return part
