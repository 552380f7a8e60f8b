"""Could the rankers be views of lines and curves? DREAM4 by other evidence, other sets and the order search.

For docs/measurements.md, DREAM4 and NetSim; run with FEDDBN_DATA set. Nothing is chosen with the gold standards.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from feddbn.core.orders.groups import CurvedRegressions, Groups
from feddbn.core.ranking import (
    EdgePosterior,
    ParentScores,
    average_parent_sets,
    score_parent_sets,
)
from feddbn.core.statistics.moments import correlations
from feddbn.data import read_sites
from feddbn.datasets import dream4
from feddbn.federation.protocol.task import run_program
from feddbn.federation.sums.feature_statistics import (
    Candidate,
    FeatureStatistics,
    feature_statistics_program,
)
from feddbn.methods.base import simulated
from feddbn.methods.oneshot import OneShotDBN

D = 100
OFF = ~np.eye(D, dtype=bool)
MOST_TOKENS = 11
MOST_PARENTS = 6


def statistics_of(network: int, stimulus: bool, features: str, smoothing: float) -> FeatureStatistics:
    """The sums that the ranker learns from."""
    data = dream4(network, stimulus=stimulus)
    sites = read_sites(data.sites, label="stimulus" if stimulus else None, missing="keep")
    centring = "label" if stimulus else "shared"
    program = feature_statistics_program(
        data.variables, 1, (Candidate(features, smoothing),), centring=centring
    )
    return run_program(program, simulated(sites))[0][0]


def off_own_past(known: FeatureStatistics, target: int) -> tuple[np.ndarray, np.ndarray, float]:
    """(r, m) places of the regulators' columns, the products of target and regulators without its past, and free rows."""
    R, _ = correlations(known.cross)
    r, m = known.design.edge_columns.shape
    columns, own = (
        np.concatenate([[target], known.design.edge_columns.ravel()]),
        known.design.own(target),
    )
    load = np.linalg.solve(R[np.ix_(own, own)] + 1e-10 * np.eye(len(own)), R[np.ix_(own, columns)])
    rest = R[np.ix_(columns, columns)] - R[np.ix_(columns, own)] @ load
    n_free = known.n - known.n_intercepts - known.design.n_lags
    return 1 + np.arange(r * m).reshape(r, m), rest, n_free


def by_g_prior(known: FeatureStatistics) -> ParentScores:
    """The ranker's own evidence of one and two regulators."""
    return score_parent_sets(known.cross, known.n, known.n_intercepts, known.design)


def by_tokens(known: FeatureStatistics, split: bool) -> ParentScores:
    """The evidence of tokens instead; `split`: a line with or without its curve, each with probability one half."""
    d, (r, m) = known.design.d, known.design.edge_columns.shape
    first, second = np.triu_indices(r, 1)
    empty = np.zeros((d, r)), np.zeros((2, d, len(first)))
    scores = ParentScores(np.full((d, r), -np.inf), np.full((d, len(first)), -np.inf), *empty, np.zeros(d))
    shapes = [(0,), tuple(range(m))] if split else [tuple(range(m))]
    for j in range(d):
        places, rest, n_free = off_own_past(known, j)
        scores.null[j] = -0.5 * n_free * np.log(known.cross[j, j] / known.n * rest[0, 0])

        def evidence(*groups: np.ndarray, at=places, rest=rest, n_free=n_free) -> np.ndarray:
            found = []
            for chosen in product(shapes, repeat=len(groups)):
                parts = [at[group][:, list(shape)] for group, shape in zip(groups, chosen, strict=True)]
                index = np.concatenate(parts, axis=1)
                M = rest[index[:, :, None], index[:, None, :]] + np.eye(index.shape[1]) / known.n
                cross = rest[index, 0]
                solved = np.linalg.solve(M, cross[:, :, None])[:, :, 0]
                left = 1 - np.clip((cross * solved).sum(axis=1) / rest[0, 0], 0, 1 - 1e-12)
                charge = np.linalg.slogdet(M)[1] + index.shape[1] * np.log(known.n)
                found.append(-0.5 * n_free * np.log(left) - 0.5 * charge)
            return np.logaddexp.reduce(found, axis=0) - np.log(len(found))

        other = np.arange(r) % d != j
        scores.singles[j] = np.where(other, evidence(np.arange(r)), -np.inf)
        scores.pairs[j] = np.where(other[first] & other[second], evidence(first, second), -np.inf)
    return scores


def averaged(scores: ParentScores, hubs: bool = True) -> EdgePosterior:
    """The average over all sets of up to two regulators."""
    steps = 5 if hubs else 0
    return average_parent_sets(scores, edge_rate=2 / D, regulator_of=np.arange(scores.r), n_hub_steps=steps)


def by_tables(known: FeatureStatistics, split: bool) -> np.ndarray:
    """(d, d) over all subsets of the best tokens of each target; what is no such token, beside the best set."""
    d, (r, m) = known.design.d, known.design.edge_columns.shape
    probability = np.zeros((r, d))
    for j in range(d):
        places, rest, n_free = off_own_past(known, j)
        parts = [places[:, :1], places[:, 1:]] if split else [places]
        columns = tuple(tuple(row) for part in parts for row in part.tolist())
        edges = np.tile(np.arange(r), len(parts))
        groups = Groups(1, columns, tuple((int(e),) for e in edges), np.ones(1 + r * m))
        regressions = CurvedRegressions(rest * n_free, n_free, groups)
        price, own = regressions.price, edges % d == j

        def deltas(parents: tuple[int, ...], known=regressions, n=n_free, price=price, own=own) -> np.ndarray:
            fit = known.fit(0, parents)
            assert fit.charge is not None
            found = n * np.log(np.maximum(1 - fit.gain / fit.rss, 1e-12)) + fit.charge.more + price
            found[own] = found[list(parents)] = np.inf
            return found

        parents: tuple[int, ...] = ()
        while len(parents) < MOST_PARENTS and deltas(parents).min() < 0:
            parents = (*parents, int(np.argmin(deltas(parents))))
        beside = deltas(parents)
        further = np.argsort(np.minimum(beside, deltas(())))[: MOST_TOKENS - len(parents)].tolist()
        nominees = sorted({*parents, *further})
        rss, charge = regressions.subset_fits(0, nominees)
        has = (np.arange(len(rss))[:, None] >> np.arange(len(nominees))) & 1 > 0
        log_weight = -n_free / 2 * np.log(rss) - charge / 2 - has.sum(axis=1) * price / 2
        weight = np.exp(log_weight - log_weight.max())
        alone = 1 / (1 + np.exp(np.clip(beside / 2, -50, 50)))
        np.maximum.at(probability[:, j], edges, np.where(np.isfinite(beside), alone, 0))
        for e in np.unique(edges[nominees]):
            inside = has[:, edges[nominees] == e].any(axis=1)
            probability[e, j] = weight[inside].sum() / weight.sum()
    return probability


def by_order_search(network: int, features: str) -> np.ndarray:
    """(d, d) of the order search without contemporaneous edges."""
    model = OneShotDBN(features=features, forbidden_edges=[("*", "*", 0)], check_residuals=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = model.fit(dream4(network).sites).edge_probabilities_
    place = {name: k for k, name in enumerate(model.feature_names_in_)}
    lagged, probability = table[table["lag"] == 1], np.zeros((D, D))
    probability[lagged["source"].map(place), lagged["target"].map(place)] = lagged["probability"]
    return probability


WAYS: dict[str, Callable[[FeatureStatistics], EdgePosterior | np.ndarray]] = {
    "ranker": lambda known: averaged(by_g_prior(known)),
    "ranker without hubs": lambda known: averaged(by_g_prior(known), hubs=False),
    "evidence of tokens": lambda known: averaged(by_tokens(known, False)),
    "evidence of tokens, curves apart": lambda known: averaged(by_tokens(known, True)),
    "eleven tokens": lambda known: by_tables(known, False),
    "eleven tokens, curves apart": lambda known: by_tables(known, True),
}


def show(name: str, found: dict[int, EdgePosterior | np.ndarray]) -> None:
    """Print means over networks: average precision, AUROC and, where there is one, the log marginal likelihood."""
    rows = []
    for network, result in found.items():
        is_array = isinstance(result, np.ndarray)
        score, truth = (result if is_array else result.probability)[OFF], dream4(network).truth[OFF]
        evidence = np.nan if is_array else result.log_marginal_likelihood
        rows.append((average_precision_score(truth, score), roc_auc_score(truth, score), evidence))
    print("{:62s} {:.3f} / {:.3f}  {:.0f}".format(name, *np.mean(rows, axis=0)), flush=True)


def of_sums(networks: Sequence[int], ways: Sequence[str] = tuple(WAYS)) -> None:
    """The ranker's own sums, ranked in several ways."""
    for stimulus, smoothing in ((True, 0.6), (False, 0.8)):
        sums = {k: statistics_of(k, stimulus, "quadratic", smoothing) for k in networks}
        for name in ways:
            place = "stimulus known" if stimulus else "unknown"
            show(f"{place}, smoothing {smoothing:g}: {name}", {k: WAYS[name](one) for k, one in sums.items()})


def of_orders(networks: Sequence[int]) -> None:
    """The order search, and the ranker from rows like its own: stimulus unknown, nothing smoothed."""
    for features in ("linear", "quadratic", "spline"):
        sums = {k: statistics_of(k, False, features, 1.0) for k in networks}
        show(f"{features}, no smoothing: ranker", {k: WAYS["ranker"](one) for k, one in sums.items()})
        show(f"{features}, no smoothing: order search", {k: by_order_search(k, features) for k in networks})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, nargs="+", default=list(range(1, 6)))
    given = parser.parse_args().networks
    of_sums(given)
    of_orders(given)
