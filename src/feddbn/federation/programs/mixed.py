"""A network of variables of any kind, as a short program of sums.

``level-counts``    if a variable has more than two levels: which of them are too rare to stand alone
``mixed-moments``   the structure, by Gaussian scores of the columns that stand for values
``glm-step``        4 to 6 times: every variable given its causes, by maximum likelihood
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import BoolArray
from feddbn.core.designs.coded import merged_kind
from feddbn.core.designs.design import Design
from feddbn.core.glm.families import family_of
from feddbn.core.glm.models import NodeModel
from feddbn.core.glm.standard import NodeEstimate
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.kinds import Kind
from feddbn.core.orders.groups import GroupLearned, Review, Reviewed, learn_groups
from feddbn.core.statistics.moments import Moments
from feddbn.errors import DataError
from feddbn.federation.programs.glm_refit import NORMAL, Refit, refit_program
from feddbn.federation.programs.mixed_moments import LevelCounts, level_counts_program, mixed_moments_program
from feddbn.federation.protocol.task import ServerProgram

__all__ = ["MixedOptions", "MixedOutcome", "mixed_program"]

_FEWEST_ROWS = 5


@dataclass(frozen=True)
class MixedOptions:
    """How to learn; see `feddbn.methods.mixed.MixedDBN`."""

    n_lags: int = 1
    penalty: float = 1.0
    level_rows: int = 10
    review: bool = True


@dataclass(frozen=True)
class MixedOutcome:
    """What the server ends with.

    Attributes
    ----------
    kinds
        Of the variables, with levels that count as one put together.
    levels
        What the counts of levels told.
    moments, design
        Of the coded columns.
    learned
        The structure by Gaussian scores, reviewed.
    refit
        Every variable given its causes.
    n_reviewed
        How many directions the likelihoods were asked about.
    constant
        (d,) which variables do not vary.
    level_evidence
        For levels of recordings' own; above 0 the structure is that within recordings.
    still
        (d,) which variables then do not vary within recordings.
    n_sums
        Number of sums.
    """

    kinds: tuple[Kind, ...]
    levels: LevelCounts
    moments: Moments
    design: Design
    learned: GroupLearned
    refit: Refit
    n_reviewed: int
    constant: BoolArray
    level_evidence: float
    still: BoolArray
    n_sums: int


def mixed_program(
    variables: tuple[str, ...],
    kinds: tuple[Kind, ...],
    constraints: EdgeConstraints,
    options: MixedOptions,
    rng: np.random.Generator,
) -> ServerProgram[MixedOutcome]:
    """Ask, find the structure, and fit it."""
    d, n_lags = len(variables), options.n_lags
    levels = yield from level_counts_program(variables, n_lags, kinds, options.level_rows)
    told = yield from mixed_moments_program(variables, n_lags, levels.codings)
    moments, design = told.moments, told.design
    if moments.n < _FEWEST_ROWS:
        raise DataError(
            f"learning needs at least {_FEWEST_ROWS} usable rows over all sites, got {int(moments.n)}; a row is usable if it "
            f"has no empty cell and its n_lags={n_lags} predecessors are in the same segment."
        )
    columns = [group.columns for group in design.groups]
    # Edges must not stand for levels that recordings differ in.
    within = told.evidence > 0
    seen = told.within if within else moments
    learned = learn_groups(seen, d, n_lags, columns, constraints, rng, options.penalty)
    spread = np.diag(moments.scatter)
    constant = np.array([not (spread[list(group)] > 0).all() for group in columns[:d]])
    spread = np.diag(seen.scatter)
    still = ~constant & np.array([not (spread[list(group)] > 0).all() for group in columns[:d]])
    review = Review(learned.network.support, learned.orientation if options.review else ())
    models = [NodeModel(j, parents, family_of(kinds[j]) or NORMAL) for j, parents in review.models]
    places = {(model.node, model.parents): k for k, model in enumerate(models)}

    def choose(estimates: Sequence[NodeEstimate]) -> list[int]:
        nonlocal learned
        if review.edges:
            found = review.decide(lambda j, parents: estimates[places[j, parents]].bic(moments.n))
            learned = _reviewed(learned, found)
        return [places[j, parents] for j, parents in enumerate(learned.network.parents)]

    counts = _known_counts(levels)
    refit = yield from refit_program(moments, design, models, counts, constant, choose)
    merged = tuple(merged_kind(kind, coding) for kind, coding in zip(kinds, levels.codings, strict=True))
    n_sums = 1 + refit.n_sums + any(levels.counts)
    return MixedOutcome(
        merged,
        levels,
        moments,
        design,
        learned,
        refit,
        len(review.edges),
        constant,
        told.evidence,
        still,
        n_sums,
    )


def _reviewed(learned: GroupLearned, found: Reviewed) -> GroupLearned:
    """The structure with directions as they were decided, and their probabilities."""
    search = learned.search
    network = search.adopt(search.support_of(found.parents))
    probability = learned.posterior.probability.copy()
    for e, before in zip(found.orientation, learned.orientation, strict=True):
        if e is not before:
            both = min(float(probability[e.source, e.target] + probability[e.target, e.source]), 1.0)
            share = 1.0 / (1.0 + float(np.exp(-min(e.score_difference, 700.0) / 2)))
            probability[e.source, e.target], probability[e.target, e.source] = (
                both * share,
                both * (1 - share),
            )
    posterior = replace(learned.posterior, probability=probability)
    return replace(learned, network=network, orientation=found.orientation, posterior=posterior)


def _known_counts(levels: LevelCounts) -> list[list[float]]:
    """For each variable the counts of its levels as they count now."""
    found = []
    for counts, coding in zip(levels.counts, levels.codings, strict=True):
        total = [0.0] * coding.kind.n_levels
        for count, group in zip(counts, coding.groups, strict=False):
            total[group] += count
        found.append(total)
    return found
