"""Sites whose rows are whole multiples of the finest step apart: empty rows stand in between."""

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.data import read_sites
from feddbn.errors import DataError
from feddbn.metrics import edge_scores
from support.files import in_files
from support.saying import refused

HOURS = pd.date_range("2024-01-01", periods=24, freq="1h")


def table(times, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(rng.normal(size=(len(times), 2)), columns=["x", "y"]).assign(t=times)


def rows_of(site):
    blocks = [block for recording in site.recordings() for block in recording.blocks()]
    return [(b.time, b.starts_segment, b.values) for b in blocks]


def same_rows(one, other):
    assert [row[:2] for row in rows_of(one)] == [row[:2] for row in rows_of(other)]
    for (*_, a), (*_, b) in zip(rows_of(one), rows_of(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("every", "times"),
    [
        (2, HOURS),
        (3, HOURS),
        (2, np.arange(24)),
        (2, 0.5 * np.arange(24)),
        (2, HOURS.tz_localize("Europe/Paris")),
    ],
)
def test_rows_are_those_of_the_finer_step_given_by_name(every, times):
    gap = np.delete(np.arange(0, 24, every), 4)
    data = {"A": table(times), "B": table(times[gap])}
    found = read_sites(data, time="t", missing="keep")
    (time, starts, values), later = rows_of(found["B"])
    assert (time, starts, values.shape) == (0, True, (3 * every + 1, 2))
    np.testing.assert_array_equal(values[::every], data["B"][["x", "y"]][:4])
    assert np.isnan(values[1::every]).all()
    assert later[0] == 5 * every
    step = {"h": "1h", "i": 1, "f": 0.5}["h" if isinstance(times, pd.DatetimeIndex) else times.dtype.kind]
    asked = read_sites(data, time="t", missing="keep", freq=step)
    same_rows(found["B"], asked["B"])
    same_rows(found["A"], asked["A"])
    assert found["A"].step == found["B"].step == asked["B"].step
    for site in (found["B"], asked["B"]):
        (told,) = site.findings
        assert (told.code, told.values["every"]) == ("coarser-rows", every)
    assert found["A"].findings == ()


def test_files_that_are_streamed_give_the_same_rows(tmp_path):
    data = {"A": table(HOURS), "B": table(HOURS[::2])}
    for name, frame in data.items():
        frame.to_parquet(tmp_path / f"{name}.parquet")
    with in_files(100):
        same_rows(read_sites(tmp_path, time="t")["B"], read_sites(data, time="t")["B"])


@pytest.mark.parametrize(
    ("times", "missing"),
    [
        (pd.date_range("2024-01-01", periods=9, freq="90min"), "keep"),
        (pd.date_range("2024-01-01", periods=9, freq="12h"), "keep"),
        (HOURS[::2], "drop"),
    ],
)
def test_other_steps_are_refused_by_name(times, missing):
    with refused(DataError, "site 'A'", "site 'B'", code="two-steps"):
        read_sites({"A": table(HOURS), "B": table(times)}, time="t", missing=missing)


def test_half_of_the_sites_with_every_second_hour_give_the_same_network():
    fed = feddbn.simulate(d=5, n_sites=6, n_samples=1800, mean_degree=2, w_range=(0.4, 0.7), random_state=901)
    sites = {}
    for k, (name, (frame,)) in enumerate(fed.sites.items()):
        hours = pd.date_range("2024-01-01", periods=len(frame), freq="1h")
        sites[name] = frame.assign(t=hours).iloc[:: 1 + k % 2]
    model = feddbn.OneShotDBN(n_lags=1).fit(sites, time="t")
    assert edge_scores(fed.truth.W, model.W_).shd == edge_scores(fed.truth.A, model.A_).shd == 0
    assert "coarser-rows" in model.findings_.codes
