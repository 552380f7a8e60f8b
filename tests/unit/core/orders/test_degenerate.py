"""Several modules: data with dependent columns: every search ends, nothing overflows, and the user is told which columns."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import feddbn
from feddbn.core.orders.parents import Objective, ParentRegressions, ParentSelection, columns_of
from feddbn.errors import DataError, DependentColumnsWarning
from support.saying import only
from support.simulated_moments import lagged_moments

KINDS = ["shared", "copy", "jitter", "sum", "lag", "deterministic"]
MOST_MOVES = 400_000


def degenerate(kind, d, seed, equal=True, n=300):
    """Rows of a process with dependent columns."""
    rng = np.random.default_rng(seed)
    inverse = np.linalg.inv(np.eye(d) - np.triu(rng.choice([0.0, 0.6, -0.7], (d, d), p=[0.6, 0.2, 0.2]), 1))
    A = np.diag(rng.uniform(0.2, 0.5, d))
    e = rng.standard_normal((n, d)) * (1.0 if equal else rng.uniform(0.5, 2.0, d))
    if kind == "shared":
        e = np.repeat(e[:, :1], d, axis=1)
    if kind == "deterministic":
        e, A, inverse = np.zeros((n, d)), np.linalg.qr(rng.standard_normal((d, d)))[0], np.eye(d)
    x = np.zeros((n, d))
    x[0] = rng.standard_normal(d)
    for t in range(1, n):
        x[t] = (x[t - 1] @ A + e[t]) @ inverse
    if kind == "copy":
        x[:, -1] = x[:, 0]
    if kind == "jitter":
        x[:, -1] = x[:, 0] + 1e-8 * rng.standard_normal(n)
    if kind == "sum":
        x[:, -1] = x[:, 0] + x[:, 1]
    if kind == "lag":
        x[1:, -1] = x[:-1, 0]
    return x


@pytest.fixture
def bounded(monkeypatch):
    """Fail instead of searching on and on."""
    count = 0
    plain = ParentSelection.moves

    def counted(self, node, parents):
        nonlocal count
        count += 1
        assert count < MOST_MOVES
        return plain(self, node, parents)

    monkeypatch.setattr(ParentSelection, "moves", counted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "d", "equal"), [*((kind, 6, True) for kind in KINDS), ("shared", 4, False), ("lag", 4, False)]
)
def test_learning_from_dependent_columns_ends_and_says_so(kind, d, equal, bounded):
    x = degenerate(kind, d, seed=1, equal=equal)
    model = feddbn.OneShotDBN()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit({"a": x[:150], "b": x[150:]})
    assert np.isfinite(model.W_).all()
    assert np.isfinite(model.A_).all()
    probability = model.edge_probabilities_["probability"]
    assert probability.between(0, 1).all()
    assert probability.max() > 0.5
    assert "dependent-column" in model.findings_.codes


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"noise_variance": "equal"}, {"noise_variance": "free"}],
)
@pytest.mark.parametrize("kind", ["shared", "deterministic"])
def test_every_way_of_learning_ends(kind, options, bounded):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = feddbn.OneShotDBN(**options).fit({"a": degenerate(kind, 4, seed=0)})
    assert np.isfinite(model.edge_probabilities_["probability"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", [feddbn.OneShotDBN, feddbn.FDBNL, feddbn.PFDBNL, feddbn.Dynotears])
@pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning")
def test_every_method_names_dependent_columns_and_no_clean_ones(method):
    x = degenerate("sum", 4, seed=0)
    with pytest.warns(DependentColumnsWarning):
        model = method().fit({"a": x[:100], "b": x[100:]})
    found = only(model.findings_, "dependent-column")
    assert (found.about, found.values["others"]) == (("x3",), [["x0", 0], ["x1", 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", DependentColumnsWarning)
        method().fit({"a": x[:100, :3], "b": x[100:, :3]})


def test_variables_that_all_follow_from_one_are_refused():
    x = degenerate("copy", 2, seed=0)
    with pytest.raises(DataError, match="x0"):
        feddbn.OneShotDBN().fit({"a": x})


@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 1000),
    noise=st.sampled_from([None, 1.0, 1e-6, 1e-13]),
    exchange=st.booleans(),
)
def test_a_selection_never_costs_more_than_its_start_and_no_set_comes_twice(kind, seed, noise, exchange):
    d = 5
    moments, rng = lagged_moments(degenerate(kind, d, seed)), np.random.default_rng(seed)
    regressions = ParentRegressions(moments.scatter, moments.n, d)
    objective = Objective(moments.n, np.full(2 * d, 6.0), regressions.total, noise)
    selection = ParentSelection(regressions, objective, [()] * d)
    for node in range(d):
        allowed = np.ones(2 * d, dtype=bool)
        allowed[node] = False
        start = tuple(m for m in range(2 * d) if allowed[m] and rng.random() < 0.4)
        parents, cost = selection.select(node, start, columns_of(allowed), exchange)
        assert cost <= selection.moves(node, start).cost
        assert cost == selection.moves(node, parents).cost


def test_a_parent_that_follows_from_others_adds_nothing_and_takes_nothing_away():
    moments = lagged_moments(degenerate("copy", 4, seed=2))
    regressions = ParentRegressions(moments.scatter, moments.n, 4)
    alone, both = regressions.fit(1, (0, 2)), regressions.fit(1, (0, 2, 3))
    assert alone.gain[3] == 0
    assert both.rss == alone.rss
    assert both.loss == (*alone.loss, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("n", [60, 500, 5000])
def test_without_any_edge_probabilities_are_small(n):
    x = np.random.default_rng(0).standard_normal((n, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = feddbn.OneShotDBN(noise_variance="equal", use_nongaussian=False).fit({"a": x})
    probability = model.edge_probabilities_["probability"]
    assert 0.0 < probability.max() < 0.7
    assert probability.median() < 0.1
