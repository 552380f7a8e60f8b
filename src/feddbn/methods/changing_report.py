"""What a fitted `ChangingDBN` tells: networks of segments, tables of what changed, and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.changes.fits import Changing, fit_lacking, fit_steady, fit_without
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.graphs.status import Status
from feddbn.core.orders.learn import compelled_edges, explained_shares, refit
from feddbn.core.orders.search import Criterion
from feddbn.core.statistics.moments import safe_roots
from feddbn.federation.programs.changing import ChangingOutcome
from feddbn.federation.programs.oneshot import OneShotOutcome
from feddbn.methods.edge_table import edge_table
from feddbn.methods.link_table import open_edges, with_links
from feddbn.model.dbn import DBN

__all__ = [
    "CHANGES",
    "COURSES",
    "DRIFT",
    "SEGMENT_EDGES",
    "SITE_CHANGES",
    "VARIANCE_CHANGES",
    "report_changes",
]

SEGMENT_EDGES = ("segment", "source", "target", "lag", "weight", "probability")
CHANGES = ("source", "target", "lag", "row", "before", "after", "probability")
VARIANCE_CHANGES = ("target", "what", "row", "before", "after", "probability")
SITE_CHANGES = ("site", "row", "before", "after")
COURSES = ("what", "source", "target", "lag", "start", "weight")
DRIFT = ("what", "source", "target", "lag", "start", "middle", "end", "probability")
_LONG_LAST = 2.0


def report_changes(
    estimator: Any, outcome: ChangingOutcome, constraints: EdgeConstraints, criterion: Criterion
) -> None:
    """Set the attributes of a fitted estimator, and say what has to be said."""
    names, d, found = estimator._variables, len(estimator._variables), outcome.changing
    # Where recordings lost their own means, those of all rows are put back.
    mean = outcome.moments.mean[:d] if outcome.asked.center == "recording" else np.zeros(d)
    if outcome.constant is not None:
        networks = [_constant(outcome.constant, names)]
        order = outcome.constant.learned.order
        estimator.noise_variance_ = outcome.constant.learned.noise.kind
    else:
        networks = [_network(found.network(s), mean, names) for s in range(len(found.cuts) + 1)]
        order = found.order
        estimator.noise_variance_ = "free"
    estimator.dbns_by_segment_ = networks
    last = networks[-1]
    if found.functions is not None:
        last = _network(found.network_at(outcome.blocks.n - 1), mean, names)
    estimator._set_network(last, last)
    blocks = outcome.site_blocks or outcome.blocks
    estimator.block_rows_, estimator.n_blocks_ = blocks.rows, blocks.n
    estimator.segments_ = _segments(outcome)
    estimator.site_changes_ = _site_changes(outcome)
    estimator.changes_ = _changes(outcome, names, constraints, criterion)
    estimator.variance_changes_ = _variance_changes(outcome, networks, names, constraints, criterion)
    estimator.drift_courses_ = _courses(outcome, mean, names)
    estimator.drift_ = _drift(outcome, estimator.drift_courses_, names, constraints, criterion)
    estimator.segment_edges_ = _segment_edges(outcome, networks, names, constraints, criterion)
    estimator.edge_probabilities_ = _edge_probabilities(outcome, last, estimator.segment_edges_)
    estimator.change_scores_ = [score - found.scores[0] for score in found.scores]
    estimator.order_ = [names[j] for j in order]
    estimator.standard_deviations_ = safe_roots(np.diag(outcome.moments.scatter)[:d] / outcome.moments.n)
    estimator.status_, estimator.n_rounds_ = Status.EXACT, outcome.n_sums
    estimator.n_samples_ = int(outcome.moments.n)
    estimator._say_moments(outcome.asked)
    estimator._tell(*_sentences(outcome, estimator.changes_, estimator.drift_))


def _constant(outcome: OneShotOutcome, names: tuple[str, ...]) -> DBN:
    C, intercept, variances = refit(outcome.moments, outcome.learned.support)
    d = len(names)
    if outcome.learned.noise.kind == "equal":
        variances[:] = float(variances.mean())
    A, is_open = C[d:].reshape(outcome.n_lags, d, d), open_edges(outcome.learned.orientation, C, names)
    return DBN(C[:d], A, names, intercept, variances, is_open)


def _network(
    numbers: tuple[FloatArray, FloatArray, FloatArray], mean: FloatArray, names: tuple[str, ...]
) -> DBN:
    """The network in the units of the data; `mean` was taken off recordings."""
    C, intercept, variances = numbers
    d = len(names)
    intercept = intercept + mean - np.tile(mean, len(C) // d) @ C
    support = C != 0
    loose = support[:d] & ~compelled_edges(support)
    is_open = [(names[i], names[j]) for i, j in np.argwhere(loose)]
    return DBN(C[:d], C[d:].reshape(-1, d, d), names, intercept, variances, is_open)


def _segments(outcome: ChangingOutcome) -> pd.DataFrame:
    starts = [outcome.blocks.start(block) for block in (0, *outcome.changing.cuts)]
    return pd.DataFrame(
        {
            "start": starts,
            "stop": [*starts[1:], outcome.blocks.stop],
            "rows": [round(float(n)) for n in outcome.changing.grams.n],
        }
    )


def _site_changes(outcome: ChangingOutcome) -> pd.DataFrame | None:
    """Where each site goes from one regime to another; regimes that it does not go through are left out."""
    if outcome.site_cuts is None or outcome.site_blocks is None:
        return None
    rows = []
    for site, cuts in outcome.site_cuts.items():
        edges = (0, *cuts, outcome.site_blocks.n)
        own = [(r, a) for r, (a, b) in enumerate(pairwise(edges), start=1) if b > a]
        for (before, _), (after, start) in pairwise(own):
            rows.append((site, outcome.site_blocks.start(start), before, after))
    return pd.DataFrame(rows, columns=list(SITE_CHANGES))


def _probability(difference: float) -> float:
    """Of a change whose absence costs so much of the score."""
    return float(1.0 / (1.0 + np.exp(-np.clip(difference, -700.0, 700.0) / 2)))


def _changes(
    outcome: ChangingOutcome, names: Sequence[str], constraints: EdgeConstraints, criterion: Criterion
) -> pd.DataFrame:
    found, d, rows = outcome.changing, len(names), []
    for s, cut in enumerate(found.cuts, start=1):
        for j, node in enumerate(found.nodes):
            steps = node.weights[:, : node.width - 1]
            for m in np.flatnonzero(steps[s] != steps[s - 1]).tolist():
                before, after = (float(found.network_at(block)[0][m, j]) for block in (cut - 1, cut))
                loss = fit_without(found, j, m, s, constraints, criterion).score - node.score
                start = outcome.blocks.start(cut)
                rows.append((names[m % d], names[j], m // d, start, before, after, _probability(loss)))
    return pd.DataFrame(rows, columns=list(CHANGES))


def _segment_edges(
    outcome: ChangingOutcome,
    networks: Sequence[DBN],
    names: Sequence[str],
    constraints: EdgeConstraints,
    criterion: Criterion,
) -> pd.DataFrame:
    """The edges of every segment, with the probability by BIC that they are there, given the order and the cuts."""
    found, d, rows = outcome.changing, len(names), []
    posterior = None if outcome.constant is None else outcome.constant.learned.posterior.probability
    for s, network in enumerate(networks):
        C = network.adjacency_matrices.reshape(-1, d)
        for m, j in np.argwhere(C != 0).tolist():
            if posterior is not None:
                probability = float(posterior[m, j])
            elif constraints.required[m, j]:
                probability = 1.0
            else:
                loss = fit_lacking(found, j, m, s, constraints, criterion).score - found.nodes[j].score
                probability = _probability(loss)
            rows.append((s, names[m % d], names[j], m // d, float(C[m, j]), probability))
    return pd.DataFrame(rows, columns=list(SEGMENT_EDGES))


def _edge_probabilities(outcome: ChangingOutcome, dbn: DBN, by_segment: pd.DataFrame) -> pd.DataFrame:
    """Those of the last segment; without changes of all edges that could be, as `OneShotDBN` has them."""
    if outcome.constant is None:
        known = by_segment[by_segment["segment"] == len(outcome.changing.cuts)]
        # Weights that drift are those of the end, where some have vanished.
        now = dbn.edges()[["source", "target", "lag", "weight"]]
        return now.merge(known.drop(columns=["segment", "weight"]), on=["source", "target", "lag"])
    learned, names = outcome.constant.learned, tuple(dbn.variables)
    C = refit(outcome.constant.moments, learned.support)[0]
    shares = explained_shares(outcome.constant.moments.scatter, C)
    return with_links(edge_table(learned.posterior.probability, C, shares, names), names, learned)


def _variance_changes(
    outcome: ChangingOutcome,
    networks: Sequence[DBN],
    names: Sequence[str],
    constraints: EdgeConstraints,
    criterion: Criterion,
) -> pd.DataFrame:
    found, rows = outcome.changing, []
    price = criterion.c * float(np.log(found.grams.n.sum()))
    for s, cut in enumerate(found.cuts, start=1):
        start = outcome.blocks.start(cut)
        for j, node in enumerate(found.nodes):
            if s in node.variance_cuts:
                before, after = (float(network.noise_variances[j]) for network in networks[s - 1 : s + 1])
                rows.append(
                    (
                        names[j],
                        "noise variance",
                        start,
                        before,
                        after,
                        _probability(_one_variance(found, j, s) - price),
                    )
                )
            constant = node.width - 1
            if node.weights[s, constant] != node.weights[s - 1, constant]:
                before, after = (float(network.intercept[j]) for network in networks[s - 1 : s + 1])
                loss = fit_without(found, j, constant, s, constraints, criterion).score - node.score
                rows.append((names[j], "level", start, before, after, _probability(loss)))
    return pd.DataFrame(rows, columns=list(VARIANCE_CHANGES))


def _courses(outcome: ChangingOutcome, mean: FloatArray, names: tuple[str, ...]) -> pd.DataFrame:
    """Weights and levels that drift, in every block."""
    found, d, rows = outcome.changing, len(names), []
    for block in range(outcome.blocks.n) if found.functions is not None else ():
        dbn = _network(found.network_at(block), mean, names)
        weights, start = dbn.adjacency_matrices.reshape(-1, d), outcome.blocks.start(block)
        for j, node in enumerate(found.nodes):
            for m in sorted(node.drifting):
                if m == node.width - 1:
                    rows.append(("level", "", names[j], 0, start, float(dbn.intercept[j])))
                else:
                    rows.append(("edge", names[m % d], names[j], m // d, start, float(weights[m, j])))
    return pd.DataFrame(rows, columns=list(COURSES))


def _drift(
    outcome: ChangingOutcome,
    courses: pd.DataFrame,
    names: Sequence[str],
    constraints: EdgeConstraints,
    criterion: Criterion,
) -> pd.DataFrame:
    """The beginning, the middle and the end of these courses, and the probability by BIC that each drifts."""
    found, rows, place = outcome.changing, [], list(names).index
    by_edge: Any = courses.groupby(["what", "source", "target", "lag"], sort=False)
    for (what, source, target, lag), course in by_edge:
        j = place(target)
        node = found.nodes[j]
        m = node.width - 1 if what == "level" else lag * len(names) + place(source)
        loss = fit_steady(found, j, m, constraints, criterion).score - node.score
        weights = course["weight"].to_numpy()
        ends = weights[[0, (len(weights) - 1) // 2, -1]].tolist()
        rows.append((what, source, target, lag, *ends, _probability(loss)))
    return pd.DataFrame(rows, columns=list(DRIFT))


def _one_variance(found: Changing, j: int, s: int) -> float:
    """By how much the fit is worse if a node has one variance before and after the beginning of a segment."""
    node, n = found.nodes[j], found.grams.n
    edges = [0, *node.variance_cuts, len(n)]
    place = edges.index(s)
    here = slice(edges[place - 1], edges[place + 1])
    one = node.rss[here].sum() / n[here].sum()
    return float(n[here] @ np.log(one / node.variances[here]))


def _sentences(outcome: ChangingOutcome, changes: pd.DataFrame, drift: pd.DataFrame) -> list[str]:
    found, blocks, told = outcome.changing, outcome.blocks, []
    if found.cuts:
        what = (
            f"{len(changes)} edges differ between neighbouring segments"
            if len(changes)
            else "no edge differs, only levels or noise variances"
        )
        told.append(
            f"the network changes at {_places(outcome)}; {what} (`changes_`, `variance_changes_`). `dbn_`, and so every "
            "forecast and effect, is that of the last segment; `dbns_by_segment_` has the others."
        )
    if len(drift):
        n_edges = int((drift["what"] == "edge").sum())
        told.append(
            f"the weights of {n_edges} edges and {len(drift) - n_edges} levels drift slowly (`drift_`). `dbn_`, and so every "
            "forecast and effect, has their last values, and networks of segments those in the middle of their segment."
        )
    if not outcome.could_change:
        told.append(
            "there are too few rows for two segments, so one network was learned for all of them; use longer recordings or "
            "more sites."
        )
    counts = np.array([block.n for block in outcome.moments_by_block])
    if blocks.rows and len(counts) > 1 and counts[-1] > _LONG_LAST * np.median(counts[:-1]):
        told.append(
            f"the last block has {counts[-1]:.0f} rows, the others about {np.median(counts[:-1]):.0f}, since recordings have "
            "different lengths or gaps; changes late in the longest recordings cannot be seen."
        )
    return told


def _places(outcome: ChangingOutcome) -> str:
    """Where the changes are, in words."""
    blocks, cuts = outcome.blocks, outcome.changing.cuts
    names = ", ".join(str(blocks.start(cut)) for cut in cuts)
    many = "s" if len(cuts) > 1 else ""
    if blocks.rows:
        return f"row{many} {names} of the recordings, give or take {blocks.rows} rows"
    if outcome.site_cuts is not None:
        return "rows of each site's own (`site_changes_`)"
    if blocks.wish.kind == "calendar":
        return f"{names}, give or take a {blocks.wish.period}"
    return f"block{many} {names} of column {blocks.wish.column!r}"
