"""DYNOTEARS on pooled rows: the paper's Alldata, and a maintained DYNOTEARS for users with one data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from feddbn.core.statistics.moments import Moments
from feddbn.data import SiteData
from feddbn.federation.programs.fdbnl import ConsensusFit, ConsensusSettings, fit_of_moments
from feddbn.federation.programs.tally import Tally
from feddbn.federation.programs.treatment import AskedMoments
from feddbn.federation.protocol.rows import UNTREATED, Treatment
from feddbn.federation.protocol.task import Federation, Observer
from feddbn.methods.fdbnl import ConsensusEstimator
from feddbn.methods.selection import auto_selection
from feddbn.methods.updating import UpdatedEstimator
from feddbn.model.dbn import DBN

__all__ = ["Dynotears"]


class Dynotears(ConsensusEstimator, UpdatedEstimator):
    """DYNOTEARS (Pamfil et al. 2020) on the pooled rows of all sites.

        min_{W, A}  1/(2n) |X - X W - sum_l X_{-l} A_l|^2 + lambda_w |W|_1 + lambda_a |A|_1   subject to   W acyclic

    This is `FDBNL` of the rows of all sites together. It takes the same arguments and data; several sites or recordings are
    pooled, and a lag never crosses from one recording to another. As it needs the data only through their lagged Gram
    matrix, cost does not grow with rows after one pass.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> model = feddbn.Dynotears().fit(data.sites)
    >>> model.dbn_.edges()[["source", "target", "lag"]].values.tolist()
    [['x1', 'x0', 0], ['x2', 'x0', 0], ['x2', 'x1', 0], ['x0', 'x0', 1], ['x0', 'x2', 1]]
    """

    def _settings(self) -> ConsensusSettings:
        # Pooled rows have no sites to weigh, and nobody to send messages to.
        return replace(super()._settings(), schedule="gram", weighting="samples")

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        self._choose(*auto_selection(self, federation, observer))
        fit, seconds = self._run(self._program(federation), federation, observer)
        self._set_fit(fit, seconds)
        self._look(fit, federation, observer)
        self._keep_sums(fit.asked, int(self._value("n_lags")))

    def _fit_tally(self, tally: Tally) -> None:
        # What is done to the rows was decided by the first fit.
        self._set_fit(self._solve(tally.moments, tally.treatment, evidence=0.0))

    def fit_moments(self, moments: Moments, variables: tuple[str, ...]) -> DBN:
        """Fit from the moments of lagged rows and return the network."""
        self._begin()
        self._set_variables(tuple(variables))
        self._set_fit(replace(self._solve(moments, UNTREATED), asked=None))
        return self.dbn_

    def _solve(self, moments: Moments, treatment: Treatment, evidence: float | None = None) -> ConsensusFit:
        asked = AskedMoments(moments, treatment, evidence, n_rows=moments.n)
        return fit_of_moments(self._settings(), self._variables, self._constraints(), asked)
