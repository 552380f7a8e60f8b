"""A network of variables of any kind: counts, yes and no, levels, positive and continuous values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.constraints import Edge
from feddbn.core.glm import SEPARATED_SD, NodeEstimate
from feddbn.core.kinds import Kind
from feddbn.core.orders.learn import Learned
from feddbn.core.penalised.path import Status
from feddbn.core.statistics.moments import dependences
from feddbn.data import SiteData
from feddbn.data.kinds import read_kinds
from feddbn.federation.programs.mixed import MixedOptions, MixedOutcome, mixed_program
from feddbn.federation.protocol.task import Federation, Observer, fewest_sites, run_program
from feddbn.federation.sums.in_view import LEVEL_ROWS
from feddbn.federation.sums.prepare import AS_THEY_ARE, Prepare
from feddbn.federation.sums.survey import survey_program
from feddbn.findings import Finding
from feddbn.methods.base import DBNEstimator
from feddbn.model.dbn import DBN
from feddbn.model.nodes import Node, Term
from feddbn.results.edge_table import learned_table, open_edges, orientation_table
from feddbn.settings import (
    MethodSettings,
    Rule,
    edges,
    flag,
    names_of_variables,
    nothing,
    number,
    setting,
    takes,
    whole,
)

__all__ = ["MixedDBN", "MixedSettings", "node_of"]


def node_of(estimate: NodeEstimate, kinds: Sequence[Kind]) -> Node:
    """The node of an estimate; `kinds` are those of all variables."""
    d, model = len(kinds), estimate.model
    kind = kinds[model.node]
    n_intercepts = kind.n_levels - 1 if kind.name in ("ordinal", "categorical") else 1
    n_slopes = kind.n_levels - 1 if kind.name == "categorical" else 1
    effects, start = [], n_intercepts
    for m in model.parents:
        width = kinds[m % d].width
        effects.append(estimate.theta[start : start + width * n_slopes].reshape(width, n_slopes))
        start += width * n_slopes
    return Node(
        kind,
        tuple(Term(((m % d, m // d),)) for m in model.parents),
        tuple(effects),
        estimate.theta[:n_intercepts],
        estimate.dispersion,
        estimate.covariance,
    )


def _shares(learned: Learned) -> FloatArray:
    """(d, d) by which share of its determinant each target is explained by each source beside the others."""
    search = learned.search
    found = np.zeros((search.d, search.d))
    for j, parents in enumerate(learned.network.parents):
        for m, loss in zip(parents, search.regressions.fit(j, parents).loss, strict=True):
            found[m % search.d, j] += loss
    return found


def _findings(outcome: MixedOutcome, names: Sequence[str], declared: Sequence[Kind]) -> Iterator[Finding]:
    """What has to be said about a fit."""
    for name, before, after in zip(names, declared, outcome.kinds, strict=True):
        if before.levels != after.levels:
            yield Finding("rare-levels", "note", {"levels": list(after.levels)}, (name,))
    for j in np.flatnonzero(outcome.constant).tolist():
        yield Finding("one-value", "warning", about=(names[j],))
    if outcome.level_evidence > 0:
        yield Finding("own-levels-of-kinds", "note", {"evidence": float(outcome.level_evidence)})
        still = tuple(names[j] for j in np.flatnonzero(outcome.still).tolist())
        if still:
            yield Finding("one-value-a-recording", "warning", about=still)
    estimates = outcome.refit.estimates
    held = tuple(names[one.model.node] for one in estimates if one.has_ridge)
    if held:
        yield Finding("separated", "warning", {"sd": SEPARATED_SD}, held)
    if not outcome.refit.is_exact:
        yield Finding("weights-not-settled", "warning", {"n": outcome.refit.n_sums})
    wide = tuple(names[one.model.node] for one in estimates if one.model.family == "negative-binomial")
    if wide:
        yield Finding("overdispersed", "note", about=wide)


def _dependent(outcome: MixedOutcome, names: Sequence[str]) -> list[Finding]:
    """Which variables follow from others, of those that vary and are one column each."""
    varies = np.flatnonzero(~(outcome.constant | outcome.still)).tolist()
    plain = [j for j in varies if outcome.design.widths[j] == 1]
    columns = [group.columns[0] for group in outcome.design.groups if group.variable in plain]
    scatter, n = outcome.moments.scatter[np.ix_(columns, columns)], outcome.moments.n
    found = dependences(scatter, n, len(plain)) if plain else []
    return [one.finding([names[j] for j in plain]) for one in found]


@dataclass(frozen=True, repr=False)
class MixedSettings(MethodSettings):
    """What a person may choose of `MixedDBN`."""

    n_lags: int = setting(1, whole(0), "Number of lags.", kw_only=False)
    kinds: Mapping[str, Any] | None = setting(
        None,
        Rule(lambda value: isinstance(value, Mapping), ("a mapping from variables to kinds",)) | nothing(),
        'Kind of each variable: ``{"visits": "count", "alarm": "binary", "ward": ["north", "south"], "pain": {"ordinal": '
        '["no", "some", "bad"]}}``. Unnamed variables are continuous.',
    )
    penalty: float = setting(1.0, number(above=0), "Penalty, times log(n), for each parameter of an edge.")
    level_rows: int = setting(
        LEVEL_ROWS,
        whole(1),
        "Fewest rows of a category; rarer categories are merged. Sites report the rows of a category only in multiples of "
        "this number.",
    )
    review: bool = setting(
        True,
        flag(),
        "True: likelihoods decide contemporaneous directions that Gaussian scores leave open. Sites then send sums for a "
        "few more models of these variables.",
    )
    forbidden_edges: Sequence[Edge] | None = setting(
        None,
        edges(),
        'Edges ``(from, to, lag)`` that must not exist, by name or position; ``"*"`` means every variable.',
    )
    required_edges: Sequence[Edge] | None = setting(None, edges(), "Edges that must exist, in the same form.")
    exogenous: Sequence[str] | None = setting(
        None, names_of_variables(), "Names of known inputs, which only act on others."
    )
    random_state: int | None = setting(0, whole(0) | nothing(), "Random seed of the search.")

    def __post_init__(self) -> None:
        super().__post_init__()
        read_kinds(self.kinds, tuple(self.kinds or ()))


class MixedDBN(DBNEstimator[MixedSettings]):
    """A dynamic Bayesian network of variables of any kind, from a few sums.

    structure   sum_j n log det(residual covariance of the columns of j) + price of its edges, over orders
    weights     maximum likelihood of every variable given its causes: normal, log-normal, logistic, multinomial,
                cumulative logit, Poisson or negative binomial

    See docs/mixed.md.

    Attributes
    ----------
    nodes_
        For each variable how it depends on its causes: a `Node` with coefficients and their covariance.
    dbn_, W_, A_
        The network with these. A weight is the coefficient on the scale of the link, or the Euclidean norm of several.
    kinds_
        The `Kind` of each variable; levels that were too rare to stand alone are one level "a, b".
    orientation_
        DataFrame source, target, score_difference, oriented: what is known about contemporaneous directions.
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

    needed_tasks = frozenset(("counts.levels", "gram.kinds", "newton"))
    nodes_: tuple[Node, ...]
    kinds_: dict[str, Kind]
    orientation_: pd.DataFrame
    edge_probabilities_: pd.DataFrame

    @takes(MixedSettings)
    def __init__(self) -> None: ...

    @property
    def _rows(self) -> Prepare:
        return replace(AS_THEY_ARE, exogenous=self._settings.exogenous)

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        settings, names = self._settings, self._variables
        kinds = read_kinds(settings.kinds, names)
        options = MixedOptions(settings.n_lags, settings.penalty, settings.level_rows, settings.review)
        rng = np.random.default_rng(settings.random_state)
        is_hidden = fewest_sites(federation) is not None
        program = mixed_program(names, kinds, self._constraints(), options, rng, is_hidden=is_hidden)
        outcome, _ = self._run(program, federation, observer)
        self._set_outcome(outcome)
        self._say_dependent(_dependent(outcome, names))
        self._tell(*_findings(outcome, names, kinds))
        if sites is not None:
            # In this process a look costs no question to anybody.
            look = run_program(survey_program(names, settings.n_lags, profiles="none"), federation)
            if look.periods:
                self._tell(Finding("cycles-left-in", "warning", {"periods": list(look.periods)}))

    def _set_outcome(self, outcome: MixedOutcome) -> None:
        names, d, learned = self._variables, len(self._variables), outcome.learned
        nodes = tuple(node_of(one, outcome.kinds) for one in outcome.refit.estimates)
        dbn = DBN.from_nodes(nodes, names, outcome.design.n_lags)
        C = dbn.adjacency_matrices.reshape(-1, d)
        dbn = replace(dbn, open_edges=tuple(open_edges(learned.orientation, C, names)))
        self._set_network(dbn, dbn)
        self.nodes_ = nodes
        self.kinds_ = dict(zip(names, outcome.kinds, strict=True))
        self.order_ = [names[j] for j in learned.network.order]
        self.orientation_ = orientation_table(learned.orientation, names)
        self.edge_probabilities_ = learned_table(learned, C, _shares(learned), names)
        self.status_ = Status.EXACT if outcome.refit.is_exact else Status.MAX_ROUNDS
        self.n_samples_ = int(outcome.moments.n)
