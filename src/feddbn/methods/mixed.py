"""A network of variables of any kind: counts, yes and no, levels, positive and continuous values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.glm import SEPARATED_SD, NodeEstimate
from feddbn.core.graphs.constraints import Edge
from feddbn.core.graphs.status import Status
from feddbn.core.kinds import Kind, read_kinds
from feddbn.core.orders.groups import GroupLearned
from feddbn.data import SiteData
from feddbn.errors import ParameterError
from feddbn.federation.programs.mixed import FEWEST_OF_A_LEVEL, MixedOptions, MixedOutcome, mixed_program
from feddbn.federation.protocol.task import Federation, Observer
from feddbn.methods.base import DBNEstimator
from feddbn.methods.edge_table import edge_table
from feddbn.methods.link_table import open_edges, orientation_table, with_links
from feddbn.model.conditionals import Conditional, weights_of
from feddbn.model.dbn import DBN
from feddbn.settings import Rule, a_federation, edges, flag, names_of_variables, nothing, number, whole

__all__ = ["MixedDBN", "conditional_of", "report_mixed"]


def report_mixed(estimator: Any, outcome: MixedOutcome, declared: Sequence[Kind]) -> None:
    """Set the attributes of a fitted estimator, and say what has to be said."""
    names, d, learned = estimator._variables, len(estimator._variables), outcome.learned
    conditionals = tuple(conditional_of(one, outcome.kinds) for one in outcome.refit.estimates)
    n_lags = outcome.design.n_lags
    weights = weights_of(conditionals, n_lags)
    C = np.concatenate([weights.W[None], weights.A]).reshape(-1, d)
    dbn = DBN(
        weights.W,
        weights.A,
        names,
        weights.intercept,
        weights.noise_variances,
        open_edges(learned.orientation, C, names),
        conditionals=conditionals,
    )
    estimator._set_network(dbn, dbn)
    estimator.conditionals_ = conditionals
    estimator.kinds_ = dict(zip(names, outcome.kinds, strict=True))
    estimator.order_ = [names[j] for j in learned.network.order]
    estimator.orientation_ = orientation_table(learned.orientation, names)
    table = edge_table(learned.posterior.probability, C, _shares(learned), names)
    by_likelihood = outcome.n_reviewed > 0
    estimator.edge_probabilities_ = with_links(table, names, learned, by_noise=by_likelihood)
    estimator.status_ = Status.EXACT if outcome.refit.is_exact else Status.MAX_ROUNDS
    estimator.n_rounds_, estimator.n_samples_ = outcome.n_sums, int(outcome.moments.n)
    estimator._tell(*_sentences(outcome, names, declared))


def conditional_of(estimate: NodeEstimate, kinds: Sequence[Kind]) -> Conditional:
    """The distribution of a node from its estimate; `kinds` are those of all variables."""
    d, model = len(kinds), estimate.model
    kind = kinds[model.node]
    n_intercepts = kind.n_levels - 1 if kind.name in ("ordinal", "categorical") else 1
    n_slopes = kind.n_levels - 1 if kind.name == "categorical" else 1
    effects, start = [], n_intercepts
    for m in model.parents:
        width = kinds[m % d].width
        effects.append(estimate.theta[start : start + width * n_slopes].reshape(width, n_slopes))
        start += width * n_slopes
    return Conditional(
        kind,
        tuple((m % d, m // d) for m in model.parents),
        estimate.theta[:n_intercepts],
        tuple(effects),
        estimate.dispersion,
        estimate.covariance,
    )


def _shares(learned: GroupLearned) -> FloatArray:
    """(d, d) by which share of its determinant each target is explained by each source beside the others."""
    search = learned.search
    found = np.zeros((search.d, search.d))
    for j, parents in enumerate(learned.network.parents):
        for m, loss in zip(parents, search.regressions.fit(j, parents).loss, strict=True):
            found[m % search.d, j] += loss
    return found


def _sentences(outcome: MixedOutcome, names: Sequence[str], declared: Sequence[Kind]) -> list[str]:
    told = []
    for name, before, after in zip(names, declared, outcome.kinds, strict=True):
        if before.levels != after.levels:
            kept = "; ".join(repr(level) for level in after.levels)
            told.append(
                f"some levels of {name!r} are too rare to stand alone, and count as one with others: its levels are {kept}. "
                "level_rows decides from how many rows on a level is not rare."
            )
    for j in np.flatnonzero(outcome.constant).tolist():
        told.append(f"{names[j]!r} has one value only, so nothing can be said about its causes or effects.")
    if outcome.level_evidence > 0:
        told.append(
            f"recordings differ in their levels (BIC {outcome.level_evidence:.0f} better with levels of their own), so the "
            "edges are those within recordings; the weights have one level for all, and may be off by that."
        )
        still = [names[j] for j in np.flatnonzero(outcome.still).tolist()]
        if still:
            told.append(
                f"{', '.join(still)} has one value in each recording, so its effects cannot be told from these levels."
            )
    held = [names[one.model.node] for one in outcome.refit.estimates if one.has_ridge]
    if held:
        told.append(
            f"causes of {', '.join(held)} tell its values apart without an error, so its coefficients have no largest "
            f"likelihood; they were held by a prior of standard deviation {SEPARATED_SD:g} per standard deviation or level."
        )
    if not outcome.refit.is_exact:
        told.append(
            f"the weights did not settle within {outcome.refit.n_sums} steps; look for variables with hardly any variation."
        )
    wide = [
        names[one.model.node] for one in outcome.refit.estimates if one.model.family == "negative-binomial"
    ]
    if wide:
        told.append(f"counts of {', '.join(wide)} vary more than Poisson counts; they are negative binomial.")
    return told


_TASKS = frozenset(("level-counts", "mixed-moments", "glm-step"))


class MixedDBN(DBNEstimator[Any]):
    """A dynamic Bayesian network of variables of any kind, from a few sums.

    structure   sum_j n log det(residual covariance of the columns of j) + price of its edges, over orders
    weights     maximum likelihood of every variable given its causes: normal, log-normal, logistic, multinomial,
                cumulative logit, Poisson or negative binomial

    See docs/mixed.md.

    Parameters
    ----------
    n_lags
        Number of lags.
    kinds
        What the values of variables are: ``{"visits": "count", "alarm": "binary", "ward": ["north", "south"],
        "pain": {"ordinal": ["no", "some", "bad"]}}``. Who is not named is continuous.
    penalty
        Price in log(n) of each number that an edge has.
    level_rows
        Rows that a level needs to stand alone; rarer ones are put together. Sites tell how many rows have a level in whole
        units of so many.
    review
        Whether directions within a moment that Gaussian scores leave open are decided by the likelihoods; sites then tell
        about a few more models of the variables concerned.
    forbidden_edges, required_edges
        ``(from, to, lag)``; names or positions; ``"*"`` stands for every variable.
    exogenous
        Names of variables that only act on others.
    random_state
        Seed of the search.
    federation
        Where the sums are carried out; by default in this process.

    Attributes
    ----------
    conditionals_
        For each variable how it depends on its causes: a `Conditional` with coefficients and their covariance.
    dbn_, W_, A_
        The network with these. A weight is the coefficient on the scale of the link, or the Euclidean norm of several.
    kinds_
        The `Kind` of each variable; levels that were too rare to stand alone are one level "a, b".
    orientation_
        DataFrame source, target, score_difference, oriented: what is known about directions within a moment.
    edge_probabilities_
        DataFrame source, target, lag, weight, probability, strength, presence, direction, oriented.
    order_
        The variables, causes first.
    n_rounds_, n_samples_
        Number of sums; usable rows over all sites.
    feature_names_in_, n_features_in_
        Variables.

    Examples
    --------
    >>> import numpy as np, pandas as pd, feddbn
    >>> rng = np.random.default_rng(0)
    >>> rows = pd.DataFrame({"dose": rng.normal(size=300)})
    >>> rows["alarms"] = rng.poisson(np.exp(0.6 * rows["dose"].shift(1, fill_value=0.0)))
    >>> model = feddbn.MixedDBN(kinds={"alarms": "count"}).fit({"ward": rows})
    >>> model.dbn_.edges()[["source", "target", "lag"]].values.tolist()
    [['dose', 'alarms', 1]]
    """

    conditionals_: tuple[Conditional, ...]
    kinds_: dict[str, Kind]
    orientation_: pd.DataFrame
    edge_probabilities_: pd.DataFrame

    rules: ClassVar[Mapping[str, Rule]] = {
        "n_lags": whole(0),
        "kinds": Rule(lambda value: isinstance(value, Mapping), ("a mapping from variables to kinds",))
        | nothing(),
        "penalty": number(above=0),
        "level_rows": whole(1),
        "review": flag(),
        "forbidden_edges": edges(),
        "required_edges": edges(),
        "exogenous": names_of_variables(),
        "random_state": whole(0) | nothing(),
        "federation": a_federation(),
    }

    def __init__(
        self,
        n_lags: int = 1,
        *,
        kinds: Mapping[str, Any] | None = None,
        penalty: float = 1.0,
        level_rows: int = FEWEST_OF_A_LEVEL,
        review: bool = True,
        forbidden_edges: Sequence[Edge] | None = None,
        required_edges: Sequence[Edge] | None = None,
        exogenous: Sequence[str] | None = None,
        random_state: int | None = 0,
        federation: Federation | None = None,
    ) -> None:
        self.n_lags = n_lags
        self.kinds = kinds
        self.penalty = penalty
        self.level_rows = level_rows
        self.review = review
        self.forbidden_edges = forbidden_edges
        self.required_edges = required_edges
        self.exogenous = exogenous
        self.random_state = random_state
        self.federation = federation

    def check_parameters(self) -> None:
        """Refuse arguments that cannot be."""
        super().check_parameters()
        read_kinds(self.kinds, tuple(self.kinds or ()))

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        tasks = federation.answered_tasks
        if tasks is not None and not tasks >= _TASKS:
            raise ParameterError(
                "MixedDBN needs the tasks 'mixed-moments' and 'glm-step', which this federation does not answer (noise is "
                "fitted to one matrix of products of values as they are); use OneShotDBN."
            )
        names = self._variables
        kinds = read_kinds(self.kinds, names)
        options = MixedOptions(int(self.n_lags), float(self.penalty), int(self.level_rows), bool(self.review))
        rng = np.random.default_rng(self.random_state)
        program = mixed_program(names, kinds, self._constraints(), options, rng)
        outcome, _ = self._run(program, federation, observer)
        report_mixed(self, outcome, kinds)
