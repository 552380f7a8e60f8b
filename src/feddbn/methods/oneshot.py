"""The recommended method: one exact sum of second moments, then a search over orders at the server."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.constraints import Edge
from feddbn.core.graphs.status import Status
from feddbn.core.orders.criterion import Criterion
from feddbn.core.orders.learn import LearnOptions, PathPoint, UnitsCheck, refit
from feddbn.core.statistics.moments import Moments
from feddbn.core.threads import one_thread
from feddbn.data import SiteData
from feddbn.errors import DataError, ParameterError, UnitsWarning
from feddbn.federation.programs.lagged_posterior import (
    LaggedOptions,
    feature_candidates,
    lagged_posterior_program,
)
from feddbn.federation.programs.oneshot import (
    NonGaussianReport,
    OneShotOptions,
    OneShotOutcome,
    learn_from_moments,
    oneshot_program,
)
from feddbn.federation.programs.treatment import Wishes
from feddbn.federation.protocol.task import Federation, Observer
from feddbn.methods.base import DBNEstimator, label_column
from feddbn.methods.edge_ranking import FEATURES, SMOOTHING, lagged_edge_table, selection_table
from feddbn.methods.parameters import (
    Rule,
    a_federation,
    edges,
    flag,
    nothing,
    number,
    refuses_renamed,
    text,
    whole,
    word,
)
from feddbn.methods.treated import TREATMENT_RULES, wishes_of
from feddbn.model.dbn import DBN

__all__ = ["OneShotDBN"]

_ORIENTATION = ["source", "target", "score_difference", "oriented"]
_DEFAULT_PENALTY = {"bic": (2.0, 0.0), "ebic": (1.0, 0.5)}


class OneShotDBN(DBNEstimator):
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
        some directions open; "auto" takes "free" if both BIC and Bartlett's statistic of the residuals are for it.
    criterion
        "bic": ``penalty log(n)`` per edge. "ebic": ``penalty log(n)`` per edge plus the log of the number of
        networks of that size, which adapts to the density.
    penalty
        Multiplier of log(n); by default 2 for "bic" and 1 for "ebic". With 1, BIC adds wrong edges, because
        it does not charge for choosing among many candidates.
    average
        Average over orders and parent sets and take the edges with probability above one half, instead of
        the single best network. "auto": with equal noise variances, or below 200 rows, up to 40 variables,
        unless a `penalty` or "ebic" is asked for, which only the single best network obeys.
        False: probabilities are given the order found, which is faster.
    n_restarts
        How often the search shakes its best order and tries again.
    use_nongaussian
        Use the shape of noise that is not Gaussian, by sums of nonlinear functions of the residuals: with free
        variances to direct what second moments leave open, with equal variances to review every edge. "auto":
        only if the residuals are clearly not Gaussian. That is tested by one more sum; with free variances if
        something is open, with equal ones if skewness and kurtosis of the variables, which come with the
        moments, give reason to.
    features
        "linear", "quadratic", "spline", a function ``(n, d) -> (n, d, m)`` of standardised values, or "auto".
        Other maps than "linear", `smoothing` and `center_by` give a model of lagged effects only, averaged
        over at most two regulators per variable and the variable's own past: W_ is 0, A_ holds the linear
        part of edges above one half. See `LaggedEdgeRanker`, which has more settings.
    smoothing
        Weight in (0, 1] of the newest value in the regulators' causal moving average, None, or "auto". "auto"
        here and in `features` takes the candidate with the largest marginal likelihood.
    center_by
        Label column of a stimulus: rows labelled 0, False or empty share one mean, rows with another label
        have a mean per recording and label, rows without a label are left out; or "recording": a mean per
        recording.
    forbidden_edges, required_edges
        ``(from, to, lag)``; names or positions; ``"*"`` stands for every variable.
    center
        "none": one intercept per variable. "recording": every recording has its own mean. "auto": its own if the evidence
        is for it (`center_`, `warnings_`), from the same sum.
    scale
        "none", or "federated" to search on variables scaled to unit variance. Weights are in the original units.
    random_state
        Seed of restarts and averaging.
    federation
        Where the sums are carried out; by default in this process.

    Attributes
    ----------
    W_, A_
        (d, d) and (p, d, d) least-squares weights of the network, [from, to].
    W_raw_, A_raw_
        The same: nothing is shrunk or thresholded here.
    dbn_
        The network with intercepts and noise variances.
    order_
        The variables, causes first.
    n_lags_, lag_scores_
        Number of lags, and the score of each number tried (None unless "auto").
    noise_variance_, reason_
        "equal" or "free", and why.
    center_
        "none" or "recording": which means were taken off.
    orientation_
        DataFrame source, target, score_difference, oriented: how much worse the best network with that edge's
        ends exchanged scores. 0 means that the data cannot tell.
    edge_probabilities_
        DataFrame source, target, lag, weight, probability, most probable first; over orders up to 40
        variables, else given the order found. `weight` is that of the network, 0 without the edge. The
        probabilities rest on second moments only, also where the noise's shape decided about the network.
    units_
        Evidence on the units (equal variances only, else None); a `UnitsWarning` is given if edges change.
    nongaussian_
        What the noise decided, or None if it was not asked.
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
    """

    selection_: pd.DataFrame | None
    lambda_path_: pd.DataFrame | None
    units_: UnitsCheck | None
    nongaussian_: NonGaussianReport | None

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
        "smoothing": SMOOTHING,
        "center_by": text("the name of a column", "'recording'") | nothing(),
        "forbidden_edges": edges(),
        "required_edges": edges(),
        "center": word("auto", "none", "recording"),
        **TREATMENT_RULES,
        "scale": word("none", "federated"),
        "random_state": whole(0) | nothing(),
        "federation": a_federation(),
    }

    @refuses_renamed
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
        features: str | Callable[[FloatArray], FloatArray] = "linear",
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
        scale: str = "none",
        random_state: int | None = 0,
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
        self.scale = scale
        self.random_state = random_state
        self.federation = federation

    @property
    def _largest_lag(self) -> int:
        return self._options().n_lags

    def check_parameters(self) -> None:
        """Refuse arguments that cannot be, alone or together."""
        super().check_parameters()
        if not self._has_features:
            return
        if isinstance(self.n_lags, str) or self.n_lags < 1:
            raise ParameterError(
                f"features, smoothing and center_by need n_lags of at least 1, got {self.n_lags!r}."
            )
        if self.required_edges or self.search != "order":
            raise ParameterError(
                "features, smoothing and center_by go with neither required_edges nor search='dynotears'."
            )

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        options = self._options()
        if self._has_features:
            self._fit_features(federation, observer)
            return
        tasks = federation.answered_tasks
        if tasks is not None and "residual-features" not in tasks:
            # Under differential privacy every further sum, or matrix, would cost what the first one has left.
            shaped = options.use_nongaussian if self.use_nongaussian != "auto" else False
            options = replace(options, use_nongaussian=shaped)
        options = replace(options, wishes=wishes_of(self, federation))
        rng = np.random.default_rng(self.random_state)
        program = oneshot_program(self._variables, self._constraints(), options, rng)
        outcome, _ = self._run(program, federation, observer)
        self._report(outcome)

    def fit_moments(self, moments: Moments, variables: Sequence[str]) -> DBN:
        """Learn from the summed moments of lagged rows alone, set the same attributes, return the network.

        What needs further sums (directions by non-Gaussian noise) is left out.
        """
        self._begin()
        if self._has_features:
            raise ParameterError(
                "fit_moments needs the moments of a linear model; features, smoothing and center_by have others."
            )
        self._set_variables(tuple(str(name) for name in variables))
        options, constraints = self._options(), self._constraints()
        if moments.q != len(constraints.allowed):
            raise ParameterError(
                f"moments have {moments.q} columns; {len(self._variables)} variables and n_lags={options.n_lags} "
                f"need {len(constraints.allowed)}."
            )
        rng = np.random.default_rng(self.random_state)
        with one_thread():
            self._report(learn_from_moments(moments, self._variables, constraints, options, rng))
        return self.dbn_

    @property
    def _has_features(self) -> bool:
        linear = isinstance(self.features, str) and self.features == "linear"
        return not linear or self.smoothing is not None or self.center_by is not None

    def _label_column(self, label: str | None) -> str | None:
        return label_column(self.center_by, label)

    def _fit_features(self, federation: Federation, observer: Observer | None) -> None:
        """Lagged effects through feature maps: the average over parent sets is the model."""
        names, d = self._variables, len(self._variables)
        if d < 2:
            raise DataError(f"edges need at least 2 variables, got {d}.")
        allowed = self._constraints().allowed[d:]
        options = LaggedOptions(
            self.n_lags, feature_candidates(self.features, self.smoothing, d), self.center_by
        )
        result, seconds = self._run(lagged_posterior_program(names, allowed, options), federation, observer)
        probability, weight = result.posterior.probability, result.weights()
        present = (probability > 0.5) & allowed
        A = np.where(present, weight, 0.0).reshape(self.n_lags, d, d)
        own, variances = result.own_past(present)
        A[:, np.arange(d), np.arange(d)] = own
        dbn = DBN(np.zeros((d, d)), A, names, np.zeros(d), variances)
        self._set_network(dbn, dbn)
        self.status_ = Status.EXACT
        self.n_lags_, self.lag_scores_, self.lambda_path_ = self.n_lags, None, None
        self.order_ = list(names)
        self.noise_variance_, self.reason_ = "free", result.reason
        self.orientation_ = pd.DataFrame(columns=_ORIENTATION)
        self.features_, self.smoothing_ = result.chosen.candidate.features, result.chosen.candidate.smoothing
        self.selection_ = selection_table(result)
        self.edge_probabilities_ = lagged_edge_table(probability, weight, names, allowed)
        self.units_ = self.nongaussian_ = None
        self.score_ = -2 * result.posterior.log_marginal_likelihood
        self.n_rounds_, self.n_samples_ = len(seconds), round(result.chosen.n)

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
        return OneShotOptions(n_lags, is_auto, Wishes(), scale, use_nongaussian, learn)

    def _penalties(self) -> tuple[float, ...] | None:
        if self.search == "order":
            return None
        return () if isinstance(self.l1_penalty, str) else (float(self.l1_penalty),)

    def _report(self, outcome: OneShotOutcome) -> None:
        learned, names, d = outcome.learned, self._variables, len(self._variables)
        C, intercept, variances = refit(outcome.moments, learned.support)
        self.n_lags_ = outcome.n_lags
        self.lag_scores_ = None if outcome.lag_scores is None else outcome.lag_scores.tolist()
        if learned.noise.kind == "equal" and self.scale == "none":
            variances = np.full(d, float(variances.mean()))
        dbn = DBN(C[:d], C[d:].reshape(outcome.n_lags, d, d), names, intercept, variances)
        self._set_network(dbn, dbn)
        self.status_ = Status.EXACT
        self.order_ = [names[j] for j in learned.order]
        self.noise_variance_, self.reason_ = learned.noise.kind, learned.noise.reason
        self.orientation_ = pd.DataFrame(
            [(names[e.source], names[e.target], e.score_difference, e.oriented) for e in learned.orientation],
            columns=_ORIENTATION,
        )
        self.edge_probabilities_ = _edge_table(learned.posterior.probability, C, names)
        self.features_, self.smoothing_, self.selection_ = "linear", 1.0, None
        self.lambda_path_ = _path_table(learned.path) if learned.path else None
        self.units_, self.nongaussian_, self.score_ = learned.units, outcome.nongaussian, learned.score
        self.n_rounds_, self.n_samples_ = outcome.n_sums, int(outcome.moments.n)
        self._say_treatment(outcome.asked)
        self._say_dependent(outcome.dependent)
        units = learned.units
        if units is not None and units.n_changed + units.n_open and self.scale == "none":
            sentence = (
                f"this network rests on equal noise variances in the units given: {units.n_changed} entries "
                f"change when the variables are scaled to unit variance, and {units.n_open} other edges have "
                f"a direction only because of the units (varsortability {units.varsortability:.2f}); "
                "use noise_variance='free' if the units are arbitrary."
            )
            self.warnings_.append(sentence)
            warnings.warn(sentence, UnitsWarning, stacklevel=4)


def _edge_table(probability: FloatArray, C: FloatArray, names: tuple[str, ...]) -> pd.DataFrame:
    d = len(names)
    rows = [
        (names[m % d], names[j], m // d, C[m, j], probability[m, j])
        for m in range(len(C))
        for j in range(d)
        if not (m < d and m == j)
    ]
    table = pd.DataFrame(rows, columns=["source", "target", "lag", "weight", "probability"])
    return table.sort_values("probability", ascending=False, kind="stable", ignore_index=True)


def _path_table(path: Sequence[PathPoint]) -> pd.DataFrame:
    rows = [(p.penalty, p.n_present, p.n_lagged, p.score, p.converged) for p in path]
    table = pd.DataFrame(rows, columns=["lambda", "n_present", "n_lagged", "score", "converged"])
    table["chosen"] = table.index == table["score"].idxmin()
    return table
