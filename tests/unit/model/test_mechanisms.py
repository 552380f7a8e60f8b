import pickle

import numpy as np
import pytest

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
