"""Laws of graphs: acyclicity, distances between graphs, and simulated networks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.extra.numpy import arrays

import feddbn
from feddbn.core.constraints import break_cycles, has_cycle, topological_order
from feddbn.core.penalised.acyclicity import expm_value_and_grad, logdet_value_and_grad
from feddbn.metrics import edge_scores, skeleton_scores
from feddbn.sim.systems import MAX_RADIUS

pytestmark = pytest.mark.promise


@st.composite
def graph_pairs(draw, acyclic=False):
    d = draw(st.integers(1, 6))
    graphs = [draw(hnp.arrays(np.int8, (d, d), elements=st.integers(0, 1))).astype(float) for _ in range(2)]
    if acyclic:
        orders = [np.array(draw(st.permutations(range(d)))) for _ in range(2)]
        graphs = [
            np.triu(graph, k=1)[np.ix_(order, order)] for graph, order in zip(graphs, orders, strict=True)
        ]
    return graphs


def _shd_by_pairs(truth, estimate):
    """The definition, one pair at a time."""
    d = len(truth)
    total = sum(truth[i, i] != estimate[i, i] for i in range(d))
    for i in range(d):
        for j in range(i):
            total += (truth[i, j], truth[j, i]) != (estimate[i, j], estimate[j, i])
    return total


@given(graph_pairs())
def test_shd_is_symmetric_and_zero_only_for_equal_graphs(pair):
    first, second = pair
    scores, swapped = edge_scores(first, second), edge_scores(second, first)
    assert scores.shd == swapped.shd == _shd_by_pairs(first, second)
    assert scores.shd_paper == swapped.shd_paper
    assert scores.n_reversed == swapped.n_reversed
    assert (scores.shd == 0) == np.array_equal(first, second)


@given(graph_pairs(acyclic=True))
def test_between_dags_the_two_distances_differ_by_the_reversals(pair):
    scores = edge_scores(*pair)
    assert scores.shd_paper == scores.shd + scores.n_reversed
    assert skeleton_scores(*pair).shd == scores.shd - scores.n_reversed


@given(graph_pairs())
def test_rates_fit_together_and_stay_between_zero_and_one(pair):
    truth, estimate = pair
    scores = edge_scores(truth, estimate)
    assert skeleton_scores(truth, estimate).shd <= scores.shd <= scores.shd_paper
    assert scores.precision == 1 - scores.fdr
    assert scores.recall == scores.tpr
    assert all(0 <= scores[name] <= 1 for name in ("tpr", "fdr", "precision", "recall", "f1"))
    assert scores.n_true_positives + scores.n_false_negatives == scores.n_true == truth.sum()
    assert scores.n_true_positives + scores.n_false_positives == scores.n_estimated == estimate.sum()
    if scores.n_true and scores.n_estimated and scores.precision + scores.recall > 0:
        harmonic = 2 * scores.precision * scores.recall / (scores.precision + scores.recall)
        assert scores.f1 == pytest.approx(harmonic)


@given(graph_pairs(), st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_the_labels_of_the_variables(pair, random):
    index = list(range(len(pair[0])))
    random.shuffle(index)
    relabelled = [graph[np.ix_(index, index)] for graph in pair]
    assert edge_scores(*relabelled) == edge_scores(*pair)
    assert skeleton_scores(*relabelled) == skeleton_scores(*pair)


matrices = arrays(
    np.float64, (5, 5), elements=st.floats(-0.4, 0.4).map(lambda x: 0.0 if abs(x) < 0.15 else x)
).map(lambda W: W * (1 - np.eye(5)))


@given(matrices)
def test_both_forms_are_zero_exactly_when_the_graph_has_no_cycle(W):
    for h in (expm_value_and_grad, logdet_value_and_grad):
        value = h(W[None])[0][0]
        assert value >= -1e-12
        assert (value > 1e-9) == has_cycle(W != 0)


@given(matrices, st.permutations(range(5)))
def test_relabelling_changes_nothing(W, order):
    shuffled = W[np.ix_(order, order)]
    assert np.allclose(*expm_value_and_grad(np.stack([W, shuffled]))[0], atol=1e-12)


@given(matrices)
def test_breaking_cycles_leaves_a_dag_and_reports_what_went(W):
    cut, dropped = break_cycles(W)
    assert not has_cycle(cut != 0)
    order = topological_order(cut != 0)
    position = np.argsort(order)
    assert all(position[i] < position[j] for i, j in zip(*np.nonzero(cut), strict=True))
    restored = cut.copy()
    for i, j, weight in dropped:
        restored[i, j] = weight
    np.testing.assert_array_equal(restored, W)


FEDERATIONS = st.fixed_dictionaries(
    {
        "d": st.integers(1, 9),
        "n_lags": st.integers(0, 3),
        "n_sites": st.integers(1, 5),
        "n_samples": st.integers(15, 60),
        "mean_degree": st.floats(0, 8),
        "lag_degree": st.floats(0, 4),
        "w_range": st.sampled_from([(0.3, 0.5), (0.5, 2.0), (0.1, 0.1)]),
        "heterogeneity": st.one_of(st.floats(0, 1), st.just("independent")),
        "n_recordings": st.integers(1, 3),
        "burn_in": st.integers(0, 20),
    }
)


@given(arguments=FEDERATIONS, seed=st.integers(0, 2**31))
def test_every_federation_is_acyclic_stable_finite_and_of_the_size_asked_for(arguments, seed):
    fed, d, p = feddbn.simulate(**arguments, random_state=seed), arguments["d"], arguments["n_lags"]
    for site, network in fed.truths.items():
        assert not has_cycle(network.W != 0)
        assert network.A.shape == (p, d, d)
        assert network.spectral_radius <= MAX_RADIUS + 1e-6
        assert 0 < fed.lag_damping[site] <= 1
    recordings = [rows.to_numpy() for site in fed.sites.values() for rows in site]
    assert all(np.isfinite(rows).all() and rows.shape[1] == d for rows in recordings)
    assert sum(len(rows) - p for rows in recordings) == arguments["n_samples"]
    assert len(fed.sites) == arguments["n_sites"]
