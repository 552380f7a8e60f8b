"""What variables do given their causes, for networks of all families."""

import pickle

import numpy as np
import pytest

from support.mixed_networks import mixed_network


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
