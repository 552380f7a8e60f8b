"""Several modules: the part of the data-quality check that every fit runs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn import OneShotDBN, Prepare
from support.wards import stays, ward, wards


def warned(data: object, missing: str = "fill", **options: object) -> list[str]:
    model = OneShotDBN(n_lags=1, noise_variance="free", prepare=Prepare(missing=missing)).fit(data, **options)
    return [text for text in model.warnings_ if "Cure:" in text]


@pytest.mark.parametrize("seed", range(5))
def test_a_fit_of_clean_data_says_nothing(seed):
    assert warned(feddbn.simulate(d=6, n_sites=4, n_samples=800, random_state=seed).sites) == []


@pytest.mark.filterwarnings("ignore::feddbn.errors.DependentColumnsWarning")
@pytest.mark.filterwarnings("ignore::feddbn.errors.ResidualsWarning")
def test_a_fit_warns_of_glued_patients_and_not_once_they_are_declared():
    data = {"north": stays(), "south": stays(8)}
    (text,) = warned(data)
    assert "site 'north' and 1 more" in text
    assert "series=patient time=hour" in text
    assert warned(data, series="patient", time="hour") == []


def test_a_fit_warns_of_codes_for_missing():
    data = wards(3)
    data["ward-1"].iloc[[5, 60], 2] = -999.0
    (text,) = warned(data)
    assert "-999" in text


def test_a_fit_warns_of_an_index_that_it_ignores():
    index = pd.MultiIndex.from_product([["p", "q"], range(60)], names=["patient", "hour"])
    (text,) = warned({"a": ward(120).set_index(index)})
    assert "levels 'patient', 'hour'" in text


def test_a_fit_warns_when_almost_no_row_can_be_used():
    data = {name: x.mask(np.random.default_rng(5).random(x.shape) < 0.3) for name, x in wards(4).items()}
    (text,) = warned(data, missing="drop")
    assert "rows can be used" in text
    assert warned(data) == []


def test_counts_and_switches_are_not_worth_a_warning_at_a_fit():
    rng = np.random.default_rng(0)
    data = {name: x.assign(calls=rng.poisson(2, len(x)), on=x["pulse"] > 80) for name, x in wards(3).items()}
    assert warned(data) == []
