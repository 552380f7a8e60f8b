"""What a network was learned from so far, so that new rows are added without asking for the old ones again.

Sums add up over time as they do over sites. A *tally* holds the summed moments of lagged rows and what was done to these
rows. New rows are treated the same way, their moments are added, and the network is learned again from the whole. Where
nothing is done to the rows that is, up to rounding, the fit of all rows at once; recordings that lose their own means lose
one for each part.

A lag does not reach over the seam between old and new rows, unless a recording that goes on is given with its last rows
again: as many as there are lags, which then only serve as the past of new rows and are not counted twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from feddbn.core.statistics.moments import Moments, sums_length, symmetric
from feddbn.errors import DataError, FileError, ParameterError, ProtocolError
from feddbn.federation.protocol.rows import Treatment
from feddbn.federation.protocol.task import ServerProgram, Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.treatment import AskedMoments, whole_moments

_KEPT = ("center", "degree", "periods", "robust", "inputs", "cell_maps")
"""Fields of the treatment that new rows can be given, too."""


@dataclass(frozen=True)
class Tally:
    """Summed moments and the treatment of their rows.

    Attributes
    ----------
    variables, n_lags
        What a lagged row is made of.
    moments
        Of all rows so far; off the means of recordings where these were taken off.
    treatment
        What was done to the rows; the same is done to new ones.
    n_parts
        How many times rows were added, the first fit included.
    rank
        Number of nuisance parameters that recordings lost, as far as it is known.
    """

    variables: tuple[str, ...]
    n_lags: int
    moments: Moments
    treatment: Treatment
    n_parts: int = 1
    rank: float = 0.0

    @property
    def whole(self) -> Moments:
        """The moments to learn from, with what nuisances took along of the series."""
        return whole_moments(self.treatment, self.moments, len(self.variables), self.rank)

    def plus(self, part: Tally) -> Tally:
        """Return the tally with the moments of new rows."""
        old, new, n_parts = self.moments, part.moments, self.n_parts + part.n_parts
        rank = self.rank + part.rank if self.rank else 0.0
        if self.treatment.center == "recording":
            # What is left off the recordings' own means is about zero in each; levels are averages.
            n = old.n + new.n
            mean = (old.n * old.mean + new.n * new.mean) / n
            both = Moments(n, mean, old.scatter + new.scatter)
            return replace(self, moments=both, n_parts=n_parts, rank=rank)
        return replace(self, moments=old.merge(new), n_parts=n_parts)

    def minus(self, part: Tally) -> Tally:
        """Return the tally of the rows that were added to `part`: what `plus` made of both, up to rounding."""
        n, known = self.moments.n - part.moments.n, part.to_dict()
        if n < 1 or any(self.to_dict()[name] != known[name] for name in ("variables", "n_lags", *_KEPT)):
            raise DataError(
                f"sums of {self.moments.n:.0f} rows are no update of sums of {part.moments.n:.0f} rows: an update has more "
                "rows, of the same variables and lags, treated the same way.",
                code="no-update",
            )
        new = self.moments.without(part.moments)
        if self.treatment.center != "recording":
            return replace(self, moments=new, n_parts=self.n_parts - part.n_parts)
        moments = replace(new, scatter=self.moments.scatter - part.moments.scatter)
        return replace(self, moments=moments, n_parts=self.n_parts - part.n_parts, rank=self.rank - part.rank)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; numbers read back bit for bit."""
        return {
            "variables": list(self.variables),
            "n_lags": self.n_lags,
            **self.moments.to_dict(),
            **{
                name: np.array(value).tolist()
                for name, value in vars(self.treatment).items()
                if name in _KEPT
            },
            "n_parts": self.n_parts,
            "rank": self.rank,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], where: str = "this dict") -> Tally:
        """Inverse of `to_dict`; `where` names the source in error messages."""
        try:
            names = tuple(str(name) for name in stored["variables"])
            n_lags = int(stored["n_lags"])
            moments = Moments.from_dict(stored, len(names) * (n_lags + 1))
            # A question checks what may be done to rows.
            checked = GramQuestion(n_lags=n_lags, variables=names, **{name: stored[name] for name in _KEPT})
            treatment = Treatment(**{name: getattr(checked, name) for name in _KEPT})
            return cls(names, n_lags, moments, treatment, int(stored["n_parts"]), float(stored["rank"]))
        except (KeyError, TypeError, ValueError, ProtocolError) as error:
            raise FileError(
                f"{where} holds sums that cannot be read ({error}); fit all rows again."
            ) from None


def tally_of(asked: AskedMoments, variables: tuple[str, ...], n_lags: int) -> Tally:
    """Return what a fit has summed, or say why new rows cannot be added to it."""
    done = asked.treatment
    if done.row_model is not None:
        raise ParameterError(
            "missing='fill' filled empty cells in by a model of all rows, which new rows would change; fit all "
            "rows again, or fit with missing='drop' to be able to update.",
            code="cells-filled",
        )
    if done.log_scales is not None:
        raise ParameterError(
            "gains='site' brought sites to one scale by all their rows, which new rows would change; fit all rows again, or "
            "fit with gains='none' to be able to update.",
            code="scales-of-all-rows",
        )
    if done.abstain:
        raise ParameterError(
            "on_disagreement='exclude' left sites out that did not fit, and new rows might; fit all rows again, or fit with "
            "on_disagreement='warn' to be able to update.",
            code="sites-left-out",
        )
    return Tally(variables, n_lags, asked.summed or asked.moments, done, rank=asked.rank)


def new_moments_program(tally: Tally) -> ServerProgram[Tally]:
    """Ask for the moments of new rows, treated as those of the tally: one sum."""
    done, old, q = tally.treatment, tally.moments, tally.moments.q
    own = done.center == "recording"
    inputs = () if done.robust == "none" else done.inputs
    question = replace(done, center="none", degree=0, periods=(), inputs=inputs).on(
        GramQuestion(
            n_lags=tally.n_lags,
            variables=tally.variables,
            # Large means do not cancel about those that are known.
            origin=old.mean,
            try_degrees=(done.degree,) if own else (),
            try_cycles=(len(done.periods),) if own else (),
            try_periods=done.periods if own else (),
        )
    )
    total = (yield Task(question)).value
    size = sums_length(q)
    new = Moments.from_sums(total[:size], q, old.mean)
    if new.n < 1:
        raise DataError(
            f"the new data have no row with n_lags={tally.n_lags} rows before it, so there is nothing to add."
        )
    if not own:
        return replace(tally, moments=new, n_parts=1)
    # Trends that are given by name leave no levels; where there are none, none are added.
    mean = new.mean if old.mean.any() else old.mean
    # What is left off each recording's own nuisances comes after their number.
    left = Moments(new.n, mean, symmetric(total[size + 1 : size + 1 + q * (q + 1) // 2], q))
    return replace(tally, moments=left, n_parts=1, rank=float(total[size]))


def changes_of_treatment(old: Treatment, new: AskedMoments, variables: tuple[str, ...]) -> dict[str, Any]:
    """Return what the new rows alone would have had done to them and the old ones had not; empty if nothing."""
    done = new.treatment
    periods = [period for period in done.periods if not any(abs(period - o) < 0.05 * o for o in old.periods)]
    found = {
        "own_means": done.center == "recording" and old.center != "recording",
        "degree": done.degree if done.degree > old.degree else 0,
        "periods": periods,
        "outliers": [variables[i] for i in new.bounded if old.robust == "none"],
        "own_scales": done.log_scales is not None,
        "n_disagreeing": new.n_disagreeing,
    }
    return {what: value for what, value in found.items() if value}
