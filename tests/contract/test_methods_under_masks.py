"""Every method gives the same network whether its sums are made in the clear or under masks."""

import warnings

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn import FDBNL, PFDBNL, ChangingDBN, MixedDBN, OneShotDBN, PersonalRounds, Rounds
from feddbn.analysis.confidence import confidence
from feddbn.data import read_sites
from feddbn.errors import ProtocolError, UnitsWarning
from feddbn.federation.protocol.site import Site
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.secure import secure_federation
from support.saying import refused

pytestmark = pytest.mark.promise

MADE = feddbn.simulate(d=5, n_sites=5, n_samples=250, random_state=2)
METHODS = {
    "FDBNL": FDBNL(),
    "FDBNL by the paper": FDBNL(schedule="paper", rounds=Rounds(max_rounds=20)),
    "PFDBNL": PFDBNL(mu=0.5, rounds=PersonalRounds(max_rounds=40)),
    "OneShotDBN": OneShotDBN(),
    "OneShotDBN with fdr": OneShotDBN(fdr=0.1),
    "ChangingDBN": ChangingDBN(),
    "MixedDBN": MixedDBN(),
    "MixedDBN with kinds": MixedDBN(kinds={"x1": "binary", "x3": {"categorical": 3}}),
}


def with_kinds(recordings):
    """Two variables cut into levels."""
    return [
        frame.assign(x1=(frame["x1"] > 0) * 1.0, x3=np.digitize(frame["x3"], [-0.5, 0.5]) * 1.0)
        for frame in recordings
    ]


def fitted(method, make):
    rows = MADE.sites
    if getattr(method, "kinds", None):
        rows = {name: with_kinds(recordings) for name, recordings in rows.items()}
    federation = make({name: Site(name, data) for name, data in read_sites(rows).items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitsWarning)
        return method.set_params(federation=federation).fit(None)


def test_rounds_over_some_of_the_sites_are_refused_under_masks():
    with refused(ProtocolError, code="some-sites-only"):
        fitted(PFDBNL(mu=0.5, participation=3, rounds=PersonalRounds(max_rounds=40)), secure_federation)


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


def test_masks_do_not_change_edge_confidence():
    tables = []
    for make in (InProcessFederation, secure_federation):
        federation = make({name: Site(name, data) for name, data in read_sites(MADE.sites).items()})
        estimator = OneShotDBN(noise_variance="equal")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnitsWarning)
            tables.append(confidence(estimator, n_replicates=4, federation=federation))
    plain, masked = tables
    assert (plain["probability"] < 1).any()
    pd.testing.assert_frame_equal(masked, plain, rtol=1e-7, atol=1e-9)
