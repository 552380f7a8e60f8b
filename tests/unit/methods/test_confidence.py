import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from feddbn.core.statistics.moments import Moments
from feddbn.data import read_sites
from feddbn.errors import ParameterError, ResidualsWarning, UnitsWarning
from feddbn.federation.protocol.site import Site
from feddbn.methods.confidence import COLUMNS, confidence_table, edge_confidence
from feddbn.methods.dynotears import Dynotears
from feddbn.methods.oneshot import OneShotDBN
from feddbn.methods.simulation import simulate
from feddbn.model.dbn import DBN
from feddbn.runtime.simulated.in_process import InProcessFederation


@dataclass(frozen=True)
class LeastSquaresVAR:
    """Lagged weights by least squares, kept if |t| > t_min; nothing within a moment."""

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
    table = edge_confidence(LeastSquaresVAR(), sites, n_replicates=40, random_state=1)
    assert tuple(table.columns) == COLUMNS
    assert table["probability"].is_monotonic_decreasing
    assert ((table["ci_low"] <= table["ci_high"]) & table["probability"].between(0, 1)).all()
    pd.testing.assert_frame_equal(
        table, edge_confidence(LeastSquaresVAR(), sites, n_replicates=40, random_state=1)
    )
    other = edge_confidence(LeastSquaresVAR(), sites, n_replicates=40, random_state=2)
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
    expected = edge_confidence(LeastSquaresVAR(), sites, n_replicates=10)
    ours = edge_confidence(LeastSquaresVAR(), federation=running, n_replicates=10)
    pd.testing.assert_frame_equal(ours, expected)


@pytest.mark.parametrize("method", ["bootstrap", "stability"])
def test_edges_at_high_probability_are_right_and_intervals_contain_the_true_weights(method: str) -> None:
    right = reported = inside = present = 0
    for seed in range(8):
        truth, sites = federation_data(seed)
        table = edge_confidence(LeastSquaresVAR(), sites, n_replicates=60, method=method, random_state=seed)
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


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method": "jackknife"}, "method must be one of bootstrap, stability, got 'jackknife'."),
        ({"unit": "rows"}, "unit must be one of auto, recordings, blocks, got 'rows'."),
        (
            {"block_length": 0},
            "block_length must be a whole number of at least 1, 'auto' or 'politis-white', got 0.",
        ),
        ({"block_length": "long"}, "block_length must be a whole number of at least 1"),
        ({"n_replicates": 1}, "n_replicates must be a whole number of at least 2, got 1."),
        ({"random_state": -1}, "random_state must be a whole number of at least 0, got -1."),
        ({"level": 90}, "level must be a number between 0 and 1 such as 0.9, got 90."),
        ({"sites": None}, "give the data of the sites, or a federation."),
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(options: dict[str, object], sentence: str) -> None:
    arguments = {"sites": {"s": np.zeros((30, 2))}, **options}
    with pytest.raises(ParameterError, match=sentence):
        edge_confidence(LeastSquaresVAR(), **arguments)  # type: ignore[arg-type]


def test_an_estimator_that_needs_rows_is_refused() -> None:
    with pytest.raises(
        ParameterError, match=r"estimator object cannot learn from sums: it has no fit_moments"
    ):
        edge_confidence(object(), {"s": np.zeros((30, 2))})  # type: ignore[arg-type]


def test_too_few_blocks_for_half_samples_are_refused() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 3))
    with pytest.raises(ParameterError, match="a replicate has no rows: there are too few blocks"):
        edge_confidence(LeastSquaresVAR(), rows, method="stability", block_length=50)


def test_lags_must_be_fixed_before_edges_are_counted() -> None:
    with pytest.raises(
        ParameterError, match="needs a fixed number of lags, but the estimator has n_lags='auto'"
    ):
        edge_confidence(LeastSquaresVAR(n_lags="auto"), np.zeros((30, 3)))  # type: ignore[arg-type]


def test_advice_about_units_is_given_once_not_in_every_replicate() -> None:
    class Warns(LeastSquaresVAR):
        def fit_moments(self, moments: Moments, variables: Sequence[str]) -> DBN:
            warnings.warn("mind the units", UnitsWarning, stacklevel=2)
            return super().fit_moments(moments, variables)

    _, sites = federation_data(2)
    with pytest.warns(UnitsWarning) as caught:
        edge_confidence(Warns(), sites, n_replicates=5)
    assert len(caught) == 1


def test_dynotears_is_refitted_without_touching_the_estimator() -> None:
    fed = simulate(d=4, n_lags=1, n_sites=3, n_samples=300, mean_degree=2, random_state=0)
    estimator = Dynotears(n_lags=1, lambda_w=0.05, lambda_a=0.05, w_threshold=0.15, a_threshold=0.15)
    table = edge_confidence(estimator, fed.sites, n_replicates=6)
    assert not hasattr(estimator, "dbn_")
    fitted = estimator.fit(fed.sites).dbn_.edges().set_index(["source", "target", "lag"])["weight"]
    ours = table[table["weight"] != 0].set_index(["source", "target", "lag"])["weight"]
    pd.testing.assert_series_equal(ours.sort_index(), fitted.sort_index(), atol=1e-4)
    within = edge_confidence(estimator.set_params(center="recording"), fed.sites, n_replicates=6)
    weights = estimator.fit(fed.sites).dbn_.edges().set_index(["source", "target", "lag"])["weight"]
    ours = within[within["weight"] != 0].set_index(["source", "target", "lag"])["weight"]
    pd.testing.assert_series_equal(ours.sort_index(), weights.sort_index(), atol=1e-4)


def test_a_federation_knows_the_names_of_its_columns() -> None:
    _, sites = federation_data(1)
    running = InProcessFederation({name: Site(name, data) for name, data in read_sites(sites).items()})
    with pytest.raises(ParameterError, match=r"variables=\['u'\] must be None when a federation is given"):
        edge_confidence(LeastSquaresVAR(), federation=running, variables=["u"])
    with pytest.raises(ParameterError, match="give sites or a federation, not both"):
        edge_confidence(LeastSquaresVAR(), sites, federation=running)


@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
def test_edges_of_the_order_search_at_high_probability_are_right() -> None:
    # The reduced form of benchmarks/calibration.py, whose table is in docs/edge-confidence.md.
    right, told = [], []
    for seed in range(4):
        federation = simulate(d=5, n_lags=1, n_sites=4, n_samples=256, mean_degree=2, random_state=seed)
        table = edge_confidence(
            OneShotDBN(n_lags=1, average=False), federation.sites, 8, random_state=seed, progress=told.append
        )
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
    clean = edge_confidence(LeastSquaresVAR(), with_memory(0.0), n_replicates=4)
    assert clean.attrs["residuals"]["violations"] == clean.attrs["warnings"] == []
    with pytest.warns(ResidualsWarning, match="OneShotDBN"):
        table = edge_confidence(Dynotears(), with_memory(0.6), n_replicates=4)
    assert "memory" in table.attrs["residuals"]["violations"]
    assert any("remember" in text or "residuals" in text for text in table.attrs["warnings"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResidualsWarning)
        plain = edge_confidence(Dynotears(check_residuals=False), with_memory(0.6), n_replicates=4)
    assert plain.attrs["residuals"] is None
    pd.testing.assert_frame_equal(plain, table)
