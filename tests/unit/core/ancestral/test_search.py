"""The search, given exact covariances, against the true ancestral graph: no mark is wrong, and edges are the true ones.

Partial correlations of subsets: against residuals of regressions on made-up rows, and SciPy's p-values.

The true ancestral graph: against all sets of conditions, one after the other, by another package's d-separation.
"""

from itertools import chain, combinations

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from feddbn.core.ancestral.marks import true_marks, unrolled
from feddbn.core.ancestral.search import MarkLearner, PartialCorrelations
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.statistics.moments import Moments
from feddbn.errors import ParameterError
from support.hidden_systems import draw_system, exact_correlations

EXACT = 1e15
"""So many rows that a correlation of 1e-7 counts, and one of rounding does not."""


def learned(R, n, d, n_lags, forbidden=()):
    limits = EdgeConstraints.from_edges([f"x{i}" for i in range(d)], n_lags, forbidden)
    gram = Moments(n, np.zeros(len(R)), n * R)
    return MarkLearner().learn(gram, limits, np.random.default_rng(0)).marks


def compared(seed, n, n_hidden, n_lags, memory=1.0):
    rng = np.random.default_rng(seed)
    W, A = draw_system(rng, n, n_lags, memory=memory)
    seen = np.sort(rng.choice(n, n - n_hidden, replace=False))
    R = exact_correlations(W, A, seen, 2 * n_lags, rng.uniform(0.5, 2.0, n))
    found = learned(R, EXACT, len(seen), n_lags)
    return true_marks(W, A, seen, n_lags), found


def wrong_marks(truth, found):
    both = [(truth[at], found[at]) for at in zip(*np.nonzero((truth != "") & (found != "")), strict=True)]
    return sum(f[k] != "o" and f[k] != t[k] for t, f in both for k in (0, 2))


@pytest.mark.slow
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
        return learned(np.corrcoef(rows.T), 298, 5, 1)

    assert (marks(x[:, :5])[np.ix_(order, order)] == marks(x[:, order])).all()


def test_inputs_only_act():
    rng = np.random.default_rng(0)
    W, A = draw_system(rng, 4, 1)
    A[0][:, 0] = W[:, 0] = 0.0
    A[0][0, 0], W[0, 1] = 0.5, 0.7
    R = exact_correlations(W, A, range(4), 2, np.ones(4))
    found = learned(R, EXACT, 4, 1, [("*", 0, 0), ("*", 0, 1)])
    assert (found[:, 0, 1] == "").all()
    assert found[0, 1, 0] == "-->"
    assert set(found[0].ravel()) <= {"", "-->"}


def test_limits_that_it_does_not_know_are_refused():
    with pytest.raises(ParameterError, match="nothing may act on"):
        learned(np.eye(6), 50, 2, 1, [(0, 1, 1)])


RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(80, 7)) @ RNG.normal(size=(7, 7))


def by_residuals(x, y, given):
    Z = np.column_stack([np.ones(len(ROWS)), ROWS[:, list(given)]])
    left = [ROWS[:, k] - Z @ np.linalg.lstsq(Z, ROWS[:, k], rcond=None)[0] for k in (x, y)]
    r = np.corrcoef(*left)[0, 1]
    freedom = len(ROWS) - len(given) - 2
    return r, 2 * stats.t.sf(abs(r) * np.sqrt(freedom / (1 - r * r)), freedom)


@pytest.fixture(scope="module")
def by_partial_correlation():
    return PartialCorrelations(np.corrcoef(ROWS.T), len(ROWS))


@pytest.mark.parametrize(("always", "size"), [((), 0), ((2,), 0), ((), 2), ((2, 3), 1), ((6,), 3)])
def test_they_are_those_of_residuals(by_partial_correlation, always, size):
    others = [k for k in range(2, 7) if k not in always]
    values, p_values, sets = by_partial_correlation.subsets(0, 1, always, others, size, 1000)
    assert {tuple(sorted(one)) for one in sets.tolist()} == set(combinations(others, size))
    for value, p, extra in zip(values, p_values, sets.tolist(), strict=True):
        expected = by_residuals(0, 1, [*always, *extra])
        assert (value, p) == pytest.approx(expected, abs=1e-9)
        assert by_partial_correlation.one(0, 1, [*always, *extra]) == pytest.approx(expected, abs=1e-9)


def test_few_subsets_are_those_of_the_nodes_that_go_most_with_the_pair(by_partial_correlation):
    strength = [
        max(abs(by_partial_correlation.one(0, k, [])[0]), abs(by_partial_correlation.one(1, k, [])[0]))
        for k in range(2, 7)
    ]
    best = {2 + int(k) for k in np.argsort(strength)[-3:]}
    _, _, sets = by_partial_correlation.subsets(0, 1, (), range(2, 7), 2, 3)
    assert set(sets.ravel().tolist()) == best


def test_what_follows_from_conditions_is_independent_of_all():
    R = np.corrcoef(np.column_stack([ROWS[:, :2], ROWS[:, 1], np.full(len(ROWS), 1e-9) + ROWS[:, 3]]).T)
    by_partial_correlation = PartialCorrelations(R, 80)
    assert by_partial_correlation.one(0, 1, [2]) == (0.0, 1.0)
    assert by_partial_correlation.subsets(0, 1, (), [2], 1, 10)[0] == pytest.approx(0.0, abs=1e-9)
    assert np.isfinite(by_partial_correlation.subsets(0, 3, (1, 2), [], 0, 10)[0]).all()


def test_too_few_rows_show_nothing():
    by_partial_correlation = PartialCorrelations(np.corrcoef(ROWS.T), 4)
    assert by_partial_correlation.one(0, 1, [2, 3])[1] == 1.0


def by_all_sets(W, A, seen, n_lags, n_steps=14):
    """Edges and marks by definition: no set of seen nodes in the window separates the two."""
    n = len(W)
    graph = nx.from_numpy_array(unrolled(W, A, n_steps).astype(int), create_using=nx.DiGraph)
    window = [lag * n + v for lag in range(n_lags + 1) for v in seen]
    words = np.full((len(seen), len(seen), n_lags + 1), "", dtype="<U3")
    for lag in range(n_lags + 1):
        for i, a in enumerate(seen):
            for j, b in enumerate(seen):
                x, y = lag * n + a, b
                if x == y:
                    continue
                rest = [node for node in window if node not in (x, y)]
                sets = chain.from_iterable(combinations(rest, k) for k in range(len(rest) + 1))
                if any(nx.is_d_separator(graph, {x}, {y}, set(given)) for given in sets):
                    continue
                near = "-" if nx.has_path(graph, x, y) else "<"
                far = "-" if nx.has_path(graph, y, x) else ">"
                words[i, j, lag] = f"{near}-{far}"
    return words


@pytest.mark.parametrize("seed", range(6))
def test_it_is_what_all_sets_of_conditions_say(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 6))
    W, A = draw_system(rng, n, 1, memory=0.7)
    seen = sorted(rng.choice(n, n - int(rng.integers(0, 2)), replace=False)[:3].tolist())
    assert true_marks(W, A, seen, 1).tolist() == by_all_sets(W, A, seen, 1).tolist()


def test_a_variable_before_the_window_is_not_seen():
    A = np.zeros((2, 2, 2))
    A[0, 0, 0], A[1, 0, 1] = 0.5, 1.0
    assert true_marks(np.zeros((2, 2)), A, [0, 1], 2)[0, 1].tolist() == ["", "", "-->"]
    # With one lag, x two time steps ago is hidden: it acts on x one time step ago and on y now.
    assert true_marks(np.zeros((2, 2)), A, [0, 1], 1)[0, 1].tolist() == ["", "<->"]


def test_without_hidden_variables_it_is_the_network():
    rng = np.random.default_rng(5)
    W, A = draw_system(rng, 5, 2)
    words = true_marks(W, A, range(5), 2)
    causes = np.stack([W, *A]) != 0
    assert (np.moveaxis(words == "-->", 2, 0) == causes).all()


def test_looking_further_back_changes_nothing():
    for seed in range(2):
        W, A = draw_system(np.random.default_rng(seed), 6, 2, memory=0.5)
        seen = [0, 2, 3, 5]
        assert (true_marks(W, A, seen, 2) == true_marks(W, A, seen, 2, depth=60)).all()
