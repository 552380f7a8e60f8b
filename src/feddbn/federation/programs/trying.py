"""Questions about rows that also try nuisances of recordings: what most first sums of a run have in common."""

from __future__ import annotations

from dataclasses import dataclass

from feddbn.core.designs.nuisance import Nuisance
from feddbn.federation.protocol.question import Constant, numbers, wholes
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.scope import Scope

__all__ = ["TryingQuestion"]


@dataclass(frozen=True, kw_only=True)
class TryingQuestion(RowsQuestion):
    """A question that also asks for products off nuisances of every recording's own.

    Attributes
    ----------
    try_degrees, try_cycles
        For each nuisance to try, the degree of its polynomial in time (0: a mean), and how many of the `try_periods` it has.
    """

    try_degrees: tuple[int, ...] = wholes(0, 12, default=())
    try_cycles: tuple[int, ...] = wholes(0, 12, default=())
    try_periods: tuple[float, ...] = numbers(2.0, 1e9, default=())

    def check(self) -> None:
        """There is a number of cycles for each degree."""
        super().check()
        if len(self.try_degrees) != len(self.try_cycles) or max(self.try_cycles, default=0) > len(
            self.try_periods
        ):
            raise self.wrong(
                "'try_degrees' and 'try_cycles' must be of one length, and of cycles that are named"
            )

    def check_scope(self, scope: Scope) -> None:
        """What is tried is what the study leaves open."""
        super().check_scope(scope)
        n, most = len(self.try_degrees), len(scope.degrees) * (scope.most_cycles + 1)
        scope.require(n <= most, self.name, f"it tries {n} nuisances")
        scope.require(
            set(self.try_degrees) <= {*scope.degrees}, self.name, f"'try_degrees' is {self.try_degrees}"
        )
        n = len(self.try_periods)
        scope.require(n <= scope.most_cycles, self.name, f"it tries {n} cycles")

    @property
    def transformations(self) -> tuple[str, ...]:
        """Also what is tried."""
        tried = {
            "means": bool(self.try_degrees),
            "trends": max(self.try_degrees, default=0) > 0,
            "cycles": max(self.try_cycles, default=0) > 0,
        }
        found = (*super().transformations, *(what for what, is_tried in tried.items() if is_tried))
        return tuple(dict.fromkeys(found))

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Also what is tried."""
        if not self.try_degrees:
            return super().constants
        what = f"nuisances to try (n_lags = {self.n_lags}, fold = {self.fold})"
        return *super().constants, Constant(what, (self.try_degrees, self.try_cycles, self.try_periods))

    @property
    def is_trying(self) -> bool:
        """Whether something is to be decided by the answer: nuisances of recordings, or gains of sites."""
        return bool(self.try_degrees) or self.log_scales is not None

    @property
    def tried(self) -> tuple[Nuisance, ...]:
        """The nuisances to try."""
        pairs = zip(self.try_degrees, self.try_cycles, strict=True)
        return tuple(Nuisance("recording", degree, self.try_periods[:n]) for degree, n in pairs)
