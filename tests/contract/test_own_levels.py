"""Sites with other baselines: every method sees it from sums, says so, and learns the same network (several modules)."""

import numpy as np
import pytest

from feddbn import FDBNL, PFDBNL, Dynotears, OneShotDBN, Prepare, confidence, simulate
from feddbn.data import read_sites
from feddbn.errors import ResidualsWarning
from feddbn.federation.protocol.site import Site
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.private import private_federation
from feddbn.runtime.simulated.secure import secure_federation
from support.saying import codes, only

pytestmark = pytest.mark.promise

METHODS = [OneShotDBN, Dynotears, FDBNL, PFDBNL]


def made(offset, seed=1, **more):
    fed = simulate(d=5, n_sites=5, n_samples=750, mean_degree=2, random_state=seed, **more)
    rng = np.random.default_rng(seed)
    return fed, {
        name: [x + offset * rng.standard_normal(5) for x in frames] for name, frames in fed.sites.items()
    }


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_offsets_do_not_change_the_network_and_are_said(method):
    fed, shifted = made(5.0)
    clean, found = method().fit(fed.sites), method().fit(shifted)
    assert found.center_ == "recording"
    only(found.findings_, "own-courses")
    np.testing.assert_array_equal(found.W_ != 0, clean.W_ != 0)
    np.testing.assert_array_equal(found.A_ != 0, clean.A_ != 0)
    own = {"prepare": Prepare(center="recording")}
    asked = method(**(own if "prepare" in method().get_params() else {"center": "recording"})).fit(shifted)
    np.testing.assert_allclose(found.W_, asked.W_, atol=1e-6)
    # The intercept is that of the average recording.
    mean = np.concatenate([x.to_numpy() for frames in shifted.values() for x in frames]).mean(axis=0)
    expected = mean - mean @ found.W_ - mean @ found.A_[0]
    np.testing.assert_allclose(found.dbn_.intercept, expected, atol=0.05)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_a_common_level_stays_common_and_nothing_is_said(method):
    fed, _ = made(0.0)
    for sites in (fed.sites, {name: [x + 40.0 for x in frames] for name, frames in fed.sites.items()}):
        found = method().fit(sites)
        assert found.center_ != "recording"
        assert "own-courses" not in codes(found.findings_)


def test_one_mean_for_all_is_kept_on_request_and_misleads():
    fed, shifted = made(5.0)
    with pytest.warns(ResidualsWarning):
        found = OneShotDBN(prepare=Prepare(center="none"), noise_variance="free").fit(shifted)
    assert "memory" in only(found.findings_, "residuals").values["violations"]
    assert found.center_ == "none"
    assert (found.A_ != 0).sum() > (fed.truth.A != 0).sum()


@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
def test_masks_change_nothing_and_noise_takes_one_mean():
    _, shifted = made(5.0, n_recordings=10)
    sites = {name: Site(name, data) for name, data in read_sites(shifted).items()}
    plain = OneShotDBN(federation=InProcessFederation(sites)).fit(None)
    masked = OneShotDBN(federation=secure_federation(sites)).fit(None)
    assert plain.center_ == masked.center_ == "recording"
    np.testing.assert_allclose(masked.W_, plain.W_, atol=1e-6)
    noisy = OneShotDBN(federation=private_federation(sites, 50.0, clip=500.0, rng=np.random.default_rng(0)))
    assert noisy.fit(None).center_ == "none"
    only(noisy.findings_, "not-looked-at-under-noise")


def test_confidence_resamples_within_recordings_where_their_means_differ():
    fed, shifted = made(5.0)
    tables = [
        confidence(OneShotDBN(prepare=Prepare(center=center), n_restarts=0), sites, n_replicates=5)
        for center, sites in (("auto", shifted), ("recording", shifted), ("none", fed.sites))
    ]
    sure = [{(r.source, r.target, r.lag) for r in t.itertuples() if r.probability >= 0.9} for t in tables]
    assert sure[0] == sure[1]
    truth = {(e.source, e.target, e.lag) for e in fed.truth.edges().itertuples()}
    assert len(sure[0] - truth) <= len(sure[2] - truth) + 1
