"""The search, given exact covariances, against the true ancestral graph: no mark is wrong, and edges are the true ones."""

from __future__ import annotations

import numpy as np
import pytest

from feddbn.core.ancestral.marks import ARROW, NONE, TAIL, WindowGraph, true_marks
from feddbn.core.ancestral.search import PartialCorrelations, SearchOptions, search
from support.hidden_systems import draw_system, exact_correlations

EXACT = 1e15
"""So many rows that a correlation of 1e-7 counts, and one of rounding does not."""


def compared(seed, n, n_hidden, n_lags, memory=1.0):
    rng = np.random.default_rng(seed)
    W, A = draw_system(rng, n, n_lags, memory=memory)
    seen = np.sort(rng.choice(n, n - n_hidden, replace=False))
    R = exact_correlations(W, A, seen, 2 * n_lags, rng.uniform(0.5, 2.0, n))
    found = search(PartialCorrelations(R, EXACT), len(seen), n_lags, SearchOptions()).marks
    return true_marks(W, A, seen, n_lags), found


def wrong_marks(truth, found):
    both = [(truth[at], found[at]) for at in zip(*np.nonzero((truth != "") & (found != "")), strict=True)]
    return sum(f[k] != "o" and f[k] != t[k] for t, f in both for k in (0, 2))


@pytest.mark.parametrize(
    ("seeds", "n", "n_hidden", "n_lags", "memory"),
    [(range(14), 5, 1, 1, 1.0), (range(100, 110), 6, 2, 1, 0.9), (range(200, 203), 5, 1, 2, 0.8)],
)
def test_all_that_is_said_is_true(seeds, n, n_hidden, n_lags, memory):
    n_definite = n_hidden_causes = 0
    for seed in seeds:
        truth, found = compared(seed, n, n_hidden, n_lags, memory)
        assert ((truth != "") == (found != "")).all(), f"edges, seed {seed}"
        assert wrong_marks(truth, found) == 0, f"marks, seed {seed}"
        n_definite += int((found == "-->").sum())
        n_hidden_causes += int((found == "<->").sum())
    # To say nothing would be true, too.
    assert n_definite > len(seeds)
    assert n_hidden_causes > 0


def test_a_wrong_mark_is_noticed():
    truth, found = compared(0, 5, 1, 1)
    at = tuple(np.argwhere(found == "-->")[0])
    found[at] = "<->"
    assert wrong_marks(truth, found) == 1


def test_without_hidden_variables_all_delayed_causes_are_found():
    for seed in range(5):
        truth, found = compared(seed, 4, 0, 1)
        assert (found[:, :, 1][truth[:, :, 1] == "-->"] == "-->").mean() > 0.8


def test_the_order_of_variables_does_not_matter():
    rng = np.random.default_rng(3)
    W, A = draw_system(rng, 6, 1)
    x = np.zeros((300, 6))
    through = np.linalg.inv(np.eye(6) - W)
    for t in range(1, 300):
        x[t] = (x[t - 1] @ A[0] + rng.standard_normal(6)) @ through
    order = rng.permutation(5)

    def marks(values):
        rows = np.hstack([values[2:], values[1:-1], values[:-2]])
        return search(PartialCorrelations(np.corrcoef(rows.T), 298), 5, 1, SearchOptions()).marks

    assert (marks(x[:, :5])[np.ix_(order, order)] == marks(x[:, order])).all()


def test_inputs_only_act():
    rng = np.random.default_rng(0)
    W, A = draw_system(rng, 4, 1)
    A[0][:, 0] = W[:, 0] = 0.0
    A[0][0, 0], W[0, 1] = 0.5, 0.7
    R = exact_correlations(W, A, range(4), 2, np.ones(4))
    found = search(PartialCorrelations(R, EXACT), 4, 1, SearchOptions(), inputs=[0]).marks
    assert (found[:, 0, 1] == "").all()
    assert found[0, 1, 0] == "-->"
    assert set(found[0].ravel()) <= {"", "-->"}


def test_what_is_said_of_one_moment_is_said_of_all():
    graph = WindowGraph.complete(2, 2)
    assert graph.ends.shape == (10, 10)
    assert graph.ends[0, 9] == NONE, "edges reach two time steps back"
    assert graph.mark(0, 1, TAIL)
    assert not graph.mark(0, 1, ARROW), "a mark stays"
    assert [graph.ends[a, b] for a, b in graph.shifts(4, 5)] == [TAIL] * 5
    graph.remove(0, 3)
    assert graph.ends[6, 9] == graph.ends[9, 6] == NONE
    words = graph.words()
    assert words[0, 1, 0] == "o--"
    assert words[1, 0, 0] == "--o"
    assert words[1, 0, 1] == ""
    assert words[1, 0, 2] == "o->"
