"""Several modules: networks with variables of any kind, against formulas, Markov chains, linear networks and scipy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from feddbn.core.kinds import Kind
from feddbn.errors import DataError, ParameterError
from feddbn.model.dbn import DBN
from support.mixed_networks import VARIABLES, effect, mixed_network
from support.networks import make_node


def logistic(x):
    return 1 / (1 + np.exp(-x))


@pytest.fixture(scope="module")
def dbn() -> DBN:
    return mixed_network(covariance=True)


@pytest.fixture(scope="module")
def rows(dbn) -> pd.DataFrame:
    return dbn.simulate(300, 1, burn_in=20)


@pytest.fixture(scope="module")
def chain() -> DBN:
    """Two binary variables: a goes on by itself, b follows a within the moment and itself."""
    a = make_node(Kind("binary"), ((0, 1),), -1.0, (effect((2.0,)),))
    b = make_node(Kind("binary"), ((0, 0), (1, 1)), -0.5, (effect((1.5,)), effect((-1.0,))))
    return DBN.from_nodes([a, b], ["a", "b"])


def transitions() -> np.ndarray:
    """(4, 4) probabilities from (a, b) to (a, b) of `chain`, states in the order 00, 01, 10, 11."""
    P = np.zeros((4, 4))
    for s in range(4):
        a, b = divmod(s, 2)
        for t in range(4):
            a1, b1 = divmod(t, 2)
            pa, pb = logistic(-1 + 2 * a), logistic(-0.5 + 1.5 * a1 - b)
            P[s, t] = (pa if a1 else 1 - pa) * (pb if b1 else 1 - pb)
    return P


A_IS_1, B_IS_1 = np.array([0, 0, 1, 1.0]), np.array([0, 1, 0, 1.0])


def test_weights_stand_for_effects(dbn):
    assert dbn.W[3, 0] == 0.8
    assert dbn.A[0, 2, 3] == -0.4
    assert dbn.A[0, 5, 0] == pytest.approx(np.hypot(0.6, 0.7))
    assert dbn.A[0, 5, 5] == pytest.approx(np.sqrt(1.5**2 + 0.2**2 + 0.1**2 + 1.2**2))
    assert [kind.name for kind in dbn.kinds] == [
        "continuous",
        "positive",
        "count",
        "binary",
        "ordinal",
        "categorical",
    ]
    assert not dbn.is_linear
    assert replace(dbn).equals(dbn)
    assert DBN(np.zeros((2, 2)), np.zeros((0, 2, 2))).kinds == (Kind(), Kind())


def test_what_does_not_belong_together_is_refused(dbn):
    nodes = dbn.nodes
    with pytest.raises(ParameterError, match="nodes"):
        DBN(2 * dbn.W, dbn.A, VARIABLES, nodes=nodes)
    b = Kind("binary")
    with pytest.raises(ParameterError, match="without"):
        DBN.from_nodes([make_node(b, ((1 - j, 0),), 0.0, (effect((1.0,)),)) for j in range(2)])
    with pytest.raises(ParameterError, match="itself"):
        DBN.from_nodes([make_node(b, ((0, 0),), 0.0, (effect((1.0,)),))])


def test_forecasts_are_those_of_the_markov_chain(chain):
    history = pd.DataFrame({"a": [0.0, 1.0], "b": [1.0, 0.0]})
    ahead = chain.forecast(history, 4, 0.9, random_state=0, n_paths=8000)
    state, P = np.array([0, 0, 1.0, 0]), transitions()
    for t in range(4):
        state = state @ P
        wanted = [state @ A_IS_1, state @ B_IS_1]
        np.testing.assert_allclose(ahead.mean.iloc[t], wanted, atol=0.02)
        np.testing.assert_allclose(
            ahead.sd.iloc[t], np.sqrt(np.multiply(wanted, np.subtract(1, wanted))), atol=0.02
        )
    # The first step of a rests on known causes only: exact.
    assert ahead.mean["a"].iloc[0] == pytest.approx(logistic(1.0), abs=1e-12)
    assert ahead.lower.isna().all().all()


def test_without_a_history_the_chain_is_where_it_usually_is(chain):
    values, vectors = np.linalg.eig(transitions().T)
    usual = np.real(vectors[:, np.argmax(np.real(values))])
    usual /= usual.sum()
    mean = chain.forecast(None, 1, random_state=0, n_paths=4000).mean.iloc[0]
    np.testing.assert_allclose(mean, [usual @ A_IS_1, usual @ B_IS_1], atol=0.03)


def test_missing_cells_are_inferred_as_bayes_says(chain):
    history = pd.DataFrame({"a": [0.0, np.nan, np.nan], "b": [0.0, 1.0, 1.0]})
    state, P = np.array([1.0, 0, 0, 0]), transitions()
    for _ in range(2):
        state = state @ P * B_IS_1
        state /= state.sum()
    wanted = state @ P
    ahead = chain.forecast(history, 1, random_state=0, n_paths=8000)
    assert ahead.n_inferred == 1
    np.testing.assert_allclose(ahead.mean.iloc[0], [wanted @ A_IS_1, wanted @ B_IS_1], atol=0.02)


def test_interventions_cut_what_comes_in(chain):
    history = pd.DataFrame({"a": [0.0], "b": [0.0]})
    ahead = chain.do({"a": 1}, history, 2, random_state=0, n_paths=8000).mean
    first = logistic(1.0)
    assert ahead["a"].tolist() == [1.0, 1.0]
    assert ahead["b"].iloc[0] == pytest.approx(first, abs=1e-12)
    assert ahead["b"].iloc[1] == pytest.approx(first * logistic(0.0) + (1 - first) * first, abs=0.01)


def test_levels_are_held_by_name(dbn, rows):
    one = dbn.do({"ward": "south", "alarm": [1, np.nan]}, rows, 2, 0.9, random_state=0)
    other = dbn.do({"ward": 1, "alarm": [1, np.nan]}, rows, 2, 0.9, random_state=0)
    pd.testing.assert_frame_equal(one.mean, other.mean)
    assert one.mean["ward=south"].tolist() == [1.0, 1.0]
    assert one.sd["ward=south"].tolist() == [0.0, 0.0]
    last = rows.iloc[-1]
    code = [0, 0] if last["ward"] == 0 else [1, 0] if last["ward"] == 1 else [0, 1]
    wanted = 0.2 + 0.5 * last["temp"] + 0.8 + 0.6 * code[0] - 0.7 * code[1]
    assert one.mean["temp"].iloc[0] == pytest.approx(wanted, rel=1e-9)
    assert 0 < one.mean["alarm"].iloc[1] < 1
    with pytest.raises(ParameterError, match="'visits' has -1"):
        dbn.do({"visits": -1}, rows, 1)


def test_bounds_of_counts_are_whole_and_right():
    node = make_node(Kind("count"), ((0, 1),), 0.5, (effect((0.3,)),), 0.0)
    dbn = DBN.from_nodes([node], ["visits"])
    ahead = dbn.forecast(pd.DataFrame({"visits": [4.0]}), 2, 0.8, random_state=0, n_paths=20000)
    mean = np.exp(0.5 + 0.3 * np.log(5.0))
    assert ahead.mean["visits"].iloc[0] == pytest.approx(mean, rel=1e-12)
    assert ahead.lower["visits"].iloc[0] == stats.poisson.ppf(0.1, mean)
    assert ahead.upper["visits"].iloc[0] == stats.poisson.ppf(0.9, mean)
    # Two steps: a mixture of Poisson distributions.
    x, k = np.arange(60), np.arange(60)
    mixed = stats.poisson.pmf(x, mean) @ stats.poisson.cdf(k, np.exp(0.5 + 0.3 * np.log1p(x))[:, None])
    assert ahead.lower["visits"].iloc[1] == np.argmax(mixed >= 0.1)
    assert ahead.upper["visits"].iloc[1] == np.argmax(mixed >= 0.9)


def test_forecast_frames(dbn, rows):
    ahead = dbn.forecast(rows, 2, 0.9, random_state=0)
    assert list(ahead.mean.columns)[-6:] == [
        "pain=no", "pain=some", "pain=bad", "ward=north", "ward=south", "ward=west",
    ]  # fmt: skip
    np.testing.assert_allclose(ahead.mean.filter(like="ward=").sum(axis=1), 1.0)
    tidy = ahead.to_frame()
    assert set(tidy["variable"]) == set(VARIABLES)
    assert tidy.loc[tidy["variable"] == "ward", "level"].tolist() == ["north", "south", "west"] * 2
    assert ahead.lower["visits"].map(float.is_integer).all()


def test_histories_may_name_levels(dbn, rows):
    named = rows.assign(ward=[("north", "south", "west")[int(k)] for k in rows["ward"]])
    pd.testing.assert_frame_equal(
        dbn.forecast(named, 1, random_state=0).mean, dbn.forecast(rows, 1, random_state=0).mean
    )
    with pytest.raises(DataError, match=r"history.*'east'.*'ward'"):
        dbn.forecast(named.assign(ward="east"), 1)


def test_effects_over_time_are_those_of_the_chain(chain):
    table = chain.effects(
        "a", "b", 3, at=0, by=1, random_state=0, n_paths=8000, history=np.array([[0.0, 0.0]])
    )
    P = transitions()
    one, other = np.zeros(4), np.zeros(4)
    for a, state in ((0, one), (1, other)):
        pb = logistic(-0.5 + 1.5 * a)
        state[2 * a], state[2 * a + 1] = 1 - pb, pb
    wanted = []
    for _ in range(4):
        wanted.append((other - one) @ B_IS_1)
        one, other = one @ P, other @ P
    np.testing.assert_allclose(table["total"], wanted, atol=0.025)
    assert (np.abs(table["total"] - wanted) < 4 * table["error"] + 1e-3).all()
    np.testing.assert_allclose(table["cumulative"], np.cumsum(table["total"]))


def test_effects_from_level_to_level(dbn):
    table = dbn.effects("ward", "temp", 1, at="north", by="west", random_state=0)
    assert table["total"].iloc[0] == 0
    assert table["total"].iloc[1] == pytest.approx(-0.7, abs=0.03)
    levels = dbn.effects("pain", "ward", 1, random_state=0)
    assert levels["level"].tolist() == ["north", "south", "west"] * 2
    np.testing.assert_allclose(levels.groupby("horizon")["total"].sum(), 0.0, atol=1e-12)
    assert dbn.effects("visits", "dose", 1, random_state=0)["by"].eq(1).all()


def test_residuals_are_standard_normal_if_the_network_holds(dbn):
    data = dbn.simulate(800, 3, burn_in=20)
    z = dbn.quantile_residuals(data, 0)
    for j in range(dbn.d):
        assert stats.kstest(z[:, j], "norm").pvalue > 1e-3
    wrong = replace(dbn.nodes[3], intercept=[0.5])
    other = DBN.from_nodes([*dbn.nodes[:3], wrong, *dbn.nodes[4:]], VARIABLES)
    assert stats.kstest(other.quantile_residuals(data, 0)[:, 3], "norm").pvalue < 1e-6
    with pytest.raises(ParameterError, match="quantile_residuals"):
        dbn.residuals(data)


def test_log_likelihood_adds_up(dbn, rows):
    x = rows.to_numpy()
    ward = np.stack([x[:-1, 5] == 1, x[:-1, 5] == 2], axis=1)
    temp = 0.2 + 0.5 * x[:-1, 0] + 0.8 * x[1:, 3] + ward @ [0.6, -0.7]
    total = stats.norm.logpdf(x[1:, 0], temp, np.sqrt(0.5)).sum()
    dose = 0.3 + 0.4 * np.log(x[:-1, 1]) + 0.2 * np.log1p(x[:-1, 2])
    total += stats.lognorm.logpdf(x[1:, 1], np.sqrt(0.1), scale=np.exp(dose)).sum()
    visits = np.exp(0.5 + 0.3 * x[:-1, 0] + 0.5 * x[:-1, 3])
    total += stats.nbinom.logpmf(x[1:, 2], 5, 1 / (1 + 0.2 * visits)).sum()
    total += stats.bernoulli.logpmf(
        x[1:, 3], logistic(-0.8 + 0.9 * x[:-1, 0] - 0.4 * np.log1p(x[:-1, 2]))
    ).sum()
    slope = 0.6 * x[:-1, 4] + 0.5 * np.log(x[1:, 1])
    upto = np.stack(
        [np.zeros_like(slope), logistic(0.5 - slope), logistic(2.0 - slope), np.ones_like(slope)], axis=1
    )
    k = x[1:, 4].astype(int)
    total += np.log(upto[np.arange(len(k)), k + 1] - upto[np.arange(len(k)), k]).sum()
    eta = [-0.2, -0.5] + ward @ np.array([[1.5, 0.2], [0.1, 1.2]]) + x[1:, 4, None] * [0.3, -0.4]
    odds = np.exp(np.concatenate([np.zeros((len(eta), 1)), eta], axis=1))
    total += np.log(odds[np.arange(len(eta)), x[1:, 5].astype(int)] / odds.sum(axis=1)).sum()
    assert dbn.log_likelihood(rows) == pytest.approx(total, rel=1e-10)


def test_linear_formulas_are_refused_in_a_sentence(dbn):
    for ask in (
        lambda: dbn.spectral_radius,
        lambda: dbn.impulse_responses(3),
        lambda: dbn.at_level(np.ones(6)),
        lambda: dbn.to_lingam(),
        lambda: dbn.to_tigramite(),
    ):
        with pytest.raises(ParameterError, match="kinds"):
            ask()
    with pytest.raises(ParameterError, match=r"'ward'.*dbn\.forecast"):
        dbn.stationary_mean()


def test_paths_that_explode_are_named():
    node = make_node(Kind("count"), ((0, 1),), 0.5, (effect((1.6,)),), 0.0)
    dbn = DBN.from_nodes([node], ["visits"])
    with pytest.raises(ParameterError, match="'visits'"):
        dbn.forecast(pd.DataFrame({"visits": [50.0]}), 30, random_state=0)
    assert dbn.edges()["standardised"].iloc[0] == 1.6


def test_effects_are_in_standard_deviations_also_where_paths_explode():
    """Of the noise then: 10 of a pressure that drifts away, 1 of a flag."""
    flag = make_node(Kind("binary"), (), 0.0, (), 0.0)
    drifts = make_node(Kind("continuous"), ((0, 0), (1, 1)), 5.0, (effect((16.0,)), effect((1.1,))), 100.0)
    table = DBN.from_nodes([flag, drifts], ["vent", "sbp"]).edges().set_index(["source", "target"])
    assert table.loc[("vent", "sbp"), "standardised"] == pytest.approx(1.6)
    assert table.loc[("sbp", "sbp"), "standardised"] == pytest.approx(1.1)


def test_levels_that_hardly_change_have_no_usual_value():
    """From 0 to 1 once in a thousand steps, back once in two thousand: two thirds at 1 in the long run, not seen in 200."""
    node = make_node(Kind("binary"), ((0, 1),), -np.log(999.0), (effect((np.log(999.0) + np.log(1999.0),)),))
    dbn = DBN.from_nodes([node], ["sex"])
    with pytest.raises(ParameterError, match=r"'sex'.*200"):
        dbn.forecast(None, 1)
    with pytest.raises(ParameterError, match="rows"):
        dbn.effect("sex", "sex", 1)
    rows = pd.DataFrame({"sex": [0.0] * 10 + [1.0] * 10})
    assert dbn.effect("sex", "sex", 1, rows).change(0, 1)[0][0] == pytest.approx(1 - 1 / 2000 - 1 / 1000)
    assert dbn.forecast(rows, 1, random_state=0).mean["sex"].iloc[0] == pytest.approx(1 - 1 / 2000)
    assert dbn.edges()["standardised"].iloc[0] == pytest.approx(dbn.A[0, 0, 0])
    # One that stays for ten steps on average is fine.
    lively = make_node(Kind("binary"), ((0, 1),), -np.log(9.0), (effect((2 * np.log(9.0),)),))
    mean = DBN.from_nodes([lively]).stationary_mean()
    assert mean[0] == pytest.approx(0.5, abs=0.05)


def test_levels_that_count_as_one_are_read_as_recorded():
    """The network counts b and d as its first level; recordings have a, b, c, d."""
    kind = Kind("categorical", ("b, d", "a", "c"), (("a", 1), ("b", 0), ("c", 2), ("d", 0)))
    node = make_node(kind, ((0, 1),), (0.5, -0.5), (effect((1.0, 0.0), (0.0, 2.0)),))
    follows = make_node(Kind(), ((0, 0),), 0.0, (effect((1.0,), (5.0,)),), 0.01)
    dbn = DBN.from_nodes([node, follows], ["ward", "x"])

    def ahead(last):
        return dbn.forecast(pd.DataFrame({"ward": [last], "x": [0.0]}), 1, random_state=0).mean.iloc[0]

    names = ["ward=b, d", "ward=a", "ward=c"]
    for name, position, eta in (
        ("a", 0, (1.5, -0.5)),
        ("b", 1, (0.5, -0.5)),
        ("c", 2, (0.5, 1.5)),
        ("d", 3, (0.5, -0.5)),
    ):
        odds = np.exp([0.0, *eta])
        np.testing.assert_allclose(ahead(name)[names], odds / odds.sum(), rtol=1e-9)
        np.testing.assert_allclose(ahead(float(position))[names], odds / odds.sum(), rtol=1e-9)
    history = pd.DataFrame({"ward": ["a"], "x": [0.0]})
    for given, x in (("d", 0.0), (3, 0.0), (2, 5.0), ("a", 1.0), ([0], 1.0)):
        assert dbn.do({"ward": given}, history, 1, random_state=0).mean["x"].iloc[0] == pytest.approx(x)
    drawn = dbn.simulate(200, 0, burn_in=5)
    assert set(drawn["ward"]) == {0.0, 1.0, 2.0}
    # What was drawn reads back: b stands for b and d.
    at_c = drawn["x"][drawn["ward"] == 2]
    assert at_c.mean() == pytest.approx(5.0, abs=0.1)
    assert np.isfinite(dbn.log_likelihood(drawn))
    assert DBN.from_json(dbn.to_json()).kinds == dbn.kinds
    with pytest.raises(DataError, match="4"):
        ahead(4.0)
    with pytest.raises(ParameterError, match="levels are a, b, c, d"):
        dbn.do({"ward": 4}, history, 1)
