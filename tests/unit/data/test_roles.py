"""`data.roles`: undeclared times and names of recordings, ignored indexes, proposed kinds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from feddbn.data import read_sites
from feddbn.data.roles import role
from feddbn.errors import DataError
from support.files import doubts_of
from support.saying import refused
from support.wards import ward

N = 120
PATIENTS = pd.MultiIndex.from_product([["p", "q"], range(60)], names=["patient", "hour"])


def hours(n: int = N) -> np.ndarray:
    return np.arange(n, dtype=float)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (1.7e9 + 3600 * hours(), "time"),
        (0.72 * hours(), "time"),
        (np.round(hours() / 256, 4), "time"),
        (np.random.default_rng(0).permutation(N).astype(float), "shuffled"),
        (hours()[::-1].copy(), "shuffled"),
        (np.tile(hours(30), 4), "counter"),
        (np.repeat([4.0, 9.0, 2.0, 7.0], 30), "blocks"),
        (np.repeat(hours(60), 2), "time"),
    ],
)
def test_times_and_names_of_recordings_are_recognised(column, kind):
    found = role(column)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    "column",
    [
        np.random.default_rng(1).normal(size=N).cumsum(),
        np.random.default_rng(1).integers(0, 2, N).astype(float),
        np.random.default_rng(1).poisson(3, N).astype(float),
        np.random.default_rng(1).integers(0, 10**6, N).astype(float),
        np.exp(hours() / 20),
        np.full(N, 3.0),
        hours(12),
        np.where(hours() == 5, np.nan, hours()),
    ],
)
def test_measurements_have_no_other_role(column):
    assert role(column) is None


@pytest.mark.parametrize(
    ("column", "code", "cure"),
    [
        (hours(), "undeclared-time", {"time": "extra"}),
        (np.random.default_rng(0).permutation(N), "shuffled-time", {"time": "extra", "sort": True}),
        (np.repeat(["ann", "bob", "eve", "joe"], N // 4), "glued", {"series": "extra"}),
    ],
)
def test_an_undeclared_column_is_told_with_its_cure(column, code, cure):
    (finding,) = doubts_of({"a": ward(N).assign(extra=column)})
    assert (finding.code, finding.about, finding.cure) == (code, ("extra",), cure)


def test_a_switched_input_is_no_name_of_recordings():
    assert doubts_of({"a": ward(N).assign(valve=np.repeat([0, 1], 60))}) == []


def test_levels_of_an_index_are_to_be_named_and_any_other_index_is_ignored():
    table = ward(N).set_index(PATIENTS)
    with refused(DataError, "'patient', 'hour'", "series=", code="index-levels"):
        read_sites({"a": table})
    assert [
        one.name for one in read_sites({"a": table}, series="patient", time="hour")["a"].recordings()
    ] == ["p", "q"]
    for index in (pd.RangeIndex(N), pd.Index(np.arange(5, N + 5)), pd.date_range("2024-01-01", periods=N)):
        assert doubts_of({"a": ward(N).set_index(index)}) == []
