"""What variables do given their causes, for networks of all families."""

import pickle

import numpy as np
import pytest
from scipy import stats

import feddbn
from feddbn.core.kinds import Kind
from support.mixed_networks import mixed_network
from support.networks import make_curve, make_node, part_at


@pytest.fixture(params=["linear", "curved", "kinds"])
def dbn(request, random_dbn, curved_dbn):
    return {"linear": lambda: random_dbn(3), "curved": curved_dbn, "kinds": mixed_network}[request.param]()


def test_a_step_draws_from_the_distributions_given_causes(dbn):
    going, n, p = dbn.steps, 300, dbn.n_lags
    rows = dbn.simulate(n + p, random_state=1).to_numpy()
    past = np.stack([rows[k : k + p] for k in range(n)])
    shocks = going.shocks("gaussian", (n,), np.random.default_rng(0))
    for held in (np.full(dbn.d, np.nan), np.where(np.arange(dbn.d) == 1, 2.0, np.nan)):
        x = going.step(past, shocks, held)
        lagged = np.concatenate([x[:, None], past[:, ::-1]], axis=1).reshape(n, -1)
        for j, law in enumerate(going.laws(lagged)):
            drawn = law.from_normal(shocks[:, j] / going.sd[j])
            np.testing.assert_allclose(
                x[:, j], drawn if np.isnan(held[j]) else held[j], rtol=1e-9, atol=1e-12
            )


def test_densities_of_some_variables_are_those_of_all(dbn):
    rows, p = dbn.simulate(40, random_state=2).to_numpy(), dbn.n_lags
    lagged = np.concatenate([rows[p - lag : 40 - lag] for lag in range(p + 1)], axis=1)
    density = dbn.steps.log_densities(lagged, range(dbn.d))
    assert density.sum() == pytest.approx(dbn.log_likelihood(rows), rel=1e-12)
    np.testing.assert_allclose(dbn.steps.log_densities(lagged, [1])[:, 0], density[:, 1], rtol=1e-12)


def test_a_network_that_was_used_can_be_pickled(dbn):
    dbn.simulate(3, random_state=0)
    assert pickle.loads(pickle.dumps(dbn)).equals(dbn)


def test_linear_networks_answer_as_their_nodes_do(random_dbn):
    """The closed forms of the fast path are those of the nodes one by one."""
    from feddbn.model.step import Steps

    dbn = random_dbn(5)
    nodes = Steps([dbn.node(j) for j in range(dbn.d)], dbn.n_lags, dbn.is_edge[0])
    rows = np.random.default_rng(0).normal(size=(20, (dbn.n_lags + 1) * dbn.d))
    np.testing.assert_allclose(nodes.residuals(rows), dbn.steps.residuals(rows), atol=1e-12)
    past, shocks = rows.reshape(20, -1, dbn.d)[:, :0:-1], rows[:, : dbn.d]
    for held in (np.full(dbn.d, np.nan), np.where(np.arange(dbn.d) == 2, 1.5, np.nan)):
        np.testing.assert_allclose(
            nodes.step(past, shocks, held), dbn.steps.step(past, shocks, held), atol=1e-12
        )


def one_of_each_family():
    """(network, what is expected of y, its variance or None) with x -> y in the same time step and y -> y at lag 1."""
    W, A = [[0.0, 0.5], [0.0, 0.0]], [[[0.4, 0.0], [0.0, 0.3]]]
    straight = feddbn.DBN(W, A, ["x", "y"], [1.0, -1.0], [0.5, 2.0])
    bend = make_curve(0, 1, 0, 0.2, 1.5, (0.7,), "quadratic")
    plain, binary = Kind(), Kind("binary")
    nodes = (
        make_node(plain, ((0, 1),), [1.0], ([[0.4]],), 0.5),
        make_node(binary, ((0, 0), (1, 1)), [-1.0], ([[0.5]], [[0.3]])),
    )
    return (
        (straight, lambda x, before: -1 + 0.5 * x + 0.3 * before, 2.0),
        (straight.with_parts([bend]), lambda x, before: -1 + 0.5 * x + part_at(bend, x) + 0.3 * before, 2.0),
        (
            feddbn.DBN.from_nodes(nodes, ["x", "y"]),
            lambda x, before: 1 / (1 + np.exp(1 - 0.5 * x - 0.3 * before)),
            None,
        ),
    )


@pytest.mark.parametrize("family", range(3))
def test_a_variable_has_a_mean_draws_a_density_and_effects_of_its_causes(family):
    dbn, expected, variance = one_of_each_family()[family]
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 4))
    if variance is None:
        rows[:, [1, 3]] = rng.integers(2, size=(50, 2))
    y, mean = dbn.steps.laws(rows)[1], expected(rows[:, 0], rows[:, 3])
    np.testing.assert_allclose(y.mean, mean, rtol=1e-12)
    law = stats.bernoulli(mean) if variance is None else stats.norm(mean, variance**0.5)
    of = law.logpmf(rows[:, 1]) if variance is None else law.logpdf(rows[:, 1])
    np.testing.assert_allclose(y.log_density(rows[:, 1]), of, rtol=1e-10)
    drawn = np.mean([y.from_normal(rng.standard_normal(50)) for _ in range(4000)], axis=0)
    assert np.abs((drawn - mean) / law.std()).max() < 5 / np.sqrt(4000)
    effect, values = dbn.effect("x", "y", 0), np.array([-1.0, 0.5, 2.0])
    told = effect.at(values)[:, 0]
    if variance is None:
        by_hand = [expected(value, effect.rows[:, 3]).mean() for value in values]
        np.testing.assert_allclose(told, by_hand, rtol=1e-12)
    else:
        np.testing.assert_allclose(told, expected(values, 0.0) - expected(effect.origin, 0.0), atol=1e-12)
