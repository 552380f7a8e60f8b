"""What was released, as frozen events, and what it costs; the accounting is done by `dp-accounting`.

A ledger knows two kinds of events: a Gaussian release with its noise multiplier, and an unprotected one.
Anything else, and every unprotected event, costs infinitely much: forgetting to teach the ledger something
can only make it stricter.

Neighbouring data sets differ by adding or removing one unit (a recording or a row, see `NoisePlan`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from feddbn.errors import BudgetExceeded, MissingExtra, ParameterError
from feddbn.privacy.gaussian import gaussian_epsilon

__all__ = ["Accountant", "GaussianRelease", "Ledger", "Release", "UnprotectedRelease"]

Accountant = Literal["pld", "rdp"]
# Privacy losses are counted in steps of this size; coarser is faster and, by the accountant's rounding,
# never too small.
PLD_STEP = 1e-3


@dataclass(frozen=True)
class Release:
    """Something a site has sent, in answer to the task of this name."""

    task: str


@dataclass(frozen=True)
class GaussianRelease(Release):
    """A sum with Gaussian noise of standard deviation ``multiplier * sensitivity``."""

    multiplier: float

    def __post_init__(self) -> None:
        if not 0 < self.multiplier < math.inf:
            raise ParameterError(f"a noise multiplier must be positive and finite, got {self.multiplier}.")


@dataclass(frozen=True)
class UnprotectedRelease(Release):
    """A sum without noise."""


@dataclass(frozen=True)
class Ledger:
    """All releases so far; adding one makes a new ledger."""

    releases: tuple[Release, ...] = ()

    def add(self, release: Release) -> Ledger:
        """Return the ledger with one release more."""
        return Ledger((*self.releases, release))

    def epsilon(self, delta: float, accountant: Accountant = "pld") -> float:
        """Return the total epsilon at `delta`; infinite if one release is unprotected or unknown."""
        if not 0 < delta < 1:
            raise ParameterError(f"delta must lie strictly between 0 and 1, got {delta}.")
        if accountant not in ("pld", "rdp"):
            raise ParameterError(f"accountant must be 'pld' or 'rdp', got {accountant!r}.")
        if any(type(release) is not GaussianRelease for release in self.releases):
            return math.inf
        counts = Counter(r.multiplier for r in self.releases if isinstance(r, GaussianRelease))
        return _epsilon(tuple(sorted(counts.items())), delta, accountant)

    def check(
        self, release: Release, delta: float, budget: float, unit: str, limit: str = "this site's budget"
    ) -> None:
        """Raise if `release` would take the total over `budget`; the ledger itself stays as it is."""
        after = self.add(release)
        # RDP is an upper bound and the exact form of Gaussian releases takes no time either; PLD takes seconds at a large
        # epsilon, so it is asked last. It rounds up; a run calibrated to spend the budget to the last digit must not be
        # refused for it.
        if after.epsilon(delta, "rdp") <= budget or after._exact_epsilon(delta) <= budget * (1 + 1e-9):
            return
        total = after.epsilon(delta, "pld")
        if not total <= budget:
            raise BudgetExceeded(
                f"task {release.task!r} would take epsilon to {total:.3g} for each {unit} "
                f"(delta = {delta:g}); {limit} is {budget:g}. Nothing was sent."
            )

    def _exact_epsilon(self, delta: float) -> float:
        """Gaussian releases together are one with ``1 / multiplier^2`` added up (Dong, Roth & Su 2022,
        Corollary 3.3).
        """
        if any(type(release) is not GaussianRelease for release in self.releases):
            return math.inf
        precision = sum(r.multiplier**-2 for r in self.releases if isinstance(r, GaussianRelease))
        return gaussian_epsilon(delta, precision**-0.5)

    @classmethod
    def replay(cls, multipliers: Iterable[tuple[str, float | None]]) -> Ledger:
        """Return the ledger of (task, noise multiplier or None) pairs, such as an audit log holds."""
        events = (UnprotectedRelease(t) if z is None else GaussianRelease(t, z) for t, z in multipliers)
        return cls(tuple(events))


@lru_cache(maxsize=256)
def _epsilon(counts: tuple[tuple[float, int], ...], delta: float, accountant: Accountant) -> float:
    if not counts:
        return 0.0
    try:
        import dp_accounting as dp
        from dp_accounting import pld, rdp
    except ImportError as error:  # pragma: no cover - exercised by installing without the extra
        raise MissingExtra("dp-accounting", "privacy") from error
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    book = (
        rdp.RdpAccountant(neighboring_relation=relation)
        if accountant == "rdp"
        else pld.PLDAccountant(relation, value_discretization_interval=PLD_STEP)
    )
    for multiplier, count in counts:
        book.compose(dp.GaussianDpEvent(multiplier), count)
    return float(book.get_epsilon(delta))
