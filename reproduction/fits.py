"""What a cell does: simulated data are drawn from its seed and the fit scored against the truth; on DREAM4 and NetSim W
and A become one score for each ordered pair, which is ranked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from feddbn.core.arrays import FloatArray
from feddbn.core.constraints import break_cycles, threshold
from feddbn.data import read_sites
from feddbn.federation.programs.local_fits import local_fit_of_state
from feddbn.federation.protocol.site import Site
from feddbn.federation.sums.prepare import AS_THEY_ARE, Prepare
from feddbn.model.dbn import DBN
from feddbn.model.nodes import known
from feddbn.results.scoring import Scores, score, score_sites
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.sim.simulation import SimulatedFederation, simulate
from reproduction.cells import Cell, hashed_seed
from reproduction.config import PROTOCOLS
from reproduction.datasets import PAPER_SUBJECTS, Dataset, dream4, netsim
from reproduction.ranking_scores import ranking_scores

MEASURES = ("shd", "shd_paper", "tpr", "fdr", "f1")
# The recorded rows of the baselines: sites centre their rows and do nothing else to them, as in the paper.
_ROWS = {**AS_THEY_ARE, "center": "auto"}


def made(estimator: Any, settings: Mapping[str, Any]) -> Any:
    """A method or a ranker; cells name settings of methods without the group that holds them."""
    empty = estimator()
    grouped = empty.settings.given_names() if hasattr(empty, "settings") else ()
    names = {name.rpartition(".")[2]: name for name in grouped}
    return estimator(**{names.get(name, name): value for name, value in settings.items()})


def draw(cell: Cell) -> SimulatedFederation:
    """The federation of a cell; the same for every method."""
    point = cell.point
    return simulate(
        d=point.d or 10,
        n_lags=point.n_lags,
        n_sites=point.n_sites or 10,
        n_samples=point.n_samples or 100,
        mean_degree=point.degree,
        lag_degree=point.lag_degree,
        heterogeneity=point.heterogeneity,
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
        model = made(estimator, {**settings, **penalties}).fit(fed.sites)
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
    from feddbn.methods.baselines import Dynotears

    best, lowest = candidates[0], math.inf
    for candidate in candidates:
        model = Dynotears(
            n_lags=n_lags, lambda_w=candidate, lambda_a=candidate, prepare=Prepare(scale="none")
        ).fit(fed.sites)
        n = sum(max(0, len(frame) - n_lags) for frames in fed.sites.values() for frame in frames)
        n_edges = int(np.count_nonzero(model.W_) + np.count_nonzero(model.A_))
        variances = np.maximum(known(model.dbn_.noise_variances, "noise_variances"), 1e-12)
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
        given = {**_ROWS, **settings, "federation": self.federation}
        model = made(estimator, given).fit(None)
        self.variables, self.networks = names, model.dbns_
        self.raw: dict[str, FloatArray] = {
            name: local_fit_of_state(self.federation.site(name).state)[1] for name in self.federation.sites
        }


def baselines_of_local_fits(
    local: LocalNetworks, w_threshold: float, a_threshold: float
) -> dict[str, tuple[DBN, FloatArray]]:
    """Ave and Vote with their scores ((p+1) d, d), the first as `Average` makes it, from fits made once."""
    d = len(local.variables)
    raw = np.mean(list(local.raw.values()), axis=0)
    required = np.zeros(raw.shape, dtype=bool)
    averaged = threshold(raw, required, w_threshold, a_threshold)
    shares = np.mean([np.vstack([dbn.W, *dbn.A]) != 0 for dbn in local.networks.values()], axis=0)
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
    penalties = {name: settings[name] for name in ("lambda_w", "lambda_a")}
    common = {**penalties, "rounds": 1, "converged": True}
    for name, (dbn, _) in shared.items():
        yield {"variant": name, **common, **_scores(fed, dbn)}
    best = min(local.networks.values(), key=lambda dbn: _distance(fed, dbn))
    yield {"variant": "Best", **common, **_scores(fed, best)}
    yield {"variant": "LocalOnly", **common, **_scores(fed, local.networks)}


def _distance(fed: SimulatedFederation, dbn: DBN) -> float:
    """How far a site's network is from the truth (from all truths, if they differ)."""
    if fed.is_homogeneous:
        scores = score(fed.truth, dbn)
        return float(scores["W"]["shd"] + scores["A"]["shd"])
    means = score_sites(fed.truths, dbn)
    return means["W"]["mshd"] + means["A"]["mshd"]


def _scores(fed: SimulatedFederation, estimates: DBN | Mapping[str, DBN]) -> dict[str, Any]:
    if isinstance(estimates, DBN) and fed.is_homogeneous:
        one: Scores = score(fed.truth, estimates)
        return {part: {m: round(float(one[part][m]), 6) for m in MEASURES} for part in ("W", "A")}
    means = score_sites(fed.truths, estimates)
    return {
        part: {m: round(float(np.mean([s[part][m] for s in means.sites.values()])), 6) for m in MEASURES}
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


def _network(C: FloatArray, variables: tuple[str, ...]) -> DBN:
    d = len(variables)
    return DBN(C[:d], C[d:].reshape(-1, d, d), variables)


PERSONAL_SUBJECTS: dict[int, tuple[int, ...]] = {1: (2, 4, 6, 8, 10), 2: (1, 3, 5, 7, 9), 3: (1, 3, 5, 7, 9)}
"""Subjects of the paper's PFDBNL experiment, counted from 1."""
N_PARTS = 5


def run_dream4(cell: Cell) -> list[dict[str, Any]]:
    """Average precision, trapezoid AUPR and AUROC over the 9,900 ordered pairs of each network."""
    settings, method = dict(cell.config["settings"]), cell.settings
    networks = range(1, 6) if method.joint else (cell.point.network or 1,)
    stimulus = settings.get("center_by") == "stimulus"
    data = {number: dream4(number, stimulus=stimulus) for number in networks}
    if method.joint:
        # The paper's personalised setting: each data set is a client, its ten series the recordings.
        sites = {f"network-{n}": [f for fs in data[n].sites.values() for f in fs] for n in networks}
        model = made(method.make, settings).fit(sites)
        scores = {n: _combined(_site_weights(model, f"network-{n}", method.personal)) for n in networks}
        return [_dream4_result(n, data[n], scores[n], None, model) for n in networks]
    number, one = next(iter(data.items()))
    return [
        _dream4_result(number, one, score, variant, model)
        for variant, score, model in _shared_scores(cell, settings, one.sites)
    ]


def run_netsim(cell: Cell) -> list[dict[str, Any]]:
    """AUROC of each of the paper's five subjects, by every protocol of `fmri_scores`."""
    settings, method, sim = dict(cell.config["settings"]), cell.settings, cell.point.sim or 3
    cuts = settings.pop("cuts", [])
    if method.personal and method.run == "fit":
        subjects = netsim(sim, PERSONAL_SUBJECTS[sim])
        model = made(method.make, settings).fit(subjects.sites)
        return [
            result
            for name in subjects.sites
            for result in _netsim_results(
                name,
                subjects.truths[name],
                _site_weights(model, name, True),
                (model.dbns_[name].W, model.dbns_[name].A),
                cuts,
            )
        ]
    chosen = netsim(sim, PAPER_SUBJECTS[sim])
    results = []
    for name, frames in chosen.sites.items():
        truth = chosen.truths[name]
        if method.run in ("fit", "select"):
            model = made(method.make, settings).fit(split_subject(frames[0]))
            raw, final = (model.W_raw_, model.A_raw_), (model.W_, model.A_)
            results += _netsim_results(name, truth, raw, final, cuts)
            continue
        sites = split_subject(frames[0]) if method.run == "local" else {name: frames}
        for variant, ranked, model in _shared_scores(cell, settings, sites):
            cut = None if model is None else _is_edge(model.W_, model.A_)
            results.append(_netsim_result(name, truth, ranked, cut, variant))
    if method.run == "rank":
        model = made(method.make, settings).fit(chosen.sites)
        results.append(
            _netsim_result("all", chosen.truth, _ranker_scores(model), None, "five subjects summed")
        )
    return results


def _netsim_results(
    name: str,
    truth: NDArray[np.int_],
    raw: tuple[FloatArray, FloatArray],
    final: tuple[FloatArray, FloatArray],
    cuts: Iterable[float],
) -> list[dict[str, Any]]:
    """The result at the method's own thresholds, and one variant for each other threshold."""
    score = _combined(raw)
    results = [_netsim_result(name, truth, score, _is_edge(*final), None)]
    for cut in cuts:
        kept = [np.where(np.abs(part) > cut, part, 0.0) for part in raw]
        results.append(_netsim_result(name, truth, score, _is_edge(*kept), f"threshold {cut:g}"))
    return results


def _is_edge(W: FloatArray, A: FloatArray) -> NDArray[np.bool_]:
    edges: NDArray[np.bool_] = _total(W, A) != 0
    return edges


def split_subject(frame: pd.DataFrame) -> dict[str, list[pd.DataFrame]]:
    """One subject's time steps as five clients of equal length, in time order."""
    parts = np.array_split(np.arange(len(frame)), N_PARTS)
    return {f"client-{k + 1}": [frame.iloc[part].reset_index(drop=True)] for k, part in enumerate(parts)}


def fmri_scores(
    truth: NDArray[np.int_], score: FloatArray, cut: NDArray[np.bool_] | None
) -> dict[str, float]:
    """AUROC of scores (d, d), [from, to].

    ``off`` ranks ordered pairs of different nodes; ``diagonal`` counts the self-loops as true edges, as the paper
    does; ``skeleton`` ignores directions. ``cut_*`` use the 0/1 predictions after thresholds (the paper's).
    """
    off = ~np.eye(len(truth), dtype=bool)
    with_loops = np.where(off, truth, 1)
    upper = np.triu_indices(len(truth), k=1)
    either, both = np.maximum(truth, truth.T), np.maximum(score, score.T)
    result = {
        "off": _auroc(truth[off], score[off]),
        "diagonal": _auroc(with_loops.ravel(), score.ravel()),
        "skeleton": _auroc(either[upper], both[upper]),
    }
    if cut is not None:
        claimed = cut.astype(float)
        result["cut_off"] = _auroc(truth[off], claimed[off])
        result["cut_diagonal"] = _auroc(with_loops.ravel(), claimed.ravel())
    return result


def _shared_scores(
    cell: Cell, settings: Mapping[str, Any], sites: Mapping[str, Any]
) -> Iterable[tuple[str | None, FloatArray, Any]]:
    """(variant, score, fitted model or None) of a method that learns one network."""
    estimator = cell.settings.make
    if cell.settings.run == "context":
        recordings = [frame.to_numpy(dtype=float) for frames in sites.values() for frame in frames]
        yield None, cell.settings.load()(recordings, **settings), None
    elif cell.settings.run == "rank":
        yield None, _ranker_scores(made(estimator, settings).fit(sites)), None
    elif cell.settings.run == "local":
        local = LocalNetworks(sites, estimator, settings)
        shared = baselines_of_local_fits(local, settings["w_threshold"], settings["a_threshold"])
        d = len(local.variables)
        for name, (dbn, raw) in shared.items():
            yield name, _combined((raw[:d], raw[d:].reshape(-1, d, d))), SimpleNamespace(W_=dbn.W, A_=dbn.A)
        for raw in local.raw.values():
            parts = raw[:d], raw[d:].reshape(-1, d, d)
            W, A = (np.where(np.abs(part) > 0.2, part, 0.0) for part in parts)
            yield "LocalOnly", _combined(parts), SimpleNamespace(W_=W, A_=A)
    else:
        model = made(estimator, settings).fit(sites)
        yield None, _combined((model.W_raw_, model.A_raw_)), model


def _total(W: FloatArray, A: FloatArray) -> FloatArray:
    """[fdbnl] Application in FMRI: "we combine these two matrices using an element-wise sum"."""
    total: FloatArray = W + A.sum(axis=0)
    return total


def _combined(weights: tuple[FloatArray, FloatArray]) -> FloatArray:
    return np.abs(_total(*weights))


def _site_weights(model: Any, site: str, personal: bool) -> tuple[FloatArray, FloatArray]:
    if not personal:
        return model.W_raw_, model.A_raw_
    raw = getattr(model, "dbns_raw_", None) or model.dbns_
    return raw[site].W, raw[site].A


def _ranker_scores(model: Any) -> FloatArray:
    if hasattr(model, "probabilities_"):
        largest: FloatArray = np.max(np.asarray(model.probabilities_), axis=0)
        return largest
    scores = np.array(model.scores_)
    np.fill_diagonal(scores, 1.0)  # a node's own past is certain
    return scores


def _dream4_result(
    number: int, data: Dataset, score: FloatArray, variant: str | None, model: Any
) -> dict[str, Any]:
    ranks = ranking_scores(data.truth, score)
    result: dict[str, Any] = {
        "item": f"network {number}",
        "ap": round(ranks.average_precision, 6),
        "aupr": round(ranks.aupr, 6),
        "auroc": round(ranks.auroc, 6),
    }
    if variant is not None:
        result["variant"] = variant
    if hasattr(model, "status_"):
        result["converged"] = bool(model.status_.is_converged)
        result["rounds"] = int(model.n_rounds_)
    return result


def _netsim_result(
    name: str, truth: NDArray[np.int_], score: FloatArray, cut: NDArray[np.bool_] | None, variant: str | None
) -> dict[str, Any]:
    result: dict[str, Any] = {"item": name.replace("-", " "), **fmri_scores(truth, score, cut)}
    if variant is not None:
        result["variant"] = variant
    return result


def _auroc(truth: NDArray[np.int_], score: FloatArray) -> float:
    return round(float(roc_auc_score(truth, score)), 6)
