from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from feddbn.errors import DataError, ParameterError
from reproduction.edge_ranking import ContemporaneousEdgeRanker, LaggedEdgeRanker, segments

EDGES = [(0, 1), (0, 2), (0, 3), (4, 5)]


def _simulate(
    seed: int, n_series: int = 6, n: int = 60, d: int = 6, link=lambda v: 0.5 * v
) -> list[pd.DataFrame]:
    rng = np.random.default_rng(seed)
    frames = []
    for _ in range(n_series):
        x = np.zeros((n + 30, d))
        for t in range(1, n + 30):
            x[t] = 0.4 * x[t - 1] + rng.standard_normal(d)
            for source, target in EDGES:
                x[t, target] += link(x[t - 1, source])
        frames.append(pd.DataFrame(x[30:], columns=[f"g{i}" for i in range(d)]))
    return frames


def frame(x) -> pd.DataFrame:
    return pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])])


def _sites(frames: list[pd.DataFrame], n_sites: int) -> dict[str, list[pd.DataFrame]]:
    return {f"site-{k}": frames[k::n_sites] for k in range(n_sites)}


def test_the_true_edges_lead_the_table_with_their_weights():
    model = LaggedEdgeRanker().fit(_sites(_simulate(0, n=200), 3))
    table = model.edge_probabilities_
    assert list(table.columns) == ["source", "target", "lag", "weight", "probability"]
    assert len(table) == 30
    assert table["probability"].is_monotonic_decreasing
    top = table.head(4)
    assert set(zip(top["source"], top["target"], strict=True)) == {(f"g{i}", f"g{j}") for i, j in EDGES}
    assert (top["probability"] > 0.99).all()
    np.testing.assert_allclose(top["weight"], 0.5, atol=0.12)
    assert model.edge_rates_[0] > model.edge_rates_[1], "a hub has a higher rate"


@pytest.mark.parametrize("n_sites", [2, 3, 6])
def test_the_answer_does_not_depend_on_how_series_are_dealt_to_sites(n_sites):
    frames = _simulate(1)
    one = LaggedEdgeRanker(features="quadratic", smoothing=0.7).fit(_sites(frames, 1))
    many = LaggedEdgeRanker(features="quadratic", smoothing=0.7).fit(_sites(frames, n_sites))
    np.testing.assert_allclose(one.probabilities_, many.probabilities_, atol=1e-9)
    assert one.log_marginal_likelihood_ == pytest.approx(many.log_marginal_likelihood_, abs=1e-7)


def test_units_of_the_variables_change_weights_only():
    frames = _simulate(2)
    factor = np.array([10.0, 0.5, 1.0, 3.0, 100.0, 0.01])
    plain = LaggedEdgeRanker(features="spline").fit(_sites(frames, 2))
    scaled = LaggedEdgeRanker(features="spline").fit(_sites([f * factor + 5.0 for f in frames], 2))
    np.testing.assert_allclose(plain.probabilities_, scaled.probabilities_, atol=1e-7)
    np.testing.assert_allclose(
        scaled.weights_[0], plain.weights_[0] * factor[None, :] / factor[:, None], atol=1e-6
    )


def test_marginal_likelihood_chooses_the_map_that_made_the_data():
    curved = LaggedEdgeRanker(features="auto").fit(_sites(_simulate(3, link=lambda v: 0.5 * v**2), 3))
    assert curved.features_ == "quadratic"
    straight = LaggedEdgeRanker(features="auto", smoothing="auto").fit(_sites(_simulate(3), 3))
    assert (straight.features_, straight.smoothing_) == ("linear", 1.0)
    assert len(straight.selection_) == 15
    assert straight.log_marginal_likelihood_ == straight.selection_["log_marginal_likelihood"].max()


def test_centring_by_a_label_removes_a_stimulus_that_differs_between_recordings():
    rng = np.random.default_rng(5)
    frames = []
    for _ in range(40):
        # The unknown stimulus hits c and d together, so that c seems to drive d when it is ignored.
        shift = 3.0 * rng.standard_normal() * np.array([0.0, 0.0, 1.0, 1.0, 0.0])
        x = np.zeros((20, 5))
        for t in range(1, 20):
            x[t] = 0.3 * x[t - 1] + rng.standard_normal(5) + (shift if t <= 10 else 0.0)
            x[t, 1] += 0.8 * x[t - 1, 0]
        frames.append(pd.DataFrame(x, columns=list("abcde")).assign(drug=(np.arange(20) <= 10).astype(int)))
    sites = _sites(frames, 4)
    labelled = LaggedEdgeRanker(center_by="drug").fit(sites)
    blind = LaggedEdgeRanker().fit({k: [f.drop(columns="drug") for f in v] for k, v in sites.items()})
    assert blind.probabilities_[0][2, 3] > 0.9
    assert labelled.probabilities_[0][2, 3] < 0.5
    assert labelled.probabilities_[0][0, 1] > 0.99


def test_two_lags_tell_which_lag_it_is():
    rng = np.random.default_rng(8)
    x = rng.standard_normal((800, 3))
    x[2:, 1] += 0.6 * x[:-2, 0]
    model = LaggedEdgeRanker(n_lags=2).fit({"a": [frame(x)]})
    top = model.edge_probabilities_.iloc[0]
    assert (top["source"], top["target"], top["lag"]) == ("x0", "x1", 2)
    assert model.probabilities_.shape == (2, 3, 3)
    assert top["weight"] == pytest.approx(0.6, abs=0.1)


def test_noise_leaves_few_probable_edges_although_the_prior_expects_many():
    totals = []
    for seed in range(10):
        x = np.random.default_rng(seed).standard_normal((600, 12))
        model = LaggedEdgeRanker().fit({"a": [frame(x[:300])], "b": [frame(x[300:])]})
        totals.append(model.edge_probabilities_["probability"].sum())
    assert np.mean(totals) < 2.0, "the prior expects 12 * 11 * 2 / 12 = 22"


def test_contemporaneous_edges_are_ranked_from_one_sum_with_their_direction():
    rng = np.random.default_rng(12)
    parts = []
    for _ in range(5):
        x = rng.laplace(size=(400, 4))
        x[:, 1] += 0.6 * x[:, 0]
        x[:, 3] -= 0.6 * x[:, 2]
        parts.append(pd.DataFrame(x, columns=list("abcd")))
    model = ContemporaneousEdgeRanker().fit(_sites(parts, 5))
    top = model.edge_scores_.head(2)
    assert set(zip(top["source"], top["target"], strict=True)) == {("a", "b"), ("c", "d")}
    assert (top["lag"] == 0).all()
    assert model.scores_[0, 1] > model.scores_[1, 0]
    assert model.partial_correlations_[2, 3] < 0


def test_an_empty_cell_ends_a_segment_and_its_row_is_left_out():
    x = np.arange(14.0).reshape(7, 2)
    x[3, 1] = np.nan
    names, found = segments({"a": [frame(x)]})
    assert names == ["x0", "x1"]
    assert [len(one.values) for one in found] == [3, 3]


def test_what_cannot_be_ranked_is_refused():
    with pytest.raises(ParameterError, match="smoothing"):
        LaggedEdgeRanker(smoothing=0.0)
    with pytest.raises(ParameterError, match="features"):
        LaggedEdgeRanker(features="cubic")
    with pytest.raises(DataError, match="2 variables"):
        LaggedEdgeRanker().fit({"a": [frame(np.ones((9, 1)))]})
