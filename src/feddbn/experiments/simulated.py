"""Cells on simulated federations: draw the data from the cell's seed, fit, score against the truth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.pruning import break_cycles, threshold
from feddbn.data import read_sites
from feddbn.experiments.cells import Cell, hashed_seed
from feddbn.experiments.config import PROTOCOLS
from feddbn.federation.programs.local_fits import local_fit_of_state
from feddbn.federation.programs.prepare import AS_THEY_ARE
from feddbn.federation.protocol.site import Site
from feddbn.methods.scoring import Scores, score, score_sites
from feddbn.methods.simulation import SimulatedFederation, simulate
from feddbn.model.dbn import DBN
from feddbn.runtime.simulated.in_process import InProcessFederation

__all__ = ["LocalNetworks", "baselines_of_local_fits", "draw", "run_simulated", "select_lambda"]

MEASURES = ("shd", "shd_paper", "tpr", "fdr", "f1")
# The recorded rows of the baselines: sites centre their rows and do nothing else to them, as in the paper.
_ROWS = {**AS_THEY_ARE, "center": "auto"}


def draw(cell: Cell) -> SimulatedFederation:
    """The federation of a cell; the same for every method."""
    point = cell.point
    return simulate(
        d=point.d or 10,
        n_lags=point.n_lags,
        n_sites=point.n_sites or 10,
        n_samples=point.n_samples or 100,
        mean_degree=point.mean_degree,
        lag_degree=point.lag_degree,
        heterogeneity=point.heterogeneity,
        connectivity=point.connectivity,
        w_range=PROTOCOLS[cell.protocol].w_range,
        random_state=hashed_seed(cell.data_axes()),
    )


def run_simulated(cell: Cell) -> list[dict[str, Any]]:
    """Results of a cell: one per penalty tried, or one per baseline."""
    fed = draw(cell)
    settings = dict(cell.config["settings"])
    settings["n_lags"] = cell.point.n_lags
    estimator = cell.settings.make
    if cell.settings.run == "local":
        return list(_local_results(fed, estimator, settings))
    pairs = settings.pop("lambdas", None) or [[None, None]]
    if "select" in settings:
        chosen = select_lambda(fed, settings.pop("select"), cell.point.n_lags)
        pairs = [[chosen, chosen]]
    if cell.point.participants is not None:
        settings["participation"] = cell.point.participants / (cell.point.n_sites or 1)
    results = []
    for lambda_w, lambda_a in pairs:
        penalties = {} if lambda_w is None else {"lambda_w": lambda_w, "lambda_a": lambda_a}
        model = estimator(**settings, **penalties).fit(fed.sites)
        estimates = model.dbns_ if cell.settings.personal else model.dbn_
        result = {**penalties, **_how_it_went(model), **_scores(fed, estimates)}
        if cell.kind == "example":
            # One network is drawn: that of all sites, or what personal networks share.
            result["weights"] = _weights(model.dbn_)
            result["truth"] = _weights(fed.truth)
        results.append(result)
    return results


def select_lambda(fed: SimulatedFederation, candidates: list[float], n_lags: int) -> float:
    """The penalty whose refitted network has the lowest BIC; from one sum of moments, without the truth.

    BIC = n sum_j log(RSS_j / n) + log(n) |edges|
    """
    from feddbn.methods.dynotears import Dynotears

    best, lowest = candidates[0], math.inf
    for candidate in candidates:
        model = Dynotears(n_lags, candidate, candidate, scale="none").fit(fed.sites)
        n = sum(max(0, len(frame) - n_lags) for frames in fed.sites.values() for frame in frames)
        n_edges = int(np.count_nonzero(model.W_) + np.count_nonzero(model.A_))
        variances = np.maximum(model.dbn_.noise_variances, 1e-12)
        bic = n * float(np.log(variances).sum()) + math.log(n) * n_edges
        if bic < lowest:
            best, lowest = candidate, bic
    return best


class LocalNetworks:
    """Every site's own fit, made once: its network and its penalised weights."""

    def __init__(self, fed: Mapping[str, Any], estimator: Any, settings: Mapping[str, Any]) -> None:
        sites = read_sites(fed)
        names = tuple(next(iter(sites.values())).variables)
        self.federation = InProcessFederation({name: Site(name, site) for name, site in sites.items()})
        model = estimator(**{**_ROWS, **settings}, federation=self.federation).fit(None)
        self.variables, self.networks = names, model.dbns_
        self.raw: dict[str, FloatArray] = {
            name: local_fit_of_state(self.federation.site(name).state)[1] for name in self.federation.sites
        }


def baselines_of_local_fits(
    local: LocalNetworks, w_threshold: float, a_threshold: float
) -> dict[str, tuple[DBN, FloatArray]]:
    """Ave and Vote with their scores ((p+1) d, d), as `Average` and `Vote` make them, from fits made once."""
    d = len(local.variables)
    raw = np.mean(list(local.raw.values()), axis=0)
    required = np.zeros(raw.shape, dtype=bool)
    averaged = threshold(raw, required, w_threshold, a_threshold)
    shares = np.mean([_stack(dbn) != 0 for dbn in local.networks.values()], axis=0)
    votes = np.where(shares > 0.5, shares, 0.0)
    votes[:d], _ = break_cycles(votes[:d], required[:d])
    return {
        "Ave": (_network(averaged, local.variables), raw),
        "Vote": (_network(votes, local.variables), shares),
    }


def _local_results(
    fed: SimulatedFederation, estimator: Any, settings: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    local = LocalNetworks(fed.sites, estimator, settings)
    shared = baselines_of_local_fits(local, settings["w_threshold"], settings["a_threshold"])
    common = {
        "lambda_w": settings["lambda_w"],
        "lambda_a": settings["lambda_a"],
        "rounds": 1,
        "converged": True,
    }
    for name, (dbn, _) in shared.items():
        yield {"variant": name, **common, **_scores(fed, dbn)}
    best = min(local.networks.values(), key=lambda dbn: _distance(fed, dbn))
    yield {"variant": "Best", **common, **_scores(fed, best)}
    yield {"variant": "LocalOnly", **common, **_scores(fed, local.networks)}


def _distance(fed: SimulatedFederation, dbn: DBN) -> float:
    """How `BestSite` compares a site's network with the truth (with all truths, if they differ)."""
    if fed.is_homogeneous:
        scores = score(fed.truth, dbn)
        return float(scores["W"]["shd"] + scores["A"]["shd"])
    means = score_sites(fed.truths, dbn)
    return means["W"]["mshd"] + means["A"]["mshd"]


def _scores(fed: SimulatedFederation, estimates: DBN | Mapping[str, DBN]) -> dict[str, Any]:
    if isinstance(estimates, DBN) and fed.is_homogeneous:
        one: Scores = score(fed.truth, estimates)
        return {part: {m: _rounded(one[part][m]) for m in MEASURES} for part in ("W", "A")}
    means = score_sites(fed.truths, estimates)
    return {
        part: {m: _rounded(np.mean([s[part][m] for s in means.sites.values()])) for m in MEASURES}
        for part in ("W", "A")
    }


def _how_it_went(model: Any) -> dict[str, Any]:
    status = getattr(model, "status_", None)
    return {
        "rounds": int(getattr(model, "n_rounds_", 0)),
        "converged": bool(getattr(status, "is_converged", True)),
    }


def _weights(dbn: DBN) -> dict[str, Any]:
    return {"W": np.round(dbn.W, 4).tolist(), "A": np.round(dbn.A, 4).tolist()}


def _stack(dbn: DBN) -> FloatArray:
    return np.vstack([dbn.W, *dbn.A])


def _network(C: FloatArray, variables: tuple[str, ...]) -> DBN:
    d = len(variables)
    return DBN(C[:d], C[d:].reshape(-1, d, d), variables)


def _rounded(value: Any) -> float:
    return round(float(value), 6)
