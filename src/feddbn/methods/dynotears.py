"""DYNOTEARS on pooled rows: the paper's Alldata, and a maintained DYNOTEARS for users with one data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.fdbnl.dynotears import solve_dynotears
from feddbn.core.statistics.moments import Moments
from feddbn.data import SiteData
from feddbn.errors import DataError
from feddbn.federation.programs.fdbnl import ConsensusFit, check_summary, consensus_options
from feddbn.federation.programs.statistics import Preparation, choose_scale, prepare, summary_of_moments
from feddbn.federation.programs.tally import Tally
from feddbn.federation.programs.treatment import AskedMoments, asked_moments_program
from feddbn.federation.protocol.task import Federation, Observer, ServerProgram
from feddbn.methods.fdbnl import ConsensusEstimator
from feddbn.methods.selection import resolve_auto
from feddbn.methods.updating import UpdatedEstimator
from feddbn.model.dbn import DBN

__all__ = ["Dynotears"]


class Dynotears(ConsensusEstimator, UpdatedEstimator):
    """DYNOTEARS (Pamfil et al. 2020) on the pooled rows of all sites.

        min_{W, A}  1/(2n) |X - X W - sum_l X_{-l} A_l|^2 + lambda_w |W|_1 + lambda_a |A|_1   subject to   W acyclic

    Takes the same arguments and data as `FDBNL`; several sites or recordings are pooled, and a lag never crosses from
    one recording to another. As it needs the data only through their lagged Gram matrix, cost does not grow with rows
    after one pass.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> model = feddbn.Dynotears().fit(data.sites)
    >>> model.dbn_.edges()[["source", "target", "lag"]].values.tolist()
    [['x1', 'x0', 0], ['x2', 'x0', 0], ['x2', 'x1', 0], ['x0', 'x0', 1], ['x0', 'x2', 1]]
    """

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        resolve_auto(self, federation, observer)
        fit, _ = self._run(self._program(federation), federation, observer)
        self._set_fit(fit)
        self._look(fit, federation, observer)
        self._keep_sums(fit.asked, int(self._value("n_lags")))

    def _fit_tally(self, tally: Tally) -> None:
        own = tally.treatment.center == "recording"
        fit = self._solve(tally.moments, self._variables, "recording" if own else self.center)
        # What is done to the rows was decided by the first fit.
        asked = AskedMoments(tally.moments, tally.treatment, evidence=0.0, n_rows=tally.moments.n)
        preparation = replace(fit.preparation, treatment=tally.treatment)
        self._set_fit(replace(fit, asked=asked, preparation=preparation))

    def _program(self, federation: Federation) -> ServerProgram[ConsensusFit]:
        self._settings()
        rows = self._rows_on(federation)
        asked = yield from asked_moments_program(self._variables, self._value("n_lags"), rows)
        fit = self._solve(
            asked.moments, self._variables, self.center if asked.center == "none" else "recording"
        )
        preparation = replace(fit.preparation, treatment=asked.treatment)
        return replace(fit, asked=asked, preparation=preparation)

    def fit_moments(self, moments: Moments, variables: tuple[str, ...]) -> DBN:
        """Fit from the moments of lagged rows and return the network."""
        self._begin()
        self._set_variables(tuple(variables))
        self._set_fit(self._solve(moments, self._variables, self.center))
        return self.dbn_

    def fit_rows(self, X: FloatArray, X_lagged: FloatArray) -> Dynotears:
        """Fit from rows (n, d) and their lagged rows (n, p d), lag 1 first; for data that come already lagged."""
        X, X_lagged = np.asarray(X, dtype=float), np.asarray(X_lagged, dtype=float)
        self._begin()
        p, d = self._settings().n_lags, X.shape[1]
        if X_lagged.shape != (len(X), p * d):
            raise DataError(
                f"X_lagged has shape {X_lagged.shape}; with n_lags={p} it must be {(len(X), p * d)}."
            )
        self.fit_moments(Moments.of_rows(np.hstack([X, X_lagged])), tuple(f"x{i}" for i in range(d)))
        return self

    def _solve(self, moments: Moments, variables: tuple[str, ...], center: str) -> ConsensusFit:
        d = len(variables)
        settings = self._settings()
        summary = summary_of_moments(moments, d)
        scale = choose_scale(settings.scale, d, moments, inputs=settings.wishes.input_places(variables))
        preparation: Preparation = prepare(summary, d, center, scale.rule)
        check_summary(variables, preparation)
        options, _ = consensus_options(settings, preparation, self._constraints(), 1)
        G = moments.standardised(preparation.center, preparation.scale)
        return ConsensusFit(solve_dynotears(G, options), preparation, 1.0, scale=scale)
