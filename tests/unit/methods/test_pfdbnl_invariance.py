"""PFDBNL: what must not change the answer, and where its starts and refits come from."""

from __future__ import annotations

import numpy as np
import pytest

import feddbn
from feddbn import PFDBNL, Dynotears, LocalOnly, Partial, PersonalRounds, Prepare, simulate
from feddbn.data import read_sites
from feddbn.federation.protocol.site import Site
from feddbn.runtime.simulated.in_process import InProcessFederation


@pytest.fixture(scope="module")
def fed() -> feddbn.SimulatedFederation:
    return simulate(d=5, n_sites=3, n_samples=240, mean_degree=3, heterogeneity=0.3, random_state=0)


def test_a_second_fit_on_the_same_federation_starts_anew(fed: feddbn.SimulatedFederation) -> None:
    sites = read_sites(fed.sites)
    federation = InProcessFederation({name: Site(name, site) for name, site in sites.items()})
    first, second = (PFDBNL(federation=federation).fit(None) for _ in range(2))
    assert first.n_rounds_ == second.n_rounds_
    for name in first.dbns_:
        assert np.array_equal(first.dbns_[name].W, second.dbns_[name].W)


def test_rescaling_data_penalties_and_pull_together_changes_nothing(fed: feddbn.SimulatedFederation) -> None:
    large = {name: [1000.0 * x for x in frames] for name, frames in fed.sites.items()}
    m = PFDBNL(mu=0.3).fit(fed.sites)
    rescaled = PFDBNL(mu=0.3e6, lambda_w=0.05e6, lambda_a=0.05e6).fit(large)
    assert m.n_rounds_ == rescaled.n_rounds_
    for name in m.dbns_:
        assert np.allclose(m.dbns_[name].W, rescaled.dbns_[name].W, atol=1e-8)
        assert np.allclose(m.dbns_[name].A, rescaled.dbns_[name].A, atol=1e-8)


def test_constraints_that_fix_an_order_keep_every_edge_they_allow(fed: feddbn.SimulatedFederation) -> None:
    # Every edge must point from a later to an earlier column: the opposite of the order in which ties are broken.
    forbidden = [(i, j, 0) for i in range(5) for j in range(i + 1, 5)]
    one = {"a": fed.sites["site-0"]}
    m = PFDBNL(forbidden_edges=forbidden, rounds=PersonalRounds(tol=1e-7)).fit(one)
    alone = Dynotears(forbidden_edges=forbidden, prepare=Prepare(center="none")).fit(one)
    assert np.count_nonzero(alone.W_raw_) > 0
    assert m.objective_ == pytest.approx(alone.objective_, rel=1e-6)
    assert np.allclose(m.dbns_raw_["a"].W, alone.W_raw_, atol=1e-4)


def test_vanishing_mu_refits_what_a_site_alone_would(fed: feddbn.SimulatedFederation) -> None:
    m, alone = (
        PFDBNL(mu=1e-7, rounds=PersonalRounds(tol=1e-6)).fit(fed.sites),
        LocalOnly(prepare=Prepare(center="none")).fit(fed.sites),
    )
    same_order = [
        name
        for name in m.dbns_
        if np.allclose(
            m.dbns_raw_[name].W,
            Dynotears(prepare=Prepare(center="none")).fit({"a": fed.sites[name]}).W_raw_,
            atol=1e-3,
        )
    ]
    assert same_order
    for name in same_order:
        assert np.allclose(m.dbns_[name].W, alone.dbns_[name].W, atol=1e-3)
        assert np.allclose(m.dbns_[name].A, alone.dbns_[name].A, atol=1e-3)


def test_the_objective_is_that_of_the_penalised_weights_with_and_without_refit(
    fed: feddbn.SimulatedFederation,
) -> None:
    with_refit, without = (
        PFDBNL(rounds=PersonalRounds(refit=refit)).fit(fed.sites) for refit in (True, False)
    )
    assert with_refit.objective_ == pytest.approx(without.objective_, rel=1e-9)


def test_an_order_searched_on_the_summed_moments_saves_a_fit_with_missing_variables() -> None:
    # The path to acyclicity alone reverses an edge here (objective 16.763 instead of 16.724).
    fed = simulate(d=10, n_sites=3, n_samples=1500, mean_degree=4, random_state=2)
    missing = {"site-0": ("x0", "x1"), "site-1": ("x4", "x5"), "site-2": ("x8", "x9")}
    data = {name: [x.drop(columns=list(missing[name])) for x in frames] for name, frames in fed.sites.items()}
    m, full = (
        PFDBNL(mu=1.0, partial=Partial(different_variables=True)).fit(data),
        PFDBNL(mu=1.0).fit(fed.sites),
    )
    assert m.objective_ < 16.73
    position = [list(m.feature_names_in_).index(f"x{i}") for i in range(10)]
    held = [np.array([f"x{i}" not in names for i in range(10)]) for names in missing.values()]
    shared = sum(np.outer(x, x).astype(int) for x in held) >= 2
    assert np.abs(m.W_[np.ix_(position, position)] - full.W_)[shared].max() < 0.1
