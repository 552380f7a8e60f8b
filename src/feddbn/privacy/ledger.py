"""What was released, as frozen events, and what it costs; the accounting is done by `dp-accounting`.

A ledger knows two kinds of events: a Gaussian release with its noise multiplier, and an unprotected one.
Anything else, and every unprotected event, costs infinitely much: forgetting to teach the ledger something
can only make it stricter.

Neighbouring data sets differ by adding or removing one unit (a recording or a row, see `NoisePlan`). Costs are added for one
unit at a time (`Ledger.for_unit`): noise that hides a row does not hide a recording of many rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from feddbn.errors import BudgetExceeded, MissingExtra
from feddbn.privacy.audit import AuditEntry
from feddbn.privacy.gaussian import SLACK, gaussian_epsilon
from feddbn.privacy.policy import Unit
from feddbn.settings import number, word

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
    """A sum with Gaussian noise on a grid, of standard deviation ``multiplier`` times what one `unit` can change."""

    multiplier: float
    unit: Unit = "recording"

    def __post_init__(self) -> None:
        number(above=0).check("multiplier", self.multiplier)


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

    def for_unit(self, unit: Unit) -> Ledger:
        """Return what the releases are for one `unit`.

        A row changes at most the vector of its recording, to another one within the bound: twice what a recording's coming
        or going changes. How many rows a recording has is not known here, so noise for rows counts as none for it.
        """

        def seen(release: Release) -> Release:
            if not isinstance(release, GaussianRelease) or release.unit == unit:
                return release
            if release.unit == "recording":
                return GaussianRelease(release.task, release.multiplier / 2, unit)
            return UnprotectedRelease(release.task)

        return Ledger(tuple(seen(release) for release in self.releases))

    def epsilon(self, delta: float, accountant: Accountant = "pld") -> float:
        """Return the total epsilon at `delta`; infinite if one release is unprotected or unknown, or of another unit than
        the others.
        """
        number(above=0, below=1).check("delta", delta)
        word("pld", "rdp").check("accountant", accountant)
        if not self._is_of_one_unit:
            return math.inf
        counts = Counter(r.multiplier for r in self.releases if isinstance(r, GaussianRelease))
        return _epsilon(tuple(sorted(counts.items())), delta, accountant) + SLACK * len(self.releases)

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
                f"(delta = {delta:g}); {limit} is {budget:g}. Nothing was sent.",
                code="over-budget",
            )

    def _exact_epsilon(self, delta: float) -> float:
        """Gaussian releases together are one with ``1 / multiplier^2`` added up (Dong, Roth & Su 2022,
        Corollary 3.3).
        """
        if not self._is_of_one_unit:
            return math.inf
        precision = sum(r.multiplier**-2 for r in self.releases if isinstance(r, GaussianRelease))
        return gaussian_epsilon(delta, precision**-0.5) + SLACK * len(self.releases)

    @property
    def _is_of_one_unit(self) -> bool:
        known = [release for release in self.releases if type(release) is GaussianRelease]
        return len(known) == len(self.releases) and len({release.unit for release in known}) <= 1

    @classmethod
    def replay(cls, entries: Iterable[AuditEntry]) -> Ledger:
        """Return the ledger of what an audit log says was sent."""
        return cls(tuple(_release(entry) for entry in entries if entry.event == "sent"))


def entry_epsilon(entry: AuditEntry) -> float | None:
    """Return what one answer in an audit log costs by itself, for its unit; None if it carries no noise."""
    if entry.event != "sent" or entry.noise_multiplier is None or entry.delta is None:
        return None
    return gaussian_epsilon(entry.delta, entry.noise_multiplier) + SLACK


def _release(entry: AuditEntry) -> Release:
    """What an entry of the audit log cost; one that does not say all that is needed is unprotected."""
    multiplier, unit = entry.noise_multiplier, entry.unit
    if multiplier is None or unit not in ("recording", "row"):
        return UnprotectedRelease(entry.task)
    return GaussianRelease(entry.task, multiplier, "recording" if unit == "recording" else "row")


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
