"""FDBNL: one network for all sites, learned by consensus over sums."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.backend.device import DEVICES
from feddbn.core.fdbnl.best_order import OPTIMA
from feddbn.core.fdbnl.schedules import SCHEDULES
from feddbn.core.graphs.constraints import Edge
from feddbn.core.optimum.certified import Certificate
from feddbn.core.statistics.moments import safe_roots
from feddbn.data import SiteData
from feddbn.errors import ParameterError
from feddbn.federation.programs.fdbnl import ConsensusFit, ConsensusSettings, fdbnl_program
from feddbn.federation.programs.residual_checks import FittedNetwork, network_checks_program
from feddbn.federation.programs.statistics import SCALES, Preparation, ScaleChoice
from feddbn.federation.programs.treatment import AskedMoments
from feddbn.federation.protocol.task import Federation, Observer, ServerProgram
from feddbn.methods.base import DBNEstimator, history_frame, network
from feddbn.methods.edge_table import equivalently_directed
from feddbn.methods.residuals import ResidualSummary, are_looked_at, fitted_network
from feddbn.methods.selection import AUTO_START, auto_selection
from feddbn.methods.treated import TREATMENT_RULES
from feddbn.settings import Rule, a_federation, edges, flag, nothing, number, whole, word

__all__ = ["FDBNL"]

S = TypeVar("S", bound=ConsensusSettings)

CONSENSUS_RULES: Mapping[str, Rule] = {
    "n_lags": whole(0) | word("auto"),
    "lambda_w": number(0) | word("auto"),
    "lambda_a": number(0) | word("auto"),
    "schedule": word(*SCHEDULES),
    "weighting": word("samples", "sites"),
    "rho1": number(above=0) | nothing(),
    "rho2": number(above=0) | nothing(),
    "phi1": number(1) | nothing(),
    "phi2": number(1) | nothing(),
    "max_rounds": whole(1),
    "h_tol": number(above=0),
    "tol": number(above=0),
    "w_threshold": number(0),
    "a_threshold": number(0),
    "refit": flag(),
    "forbidden_edges": edges(),
    "required_edges": edges(),
    "center": word("auto", "none", "federated", "recording"),
    **TREATMENT_RULES,
    "scale": word(*SCALES),
    "acyclicity": word("expm", "logdet"),
    "optimum": word(*OPTIMA),
    "random_state": whole(0) | nothing(),
    "check_residuals": flag() | word("auto"),
    "device": word(*DEVICES),
    "federation": a_federation(),
}


_FAR = 1e4
"""Levels beyond so many standard deviations leave fewer than eight digits of the variation in a sum of squares."""


def schedule_named(given: Any) -> Any:
    """Return a schedule by its name of now: up to 0.2 "rounds" was called "adaptive"."""
    if given != "adaptive":
        return given
    warnings.warn(
        "schedule='adaptive' is schedule='rounds' now; the old name goes in the next version. FDBNL's default, 'gram', gives "
        "the same network from one sum.",
        DeprecationWarning,
        stacklevel=2,
    )
    return "rounds"


def settings_of(kind: type[S], estimator: Any, chosen: Mapping[str, Any]) -> S:
    """Return the settings of a program: what was chosen for a parameter, else what the estimator was given."""
    # What an estimator has no word for is left to the program.
    names = [name for name in kind.__dataclass_fields__ if name in chosen or hasattr(estimator, name)]
    values = {name: chosen.get(name, getattr(estimator, name)) for name in names}
    # Numpy's numbers do not travel in tasks.
    values = {
        name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()
    }
    values["schedule"] = schedule_named(values["schedule"])
    for name in AUTO_START:
        if values.get(name) == "auto":
            raise ParameterError(f"{name}='auto' is chosen by fit, on held-out rows; give a number here.")
    return kind(**values)


def still_open(estimator: Any) -> dict[str, Any]:
    """Return an ordinary value for every parameter that is to be chosen."""
    given = estimator.get_params()
    return {name: value for name, value in AUTO_START.items() if given.get(name) == "auto"}


def looks_by_default(estimator: Any) -> bool:
    """Whether residuals are looked at unasked: not with the paper's schedule, nor for rows that are used as they are."""
    return bool(estimator.schedule != "paper" and not estimator._rows.is_settled)


def network_of_fit(estimator: Any, preparation: Preparation, asked: AskedMoments | None) -> FittedNetwork:
    """The network of a fitted estimator, for a look at its residuals."""
    return fitted_network(
        estimator.dbn_,
        estimator._constraints(),
        estimator._inputs,
        preparation.center_rule,
        preparation.treatment,
        asked,
    )


def say_scale(estimator: Any, scale: ScaleChoice | None) -> None:
    """Set `scale_`, and say so where the evidence was for scaled variables."""
    estimator.scale_ = str(estimator.scale) if scale is None else scale.rule
    sentence = None if scale is None else scale.sentence(estimator._variables)
    if sentence is not None:
        estimator._tell(sentence)


def _cause(preparation: Preparation, variables: Sequence[str]) -> str:
    """Why a fit may not have ended: levels so large that products of rows no longer show the variation."""
    if preparation.center_rule != "none":
        return ""
    summary, d = preparation.summary, len(variables)
    size = np.abs(summary.mean[:d]) / safe_roots(summary.variance[:d])
    worst = int(np.argmax(size))
    if not size[worst] > _FAR:
        return ""
    return (
        f": the mean of {variables[worst]} is {size[worst]:.2g} times its standard deviation, too much for sums of products; "
        "choose center='auto' or 'federated'"
    )


class ConsensusEstimator(DBNEstimator[Any]):
    """Arguments and results shared by FDBNL and Dynotears: both solve the same problem."""

    rules: ClassVar[Mapping[str, Rule]] = CONSENSUS_RULES
    is_selectable = True
    residuals_: ResidualSummary | None
    certificate_: Certificate | None

    def __init__(
        self,
        n_lags: int | str = 1,
        lambda_w: float | str = 0.05,
        lambda_a: float | str = 0.05,
        *,
        schedule: str = "gram",
        weighting: str = "samples",
        rho1: float | None = None,
        rho2: float | None = None,
        phi1: float | None = None,
        phi2: float | None = None,
        max_rounds: int = 1000,
        h_tol: float = 1e-8,
        tol: float = 1e-6,
        w_threshold: float = 0.2,
        a_threshold: float = 0.2,
        refit: bool = True,
        forbidden_edges: Iterable[Edge] | None = None,
        required_edges: Iterable[Edge] | None = None,
        center: str = "auto",
        detrend: int | str = "auto",
        period: float | Sequence[float] | str | None = "auto",
        gains: str = "auto",
        spikes: str = "auto",
        missing: str = "fill",
        on_disagreement: str = "exclude",
        exogenous: Sequence[str] | None = None,
        scale: str = "auto",
        acyclicity: str = "expm",
        optimum: str = "order",
        random_state: int | None = 0,
        check_residuals: bool | str = "auto",
        device: str = "cpu",
        federation: Federation | None = None,
    ) -> None:
        self.n_lags = n_lags
        self.lambda_w = lambda_w
        self.lambda_a = lambda_a
        self.schedule = schedule
        self.weighting = weighting
        self.rho1 = rho1
        self.rho2 = rho2
        self.phi1 = phi1
        self.phi2 = phi2
        self.max_rounds = max_rounds
        self.h_tol = h_tol
        self.tol = tol
        self.w_threshold = w_threshold
        self.a_threshold = a_threshold
        self.refit = refit
        self.forbidden_edges = forbidden_edges
        self.required_edges = required_edges
        self.center = center
        self.detrend = detrend
        self.period = period
        self.gains = gains
        self.spikes = spikes
        self.missing = missing
        self.on_disagreement = on_disagreement
        self.exogenous = exogenous
        self.scale = scale
        self.acyclicity = acyclicity
        self.optimum = optimum
        self.random_state = random_state
        self.check_residuals = check_residuals
        self.device = device
        self.federation = federation

    def check_parameters(self) -> None:
        """Refuse arguments that cannot be, alone or together."""
        if self.schedule != "adaptive":
            super().check_parameters()
        settings_of(ConsensusSettings, self, still_open(self))

    def _settings(self) -> ConsensusSettings:
        return settings_of(ConsensusSettings, self, self._selected)

    def _program(self, federation: Federation) -> ServerProgram[ConsensusFit]:
        """Yield the tasks of one fit."""
        wishes = self._rows_on(federation)
        return fdbnl_program(
            self._settings(), self._variables, self._constraints(), len(federation.sites), wishes
        )

    def _candidate(
        self, federation: Federation, run_number: int
    ) -> ServerProgram[tuple[FloatArray | None, Preparation]]:
        fit = yield from self._program(federation)
        return fit.run.graph(), fit.preparation

    def _set_fit(self, fit: ConsensusFit, seconds: Sequence[float] = ()) -> None:
        run, variables = fit.run, self._variables
        assert run.status is not None
        assert run.C_raw is not None
        raw = network(run.C_raw, fit.preparation, variables)
        final = network(run.graph(), fit.preparation, variables, run.target_loss, fit.total_weight)
        if fit.scale is not None and fit.scale.rule == "federated":
            final = equivalently_directed(final, self._constraints())
        self._set_network(final, raw)
        self.residuals_ = None
        self.objective_ = run.raw_objective
        self.certificate_ = run.certificate
        # Where the server makes the steps, a fit has as many rounds as it took sums.
        is_here = self._settings().schedule == "gram"
        self.n_rounds_ = len(seconds) if is_here else run.round
        self.status_ = run.status
        self.history_ = history_frame(run.history, () if is_here else seconds)
        self._say_moments(fit.asked)
        self.center_ = fit.preparation.center_rule
        say_scale(self, fit.scale)
        self.standard_deviations_ = safe_roots(fit.preparation.summary.variance[: len(variables)])
        self.n_samples_ = round(fit.preparation.summary.n)
        self.dropped_edges_ = [(variables[i], variables[j], weight) for i, j, weight in run.dropped]
        if run.dropped:
            self._tell(f"{len(run.dropped)} contemporaneous edges were dropped to break cycles.")
        if not run.status.is_converged:
            self._tell(f"the fit {run.status.message}{_cause(fit.preparation, variables)}.")

    def _look(self, fit: ConsensusFit, federation: Federation, observer: Observer | None) -> None:
        """Say what residuals near the network tell, if they are looked at."""
        moments = None if fit.asked is None else fit.asked.moments
        if not are_looked_at(self.check_residuals, federation, by_default=looks_by_default(self)):
            self._say_hidden(moments, None)
            return
        network = network_of_fit(self, fit.preparation, fit.asked)
        report, seconds = self._run(network_checks_program(network), federation, observer)
        if self._settings().schedule == "gram":
            self.n_rounds_ += len(seconds)
        self._say_residuals(report)
        self._say_hidden(moments, None if report is None else report.doubts)


class FDBNL(ConsensusEstimator):
    """Federated dynamic Bayesian network learning [fdbnl].

        min_{W, A}  sum_k w_k loss_k(W, A) + lambda_w |W|_1 + lambda_a |A|_1   subject to   W acyclic

    The losses need the rows through their second moments only, so one sum of these over the sites has all of the problem
    in it, and the server solves it. With ``weighting="samples"`` (w_k = n_k / n) it is exactly pooled DYNOTEARS at the same
    lambdas, for any split of the rows.

    Parameters
    ----------
    n_lags
        Number of lags p; 0 learns a static network (NOTEARS-ADMM); "auto" chooses by held-out loss.
    lambda_w, lambda_a
        L1 penalties of contemporaneous and lagged edges; "auto" chooses by held-out loss (see `feddbn.select`).
    schedule
        "gram": the server solves the problem on the summed second moments. "rounds": the same network by some 60 to 130 sums
        of gradients, for sites that must not send second moments in one piece (give center, scale and the others by name, or
        the first sums ask for them, too). "paper": Algorithm 1 of the paper, message by message. What a site's plain messages
        tell is the same in the end: those of a few rounds determine its second moments.
    weighting
        "samples" weighs sites by their rows, "sites" equally as in the paper (there lambda acts as lambda / K).
    rho1, rho2, phi1, phi2
        Replace the schedule's penalties and their growth; rho2 and phi2 belong to the paper's schedule.
    max_rounds, h_tol, tol
        Limits: number of rounds (with "gram" of the server's steps), acyclicity, residuals.
    w_threshold, a_threshold
        Smaller weights are not edges.
    refit
        Refit the chosen edges without penalty before thresholding; False is the paper's rule.
    forbidden_edges, required_edges
        Lists of (from, to, lag); names or positions; "*" is every variable.
    exogenous
        Names of known inputs: steps, pulses or any other signal. They only act on others: no edge leads into them, at no lag,
        and nothing is decided by what they look like (docs/preparing-data.md).
    center
        "auto", "none", "federated" (on the means of all sites) or "recording" (each on its own).
    detrend, period, gains, spikes, missing, on_disagreement
        What else is done to the rows first, by default what the evidence asks for (`treatment_`, `warnings_`); see
        `methods.treated` and docs/preparing-data.md.
    scale
        What penalties and thresholds act on; weights are reported in the units of the data either way. "federated":
        variables scaled to unit variance; "none": the units of the data, as in the paper, where equal noise variances
        tell directions; "auto": "federated" if the first sum shows that noise differs clearly, whatever the network is,
        so that one penalty cannot serve all variables (`scale_`, `warnings_`). On scaled variables, directions within
        a moment that second moments leave open are `dbn_.open_edges`.
    acyclicity
        "expm" or "logdet".
    optimum
        The problem has many local optima. "order": after the path, the best order of the variables that a search on
        the summed gradients finds, proven to be the global optimum for about a dozen variables (`certificate_`); "exact": the
        same with up to 50 times the work, for some twenty; "path": where the path ends. The search needs no sums. Of more
        than 200 variables "order" takes the order that OneShotDBN finds on the same sums, and follows no path. The paper's
        schedule has its path only.
    check_residuals
        Ask for one more sum, which tells whether residuals contradict the model (`residuals_`, `warnings_`); the network
        stays as it is. They are those of the network near this one that the evidence prefers, so what thresholds leave out
        is no violation. "auto": not under differential privacy, not with the paper's schedule, and not for rows that are used
        as they are (`methods.treated.AS_THEY_ARE`).
    device
        Who multiplies large matrices: "cpu" is numpy, with the same bits on every machine; "auto" a GPU where torch finds one
        (``feddbn[gpu]``), else numpy; "cuda" a GPU, or an error. Small problems stay with numpy (docs/performance.md).
    federation
        Where the sums are made; None simulates the sites in this process.

    Attributes
    ----------
    W_, A_, dbn_
        The network: (d, d), (p, d, d), `DBN`; W_raw_ and A_raw_ are the penalised weights before any threshold.
    dbns_
        With ``on_disagreement="personal"``: site name -> the common network, or that of a site that does not fit, learned
        from its rows alone. Only a fit in this process can fill it.
    n_rounds_, status_, history_, objective_
        How the fit went. With "gram" `n_rounds_` is the number of sums and `history_` has the server's steps.
    certificate_
        How far `objective_` can be above the global minimum: "exact", or a `lower_bound` and a `gap`
        (`core.optimum.certified.Certificate`); None if no order was searched.
    n_samples_
        Usable rows over all sites.
    center_, scale_
        What was taken off, and what penalties acted on.
    selected_, selection_
        What "auto" chose, and the held-out losses it chose from.
    residuals_
        What residuals say about the model (`methods.residuals.ResidualSummary`); None if they were not looked at.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> model = feddbn.FDBNL().fit(data.sites)
    >>> model.status_.is_converged, str(model.certificate_)
    (True, 'exact')
    >>> feddbn.score(data.truth, model.dbn_)["W"]["shd"]
    0
    """

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        self._choose(*auto_selection(self, federation, observer))
        fit, seconds = self._run(self._program(federation), federation, observer)
        self._set_fit(fit, seconds)
        self._look(fit, federation, observer)
