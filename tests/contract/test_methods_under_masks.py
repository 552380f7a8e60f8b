"""Every method gives the same network whether its sums are made in the clear or under masks."""

import warnings

import numpy as np
import pytest

import feddbn
from feddbn import FDBNL, PFDBNL, OneShotDBN
from feddbn.data import read_sites
from feddbn.errors import UnitsWarning
from feddbn.federation.site import Site
from feddbn.runtime.in_process import InProcessFederation
from feddbn.runtime.secure import secure_federation

MADE = feddbn.simulate(d=5, n_sites=5, n_samples=250, random_state=2)
METHODS = {
    "FDBNL": FDBNL(max_rounds=60),
    "PFDBNL": PFDBNL(mu=0.5, max_rounds=40),
    "PFDBNL, three of five sites a round": PFDBNL(mu=0.5, participation=3, max_rounds=40),
    "OneShotDBN": OneShotDBN(),
}


def fitted(method, make):
    federation = make({name: Site(name, data) for name, data in read_sites(MADE.sites).items()})
    federation.variables = ("x0", "x1", "x2", "x3", "x4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitsWarning)
        return method.set_params(federation=federation).fit(None)


@pytest.mark.parametrize("name", METHODS)
def test_masks_do_not_change_the_network(name):
    masked = fitted(METHODS[name], secure_federation)
    W, A, n_rounds = masked.W_, masked.A_, masked.n_rounds_
    plain = fitted(METHODS[name], InProcessFederation)
    assert n_rounds == plain.n_rounds_
    assert np.any(plain.W_ != 0)
    np.testing.assert_array_equal(W != 0, plain.W_ != 0)
    np.testing.assert_allclose(W, plain.W_, atol=1e-7)
    np.testing.assert_allclose(A, plain.A_, atol=1e-7)
