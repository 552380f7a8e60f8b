"""What a user wants done to the rows before anything is learned from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from feddbn.core.designs.nuisance import finite_numbers
from feddbn.core.statistics.agreement import FEWEST_SITES
from feddbn.federation.programs.survey import Survey

__all__ = ["AUTO_DEGREES", "Wishes", "periods_of"]

AUTO_DEGREES = (0, 1, 3)
"""Polynomials in time that "auto" tries."""
_ROWS_PER_PARAMETER = 8.0


def periods_of(period: float | Sequence[float] | str | None) -> tuple[float, ...] | str:
    """Cycles as a user gives them: none, one, several, or "auto"."""
    if isinstance(period, str):
        return period
    if period is None:
        return ()
    given = [period] if isinstance(period, (int, float)) else period
    return finite_numbers(list(given), "period")


@dataclass(frozen=True)
class Wishes:
    """What the user wants done to the rows; "auto" leaves it to the evidence.

    Attributes
    ----------
    center
        "none": one mean for all; "recording": every recording has its own; "auto".
    detrend
        Degree of a polynomial in time of every recording; 0: none; "auto".
    period
        Cycles of every recording, in rows; "auto".
    gains
        "none"; "site": every site's variables are brought to common scales; "auto".
    spikes
        "keep"; "remove": cells far from their neighbours in time are empty; "auto": if they are errors.
    missing
        "drop": rows with an empty cell are left out; "fill": they are used for what they hold.
    on_disagreement
        "exclude": a site that finds that it does not fit stays out; "personal": it does, and is told to learn one of its own;
        "warn": it is only counted; "ignore": nobody looks.
    noisy
        Whether sums carry noise: then far cells can be left out by scales that are paid for, and nothing else is looked at.
    inputs
        Names of variables that only act on others: they may be anything, so nothing is decided by what they look like.
    """

    center: str = "none"
    detrend: int | str = 0
    period: tuple[float, ...] | str = ()
    gains: str = "none"
    spikes: str = "keep"
    missing: str = "drop"
    on_disagreement: str = "ignore"
    inputs: tuple[str, ...] = ()
    noisy: bool = False

    @classmethod
    def of(cls, given: Any) -> Wishes:
        """Those of whoever has them as attributes: settings, an estimator. Other centring than these two comes later."""
        return cls(
            given.center if given.center in ("auto", "recording") else "none",
            given.detrend,
            periods_of(given.period),
            given.gains,
            given.spikes,
            given.missing,
            given.on_disagreement,
            tuple(given.exogenous or ()),
        )

    def input_places(self, variables: Sequence[str]) -> tuple[int, ...]:
        """Positions of the inputs among the variables."""
        return tuple(j for j, name in enumerate(variables) if name in self.inputs)

    @property
    def needs_survey(self) -> bool:
        """Whether anything is left to the data beyond levels and trends, which one sum tells."""
        if self.noisy:
            return False
        is_open = (
            "auto" in (self.period, self.gains, self.spikes)
            or self.gains == "site"
            or self.spikes == "remove"
        )
        return is_open or self.missing == "fill" or self.on_disagreement != "ignore"

    @property
    def needs_profiles(self) -> bool:
        """Whether sites have to be compared: for their scales, or to find one that does not fit."""
        return self.gains != "none" or self.on_disagreement != "ignore"

    @property
    def leaves_out(self) -> bool:
        """Whether a site that does not fit stays out of the sums."""
        return self.on_disagreement in ("exclude", "personal")

    @property
    def is_personal(self) -> bool:
        """Whether a site that stays out is to have a network of its own."""
        return self.on_disagreement == "personal"

    def among(self, n_sites: int) -> Wishes:
        """The same for a federation of this size: few sites are not compared, as sums and squares would tell them apart."""
        if n_sites >= FEWEST_SITES:
            return self
        gains = "none" if self.gains == "auto" else self.gains
        return replace(self, gains=gains, on_disagreement="ignore")

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to find out, and nothing but centring to be done."""
        is_plain = self.center != "auto" and self.detrend == 0 and self.period == ()
        is_plain = is_plain and not (self.noisy and self.spikes == "remove")
        return is_plain and not self.needs_survey

    @property
    def is_given(self) -> bool:
        """Whether recordings are to lose a nuisance of their own in any case."""
        return self.center == "recording" or self.has_time

    @property
    def has_time(self) -> bool:
        """Whether a trend or cycle is wished for by name."""
        return self.detrend not in (0, "auto") or (self.period != "auto" and bool(self.period))

    def tried(self, survey: Survey | None) -> tuple[list[tuple[int, int]], tuple[float, ...]]:
        """(degree, number of cycles) of each nuisance to try, and the cycles; nothing if nothing is open."""
        given = not isinstance(self.period, str)
        periods = self.period if not isinstance(self.period, str) else (survey.periods if survey else ())
        degrees = AUTO_DEGREES if self.detrend == "auto" else (int(self.detrend),)
        if self.center == "none" and not self.has_time:
            # One mean for all is asked for by name, and trends and cycles are of recordings.
            return [], ()
        counts = [len(periods)] if given else list(range(len(periods) + 1))
        pairs = [(degree, n) for n in counts for degree in degrees]
        if survey is not None:
            length = survey.n_rows / max(survey.n_recordings, 1.0)
            few = [(k, n) for k, n in pairs if (1 + k + 2 * n) * _ROWS_PER_PARAMETER <= length]
            pairs = few or pairs[:1]
        return pairs, periods
