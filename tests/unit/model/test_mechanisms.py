import pickle

import numpy as np
import pytest
from scipy import stats

import feddbn
from feddbn.core.kinds import Kind
from feddbn.model.conditionals import Conditional
from feddbn.model.curves import Curve
from feddbn.model.mechanisms import WithNoise
from support.mixed_networks import mixed_network


@pytest.fixture(params=["linear", "additive", "generalised"])
def dbn(request, random_dbn, curved_dbn):
    return {"linear": lambda: random_dbn(3), "additive": curved_dbn, "generalised": mixed_network}[
        request.param
    ]()


def test_a_step_draws_from_the_distributions_given_causes(dbn):
    rng, going, n = np.random.default_rng(0), dbn.mechanisms, 300
    rows = dbn.simulate(n + dbn.n_lags, random_state=1).to_numpy()
    past = np.stack([rows[k : k + dbn.n_lags] for k in range(n)])
    shocks = going.shocks("gaussian", (n,), rng)
    z = shocks / np.sqrt(dbn.noise_variances) if isinstance(going, WithNoise) else shocks
    for held in (np.full(dbn.d, np.nan), np.where(np.arange(dbn.d) == 1, 2.0, np.nan)):
        x = going.step(past, shocks, held)
        laws = going.laws(np.concatenate([x[:, None], past[:, ::-1]], axis=1).reshape(n, -1))
        for j, law in enumerate(laws):
            expected = law.driven(z[:, j]) if np.isnan(held[j]) else held[j]
            np.testing.assert_allclose(x[:, j], expected, rtol=1e-9, atol=1e-12)


def test_densities_of_rows_are_those_that_weigh_particles(dbn):
    rows = dbn.simulate(40, random_state=2).to_numpy()
    p = dbn.n_lags
    lagged = np.concatenate([rows[p - lag : 40 - lag] for lag in range(p + 1)], axis=1)
    past = lagged.reshape(len(lagged), p + 1, dbn.d)[:, :0:-1]
    weights = dbn.mechanisms.log_weights(past, lagged[:, : dbn.d], np.ones(dbn.d, dtype=bool))
    np.testing.assert_allclose(weights, dbn.mechanisms.log_densities(lagged).sum(axis=1), rtol=1e-12)


def test_a_network_that_was_used_can_be_pickled(dbn):
    dbn.simulate(3, random_state=0)
    assert pickle.loads(pickle.dumps(dbn)).equals(dbn)


def one_of_each_family():
    """(network, what is expected of y, its variance or None) with x -> y in the same time step and y -> y at lag 1."""
    W, A = [[0.0, 0.5], [0.0, 0.0]], [[[0.4, 0.0], [0.0, 0.3]]]
    straight = feddbn.DBN(W, A, ["x", "y"], [1.0, -1.0], [0.5, 2.0])
    bend = Curve(0, 1, 0, origin=0.2, scale=1.5, coefficients=(0.7,), basis="quadratic")
    curved = feddbn.DBN(W, A, ["x", "y"], [1.0, -1.0], [0.5, 2.0], curves=[bend])
    plain, binary = Kind(), Kind("binary")
    nodes = (
        Conditional(plain, ((0, 1),), [1.0], ([[0.4]],), 0.5),
        Conditional(binary, ((0, 0), (1, 1)), [-1.0], ([[0.5]], [[0.3]])),
    )
    mixed = feddbn.DBN.from_conditionals(nodes, ["x", "y"])
    return (
        (straight, lambda x, before: -1 + 0.5 * x + 0.3 * before, 2.0),
        (curved, lambda x, before: -1 + 0.5 * x + bend.at(x) + 0.3 * before, 2.0),
        (mixed, lambda x, before: 1 / (1 + np.exp(1 - 0.5 * x - 0.3 * before)), None),
    )


@pytest.mark.parametrize("family", range(3))
def test_a_variable_has_a_mean_draws_a_density_and_effects_of_its_causes(family):
    dbn, expected, variance = one_of_each_family()[family]
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 4))
    if variance is None:
        rows[:, [1, 3]] = rng.integers(2, size=(50, 2))
    y, mean = dbn.mechanism("y"), expected(rows[:, 0], rows[:, 3])
    np.testing.assert_allclose(y.mean(rows), mean, rtol=1e-12)
    of = (
        stats.bernoulli.logpmf(rows[:, 1], mean)
        if variance is None
        else stats.norm.logpdf(rows[:, 1], mean, variance**0.5)
    )
    np.testing.assert_allclose(y.log_density(rows), of, rtol=1e-10)
    drawn = np.mean([y.sample(rows, rng) for _ in range(4000)], axis=0)
    spread = np.sqrt(mean * (1 - mean) if variance is None else variance)
    assert np.abs((drawn - mean) / spread).max() < 5 / np.sqrt(4000)
    effect, values = y.effect(0, 0), np.array([-1.0, 0.5, 2.0])
    told = effect.at(values)
    if variance is None:
        usual = effect.codes[:, 1]
        by_hand = [[expected(value, usual).mean()] for value in values]
        np.testing.assert_allclose(told, by_hand, rtol=1e-12)
    else:
        np.testing.assert_allclose(told, expected(values, 0.0) - expected(effect.origin, 0.0), atol=1e-12)
