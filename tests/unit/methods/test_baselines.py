import numpy as np
import pytest

import feddbn
from feddbn import Average, BestSite, Dynotears, LocalOnly, Vote
from feddbn.core.graphs.constraints import has_cycle
from feddbn.errors import ParameterError


@pytest.fixture(scope="module")
def federation():
    return feddbn.simulate(d=5, n_sites=3, n_samples=300, random_state=4)


def test_local_only_is_dynotears_at_each_site(federation):
    model = LocalOnly().fit(federation.sites)
    assert set(model.dbns_) == set(federation.sites)
    alone = Dynotears().fit(federation.sites["site-1"])
    np.testing.assert_allclose(model.dbns_["site-1"].W, alone.W_, atol=1e-10)
    assert model.n_rounds_ == 1


def test_average_is_the_mean_of_the_local_weights(federation):
    model = Average(w_threshold=0.3).fit(federation.sites)
    local = [Dynotears(w_threshold=0.3).fit(rs).W_raw_ for rs in federation.sites.values()]
    mean = np.mean(local, axis=0)
    np.testing.assert_allclose(model.W_raw_, mean, atol=1e-10)
    np.testing.assert_array_equal(model.W_, np.where(np.abs(mean) >= 0.3, model.W_raw_, 0.0))
    lagged = np.mean([Dynotears().fit(rs).A_raw_ for rs in federation.sites.values()], axis=0)
    np.testing.assert_allclose(model.A_raw_, lagged, atol=1e-10)


def test_average_may_keep_cycles_and_says_so():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    forward = np.hstack([x, x + 0.1 * rng.normal(size=(200, 1))])
    sites = {"a": forward * [1, 2], "b": forward * [2, 1]}
    model = Average(n_lags=0, lambda_w=0.01, w_threshold=0.05).fit(sites)
    # Each site reads the order off its own scales, and the two orders contradict each other.
    assert has_cycle(model.W_ != 0)
    assert model.has_cycles_
    assert "cycles" in model.warnings_[0]


def test_vote_keeps_edges_of_the_majority(federation):
    model = Vote().fit(federation.sites)
    local = np.mean([Dynotears().fit(rs).W_ != 0 for rs in federation.sites.values()], axis=0)
    assert not has_cycle(model.W_ != 0)
    kept = model.W_ != 0
    assert np.all(local[kept] > 0.5)
    np.testing.assert_allclose(model.W_raw_, local, atol=1e-12)


def test_best_site_needs_the_truth_and_finds_the_closest(federation):
    with pytest.raises(ParameterError, match="BestSite needs truth="):
        BestSite().fit(federation.sites)
    model = BestSite().fit(federation.sites, truth=federation.truth)
    alone = LocalOnly().fit(federation.sites).dbns_
    distances = {
        name: sum(feddbn.score(federation.truth, dbn)[part]["shd"] for part in "WA")
        for name, dbn in alone.items()
    }
    assert distances[model.best_site_] == min(distances.values()) < max(distances.values())
    assert model.dbn_.equals(alone[model.best_site_], atol=1e-12)


def test_personal_networks_stay_at_remote_sites(federation):
    class Remote:
        sites = ("a",)
        variables = ("x0", "x1")
        answered_tasks = None

        def state_of(self, site):
            return None

        def sum(self, task):
            from feddbn.federation.protocol.task import Sum

            return Sum(np.ones(1), ("a",))

    with pytest.raises(ParameterError, match="stay at the sites"):
        LocalOnly(federation=Remote()).fit(None)
