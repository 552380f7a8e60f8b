"""Which rows are resampled for an estimator: lagged values as its fit treats them, or rows of the curves that it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from feddbn.core.statistics.moments import Moments
from feddbn.federation.programs.bootstrap import ResampledMoments, bootstrap_program
from feddbn.federation.programs.curved import CurvedMoments
from feddbn.federation.programs.residual_checks import ResidualReport
from feddbn.federation.programs.treatment import AskedMoments, asked_moments_program
from feddbn.federation.protocol.rows import Treatment, treated
from feddbn.federation.protocol.task import Federation, ServerProgram, run_program

__all__ = ["ResampledRows", "rows_to_resample"]


@dataclass(frozen=True)
class ResampledRows:
    """What is resampled, and what its moments mean to an estimator.

    Attributes
    ----------
    treatment, asked
        What sites do to their rows, and the sums that decided about it, if there were any.
    told
        What the fit on all rows learned its curves from; None: rows are lagged values.
    report
        What that fit says about its residuals.
    """

    treatment: Treatment
    asked: AskedMoments | None = None
    told: CurvedMoments | None = None
    report: ResidualReport | None = None

    def program(
        self, variables: tuple[str, ...], n_lags: int, n_replicates: int, **how: Any
    ) -> ServerProgram[ResampledMoments]:
        """Return the program that asks for their resamples; `how` as in `bootstrap_program`."""
        curved = None if self.told is None else self.told.question
        center = self.treatment.center
        program = bootstrap_program(variables, n_lags, n_replicates, **how, center=center, curved=curved)
        return treated(program, self.treatment)

    def worth(self, resampled: ResampledMoments) -> ResampledMoments:
        """The same as from as many rows as the first sum has: where cells are empty, fewer than there are."""
        if self.told is not None:
            return resampled.worth(self.told.moments.n / resampled.full.n)
        if self.asked is not None and self.asked.n_rows > self.asked.moments.n:
            return resampled.worth(self.asked.moments.n / self.asked.n_rows)
        return resampled

    def given(self, moments: Moments) -> Moments | CurvedMoments:
        """Moments of a resample as ``fit_moments`` takes them."""
        return moments if self.told is None else self.told.of(moments)


def rows_to_resample(estimator: Any, federation: Federation, n_lags: int) -> ResampledRows:
    """Ask what a fit would ask first; rows of curves are resampled if it finds some.

    Resamples of rows with different levels would be confident about them, so rows are treated as in a fit.
    """
    fit = estimator.curves_on(federation) if hasattr(estimator, "curves_on") else None
    if fit is not None and fit[2] is not None:
        outcome, report, curved = fit
        assert outcome.asked is not None
        return ResampledRows(outcome.asked.treatment, outcome.asked, curved.told, report)
    rows = estimator._rows_on(federation)
    if rows.is_settled:
        return ResampledRows(Treatment(center=rows.center))
    if fit is not None and fit[0].asked is not None:
        asked = fit[0].asked
    else:
        asked = run_program(asked_moments_program(federation.variables, n_lags, rows), federation)
    return ResampledRows(asked.treatment, asked)
