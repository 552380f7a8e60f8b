"""FDBNL on many variables: no path, OneShotDBN's order, the lasso within it; here with few that count as many."""

import numpy as np
import pytest

from feddbn import FDBNL, Prepare, simulate
from feddbn.core.fdbnl import server


@pytest.fixture
def few_are_many(monkeypatch):
    monkeypatch.setattr(server, "MANY_NODES", 4)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("n_lags", [0, 1])
def test_the_objective_is_about_that_of_the_best_order(seed, n_lags, few_are_many, monkeypatch):
    sites = simulate(d=8, n_sites=4, n_samples=800, n_lags=n_lags, random_state=seed).sites
    many = FDBNL(n_lags, prepare=Prepare(scale="none")).fit(sites)
    monkeypatch.undo()
    few = FDBNL(n_lags, prepare=Prepare(scale="none")).fit(sites)
    assert many.status_.is_converged
    assert len(many.history_) <= 8 < len(few.history_)
    assert set(many.history_["stage"]) == {"warm", "lasso", "support", "final"}
    assert few.objective_ - 1e-9 <= many.objective_ <= 1.01 * few.objective_
    assert few.certificate_.is_exact
    assert 0 < many.certificate_.lower_bound <= few.objective_ + 1e-9
    assert many.certificate_.objective == pytest.approx(many.objective_)


def test_required_and_forbidden_edges_hold(few_are_many):
    sites = simulate(d=6, n_sites=3, n_samples=600, random_state=1).sites
    required, forbidden = [("x4", "x0", 0), ("x5", "x1", 1)], [("*", "x3", 0), ("*", "x3", 1)]
    # What is required and forbidden against the truth shows in residuals.
    model = FDBNL(required_edges=required, forbidden_edges=forbidden, check_residuals=False).fit(sites)
    assert model.W_[4, 0] != 0
    assert model.A_[0][5, 1] != 0
    assert not model.W_[:, 3].any()
    assert not model.A_[0][:, 3].any()


def test_the_path_and_the_proof_are_still_there_for_those_who_ask(few_are_many):
    sites = simulate(d=6, n_sites=3, n_samples=600, random_state=2).sites
    assert len(FDBNL(optimum="path").fit(sites).history_) > 20
    proven = FDBNL(optimum="exact").fit(sites)
    assert len(proven.history_) > 20
    assert proven.certificate_.is_exact


def test_every_split_gives_the_same_network(few_are_many):
    whole = simulate(d=6, n_sites=1, n_samples=600, random_state=3)
    (frames,) = whole.sites.values()
    rows = np.asarray(frames[0])
    parts = {f"s{k}": [part] for k, part in enumerate(np.array_split(rows, 5))}
    # Lags do not cross sites: the same rows for one.
    together = {"all": [part for parts_of in parts.values() for part in parts_of]}
    rows = Prepare(center="none", scale="none")
    one = FDBNL(prepare=rows).fit(together)
    for schedule in ("gram", "rounds"):
        five = FDBNL(schedule=schedule, prepare=rows).fit(parts)
        np.testing.assert_allclose(one.W_, five.W_, atol=1e-8)
        np.testing.assert_allclose(one.A_, five.A_, atol=1e-8)
