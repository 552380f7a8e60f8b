from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from feddbn.data.preflight import preflight
from feddbn.data.preflight.roles import check_index, role
from support.wards import ward

N = 120


def hours(n: int = N) -> np.ndarray:
    return np.arange(n, dtype=float)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (hours(), "time"),
        (1.7e9 + 3600 * hours(), "time"),
        (0.72 * hours(), "time"),
        (np.round(hours() / 256, 4), "time"),
        (np.random.default_rng(0).permutation(N).astype(float), "shuffled"),
        (hours()[::-1].copy(), "shuffled"),
        (np.tile(hours(30), 4), "counter"),
        (np.repeat([4.0, 9.0, 2.0, 7.0], 30), "blocks"),
        (np.repeat(hours(60), 2), "rising"),
    ],
)
def test_times_and_names_of_recordings_are_recognised(column, kind):
    found = role(column)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    "column",
    [
        np.random.default_rng(1).normal(size=N),
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
    ("column", "what", "cure"),
    [
        (hours(), "undeclared-time", "time=extra,"),
        (0.72 * hours(), "undeclared-time", "time=extra,"),
        (
            pd.date_range("2024-01-01", periods=N, freq="D").strftime("%d/%m/%Y"),
            "undeclared-time",
            "day_first=True",
        ),
        (np.random.default_rng(0).permutation(N), "shuffled-time", "sort"),
        (np.repeat(["ann", "bob", "eve", "joe"], N // 4), "glued", "series=extra"),
    ],
)
def test_an_undeclared_column_is_told_with_its_cure(column, what, cure):
    findings = preflight({"a": ward(N).assign(extra=column)})
    assert [finding.what for finding in findings] == [what]
    assert findings[0].columns == ("extra",)
    assert cure in findings[0].cure


def test_a_name_with_a_space_is_quoted_in_the_cure():
    findings = preflight({"a": ward(N).assign(**{"local time": hours()})})
    assert findings[0].cure.startswith("time='local time'")


def test_a_switched_input_is_a_note():
    (finding,) = [
        f for f in preflight({"a": ward(N).assign(valve=np.repeat([0, 1], 60))}) if f.what == "blocks"
    ]
    assert finding.severity == "note"


def test_one_number_per_recording_is_its_name():
    recordings = [ward(N, k).assign(person=40 + k) for k in range(3)]
    findings = preflight({"a": recordings})
    assert [finding.what for finding in findings if "person" in finding.columns] == ["undeclared-id"]


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (pd.MultiIndex.from_product([["p", "q"], range(60)], names=["patient", "hour"]), "levels"),
        (pd.Index(np.delete(np.arange(N + 9), np.arange(30, 39))), "holes"),
        (pd.Index(np.tile(np.arange(60), 2)), "starts again once"),
        (pd.Index(np.random.default_rng(0).permutation(N)), "not in order"),
    ],
)
def test_an_index_that_a_fit_ignores_is_told(index, words):
    findings = preflight({"a": ward(N).set_index(index)})
    assert [finding.what for finding in findings] == ["ignored-index"]
    assert words in findings[0].sentence


@pytest.mark.parametrize(
    "index", [pd.RangeIndex(N), pd.Index(np.arange(5, N + 5)), pd.date_range("2024-01-01", periods=N)]
)
def test_a_plain_index_is_no_finding(index):
    assert check_index(index, "a") == []
    assert preflight({"a": ward(N).set_index(index)}) == []


def test_a_declared_index_is_no_finding():
    index = pd.MultiIndex.from_product([["p", "q"], range(60)], names=["patient", "hour"])
    findings = preflight({"a": ward(N).set_index(index)}, series="patient", time="hour")
    assert [finding for finding in findings if finding.what == "ignored-index"] == []
