"""The recommended method: one exact sum of lagged second moments, then a search over orders at the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.constraints import Edge
from feddbn.core.designs.features import callable_map, feature_map, register_feature_map
from feddbn.core.orders.learn import (
    OrderLearner,
    UnitsCheck,
    agreed,
    explained_shares,
    refit,
    with_shapes,
)
from feddbn.core.orders.parents import MANY_NODES, Criterion
from feddbn.core.statistics.diagnostics import outputs_of, slow_findings
from feddbn.core.statistics.enough import ROWS_PER_COLUMN, rows_doubt, rows_level
from feddbn.core.statistics.moments import Moments
from feddbn.core.threads import one_thread
from feddbn.data import SiteData
from feddbn.errors import Given, ParameterError, ResultWarning, UnitsWarning
from feddbn.federation.programs.alone import Alone, alone_program, is_compared
from feddbn.federation.programs.curved import (
    CurvedOutcome,
    CurveOptions,
    Fit,
    auto_program,
    curved_program,
    curves_of,
    dispersion_program,
    learn_from_curved,
    replicated,
)
from feddbn.federation.programs.functions import CurvedMoments
from feddbn.federation.programs.oneshot import (
    NonGaussianReport,
    OneShotOptions,
    OneShotOutcome,
    checked_oneshot_program,
    dependent_findings,
    learn_from_moments,
    limits_over,
    oneshot_program,
    with_discoveries,
)
from feddbn.federation.programs.residual_checks import FittedNetwork, ResidualReport
from feddbn.federation.protocol.rows import FUNCTIONS, features_of
from feddbn.federation.protocol.task import Federation, Observer, ServerProgram, run_program
from feddbn.federation.sums.prepare import AS_THEY_ARE, PreparedSettings
from feddbn.federation.sums.tally import Tally
from feddbn.federation.sums.treatment import AskedMoments
from feddbn.findings import Finding, Findings
from feddbn.methods.updating import UpdatedEstimator
from feddbn.model.dbn import DBN
from feddbn.model.nodes import Part, Term
from feddbn.results.abstention import abstention, contradictions
from feddbn.results.edge_table import (
    learned_network,
    learned_table,
    left_open,
    orientation_table,
    without_direction,
)
from feddbn.results.identities import near_identities
from feddbn.results.remarks import DISCOVERIES, are_looked_at
from feddbn.settings import Rule, edges, flag, function, nothing, number, setting, takes, text, whole, word
from feddbn.words import say

__all__ = ["OneShotDBN", "OneShotSettings"]

_OF_RESAMPLES = 0, 1
"""Seed of resamples: the same in every fit, so that what is drawn depends on the rows alone."""

_DEFAULT_PENALTY = {"bic": (2.0, 0.0), "ebic": (1.0, 0.5)}


@dataclass(frozen=True, repr=False)
class OneShotSettings(PreparedSettings):
    """What a person may choose of `OneShotDBN`."""

    n_lags: int | str = setting(
        1,
        whole(0) | word("auto"),
        'Number of lags. "auto": the number up to `max_lags` with the best score; needs no further sum.',
        kw_only=False,
    )
    max_lags: int = setting(3, whole(0), 'Largest number that ``n_lags="auto"`` tries.')
    noise_variance: str = setting(
        "auto",
        word("auto", "equal", "free"),
        '"equal": all noise variances are equal, which gives directions but depends on the units. "free": variances may '
        'differ; some directions stay open. "auto": "free" if BIC prefers it; the preference must be clear if Bartlett\'s '
        "test does not reject equal variances.",
    )
    criterion: str = setting(
        "bic",
        word("bic", "ebic"),
        'Score of a network. "bic": ``penalty log(n)`` per edge. "ebic": in addition the log of the number of networks of '
        "that size, which adapts to the density.",
    )
    penalty: float | None = setting(
        None,
        number(above=0) | nothing(),
        'Multiplier of log(n). None: 2 for "bic", 1 for "ebic". With 1, BIC adds wrong edges, because it ignores that many '
        "candidates were tried.",
    )
    n_restarts: int = setting(
        2, whole(0), "How often the search restarts from a random change of its best order."
    )
    use_nongaussian: bool | str = setting(
        "auto",
        flag() | word("auto"),
        "Use the shape of non-Gaussian noise, from sums of nonlinear functions of the residuals. With free variances this "
        'decides directions that covariances leave open; with equal variances it reviews every edge. "auto": only if '
        "residuals are clearly not Gaussian. One more sum tests this, if directions are open (free variances) or if "
        "skewness or kurtosis of the variables suggest it (equal variances).",
    )
    features: str | Callable[[FloatArray], FloatArray] = setting(
        "auto",
        text("the name of a feature map", "'auto'") | function("a function"),
        '"linear": every effect is a straight line. "spline", "quadratic" or a function ``(n, d) -> (n, d, m)`` of '
        'standardised values: each effect may also be curved, if the data show it (docs/oneshot.md). "auto": splines if '
        "residuals show curvature and curves clearly score better, otherwise lines; always lines under differential "
        "privacy or above 200 variables.",
    )
    interactions: bool = setting(
        False,
        flag(),
        'True: pairs of variables at the same lag may act together (products); `features` must not be "linear". Above 40 '
        "variables, only pairs of causes of the same target in a linear network are tried.",
    )
    forbidden_edges: Sequence[Edge] | None = setting(
        None,
        edges(),
        'Edges ``(from, to, lag)`` that must not exist, by name or position; ``"*"`` means every variable.',
    )
    required_edges: Sequence[Edge] | None = setting(None, edges(), "Edges that must exist, in the same form.")
    random_state: int | None = setting(0, whole(0) | nothing(), "Random seed of restarts.")
    check_residuals: bool | str = setting(
        "auto",
        flag() | word("auto"),
        'Check by one more sum whether residuals contradict the model, and correct for it (docs/oneshot.md). "auto": not '
        "under differential privacy.",
    )
    fdr: float | None = setting(
        None,
        number(above=0, below=1) | nothing(),
        "Keep the edges that are discoveries: of the lagged edges, and of the contemporaneous links, at most this share is "
        "expected to be false (docs/error-control.md). Every effect is then a straight line. None: the score chooses edges.",
    )
    may_be: ClassVar[Mapping[str, Rule]] = {
        **PreparedSettings.may_be,
        "scale": word("auto", "none", "federated"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.interactions and self.features in ("linear", "auto"):
            raise ParameterError(
                f"interactions=True needs features='spline' or 'quadratic', got features={self.features!r}."
            )
        if self.fdr is not None and self.is_curved:
            raise ParameterError(
                f"{Given('fdr', self.fdr)} tests straight lines; leave out {Given('features', self.features)} or use "
                f"{Given('features', 'linear')}."
            )
        if self.interactions and self.n_lags == 0:
            raise ParameterError(
                "interactions=True is about lagged variables and needs n_lags of at least 1, got 0."
            )

    @property
    def is_curved(self) -> bool:
        """Whether curves are asked for by name."""
        return not (isinstance(self.features, str) and self.features in ("linear", "auto"))

    @property
    def options(self) -> OneShotOptions:
        """The same for the server's programs; rows are taken as they are until a federation is known."""
        is_auto = isinstance(self.n_lags, str)
        c, gamma = _DEFAULT_PENALTY[self.criterion]
        # The choices have been checked, which the type checker cannot see.
        noise_variance: Any = self.noise_variance
        use_nongaussian: Any = self.use_nongaussian
        criterion = Criterion(c if self.penalty is None else float(self.penalty), gamma)
        rows = replace(AS_THEY_ARE, exogenous=self.prepare.exogenous, scale=self.rows.scale)
        learn = OrderLearner(noise_variance, criterion, self.n_restarts)
        return OneShotOptions(
            self.max_lags if is_auto else int(self.n_lags), is_auto, rows, use_nongaussian, learn=learn
        )


class OneShotDBN(UpdatedEstimator[OneShotSettings]):
    """A dynamic Bayesian network from one sum of lagged second moments, exactly as from pooled data.

    minimise over networks    n d log(sum_j RSS_j / (n d)) + penalty    (equal noise variances)
                              sum_j n log(RSS_j / n) + penalty          (free noise variances)

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
    findings_
        All that a person should know about the fit, what can turn the result over first (`feddbn.findings.Finding`).
    dbns_
        As in `FDBNL`, with ``prepare.on_disagreement="personal"``.
    orientation_
        DataFrame source, target, score_difference, oriented: how much worse the best network with that edge's ends
        exchanged scores. 0 means that the data cannot tell.
    edge_probabilities_
        DataFrame source, target, lag, weight, probability, strength, presence, direction, oriented. `probability` is the
        share of networks, each learned from moments that as many rows could have, that have the edge: what would come again
        with other recordings and sites (docs/edge-confidence.md). The network has the edges above one half, and
        links of which both directions together are; with `fdr` that decides instead. `weight` is 0 without the edge;
        `strength` is the share of the target's variance that the source explains over all lags. Edges above one half by
        strength, then the others by probability. Of contemporaneous edges `presence` is the probability of a link either way,
        `direction` that it is this way given the link, `oriented` False where the data do not settle that: equal variances
        alone do not. With `fdr` also `q_value`: the smallest level at which an edge, or a link either way, is a discovery;
        NaN if it is not tested.
    dispersion_
        How much more parts of the rows differ than chance: by so much less the rows count.
    units_
        Evidence on the units (equal variances only, else None); a `UnitsWarning` is given if edges change.
    nongaussian_
        What the noise decided, or None if it was not asked.
    alone_
        For how many sites the network predicts better than their own, equally well or worse
        (`federation.programs.alone.Alone`), by name where sites are in this process; None if that was not asked.
    residuals_
        What the residuals say about the assumptions (`results.remarks.ResidualSummary`), or None if they were not asked.
    hidden_
        DataFrame source, target, lag, robustness, could_be_hidden: whether each edge could be something not measured.
    features_
        The feature map that was used: "linear" for straight lines.
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

    orientation_: pd.DataFrame
    edge_probabilities_: pd.DataFrame
    units_: UnitsCheck | None
    nongaussian_: NonGaussianReport | None
    dispersion_: float

    @takes(OneShotSettings)
    def __init__(self) -> None: ...

    @property
    def _largest_lag(self) -> int:
        return self._settings.options.n_lags

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        (outcome, report, curved), alone = self._run(self._compared(federation), federation, observer)[0]
        self._report(outcome, report, curved)
        self._say_alone(alone, federation)
        why_not = None
        if curved is not None:
            why_not = ParameterError(
                "curves need more than second moments; fit all rows again.", code="curved"
            )
        elif report is not None and (report.noise_memory is not None or report.n_lags_added):
            why_not = ParameterError(
                "noise with a memory, or a lag more, was found by more than second moments; fit all rows again.",
                code="memory-removed",
            )
        self._keep_sums(outcome.asked, self._largest_lag, why_not)

    def _fit_tally(self, tally: Tally) -> None:
        moments = tally.whole
        outcome = self._of_moments(moments)[0]
        # What is done to the rows was decided by the first fit.
        asked = AskedMoments(moments, tally.treatment, evidence=0.0, n_rows=moments.n)
        self._report(replace(outcome, asked=asked))

    def curves_on(self, federation: Federation) -> Fit | None:
        """Return what a fit on this federation learns if it may find curves, else None; this estimator stays as it is.

        Resamples are then drawn of the same rows (`feddbn.confidence`). The shape of the noise is left out, as in
        `fit_moments`.
        """
        learner = type(self)(**{**self.get_params(deep=False), "use_nongaussian": False})
        learner._begin()
        if not learner._may_find_curves(federation):
            return None
        learner._set_variables(federation.variables)
        with one_thread():
            return run_program(learner._once(federation), federation)

    def fit_moments(self, moments: Moments | CurvedMoments, variables: Sequence[str]) -> DBN:
        """Learn from the summed moments of lagged or of curved rows alone, set the same attributes, return the network.

        What needs further sums (directions by non-Gaussian noise) is left out.
        """
        self._begin()
        self._set_variables(tuple(str(name) for name in variables))
        with one_thread():
            self._report(*self._of_moments(moments))
        return self.dbn_

    def network_of(self, moments: Moments | CurvedMoments, variables: Sequence[str]) -> DBN:
        """Return the best network of such moments, without saying how sure it is; this estimator learns no attributes."""
        self._begin()
        self._set_variables(tuple(str(name) for name in variables))
        with one_thread():
            outcome, _, curved = self._of_moments(moments)
        learned = outcome.learned
        if curved is None:
            numbers, parts = refit(outcome.moments, learned.support), list[Part]()
        else:
            found = curved.network
            numbers, parts = (found.weights, found.intercept, found.variances), parts_of(curved)
        outputs = () if self._rows.scale == "federated" else outputs_of(len(self._variables), self._inputs)
        return learned_network(learned, numbers, self._variables, outputs, parts)

    def _may_find_curves(self, federation: Federation) -> bool:
        """Whether a fit asks about curves, or may come to do so; refuses curves where sites do not answer for them."""
        settings, tasks = self._settings, federation.answered_tasks
        is_answered = tasks is None or "gram.functions" in tasks
        if settings.is_curved and not is_answered:
            raise ParameterError(
                f"features={settings.features!r} needs the task 'gram.functions', which this federation does not answer: "
                "sums of curves carry no noise; use features='linear'.",
                code="curves-not-answered",
            )
        if settings.features == "auto":
            return (
                settings.fdr is None and is_answered and are_looked_at(settings.check_residuals, federation)
            )
        return settings.is_curved

    def _compared(self, federation: Federation) -> ServerProgram[tuple[Fit, Alone | None]]:
        """Learn, then ask sites whether the network is better for them than their own."""
        fit = yield from self._once(federation)
        if not (are_looked_at(self._settings.check_residuals, federation) and is_compared(federation)):
            return (yield from self._replicated(fit, federation)), None
        outcome, report, curved = fit
        if curved is not None or (report is not None and report.noise_memory is not None):
            # Curves, and noise with a memory, are more than a network of lagged values.
            return (yield from self._replicated(fit, federation)), None
        if self._settings.fdr is not None:
            # What rows count rests on their parts, so these are asked for first.
            replicated = yield from self._replicated(fit, federation)
            outcome = self._discovered(replicated[0], report)
            fit = outcome, report, None
        asked, inputs, d = outcome.asked, self._inputs, len(self._variables)
        assert asked is not None
        weights, intercept, variances = refit(outcome.moments, outcome.learned.support)
        network = FittedNetwork(
            self._variables,
            weights,
            variances,
            outcome.limits(limits_over(self._constraints(), outcome.n_lags, d, inputs)),
            inputs,
            asked.center,
            asked.treatment,
        )
        n_rows = asked.n_rows or outcome.moments.n
        # Asked after parts: whoever refuses one question is not asked another.
        if self._settings.fdr is None:
            fit = yield from self._replicated(fit, federation)
        return fit, (yield from alone_program(network, intercept, n_rows))

    def _discovered(self, outcome: OneShotOutcome, report: ResidualReport | None) -> OneShotOutcome:
        """The network of discoveries, where a level is set and that has not been done."""
        fdr, d = self._settings.fdr, len(self._variables)
        if fdr is None or outcome.q_values is not None:
            return outcome
        limits = outcome.limits(limits_over(self._constraints(), outcome.n_lags, d, self._inputs))
        return with_discoveries(outcome, report, limits, fdr)

    def _replicated(self, fit: Fit, federation: Federation) -> ServerProgram[Fit]:
        """With how much less rows count where parts of them differ."""
        outcome, report, curved = fit
        assert outcome.asked is not None
        dispersion, why_not = yield from dispersion_program(
            self._variables, outcome.n_lags, outcome.asked, outcome.moments, federation
        )
        n_sums = outcome.n_sums + (not why_not)
        outcome = replace(outcome, dispersion=dispersion, without_parts=why_not, n_sums=n_sums)
        return outcome, report, None if curved is None else replace(curved, outcome=outcome)

    def _once(self, federation: Federation) -> ServerProgram[Fit]:
        """Straight lines, curves, or what the residuals are for."""
        settings, names, constraints = self._settings, self._variables, self._constraints()
        tasks, options = federation.answered_tasks, settings.options
        if tasks is not None and "residuals.shapes" not in tasks and settings.use_nongaussian == "auto":
            # Under differential privacy every further sum, or matrix, would cost what the first one has left.
            options = replace(options, use_nongaussian=False)
        options = replace(options, prepare=self._rows_on(federation))
        rng = np.random.default_rng(settings.random_state)
        looks = are_looked_at(settings.check_residuals, federation)
        if not self._may_find_curves(federation):
            if looks:
                outcome, report = yield from checked_oneshot_program(names, constraints, options, rng)
                return outcome, report, None
            return (yield from oneshot_program(names, constraints, options, rng)), None, None
        options = replace(options, finds_knobs=len(names) <= MANY_NODES)
        if not settings.is_curved:
            return (yield from auto_program(names, constraints, options, CurveOptions(), rng))
        kind = CurveOptions(named_features(settings.features, len(names)), settings.interactions)
        return (yield from curved_program(names, constraints, options, kind, rng, looks))

    def _of_moments(self, moments: Moments | CurvedMoments) -> Fit:
        """What the moments of lagged or of curved rows tell, without any further sum."""
        settings, names, constraints = self._settings, self._variables, self._constraints()
        rng, has_curves = np.random.default_rng(settings.random_state), isinstance(moments, CurvedMoments)
        is_straight = settings.features == "linear" or settings.fdr is not None
        if is_straight if has_curves else settings.is_curved:
            kinds = ("lagged", "curved") if has_curves else ("curved", "lagged")
            raise ParameterError(
                f"fit_moments with features={settings.features!r} needs moments of {kinds[0]} rows; these are of {kinds[1]} "
                "ones."
            )
        n_columns = moments.question.q if isinstance(moments, CurvedMoments) else moments.q
        if n_columns != len(constraints.allowed):
            raise ParameterError(
                f"moments have {n_columns} columns; {len(names)} variables and n_lags={self._largest_lag} "
                f"need {len(constraints.allowed)}."
            )
        if isinstance(moments, Moments):
            return learn_from_moments(moments, names, constraints, settings.options, rng), None, None
        if callable(settings.features):
            # Another process does not know it yet.
            named_features(settings.features, len(names))
        curved = learn_from_curved(moments, names, constraints, settings.options, rng)
        return curved.outcome, None, curved

    def _report(
        self,
        outcome: OneShotOutcome,
        report: ResidualReport | None = None,
        curved: CurvedOutcome | None = None,
    ) -> None:
        """Set what was learned, and say what has to be said."""
        outcome = self._discovered(outcome, report)
        learned, names, d = outcome.learned, self._variables, len(self._variables)
        limits = outcome.limits(limits_over(self._constraints(), outcome.n_lags, d, self._inputs))
        if learned.shares is None:
            learn, rng = self._settings.options.learn, np.random.default_rng(_OF_RESAMPLES)
            outcome = replicated((outcome, report, curved), learn, limits, rng)
            learned = outcome.learned
        learned = with_shapes(learned, outcome.dispersion)
        assert learned.shares is not None
        # Of hardly any rows the price of an edge is too low.
        certain = 1.0 - rows_doubt(outcome.moments.n, outcome.moments.q) / 2
        learned = replace(learned, shares=learned.shares.weaker(certain))
        # Where all noises have one variance, none is that of a formula.
        is_free = learned.noise.kind != "equal"
        # Where sites were brought to one scale, formulas hold in the units of the data.
        unscaled = None if outcome.asked is None else outcome.asked.unscaled
        identities = near_identities(unscaled or outcome.moments, d, self._inputs) if is_free else []
        dependent = outcome.dependent
        if unscaled is not None:
            dependent = dependent_findings(unscaled, names, self._inputs)
        groups = [one.members for one in identities]
        if report is not None:
            groups += [tuple(map(names.index, effects)) for effects in report.hidden]
        if groups:
            learned = left_open(learned, without_direction(self._constraints(), groups))
        if outcome.q_values is None:
            # A level of false discoveries that somebody asks for decides instead.
            before, learned = learned.support, agreed(learned, limits)
            outcome = replace(outcome, learned=learned)
            doubts = None if report is None else report.doubts
            if report is not None and doubts is not None and doubts.effects:
                # What joins now was not weighed against hidden causes, and could be one.
                joined = learned.support & ~before
                report = replace(report, doubts=replace(doubts, in_doubt=doubts.in_doubt | joined))
            if curved is not None:
                curved = replace(curved, network=curves_of(learned, curved.told))
        is_scaled, parts = self._rows.scale == "federated", list[Part]()
        if curved is None:
            numbers = refit(outcome.moments, learned.support)
            shares = explained_shares(outcome.moments.scatter, numbers[0])
        else:
            found = curved.network
            numbers = found.weights, found.intercept, found.variances
            shares, parts = found.shares, parts_of(curved)
        self.n_lags_ = outcome.n_lags
        self.lag_scores_ = None if outcome.lag_scores is None else outcome.lag_scores.tolist()
        outputs = () if is_scaled else outputs_of(d, self._inputs)
        dbn = learned_network(learned, numbers, names, outputs, parts)
        self._set_network(dbn, dbn)
        self.order_ = [names[j] for j in learned.order]
        self.noise_variance_, self.reason_ = learned.noise.kind, say(learned.noise.finding)
        self.orientation_ = orientation_table(learned.orientation, names)
        self.edge_probabilities_ = learned_table(learned, numbers[0], shares, names, outcome.q_values)
        self._set_sums(outcome.moments)
        self.features_ = "linear" if curved is None else _features_name(curved)
        self.units_, self.nongaussian_, self.score_ = learned.units, outcome.nongaussian, learned.score
        if curved is not None:
            self.n_samples_ = int(curved.told.moments.n)
        self.dispersion_ = outcome.dispersion
        if outcome.without_parts:
            self._tell(Finding("parts-not-known", "unknown", {"reason": outcome.without_parts}))
        self._say_treatment(outcome.asked)
        self._say_rows(outcome)
        self._say_dependent(dependent)
        self._say_identities(identities)
        if outcome.doubted:
            edges = [[names[i], names[j], lag] for i, j, lag in outcome.doubted]
            self._tell(Finding("doubted-links", "note", {"edges": edges}, cure={"features": "spline"}))
        if outcome.knobs is not None and outcome.knobs.named:
            knobs = tuple(names[j] for j in outcome.knobs.named)
            self._tell(Finding("knobs", "note", {}, knobs, cure={"prepare.exogenous": list(knobs)}))
        self._tell(*slow_findings(outcome.moments, names, self._inputs))
        self._say_residuals(report)
        self._say_hidden(
            None if curved is not None else outcome.moments, None if report is None else report.doubts
        )
        if curved is not None:
            self._say_curves(curved)
        rests = None if learned.units is None else learned.units.finding
        if rests is not None and not is_scaled:
            self._tell(rests, warn=UnitsWarning)
        self._claim()
        if outcome.q_values is not None:
            self._say_discoveries(outcome, outcome.q_values, report)

    def _say_rows(self, outcome: OneShotOutcome) -> None:
        """Say that there are few rows for so many columns."""
        n, q = outcome.moments.n, (outcome.n_lags + 1) * len(self._variables)
        level = rows_level(n, q)
        if level != "note":
            values = {"n": float(n), "q": q, "needed": ROWS_PER_COLUMN * q}
            self._tell(Finding("too-few-rows", level, values))

    def _say_discoveries(self, outcome: OneShotOutcome, q: FloatArray, report: ResidualReport | None) -> None:
        """Say how many edges are false at most, and what contradicts that."""
        d, support = len(self._variables), outcome.learned.support
        tested = np.isfinite(q)
        found = support & tested
        values = {
            "fdr": self._settings.fdr,
            "n_lagged": int(found[d:].sum()),
            "n_links": int(found[:d].sum()),
            "n_tested": int(tested[d:].sum() + tested[:d].sum() // 2),
            "n": outcome.n_tested,
            "n_columns": len(q),
            "because": list(contradictions(self.findings_)),
            "is_checked": report is not None and report.checks is not None,
        }
        is_few = outcome.n_tested <= len(q) + 1
        if values["because"] or is_few:
            self._tell(Finding(DISCOVERIES, "warning", values), warn=ResultWarning)
        else:
            self._tell(Finding(DISCOVERIES, "note" if values["is_checked"] else "unknown", values))

    def _claim(self) -> None:
        """Say first that the data tell nothing, where they do not."""
        told = abstention(self.edge_probabilities_, contradictions(self.findings_))
        # Edges that are discoveries are claimed by their level.
        if told is not None and self._settings.fdr is None:
            others, self.findings_ = self.findings_, Findings()
            self._tell(told, warn=ResultWarning)
            self.findings_ = Findings([*self.findings_, *others])

    def _say_curves(self, curved: CurvedOutcome) -> None:
        """Say what is curved, and why that was modelled if nobody asked for it."""
        network = curved.network
        values = {
            "n_curves": len(network.curves),
            "n_edges": int(np.count_nonzero(network.weights)),
            "n_products": len(network.products),
            "gain": curved.gain,
        }
        if curved.gain is not None:
            self.reason_ += f"; curved effects score {curved.gain:.0f} better than straight ones"
        cure = {} if curved.gain is None else {"features": "linear"}
        self._tell(Finding("curves", "note", values, cure=cure))


def named_features(features: str | Callable[[FloatArray], FloatArray], d: int) -> str:
    """Return the name of a choice of `features`; a function is registered under its own."""
    if callable(features):
        own = callable_map(features, d)
        register_feature_map(own)
        return own.name
    if features in FUNCTIONS:
        return features
    own = feature_map(features)
    if own.has_identity:
        raise ParameterError(
            f"features={features!r} begins with the value itself, which is in the model anyway; register the map without it "
            "and with has_identity=False."
        )
    return own.name


def _features_name(curved: CurvedOutcome) -> str:
    """Return the choice of `features` that a network was learned with."""
    return features_of(curved.design.terms[1].basis.name)


def parts_of(curved: CurvedOutcome) -> list[Part]:
    """Return the curves and products of a network."""
    origin, scale, basis = curved.design.origin, curved.design.scale, _features_name(curved)

    def term(basis: str, lag: int, *sources: int) -> Term:
        units = (tuple(float(each[i]) for i in sources) for each in (origin, scale))
        return Term(tuple((i, lag) for i in sources), basis, *units)

    parts = [
        Part(one.target, term(basis, one.lag, one.source), one.coefficients, one.covariance)
        for one in curved.network.curves
    ]
    parts += [
        Part(one.target, term("product", one.lag, one.first, one.second), [one.weight])
        for one in curved.network.products
    ]
    return parts
