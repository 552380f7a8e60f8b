"""Continuous time where rows come at usual times: it says of links what OneShotDBN says, and two rates are no matter."""

import numpy as np
import pandas as pd
import pytest

import feddbn
from reproduction.differential import diffusion, draw_rates

pytestmark = [pytest.mark.slow]


def drawn(seed, d, n_rows, every=1):
    """A [to, from] and eight sites, of which half have every so many-th step only."""
    rng = np.random.default_rng([seed, 33])
    A, Q = draw_rates(d, d, rng=rng), np.diag(rng.uniform(0.7, 1.2, d) ** 2)
    sites = {}
    for k in range(8):
        times = np.arange(float(n_rows)) * (every if k % 2 else 1)
        rows = pd.DataFrame(diffusion(A, Q, times, rng), columns=[f"x{j}" for j in range(d)])
        sites[f"site-{k}"] = rows.assign(t=times)
    return A, sites


def links(weights):
    acts = np.asarray(weights) != 0
    return (acts | acts.T)[np.triu_indices(len(acts), 1)]


@pytest.mark.filterwarnings("ignore::feddbn.errors.ResidualsWarning")
@pytest.mark.parametrize("seed", [900, 901])
def test_it_agrees_with_oneshot_about_links_of_regular_rows(seed):
    A, sites = drawn(seed, 5, 400)
    rates = feddbn.ContinuousDBN().fit(sites, time="t").rates_
    discrete = feddbn.OneShotDBN(n_lags=1).fit(sites, time="t")
    said = links(discrete.W_) | links(discrete.A_[0])
    np.testing.assert_array_equal(links(rates), links(A))
    assert (links(rates) == said).mean() >= 0.95


@pytest.mark.filterwarnings("ignore::feddbn.errors.ResidualsWarning")
def test_sites_with_every_second_step_learn_the_same_edges():
    A, sites = drawn(900, 5, 400, every=2)
    np.testing.assert_array_equal(
        feddbn.ContinuousDBN().fit(sites, time="t").rates_.to_numpy().T != 0, A != 0
    )
