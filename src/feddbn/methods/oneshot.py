"""The recommended method: one exact sum of second moments, then a search over orders at the server.

Long because the class explains every argument and attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.backend.device import DEVICES, one_thread
from feddbn.core.graphs.constraints import Edge
from feddbn.core.orders.learn import LearnOptions, UnitsCheck
from feddbn.core.orders.search import Criterion
from feddbn.core.statistics.moments import Moments
from feddbn.data import SiteData
from feddbn.errors import ParameterError
from feddbn.federation.programs.curved import CurvedMoments
from feddbn.federation.programs.oneshot import NonGaussianReport, OneShotOptions
from feddbn.federation.programs.prepare import AS_THEY_ARE
from feddbn.federation.programs.tally import Tally
from feddbn.federation.programs.treatment import AskedMoments
from feddbn.federation.protocol.task import Federation, Observer, ServerProgram, run_program
from feddbn.methods.base import label_column
from feddbn.methods.edge_ranking import FEATURES, SMOOTHING
from feddbn.methods.oneshot_features import fit_features
from feddbn.methods.oneshot_program import Fit, fit_of_moments, fit_program, may_find_curves
from feddbn.methods.oneshot_report import report_outcome
from feddbn.methods.residuals import ResidualSummary
from feddbn.methods.treated import TREATMENT_RULES
from feddbn.methods.updating import UpdatedEstimator
from feddbn.model.dbn import DBN
from feddbn.settings import (
    Rule,
    a_federation,
    edges,
    flag,
    nothing,
    number,
    text,
    whole,
    word,
)

__all__ = ["OneShotDBN"]

_DEFAULT_PENALTY = {"bic": (2.0, 0.0), "ebic": (1.0, 0.5)}


class OneShotDBN(UpdatedEstimator):
    """A dynamic Bayesian network from one sum of lagged second moments, exactly as from pooled data.

    minimise over networks    n d log(sum_j RSS_j / (n d)) + penalty    (equal noise variances)
                              sum_j n log(RSS_j / n) + penalty          (free noise variances)

    Parameters
    ----------
    n_lags
        Number of lags, or "auto": the number up to `max_lags` with the lowest score, from the same sum.
    max_lags
        Largest number considered by ``n_lags="auto"``.
    search
        "order": search over orders of the variables. "dynotears": DYNOTEARS on the same sum, at `l1_penalty`,
        its edges refitted without penalty.
    l1_penalty
        L1 penalty of ``search="dynotears"``, or "path": a falling grid from the data, of which BIC picks one
        (`lambda_path_`). No penalty more costs a sum.
    noise_variance
        "equal" reads the order off the scales and so depends on the units; "free" does not depend on them but leaves
        some directions open; "auto" takes "free" if BIC is for it, clearly so where Bartlett's test of the residuals is not.
    criterion
        "bic": ``penalty log(n)`` per edge. "ebic": ``penalty log(n)`` per edge plus the log of the number of
        networks of that size, which adapts to the density.
    penalty
        Multiplier of log(n); by default 2 for "bic" and 1 for "ebic". With 1, BIC adds wrong edges, because
        it does not charge for choosing among many candidates.
    average
        Average over orders and parent sets and take the edges with probability above one half, instead of the single
        best network. "auto": with equal noise variances, or below 200 rows, up to 40 variables, unless a `penalty` or
        "ebic" is asked for, which only the single best network obeys.
        False: probabilities given the order found, which is faster.
    n_restarts
        How often the search shakes its best order and tries again.
    use_nongaussian
        Use the shape of noise that is not Gaussian, by sums of nonlinear functions of the residuals: with free
        variances to direct what second moments leave open, with equal variances to review every edge. "auto":
        only if the residuals are clearly not Gaussian. That is tested by one more sum; with free variances if
        something is open, with equal ones if skewness and kurtosis of the variables, which come with the
        moments, give reason to.
    features
        "linear": every effect is a straight line. "spline", "quadratic" or a function ``(n, d) -> (n, d, m)`` of standardised
        values: effects, within a moment and lagged, are a line and a curve of that kind where the evidence is for it, edge by
        edge (docs/nonlinear.md). "auto": straight lines, and splines if the residuals show curvature and the evidence is
        clearly for it; under differential privacy, and of more than 200 variables, straight lines.
    interactions
        Whether pairs of variables may act together at a lag (products; with `features` other than "linear"). Of more than 40
        variables only causes of the same target in a linear network.
    smoothing
        Weight in (0, 1] of the newest value in the regulators' causal moving average, None, or "auto". It and `center_by`
        give a model of lagged effects only, averaged over at most two regulators per variable and the variable's own past:
        W_ is 0, A_ holds the linear part of edges above one half. "auto", also of `features`, then takes the candidate with
        the largest marginal likelihood. See `LaggedEdgeRanker`, which has more settings.
    center_by
        Label column of a stimulus: rows labelled 0, False or empty share one mean, rows with another label
        have a mean per recording and label, rows without a label are left out; or "recording": a mean per
        recording.
    forbidden_edges, required_edges
        ``(from, to, lag)``; names or positions; ``"*"`` stands for every variable.
    exogenous
        Names of known inputs: steps, pulses or any other signal, which only act on others (docs/preparing-data.md).
    center
        "none": one intercept per variable; "recording": one for each; "auto": that if the evidence is for it (`center_`).
    scale
        "none", or "federated" to search on variables scaled to unit variance. Weights are in the original units.
    random_state
        Seed of restarts and averaging.
    check_residuals
        Ask for one more sum, which tells whether residuals contradict the model, and act on it (docs/oneshot.md). "auto":
        not under differential privacy.
    device
        Who multiplies the rows of sites in this process, as in `FDBNL`.
    federation
        Where the sums are carried out; by default in this process.

    Attributes
    ----------
    W_, A_
        (d, d) and (p, d, d) least-squares weights of the network, [from, to].
    W_raw_, A_raw_
        The same: nothing is shrunk or thresholded here.
    dbn_
        The network with intercepts, noise variances and which directions are open.
    order_
        The variables, causes first.
    n_lags_, lag_scores_
        Number of lags, and the score of each number tried (None unless "auto").
    noise_variance_, reason_
        "equal" or "free", and why.
    center_, treatment_, site_notes_
        "none" or "recording": which means were taken off; all that was done to the rows and why; what sites of this
        process found about themselves.
    dbns_
        As in `FDBNL`, with ``on_disagreement="personal"``.
    orientation_
        DataFrame source, target, score_difference, oriented: how much worse the best network with that edge's ends
        exchanged scores. 0 means that the data cannot tell.
    edge_probabilities_
        DataFrame source, target, lag, weight, probability, strength, presence, direction, oriented; over orders up to 40
        variables, else given the order found. `weight` is 0 without the edge; `strength` (not with features) is the share of
        the target's variance that the source explains over all lags. Edges above one half by strength, then the others by
        probability. Within a moment `presence` is the probability of a link either way (by second moments only),
        `direction` that it is this way given the link, `oriented` False where the data do not settle that.
    units_
        Evidence on the units (equal variances only, else None); a `UnitsWarning` is given if edges change.
    nongaussian_
        What the noise decided, or None if it was not asked.
    residuals_
        What the residuals say about the assumptions (`methods.residuals.ResidualSummary`), or None if they were not asked.
    lambda_path_
        DataFrame lambda, n_present, n_lagged, score, converged, chosen (``search="dynotears"``, else None).
    features_, smoothing_, selection_
        The feature map and smoothing used, and a DataFrame of all candidates (None for linear models).
    score_
        Criterion of the network; with features minus twice the log marginal likelihood.
    n_rounds_
        Number of sums.
    n_samples_
        Usable rows over all sites.
    feature_names_in_, n_features_in_
        Variables.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> model = feddbn.OneShotDBN().fit(data.sites)
    >>> feddbn.score(data.truth, model.dbn_)["A"]["shd"]
    0
    >>> model.dbn_.forecast(data.sites["site-0"][0], steps=2).mean.shape
    (2, 3)
    """

    selection_: pd.DataFrame | None
    lambda_path_: pd.DataFrame | None
    units_: UnitsCheck | None
    nongaussian_: NonGaussianReport | None
    residuals_: ResidualSummary | None

    rules: ClassVar[Mapping[str, Rule]] = {
        "n_lags": whole(0) | word("auto"),
        "max_lags": whole(0),
        "search": word("order", "dynotears"),
        "l1_penalty": number(0) | word("path"),
        "noise_variance": word("auto", "equal", "free"),
        "criterion": word(*_DEFAULT_PENALTY),
        "penalty": number(above=0) | nothing(),
        "average": flag() | word("auto"),
        "n_restarts": whole(0),
        "use_nongaussian": flag() | word("auto"),
        "features": FEATURES,
        "interactions": flag(),
        "smoothing": SMOOTHING,
        "center_by": text("the name of a column", "'recording'") | nothing(),
        "forbidden_edges": edges(),
        "required_edges": edges(),
        "center": word("auto", "none", "recording"),
        **TREATMENT_RULES,
        "scale": word("none", "federated"),
        "random_state": whole(0) | nothing(),
        "check_residuals": flag() | word("auto"),
        "device": word(*DEVICES),
        "federation": a_federation(),
    }

    def __init__(
        self,
        n_lags: int | str = 1,
        *,
        max_lags: int = 3,
        search: str = "order",
        l1_penalty: float | str = "path",
        noise_variance: str = "auto",
        criterion: str = "bic",
        penalty: float | None = None,
        average: bool | str = "auto",
        n_restarts: int = 2,
        use_nongaussian: bool | str = "auto",
        features: str | Callable[[FloatArray], FloatArray] = "auto",
        interactions: bool = False,
        smoothing: float | str | None = None,
        center_by: str | None = None,
        forbidden_edges: Sequence[Edge] | None = None,
        required_edges: Sequence[Edge] | None = None,
        center: str = "auto",
        detrend: int | str = "auto",
        period: float | Sequence[float] | str | None = "auto",
        gains: str = "auto",
        spikes: str = "auto",
        missing: str = "fill",
        on_disagreement: str = "exclude",
        exogenous: Sequence[str] | None = None,
        scale: str = "none",
        random_state: int | None = 0,
        check_residuals: bool | str = "auto",
        device: str = "cpu",
        federation: Federation | None = None,
    ) -> None:
        self.n_lags = n_lags
        self.max_lags = max_lags
        self.search = search
        self.l1_penalty = l1_penalty
        self.noise_variance = noise_variance
        self.criterion = criterion
        self.penalty = penalty
        self.average = average
        self.n_restarts = n_restarts
        self.use_nongaussian = use_nongaussian
        self.features = features
        self.interactions = interactions
        self.smoothing = smoothing
        self.center_by = center_by
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
        self.random_state = random_state
        self.check_residuals = check_residuals
        self.device = device
        self.federation = federation

    @property
    def _largest_lag(self) -> int:
        return self._options().n_lags

    def check_parameters(self) -> None:
        """Refuse arguments that cannot be, alone or together."""
        super().check_parameters()
        if self._is_lagged_only:
            if isinstance(self.n_lags, str) or self.n_lags < 1:
                raise ParameterError(
                    f"smoothing and center_by need n_lags of at least 1, got {self.n_lags!r}."
                )
            if self.required_edges or self.search != "order" or self.interactions:
                raise ParameterError(
                    "smoothing and center_by go with neither required_edges, interactions nor search='dynotears'."
                )
            return
        if self.search != "order" and self._is_curved:
            raise ParameterError(
                f"features={self.features!r} needs search='order', got search={self.search!r}."
            )
        if self.interactions and self.features in ("linear", "auto"):
            raise ParameterError(
                f"interactions=True needs features='spline' or 'quadratic', got features={self.features!r}."
            )
        if self.interactions and self.n_lags == 0:
            raise ParameterError(
                "interactions=True is about lagged variables and needs n_lags of at least 1, got 0."
            )

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        self._keep_sums(None, 0, "smoothing and center_by have rows of their own; fit all rows again.")
        if self._is_lagged_only:
            fit_features(self, federation, observer)
            return
        outcome, report, curved = self._run(self._program(federation), federation, observer)[0]
        report_outcome(self, outcome, report, curved)
        why_not = "" if curved is None else "curves need more than second moments; fit all rows again."
        if report is not None and (report.noise_memory is not None or report.n_lags_added):
            why_not = "noise with a memory, or a lag more, was found by more than second moments; fit all rows again."
        self._keep_sums(outcome.asked, self._options().n_lags, why_not)

    def _fit_tally(self, tally: Tally) -> None:
        given = (self._variables, self._constraints(), self._options())
        outcome = fit_of_moments(self, tally.moments, *given)[0]
        # What is done to the rows was decided by the first fit.
        asked = AskedMoments(tally.moments, tally.treatment, evidence=0.0, n_rows=tally.moments.n)
        report_outcome(self, replace(outcome, asked=asked))

    def _program(self, federation: Federation) -> ServerProgram[Fit]:
        return fit_program(self, federation, self._variables, self._constraints(), self._options())

    def curves_on(self, federation: Federation) -> Fit | None:
        """Return what a fit on this federation learns if it may find curves, else None; this estimator stays as it is.

        Resamples are then drawn of the same rows (`edge_confidence`). The shape of the noise is left out, as in
        `fit_moments`.
        """
        learner = type(self)(**{**self.get_params(deep=False), "use_nongaussian": False})
        learner._begin()
        learner._refuse_lagged_only()
        if not may_find_curves(learner, federation):
            return None
        learner._set_variables(federation.variables)
        with one_thread():
            return run_program(learner._program(federation), federation)

    def fit_moments(self, moments: Moments | CurvedMoments, variables: Sequence[str]) -> DBN:
        """Learn from the summed moments of lagged or of curved rows alone, set the same attributes, return the network.

        What needs further sums (directions by non-Gaussian noise) is left out.
        """
        self._begin()
        self._refuse_lagged_only()
        self._set_variables(tuple(str(name) for name in variables))
        with one_thread():
            given = (self._variables, self._constraints(), self._options())
            report_outcome(self, *fit_of_moments(self, moments, *given))
        return self.dbn_

    def _refuse_lagged_only(self) -> None:
        for name in ("smoothing", "center_by"):
            if getattr(self, name) is not None:
                raise ParameterError(
                    f"{name}={getattr(self, name)!r} has rows of its own, which can be neither resampled nor learned from by "
                    "moments alone; leave it out."
                )

    @property
    def _is_lagged_only(self) -> bool:
        return self.smoothing is not None or self.center_by is not None

    @property
    def _is_curved(self) -> bool:
        """Whether curves are asked for by name."""
        return not (isinstance(self.features, str) and self.features in ("linear", "auto"))

    def _label_column(self, label: str | None) -> str | None:
        return label_column(self.center_by, label)

    def _options(self) -> OneShotOptions:
        is_auto = isinstance(self.n_lags, str)
        n_lags = int(self.max_lags if is_auto else self.n_lags)
        c, gamma = _DEFAULT_PENALTY[self.criterion]
        criterion = Criterion(c if self.penalty is None else float(self.penalty), gamma)
        default_price = self.criterion == "bic" and self.penalty is None
        # The choices have been checked, which the type checker cannot see.
        noise_variance: Any = self.noise_variance
        average: Any = self.average if default_price or self.average != "auto" else False
        scale: Any = self.scale
        use_nongaussian: Any = self.use_nongaussian
        learn = LearnOptions(noise_variance, criterion, int(self.n_restarts), average, self._penalties())
        rows = replace(AS_THEY_ARE, exogenous=self.exogenous)
        return OneShotOptions(n_lags, is_auto, rows, scale, use_nongaussian, learn)

    def _penalties(self) -> tuple[float, ...] | None:
        if self.search == "order":
            return None
        return () if isinstance(self.l1_penalty, str) else (float(self.l1_penalty),)
