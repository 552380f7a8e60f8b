"""Adapters give what the originals give on pooled rows: four unequal sites, two seeds."""

import contextlib
import io
import random
import warnings

import numpy as np
import pytest
from causallearn.score.LocalScoreFunction import local_score_BIC_from_cov
from causallearn.search.ConstraintBased.FCI import fci
from causallearn.search.ConstraintBased.PC import pc
from causallearn.search.PermutationBased import BOSS
from causallearn.search.PermutationBased.GRaSP import grasp
from causallearn.search.ScoreBased.GES import ges
from sklearn.linear_model import Lasso
from statsmodels.api import OLS, add_constant
from tigramite.data_processing import DataFrame
from tigramite.independence_tests.parcorr import ParCorr
from tigramite.lpcmci import LPCMCI
from tigramite.pcmci import PCMCI

import feddbn
from feddbn import AS_THEY_ARE
from feddbn.errors import ParameterError
from feddbn.interop import causal_learn, graphs
from feddbn.interop.tigramite import SummaryParCorr
from feddbn.model.dbn import DBN

pytestmark = pytest.mark.promise

SEEDS = range(2)
SIZES = [60, 200, 90, 150]


def federation(seed: int, d: int = 4):
    found = feddbn.simulate(d=d, n_sites=4, n_samples=500, site_sizes=SIZES, random_state=seed).sites
    return {name: [np.asarray(x)] for name, (x,) in found.items()}


def pooled_rows(sites, n_lags: int = 1):
    return np.concatenate(
        [np.hstack([x[n_lags - k : len(x) - k] for k in range(n_lags + 1)]) for (x,) in sites.values()]
    )


def quietly(call):
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


SEARCHES = {
    "PCMCI": (PCMCI, lambda search: search.run_pcmci(tau_max=2, pc_alpha=0.05)),
    "PCMCI+": (PCMCI, lambda search: search.run_pcmciplus(tau_max=2, pc_alpha=0.01)),
    "LPCMCI": (LPCMCI, lambda search: search.run_lpcmci(tau_max=1, pc_alpha=0.01)),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SEARCHES)
def test_tigramite(name, seed):
    sites = federation(seed)
    kind, run = SEARCHES[name]
    # PCMCI's rows begin after twice the largest lag.
    n_lags = 2 if name == "LPCMCI" else 4
    test = SummaryParCorr(feddbn.summary(sites, n_lags, prepare=AS_THEY_ARE))
    mine = quietly(lambda: run(kind(dataframe=test.dataframe_like(), cond_ind_test=test)))
    rows = DataFrame({k: x for k, (x,) in enumerate(sites.values())}, analysis_mode="multiple")
    theirs = quietly(lambda: run(kind(dataframe=rows, cond_ind_test=ParCorr())))
    assert (mine["graph"] == theirs["graph"]).all()
    np.testing.assert_allclose(mine["val_matrix"], theirs["val_matrix"], atol=1e-10)
    np.testing.assert_allclose(mine["p_matrix"], theirs["p_matrix"], atol=1e-10)


def test_tigramite_is_told_how_many_lags_it_needs():
    test = SummaryParCorr(feddbn.summary(federation(0), 2))
    with pytest.raises(ParameterError, match=r"n_lags=3\), twice tau_max"):
        test.run_test([(0, -3)], [(1, 0)])


@pytest.mark.parametrize("seed", SEEDS)
def test_causal_learn(seed):
    sites = federation(seed)
    mine, Z = feddbn.summary(sites, 1, prepare=AS_THEY_ARE), pooled_rows(sites)
    names = mine.columns
    found, theirs = (
        causal_learn.pc(mine, timed=False),
        pc(Z, 0.05, "fisherz", show_progress=False, node_names=names),
    )
    assert (found.G.graph == theirs.G.graph).all()
    found = quietly(lambda: causal_learn.fci(mine, timed=False))
    theirs = quietly(lambda: fci(Z, "fisherz", 0.05, show_progress=False, node_names=names))
    assert (found[0].graph == theirs[0].graph).all()
    found, theirs = causal_learn.ges(mine), ges(Z, "local_score_BIC", node_names=names)
    assert (found["G"].graph == theirs["G"].graph).all()
    assert found["score"] == pytest.approx(theirs["score"], rel=1e-10)
    found = causal_learn.grasp(mine, seed=seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (causal-learn draws from it)
    assert (found.graph == grasp(Z, verbose=False, node_names=names).graph).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_boss(seed):
    """Which of two orders with equal scores BOSS takes hangs on their last digits, so on the machine: scores are compared."""
    sites = federation(seed)
    mine, Z = feddbn.summary(sites, 1, prepare=AS_THEY_ARE), pooled_rows(sites)
    scored = []

    def watched(rows, i, parents, parameters=None):
        scored.append(((np.cov(rows.T), len(rows)), i, tuple(parents)))
        return local_score_BIC_from_cov(scored[-1][0], i, parents, parameters)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BOSS, "local_score_BIC_from_cov", watched)
        causal_learn.boss(mine, seed=seed)
    theirs = np.cov(Z.T), len(Z)
    assert len({(i, parents) for _, i, parents in scored}) > 50
    for data, i, parents in scored:
        found, wanted = (local_score_BIC_from_cov(one, i, list(parents)) for one in (data, theirs))
        assert found == pytest.approx(wanted, rel=1e-12)


def test_time_is_known_to_pc():
    sites = federation(0)
    mine = feddbn.summary(sites, 1, prepare=AS_THEY_ARE)
    graph = causal_learn.pc(mine).G.graph
    # An arrow from now to before: -1 at its tail, 1 at its head.
    assert not ((graph[:4, 4:] == -1) & (graph[4:, :4].T == 1)).any()
    free = causal_learn.pc(mine, timed=False).G.graph
    assert ((free[:4, 4:] == -1) & (free[4:, :4].T == 1)).any()


def test_regressions_on_made_up_rows_are_those_of_pooled_rows():
    sites = federation(1)
    made, Z = feddbn.summary(sites, 1, prepare=AS_THEY_ARE).rows_like(), pooled_rows(sites)
    (mine, theirs) = (OLS(rows[:, 2], add_constant(rows[:, 4:])).fit() for rows in (made, Z))
    np.testing.assert_allclose(mine.params, theirs.params, atol=1e-10)
    np.testing.assert_allclose(mine.bse, theirs.bse, atol=1e-10)
    (mine, theirs) = (
        Lasso(0.1, tol=1e-12, max_iter=100_000).fit(rows[:, 4:], rows[:, 2]) for rows in (made, Z)
    )
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-8)


def test_networks_go_out_to_pgmpy_and_dowhy():
    W = np.array([[0, 0.5, 0], [0, 0, 0], [0, 0, 0]])
    A = np.zeros((2, 3, 3))
    A[0, 2, 0], A[1, 1, 2] = 0.7, -0.3
    dbn = DBN(W, A, ("a", "b", "c"), [1, 2, 3], [1, 4, 9])
    graph = graphs.dowhy_graph(dbn)
    edges = {
        ("a", "b"),
        ("a(t-1)", "b(t-1)"),
        ("a(t-2)", "b(t-2)"),
        ("c(t-1)", "a"),
        ("c(t-2)", "a(t-1)"),
        ("b(t-2)", "c"),
    }
    assert set(graph.edges) == edges
    dag = graphs.pgmpy_dag(dbn)
    assert set(dag.edges) == edges
    assert dag.is_dconnected("a", "b")
    by_name = {cpd.variable: cpd for cpd in graphs.pgmpy_cpds(dbn)}
    np.testing.assert_allclose(by_name["b"].beta, [2, 0.5])
    assert by_name["b"].std == 2.0
    assert list(by_name["c"].evidence) == ["b(t-2)"]
