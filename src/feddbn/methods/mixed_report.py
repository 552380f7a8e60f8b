"""What a fitted `MixedDBN` tells: distributions, network, tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.glm import SEPARATED_SD, NodeEstimate
from feddbn.core.graphs.status import Status
from feddbn.core.kinds import Kind
from feddbn.core.orders.groups import GroupLearned
from feddbn.federation.programs.mixed import MixedOutcome
from feddbn.methods.edge_table import edge_table
from feddbn.methods.link_table import open_edges, orientation_table, with_links
from feddbn.model.conditionals import Conditional, weights_of
from feddbn.model.dbn import DBN

__all__ = ["conditional_of", "report_mixed"]


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
