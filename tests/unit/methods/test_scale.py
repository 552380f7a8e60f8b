"""Several modules: scale="auto" in every penalised method; scaled where, and only where, one penalty cannot serve all."""

import numpy as np
import pytest

import feddbn
from feddbn import FDBNL, PFDBNL, Dynotears, PersonalRounds, Prepare
from support.saying import only

VITALS = ["hr", "bp", "rr", "spo2", "temperature"]
UNITS = np.array([12.0, 15.0, 4.0, 1.5, 0.4])
LEVELS = np.array([80.0, 120.0, 16.0, 96.0, 37.0])


@pytest.fixture(scope="module")
def clean():
    return feddbn.simulate(d=5, n_sites=3, n_samples=600, mean_degree=2, variables=VITALS, random_state=3)


@pytest.fixture(scope="module")
def raw(clean):
    return {name: [frame * UNITS + LEVELS for frame in frames] for name, frames in clean.sites.items()}


@pytest.mark.parametrize("method", [FDBNL, PFDBNL, Dynotears])
def test_comparable_units_stay_as_they_are(method, clean):
    model = method().fit(clean.sites)
    assert model.scale_ == "none"
    assert "variables-scaled" not in model.findings_.codes
    assert model.dbn_.equals(method(prepare=Prepare(scale="none")).fit(clean.sites).dbn_)


@pytest.mark.parametrize("method", [FDBNL, PFDBNL, Dynotears])
def test_vital_signs_in_raw_units_are_as_good_as_scaled(method, clean, raw):
    model = method().fit(raw)
    assert model.scale_ == "federated"
    told = only(model.findings_, "variables-scaled")
    assert told.about == ("bp", "temperature")
    assert told.values["is_bound"] == (method is not PFDBNL)
    assert told.cure == {"prepare.scale": "none"}
    scaled = {name: [frame / UNITS for frame in frames] for name, frames in raw.items()}
    other = method(prepare=Prepare(scale="federated")).fit(scaled).dbn_
    np.testing.assert_allclose(model.W_, other.W * UNITS / UNITS[:, None], atol=1e-5 * 40)
    np.testing.assert_allclose(model.A_, other.A * UNITS / UNITS[:, None], atol=1e-5 * 40)
    np.testing.assert_array_equal(model.A_ != 0, clean.truth.A != 0)


def test_different_networks_are_not_taken_for_different_units():
    fed = feddbn.simulate(
        d=6, n_sites=4, n_samples=800, heterogeneity="independent", w_range=(0.5, 2.0), random_state=1
    )
    assert PFDBNL(rounds=PersonalRounds(max_rounds=20)).fit(fed.sites).scale_ == "none"


def test_the_papers_behaviour_has_a_name(raw):
    model = FDBNL(prepare=Prepare(scale="none")).fit(raw)
    assert model.scale_ == "none"
    assert np.all((model.W_ == 0) | (np.abs(model.W_) >= 0.2))


def test_candidates_are_compared_in_one_unit(raw):
    found = feddbn.select(FDBNL(), raw, {"n_lags": [1, 2]}).table
    expected = feddbn.select(FDBNL(prepare=Prepare(scale="federated")), raw, {"n_lags": [1, 2]}).table
    np.testing.assert_allclose(found["loss"], expected["loss"])
