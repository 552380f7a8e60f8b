"""FDBNL: one network for all sites by penalised least squares, from sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from feddbn.core.arrays import FloatArray
from feddbn.core.penalised.optimum import Certificate
from feddbn.core.penalised.path import StagedPath
from feddbn.core.statistics.diagnostics import ScaleChoice
from feddbn.core.statistics.moments import Moments, safe_roots
from feddbn.data import SiteData
from feddbn.errors import ParameterError
from feddbn.federation.programs.alone import alone_program, is_compared
from feddbn.federation.programs.fdbnl import (
    ConsensusFit,
    FDBNLSettings,
    PenalisedSettings,
    PooledSettings,
    fdbnl_program,
    fit_of_moments,
    pooled_program,
)
from feddbn.federation.programs.residual_checks import FittedNetwork, network_checks_program
from feddbn.federation.protocol.rows import UNTREATED, Treatment
from feddbn.federation.protocol.task import Federation, Observer, ServerProgram
from feddbn.federation.sums.prepare import PreparedSettings
from feddbn.federation.sums.statistics import Preparation
from feddbn.federation.sums.tally import Tally
from feddbn.federation.sums.treatment import AskedMoments
from feddbn.findings import Finding
from feddbn.methods.base import DBNEstimator, history_frame, network
from feddbn.methods.selection import auto_selection
from feddbn.methods.updating import UpdatedEstimator
from feddbn.model.dbn import DBN
from feddbn.model.nodes import known
from feddbn.results.edge_table import equivalently_directed
from feddbn.results.remarks import are_looked_at, fitted_network
from feddbn.settings import takes

__all__ = ["FDBNL"]

S = TypeVar("S", bound=PreparedSettings)
P = TypeVar("P", bound=PenalisedSettings)
Q = TypeVar("Q", bound=PooledSettings)


class IterativeEstimator(DBNEstimator[S]):
    """What estimators with penalties and a path to acyclicity share: how a fit went, and what it says."""

    is_selectable = True
    check_residuals: bool | str

    def _set_course(
        self,
        run: StagedPath,
        preparation: Preparation,
        asked: AskedMoments | None,
        scale: ScaleChoice | None,
        seconds: Sequence[float],
    ) -> None:
        """Set how the fit went and what was done to the rows, and say what is worth saying."""
        assert run.status is not None
        self.residuals_, self.alone_ = None, None
        self.status_ = run.status
        self.history_ = history_frame(run.history, seconds)
        self._say_moments(asked)
        self.center_ = preparation.center_rule
        self.scale_ = str(self._settings.prepare.scale) if scale is None else scale.rule
        told = None if scale is None else scale.finding(self._variables)
        if told is not None:
            self._tell(told)
        self.standard_deviations_ = safe_roots(preparation.summary.variance[: len(self._variables)])
        self.n_samples_ = round(preparation.summary.n)
        if not run.status.is_converged:
            self._tell(Finding("not-converged", "warning", {"status": run.status.name}))

    def _directed(self, dbn: DBN, scale: ScaleChoice | None) -> DBN:
        """The network with its open edges, which scaled variables leave."""
        if scale is None or scale.rule == "none":
            return dbn
        return equivalently_directed(dbn, self._constraints())

    def _checked_network(self, preparation: Preparation, asked: AskedMoments | None) -> FittedNetwork:
        """The network that was fitted, for a look at its residuals."""
        return fitted_network(
            self.dbn_,
            self._constraints(),
            self._inputs,
            preparation.center_rule,
            preparation.treatment,
            asked,
        )


class PenalisedEstimator(IterativeEstimator[P]):
    """One network for all rows: what FDBNL and DYNOTEARS on pooled rows share, as both solve the same problem."""

    certificate_: Certificate | None

    @property
    def _steps_are_sums(self) -> bool:
        """Whether every step of the solver is a sum over sites."""
        return False

    def _program(self, federation: Federation) -> ServerProgram[ConsensusFit]:
        """Yield the tasks of one fit."""
        return pooled_program(
            self._settings,
            self._variables,
            self._constraints(),
            len(federation.sites),
            self._rows_on(federation),
        )

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        self._choose(*auto_selection(self, federation, observer))
        fit, seconds = self._run(self._program(federation), federation, observer)
        self._set_fit(fit, seconds)
        self._look(fit, federation, observer)

    def _look(self, fit: ConsensusFit, federation: Federation, observer: Observer | None) -> None:
        """Look at what was fitted, where that is done."""

    def _candidate(
        self, federation: Federation, run_number: int
    ) -> ServerProgram[tuple[FloatArray | None, Preparation]]:
        fit = yield from self._program(federation)
        return fit.run.graph(), fit.preparation

    def _set_fit(self, fit: ConsensusFit, seconds: Sequence[float] = ()) -> None:
        run, variables = fit.run, self._variables
        assert run.C_raw is not None
        final = network(run.graph(), fit.preparation, variables, run.target_loss, fit.total_weight)
        self._set_network(self._directed(final, fit.scale), network(run.C_raw, fit.preparation, variables))
        self.objective_, self.certificate_ = run.raw_objective, run.certificate
        self._set_course(run, fit.preparation, fit.asked, fit.scale, seconds if self._steps_are_sums else ())
        self.dropped_edges_ = [(variables[i], variables[j], weight) for i, j, weight in run.dropped]
        if run.dropped:
            names = tuple(f"{source} -> {target}" for source, target, _ in self.dropped_edges_)
            self._tell(Finding("cycles-broken", "warning", {"n": len(names)}, names))


class PooledEstimator(PenalisedEstimator[Q], UpdatedEstimator[Q]):
    """One network of the rows of all sites, for which their summed second moments are enough."""

    def _why_not_moments(self) -> ParameterError | None:
        """Why summed moments are not enough; None if they are."""
        return None

    def _look(self, fit: ConsensusFit, federation: Federation, observer: Observer | None) -> None:
        """Keep the sums for an update, and say what residuals near the network tell, if they are looked at."""
        self._keep_sums(fit.asked, int(self._value("n_lags")), self._why_not_moments())
        moments, settings = None if fit.asked is None else fit.asked.moments, self._settings
        # Not with the paper's schedule, nor for rows that are used as they are.
        by_default = getattr(settings, "schedule", "gram") != "paper" and not settings.rows.is_settled
        if not are_looked_at(settings.check_residuals, federation, by_default=by_default):
            self._say_hidden(moments, None)
            return
        checked = self._checked_network(fit.preparation, fit.asked)
        report = self._run(network_checks_program(checked), federation, observer)[0]
        self._say_residuals(report)
        self._say_hidden(moments, None if report is None else report.doubts)
        if self.status_.is_converged and is_compared(federation):
            names = ("lambda_w", "lambda_a", "w_threshold", "a_threshold")
            penalties = tuple(float(getattr(settings, name)) for name in names)
            how = {"penalties": penalties, "scale": self.scale_}
            asked = alone_program(
                checked, known(self.dbn_.intercept, "intercept"), float(self.n_samples_), **how
            )
            self._say_alone(self._run(asked, federation, observer)[0], federation)

    def _fit_tally(self, tally: Tally) -> None:
        # What is done to the rows was decided by the first fit.
        self._set_fit(self._solved(tally.whole, tally.treatment, evidence=0.0))

    def fit_moments(self, moments: Moments, variables: tuple[str, ...]) -> DBN:
        """Fit from the moments of lagged rows and return the network."""
        self._begin()
        why_not = self._why_not_moments()
        if why_not is not None:
            raise why_not
        self._set_variables(tuple(variables))
        self._set_fit(replace(self._solved(moments, UNTREATED), asked=None))
        return self.dbn_

    def _solved(self, moments: Moments, treatment: Treatment, evidence: float | None = None) -> ConsensusFit:
        asked = AskedMoments(moments, treatment, evidence, n_rows=moments.n)
        return fit_of_moments(self._settings, self._variables, self._constraints(), asked)


class FDBNL(PooledEstimator[FDBNLSettings]):
    """Federated dynamic Bayesian network learning [fdbnl].

        min_{W, A}  sum_k w_k loss_k(W, A) + lambda_w |W|_1 + lambda_a |A|_1   subject to   W acyclic

    The losses need the rows through their second moments only, so one sum of these over the sites has all of the problem
    in it, and the server solves it. With ``weighting="samples"`` (w_k = n_k / n) it is exactly pooled DYNOTEARS at the same
    lambdas, for any split of the rows.

    Attributes
    ----------
    W_, A_, dbn_
        The network: (d, d), (p, d, d), `DBN`; W_raw_ and A_raw_ are the penalised weights before any threshold.
    dbns_
        With ``Prepare(on_disagreement="personal")``: site name -> the common network, or that of a site that does not fit,
        learned from its rows alone. Only a fit in this process can fill it.
    n_rounds_, status_, history_, objective_
        How the fit went: the number of sums, how it ended, and with "gram" the server's steps.
    certificate_
        How far `objective_` can be above the global minimum: "exact", or a `lower_bound` and a `gap`
        (`core.penalised.optimum.Certificate`); None if no order was searched.
    n_samples_
        Usable rows over all sites.
    center_, scale_
        What was taken off, and what penalties acted on.
    selected_, selection_
        What "auto" chose, and the held-out losses it chose from.
    alone_
        As in `OneShotDBN`.
    residuals_
        What residuals say about the model (`results.remarks.ResidualSummary`); None if they were not looked at.
    findings_
        What a person should know about this fit.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> model = feddbn.FDBNL().fit(data.sites)
    >>> model.status_.is_converged, str(model.certificate_), model.n_rounds_
    (True, 'exact', 4)
    >>> feddbn.score(data.truth, model.dbn_)["W"]["shd"]
    0
    """

    @takes(FDBNLSettings)
    def __init__(self) -> None: ...

    @property
    def _steps_are_sums(self) -> bool:
        return self._settings.schedule != "gram"

    def _why_not_moments(self) -> ParameterError | None:
        settings = self._settings
        if settings.schedule == "gram" and settings.weighting == "samples":
            return None
        return ParameterError(
            f"FDBNL with schedule={settings.schedule!r} and weighting={settings.weighting!r} does not learn from summed "
            "moments alone; use schedule='gram' and weighting='samples'.",
            code="cannot-update",
        )

    def _program(self, federation: Federation) -> ServerProgram[ConsensusFit]:
        return fdbnl_program(
            self._settings,
            self._variables,
            self._constraints(),
            len(federation.sites),
            self._rows_on(federation),
        )
