"""Methods give the same network with and without masking, drop-outs included."""

import numpy as np
import pytest

from feddbn import Rounds
from feddbn.data import read_sites
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import run_program
from feddbn.federation.sums.treatment import moments_program
from feddbn.methods.fdbnl import FDBNL
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.secure import secure_federation
from feddbn.sim.simulation import simulate

pytestmark = pytest.mark.usefixtures("light")


class DroppingFederation(InProcessFederation):
    """Plain sums in which the sites that `lost` names do not hear a task."""

    def __init__(self, sites, lost):
        super().__init__(sites)
        self.lost = lost

    def sum(self, task):
        from dataclasses import replace

        alive = tuple(name for name in self.sites if name not in self.lost(task))
        return super().sum(replace(task, participants=alive))


def _data(n_sites, d, seed=0):
    federation = simulate(d=d, n_sites=n_sites, n_samples=40 * n_sites, mean_degree=2, random_state=seed)
    return read_sites(federation.sites)


def _sites(data):
    return {name: Site(name, site) for name, site in data.items()}


def _lost(names, n_lost):
    """Sites that are never heard of: who is in the first sum is in every later one."""
    return frozenset(np.random.default_rng(7).choice(names, n_lost, replace=False))


@pytest.mark.parametrize(
    ("n_sites", "d", "n_lost", "max_rounds"),
    [(3, 5, 0, 300), (10, 6, 3, 60)],
)
def test_fdbnl_learns_the_same_network_under_masks(n_sites, d, n_lost, max_rounds):
    data = _data(n_sites, d)
    names = sorted(data)
    lost = _lost(names, n_lost)
    plain = DroppingFederation(_sites(data), lambda task: lost)

    def fault(site, phase):
        return "request lost" if phase == "masked" and site in lost else None

    secure = secure_federation(_sites(data), fault=fault)
    one = FDBNL(federation=plain, schedule="rounds", rounds=Rounds(max_rounds=max_rounds)).fit(None)
    two = FDBNL(federation=secure, schedule="rounds", rounds=Rounds(max_rounds=max_rounds)).fit(None)
    assert one.n_rounds_ == two.n_rounds_
    np.testing.assert_allclose(two.W_raw_, one.W_raw_, atol=1e-8)
    np.testing.assert_array_equal(two.W_ != 0, one.W_ != 0)
    np.testing.assert_array_equal(two.A_ != 0, one.A_ != 0)


def test_one_round_of_moments_is_the_same_under_masks():
    data = _data(10, 6, seed=1)
    variables = next(iter(data.values())).variables
    plain = run_program(moments_program(variables, 1), InProcessFederation(_sites(data)))
    secure = run_program(moments_program(variables, 1), secure_federation(_sites(data)))
    assert secure.n == plain.n
    np.testing.assert_allclose(secure.scatter, plain.scatter, rtol=1e-9, atol=1e-9 * plain.n)
    np.testing.assert_allclose(secure.mean, plain.mean, rtol=1e-9, atol=1e-12)
