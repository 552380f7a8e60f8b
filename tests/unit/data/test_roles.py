"""`data.roles`: undeclared times and names of recordings, ignored indexes, proposed kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.data import read_sites
from feddbn.data.kinds import read_kinds
from feddbn.data.roles import check_index, role
from support.files import doubts_of
from support.wards import ward, wards

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
    assert doubts_of({"a": ward(N).assign(valve=np.repeat([0, 1], 60))}).codes == ("kinds",)


@pytest.mark.parametrize(
    ("index", "how"),
    [
        (PATIENTS, "levels"),
        (pd.Index(np.delete(np.arange(N + 9), np.arange(30, 39))), "uneven"),
        (pd.Index(np.tile(np.arange(60), 2)), "uneven"),
        (pd.Index(np.random.default_rng(0).permutation(N)), "uneven"),
    ],
)
def test_an_index_that_a_fit_ignores_is_told(index, how):
    (finding,) = doubts_of({"a": ward(N).set_index(index)})
    assert (finding.code, finding.values["how"]) == ("ignored-index", how)


def test_a_plain_or_declared_index_is_no_finding():
    for index in (pd.RangeIndex(N), pd.Index(np.arange(5, N + 5)), pd.date_range("2024-01-01", periods=N)):
        assert check_index(index, "a") == []
        assert doubts_of({"a": ward(N).set_index(index)}) == []
    declared = doubts_of({"a": ward(N).set_index(PATIENTS)}, series="patient", time="hour")
    assert not declared.of("ignored-index")


def with_column(draw: Any, n_sites: int = 3) -> dict[str, pd.DataFrame]:
    data = wards(n_sites)
    for k, frame in enumerate(data.values()):
        frame["x"] = draw(np.random.default_rng(k), len(frame))
    return data


def proposed(data: object, **options: Any) -> Any:
    """The kinds that are proposed; empty if none is."""
    found = doubts_of(data, **options).of("kinds")
    assert all((one.level, "site" in one.values) == ("note", False) for one in found)
    return found[0].cure["kinds"] if found else {}


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda rng, n: rng.random(n) < 0.3, "binary"),
        (lambda rng, n: rng.choice([1, 2], n), {"binary": ["1", "2"]}),
        (lambda rng, n: rng.poisson(0.1, n), "count"),
        (lambda rng, n: rng.poisson(8.0, n), "count"),
        (lambda rng, n: rng.negative_binomial(1, 0.2, n), "count"),
        (lambda rng, n: rng.choice([1, 2, 7, 9], n), ["1", "2", "7", "9"]),
        (lambda rng, n: rng.integers(0, 3, n), ["0", "1", "2"]),
        (lambda rng, n: rng.choice(3, n, p=[0.3, 0.4, 0.3]) + 1, {"ordinal": ["1", "2", "3"]}),
        # A rounded score is no count.
        (
            lambda rng, n: np.clip(np.rint(rng.normal(5, 2, n)), 0, 10),
            {"ordinal": [str(k) for k in range(11)]},
        ),
        (lambda rng, n: rng.choice(["b", "c", "a"], n), ["a", "b", "c"]),
        (lambda rng, n: rng.choice(["yes", "no"], n), {"binary": ["no", "yes"]}),
        (lambda rng, n: np.exp(rng.normal(0, 0.7, n)), "positive"),
    ],
)
def test_kinds_are_proposed_for_all_sites_together(draw, expected):
    assert proposed(with_column(draw)) == {"x": expected}


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: np.rint(rng.normal(38, 1, n)),  # temperature
        lambda rng, n: 10 * np.rint(rng.normal(12, 2, n)),
        lambda rng, n: rng.poisson(30.0, n),
        lambda rng, n: np.rint(rng.normal(0, 2, n)),
        lambda rng, n: rng.exponential(size=n),
        lambda rng, n: [f"patient {k}" for k in range(n)],
        lambda rng, n: np.where(rng.random(n) < 0.9, rng.integers(0, 3, n).astype(str), "some text"),
    ],
)
def test_measurements_names_and_large_counts_stay_on_a_line(draw):
    assert proposed(with_column(draw)) == {}


def test_what_one_site_cannot_have_is_not_proposed():
    data = with_column(lambda rng, n: rng.poisson(1.5, n))
    data["ward-1"]["x"] += 0.5
    assert proposed(data) == {}


def test_declared_kinds_are_not_proposed_and_read_by_the_check_too():
    data = with_column(lambda rng, n: rng.choice(["a", "b", "c"], n))
    assert doubts_of(data, kinds={"x": ["a", "b", "c"]}) == []
    found = feddbn.check(data, kinds={"x": ["a", "b"]})
    assert [(one.code, one.level, one.values["site"]) for one in found] == [
        ("refused", "error", name) for name in data
    ]
    assert all("'c' in column 'x'" in one.values["text"] for one in found)


def test_the_proposal_can_be_declared_as_it_is():
    rng = np.random.default_rng(5)
    data = with_column(lambda own, n: own.choice(["a", "b", "c"], n))
    for frame in data.values():
        frame["alarm"] = rng.random(len(frame)) < 0.2
        frame["calls"] = rng.poisson(2.0, len(frame))
    kinds = proposed(data)
    assert [one.name for one in read_kinds(kinds, tuple(kinds))] == ["categorical", "binary", "count"]
    read_sites(data, kinds=kinds)
    assert not any(finding.level == "error" for finding in doubts_of(data, kinds=kinds))
    assert proposed(data, kinds=kinds) == {}


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "exponential"])
def test_clean_federations_have_no_proposal(noise):
    fed = feddbn.simulate(d=6, n_sites=6, n_samples=1200, noise=noise, random_state=30)
    assert proposed(fed.sites) == {}
