"""How often edges, curves and marks come again in resamples: counted by hand, and on simulated sites."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn import AS_THEY_ARE, Dynotears, LatentDBN, OneShotDBN, confidence, simulate
from feddbn.analysis.confidence import COLUMNS, _rows_to_resample, confidence_table, mark_table
from feddbn.core.statistics.moments import Moments
from feddbn.data import read_sites
from feddbn.errors import ParameterError, ResidualsWarning, UnitsWarning
from feddbn.federation.protocol.site import Site
from feddbn.model.dbn import DBN
from feddbn.model.graph import AncestralGraph
from feddbn.runtime.simulated.in_process import InProcessFederation
from support.networks import make_curve, make_product
from support.saying import refused
from support.sites import federation_of

pytestmark = pytest.mark.promise

EDGES = {("a", "b", 0), ("b", "c", 0), ("c", "a", 1)}
KEY = ["source", "target", "lag"]


@dataclass(frozen=True)
class LeastSquaresVAR:
    """Lagged weights by least squares, kept if |t| > t_min; no contemporaneous ones."""

    n_lags: int = 1
    t_min: float = 3.0

    def fit_moments(self, moments: Moments, variables: Sequence[str]) -> DBN:
        d = len(variables)
        S = moments.scatter
        inverse = np.linalg.inv(S[d:, d:])
        C = inverse @ S[d:, :d]
        residual = np.diag(S[:d, :d] - C.T @ S[d:, d:] @ C) / (moments.n - len(C))
        t = np.abs(C) / np.sqrt(np.outer(np.diag(inverse), residual))
        A = np.where(t > self.t_min, C, 0.0).reshape(self.n_lags, d, d)
        return DBN.from_moments(np.zeros((d, d)), A, moments, variables)


def federation_data(seed: int, n_sites: int = 4, n: int = 80) -> tuple[DBN, dict[str, list[pd.DataFrame]]]:
    rng = np.random.default_rng(seed)
    A = (
        rng.uniform(0.25, 0.45, size=(1, 5, 5))
        * (rng.random((1, 5, 5)) < 0.25)
        * rng.choice([-1, 1], (1, 5, 5))
    )
    truth = DBN(np.zeros((5, 5)), A, list("abcde"))
    assert truth.is_stationary
    return truth, {f"s{k}": [truth.simulate(n, random_state=rng)] for k in range(n_sites)}


def test_table_is_tidy_sorted_and_deterministic_by_seed() -> None:
    _, sites = federation_data(0)
    table = confidence(LeastSquaresVAR(), sites, n_replicates=40, random_state=1)
    assert tuple(table.columns) == COLUMNS
    assert table["probability"].is_monotonic_decreasing
    assert ((table["ci_low"] <= table["ci_high"]) & table["probability"].between(0, 1)).all()
    pd.testing.assert_frame_equal(
        table, confidence(LeastSquaresVAR(), sites, n_replicates=40, random_state=1)
    )
    other = confidence(LeastSquaresVAR(), sites, n_replicates=40, random_state=2)
    assert not table.equals(other)
    assert table.attrs["n_replicates"] == 40


def test_weight_is_the_fit_on_all_rows_and_probability_the_share_of_replicates() -> None:
    full = DBN(np.zeros((2, 2)), np.array([[[0.0, 0.5], [0.0, 0.0]]]), ["a", "b"])
    replicates = np.zeros((4, 2, 2, 2))
    replicates[:, 1, 0, 1] = [0.4, 0.5, 0.6, 0.0]
    replicates[0, 1, 1, 1] = -0.2
    table = confidence_table(full, replicates, level=0.5)
    assert table[["source", "target", "lag", "weight", "probability"]].values.tolist() == [
        ["a", "b", 1, 0.5, 0.75],
        ["b", "b", 1, 0.0, 0.25],
    ]
    np.testing.assert_allclose(table.loc[0, ["ci_low", "ci_high"]].astype(float), [0.3, 0.525])
    assert len(confidence_table(full, replicates, threshold=0.45)) == 1


def test_a_running_federation_gives_the_same_table_as_the_data() -> None:
    _, sites = federation_data(1)
    running = InProcessFederation({name: Site(name, data) for name, data in read_sites(sites).items()})
    expected = confidence(LeastSquaresVAR(), sites, n_replicates=10)
    ours = confidence(LeastSquaresVAR(), federation=running, n_replicates=10)
    pd.testing.assert_frame_equal(ours, expected)


def test_edges_at_high_probability_are_right_and_intervals_contain_the_true_weights() -> None:
    right = reported = inside = present = 0
    for seed in range(8):
        truth, sites = federation_data(seed)
        table = confidence(LeastSquaresVAR(), sites, n_replicates=60, random_state=seed)
        true = truth.edges().set_index(["source", "target", "lag"])["weight"]
        sure = table[table["probability"] >= 0.9].set_index(["source", "target", "lag"])
        is_true = sure.index.isin(true.index)
        right, reported = right + is_true.sum(), reported + len(sure)
        hits = sure[is_true]
        inside += ((hits["ci_low"] <= true[hits.index]) & (hits["ci_high"] >= true[hits.index])).sum()
        present += len(hits)
    assert reported >= 25
    assert right / reported >= 0.9
    assert inside / present >= 0.75


def test_advice_about_units_is_given_once_not_in_every_replicate() -> None:
    sites = feddbn.simulate(d=5, n_lags=1, n_sites=4, n_samples=400, random_state=0).sites
    with pytest.warns(UnitsWarning) as caught:
        confidence(feddbn.OneShotDBN(), sites, n_replicates=5)
    assert sum(one.category is UnitsWarning for one in caught) == 1


def test_dynotears_is_refitted_without_touching_the_estimator() -> None:
    fed = simulate(d=4, n_lags=1, n_sites=3, n_samples=300, mean_degree=2, random_state=0)
    estimator = Dynotears(n_lags=1, lambda_w=0.05, lambda_a=0.05, w_threshold=0.15, a_threshold=0.15)
    table = confidence(estimator, fed.sites, n_replicates=6)
    assert not hasattr(estimator, "dbn_")
    fitted = estimator.fit(fed.sites).dbn_.edges().set_index(["source", "target", "lag"])["weight"]
    ours = table[table["weight"] != 0].set_index(["source", "target", "lag"])["weight"]
    pd.testing.assert_series_equal(ours.sort_index(), fitted.sort_index(), atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
def test_edges_of_the_order_search_at_high_probability_are_right() -> None:
    # A reduced form of the first table of docs/measurements.md on edge confidence.
    right, told = [], []
    for seed in range(4):
        federation = simulate(d=5, n_lags=1, n_sites=4, n_samples=512, mean_degree=2, random_state=seed)
        table = confidence(OneShotDBN(n_lags=1), federation.sites, 8, random_state=seed, progress=told.append)
        sure = table[table["probability"] >= 0.9]
        stack = federation.truth.adjacency_matrices
        names = list(federation.truth.variables)
        right += [
            stack[lag, names.index(s), names.index(t)] != 0
            for s, t, lag in zip(sure["source"], sure["target"], sure["lag"], strict=True)
        ]
    assert told == 4 * list(range(1, 9))
    assert len(right) > 20
    assert np.mean(right) >= 0.85


def test_a_link_that_turns_round_keeps_its_presence():
    W, turned = np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    W[0, 0, 1], turned[0, 1, 0], W[1, 0, 0] = 0.5, 0.4, 0.3
    full = DBN(W[0], W[1:], ["a", "b"], open_edges=[("a", "b")])
    table = confidence_table(full, np.stack([W, turned, turned, np.zeros_like(W)]))
    rows = {(r["source"], r["target"], r["lag"]): r for r in table.to_dict("records")}
    assert rows["a", "b", 0]["presence"] == rows["b", "a", 0]["presence"] == 0.75
    assert rows["a", "b", 0]["direction"] == pytest.approx(1 / 3)
    assert rows["b", "a", 0]["direction"] == pytest.approx(2 / 3)
    assert not rows["a", "b", 0]["oriented"]
    lagged = rows["a", "a", 1]
    assert (lagged["presence"], lagged["direction"], lagged["oriented"]) == (0.25, 1.0, True)
    known = confidence_table(DBN(W[0], W[1:], ["a", "b"]), np.stack([W, turned]))
    assert known[known["lag"] == 0]["oriented"].all()


def with_memory(share, n_sites=4, n=200):
    """Two variables without any effect, whose noise keeps a share of itself; white noise at share 0."""
    found = {}
    for k in range(n_sites):
        u = np.random.default_rng(k).standard_normal((n, 3))
        for t in range(1, n):
            u[t] = share * u[t - 1] + u[t]
        u[:, 1] += 0.7 * u[:, 0]
        x = u.copy()
        for t in range(1, n):
            x[t] += 0.6 * x[t - 1]
        found[f"s{k}"] = [pd.DataFrame(x, columns=list("abc"))]
    return found


def test_a_table_carries_what_residuals_say_and_warns_of_what_resampling_repeats() -> None:
    clean = confidence(LeastSquaresVAR(), with_memory(0.0), n_replicates=4)
    assert clean.attrs["residuals"]["violations"] == clean.attrs["findings"] == []
    with pytest.warns(ResidualsWarning):
        table = confidence(Dynotears(), with_memory(0.6), n_replicates=4)
    assert "memory" in table.attrs["residuals"]["violations"]
    assert len(table.attrs["findings"]) >= 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResidualsWarning)
        plain = confidence(Dynotears(check_residuals=False), with_memory(0.6), n_replicates=4)
    assert plain.attrs["residuals"] is None
    pd.testing.assert_frame_equal(plain, table)


def graph(mark_now, mark_lagged):
    marks = np.full((2, 2, 2), "", dtype="<U3")
    marks[0, 1, 0] = mark_now
    marks[1, 0, 0] = mark_now[::-1].translate(str.maketrans("<>", "><"))
    marks[0, 1, 1] = mark_lagged
    return AncestralGraph(marks, ("a", "b"))


def test_shares_are_counted():
    others = [graph("<--", "-->"), graph("-->", ""), graph("<->", "<->"), graph("", "-->")]
    table = mark_table(graph("<--", "-->"), others).set_index(["source", "target", "lag"])
    assert table.index.tolist() == [("a", "b", 1), ("b", "a", 0)]
    assert table.loc["b", "a", 0].tolist() == ["-->", 0.75, 0.25, 0.25, 0.25, 0.25]
    assert table.loc["a", "b", 1].tolist() == ["-->", 0.75, 0.5, 0.5, 0.25, 0.0]
    new = mark_table(graph("", ""), [graph("o->", ""), graph("", "")])
    assert new.iloc[0].tolist() == ["a", "b", 0, "", 0.5, 0.0, 0.0, 0.0, 0.0]


def test_edges_of_the_fit_come_again_and_so_does_the_table():
    made = feddbn.simulate(d=3, n_sites=3, n_samples=1500, mean_degree=1, n_latent=1, random_state=2)
    table = confidence(LatentDBN(prepare=AS_THEY_ARE), made.sites, 12)
    fitted = LatentDBN(prepare=AS_THEY_ARE).fit(made.sites)
    own = table[table["mark"] != ""]
    assert len(own) == len(fitted.edges_)
    assert own["edge"].mean() > 0.8
    assert (table[table["mark"] == ""]["edge"] < 0.7).all()
    assert (table["same"] <= table["edge"]).all()
    again = confidence(LatentDBN(prepare=AS_THEY_ARE), made.sites, 12)
    assert table.equals(again)


def bent(n=900, seed=0, offsets=0.0):
    """a -> b by a bump that rises as much as it falls, b -> c by a line, c -> a a row later by a step; d is alone."""
    rng = np.random.default_rng(seed)
    sites = {}
    for k in range(3):
        x = np.zeros((n // 3 + 20, 4))
        u = rng.normal(size=x.shape) * [0.6, 0.7, 1.0, 1.0]
        for t in range(1, len(x)):
            x[t, 0] = np.tanh(3 * x[t - 1, 2]) + u[t, 0]
            x[t, 1] = 2.0 * np.exp(-2 * x[t, 0] ** 2) + u[t, 1]
            x[t, 2] = 0.8 * x[t, 1] + u[t, 2]
            x[t, 3] = u[t, 3]
        sites[f"site-{k}"] = pd.DataFrame(x[20:] + rng.normal(size=4) * offsets, columns=list("abcd"))
    return sites


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_true_edges_come_back_and_absent_ones_do_not():
    table = confidence(OneShotDBN(features="auto"), bent(), n_replicates=20)
    assert tuple(table.columns) == (*COLUMNS, "curved")
    rows = table.set_index(KEY)
    for edge in EDGES:
        assert rows.loc[edge, "probability"] >= 0.95
    assert (rows.drop(list(EDGES))["probability"] <= 0.15).all()
    assert rows.loc[("a", "b", 0), "curved"] >= 0.95
    assert rows.loc[("c", "a", 1), "curved"] >= 0.95
    assert rows.loc[("b", "c", 0), "curved"] <= 0.1
    # A table of straight lines has no such column.
    straight = confidence(OneShotDBN(features="linear"), bent(), n_replicates=2)
    assert tuple(straight.columns) == COLUMNS


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_weights_are_those_of_the_fit_also_with_levels_of_sites_and_empty_cells():
    sites, rng = bent(1200, offsets=4.0), np.random.default_rng(0)
    sites = {name: table.mask(rng.random(table.shape) < 0.03) for name, table in sites.items()}
    model = OneShotDBN(features="spline").fit(sites)
    table = confidence(OneShotDBN(features="spline"), sites, n_replicates=3)
    fitted = model.dbn_.edges().set_index(KEY)["weight"].sort_index()
    ours = table[table["weight"] != 0].set_index(KEY)["weight"].sort_index()
    pd.testing.assert_series_equal(ours, fitted, rtol=1e-6)
    assert table.attrs["residuals"]["violations"] == list(model.residuals_.violations)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_straight_lines_have_the_same_table_whether_curves_were_looked_for_or_not():
    sites = feddbn.simulate(d=4, n_sites=3, n_samples=400, random_state=5).sites
    models = [OneShotDBN(features=f) for f in ("auto", "linear")]
    tables = [confidence(model, sites, n_replicates=3) for model in models]
    pd.testing.assert_frame_equal(*tables)
    assert tables[0].attrs == tables[1].attrs


def test_an_edge_without_an_average_slope_is_an_edge_whatever_the_threshold():
    parts = [make_curve(0, 1, 1, 0.0, 1.0, (0.5,)), make_product(0, 1, 1, 1, 0.3, (0.0, 0.0), (1.0, 1.0))]
    full = DBN(np.zeros((2, 2)), np.zeros((1, 2, 2)), ["a", "b"]).with_parts(parts)
    replicates, curved = np.zeros((4, 2, 2, 2)), np.zeros((4, 2, 2, 2), dtype=bool)
    curved[:3, 1, 0, 1] = True
    table = confidence_table(full, replicates, threshold=0.1, curved=curved).set_index(KEY)
    assert table.loc[("a", "b", 1), ["probability", "curved"]].tolist() == [0.75, 0.75]
    assert table.loc[("b", "b", 1), ["probability", "curved"]].tolist() == [0.0, 0.0]


def test_what_cannot_be_resampled_is_refused_before_a_row_is_read():
    class Noisy(InProcessFederation):
        answered_tasks = frozenset({"gram.rows"})

        def sum(self, task):
            raise AssertionError("nothing may be asked")

    noisy = Noisy({name: Site(name, data) for name, data in read_sites(bent()).items()})
    with refused(ParameterError, "features='spline'", "gram.functions", code="curves-not-answered"):
        confidence(OneShotDBN(features="spline"), noisy)


def test_resamples_of_recordings_with_levels_have_back_what_these_took_along():
    """All rows have the moments that a fit learns from."""
    rng = np.random.default_rng(2)
    sites = {f"s{k}": [] for k in range(4)}
    for r in range(60):
        x = rng.standard_normal((30, 2))
        for t in range(1, 30):
            x[t] += 0.7 * x[t - 1]
        sites[f"s{r % 4}"].append(pd.DataFrame(x + 3.0 * rng.standard_normal(2), columns=["u", "v"]))
    federation = federation_of(read_sites(sites))
    rows = _rows_to_resample(OneShotDBN(features="linear"), federation, 1)
    assert rows.asked.center == "recording"
    before = rows.asked.summed.scatter
    assert before[0, 0] < 0.97 * rows.whole.scatter[0, 0]
    for after in rows.drawn(1.0, 3, np.random.default_rng(0)):
        assert before[0, 2] / before[0, 0] < after.scatter[0, 2] / after.scatter[0, 0]


def test_fdbnl_is_resampled_as_dynotears_which_is_the_same_fit():
    fed = simulate(d=3, n_sites=3, n_samples=450, random_state=5)
    tables = [
        confidence(method(check_residuals=False), fed.sites, n_replicates=8, random_state=1)
        for method in (feddbn.FDBNL, Dynotears)
    ]
    assert len(tables[0])
    pd.testing.assert_frame_equal(*tables)
