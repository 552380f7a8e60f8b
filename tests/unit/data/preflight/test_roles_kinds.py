from __future__ import annotations

from ast import literal_eval
from typing import Any

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.core.kinds import read_kinds
from feddbn.data import read_sites
from feddbn.data.preflight import Finding, preflight
from support.wards import wards


def with_column(draw: Any, n_sites: int = 3) -> dict[str, pd.DataFrame]:
    data = wards(n_sites)
    for k, frame in enumerate(data.values()):
        frame["x"] = draw(np.random.default_rng(k), len(frame))
    return data


def proposals(data: object, **options: Any) -> list[Finding]:
    return [finding for finding in preflight(data, **options) if finding.what == "kinds"]


def kind(draw: Any) -> Any:
    """What is proposed for one more column; None if nothing is."""
    found = proposals(with_column(draw))
    if not found:
        return None
    (finding,) = found
    assert (finding.severity, finding.site, finding.columns) == ("note", None, ("x",))
    cure = finding.cure
    return literal_eval(cure[cure.index("{") : cure.rindex("}") + 1])["x"]


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda rng, n: rng.random(n) < 0.3, "binary"),
        (lambda rng, n: rng.choice([1, 2], n), {"binary": ["1", "2"]}),
        (lambda rng, n: rng.poisson(0.1, n), "count"),
        (lambda rng, n: rng.poisson(1.5, n), "count"),
        (lambda rng, n: rng.poisson(8.0, n), "count"),
        (lambda rng, n: rng.negative_binomial(1, 0.2, n), "count"),
        (lambda rng, n: rng.choice([1, 2, 7, 9], n), ["1", "2", "7", "9"]),
        (lambda rng, n: rng.integers(0, 3, n), ["0", "1", "2"]),
        (
            lambda rng, n: rng.choice(5, n, p=[0.1, 0.2, 0.4, 0.2, 0.1]) + 1,
            {"ordinal": ["1", "2", "3", "4", "5"]},
        ),
        (lambda rng, n: rng.choice(["b", "c", "a"], n), ["a", "b", "c"]),
        (lambda rng, n: rng.choice(["yes", "no"], n), {"binary": ["no", "yes"]}),
        (lambda rng, n: np.exp(rng.normal(0, 0.7, n)), "positive"),
    ],
)
def test_kinds_are_proposed_for_all_sites_together(draw, expected):
    assert kind(draw) == expected


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: np.rint(rng.normal(120, 15, n)),  # blood pressure
        lambda rng, n: np.rint(rng.normal(38, 1, n)),  # temperature
        lambda rng, n: 10 * np.rint(rng.normal(12, 2, n)),
        lambda rng, n: rng.poisson(30.0, n),
        lambda rng, n: np.rint(rng.normal(0, 2, n)),
        lambda rng, n: np.abs(rng.normal(100, 10, n)),
        lambda rng, n: rng.exponential(size=n),
        lambda rng, n: [f"patient {k}" for k in range(n)],
        lambda rng, n: np.where(rng.random(n) < 0.9, rng.integers(0, 3, n).astype(str), "some text"),
    ],
)
def test_measurements_names_and_large_counts_stay_on_a_line(draw):
    assert kind(draw) is None


def test_a_rounded_score_is_no_count():
    assert kind(lambda rng, n: np.clip(np.rint(rng.normal(5, 2, n)), 0, 10)) == {
        "ordinal": [str(k) for k in range(11)]
    }


def test_what_one_site_cannot_have_is_not_proposed():
    data = with_column(lambda rng, n: rng.poisson(1.5, n))
    data["ward-1"]["x"] += 0.5
    assert proposals(data) == []


def test_declared_kinds_are_not_proposed_and_read_by_the_check_too():
    data = with_column(lambda rng, n: rng.choice(["a", "b", "c"], n))
    assert preflight(data, kinds={"x": ["a", "b", "c"]}) == []
    (finding,) = preflight(data, kinds={"x": ["a", "b"]})
    assert (finding.what, finding.severity) == ("refused", "error")
    assert "'c' in column 'x', which is none of its levels 'a', 'b'" in finding.sentence


def test_the_proposal_can_be_declared_as_it_is():
    rng = np.random.default_rng(5)
    data = with_column(lambda own, n: own.choice(["a", "b", "c"], n))
    for frame in data.values():
        frame["alarm"] = rng.random(len(frame)) < 0.2
        frame["calls"] = rng.poisson(2.0, len(frame))
    (finding,) = proposals(data)
    kinds = literal_eval(finding.cure[finding.cure.index("{") : finding.cure.rindex("}") + 1])
    assert [one.name for one in read_kinds(kinds, tuple(kinds))] == ["categorical", "binary", "count"]
    read_sites(data, kinds=kinds)
    assert proposals(data, kinds=kinds) == []
    assert not any(finding.severity == "error" for finding in preflight(data, kinds=kinds))


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "exponential"])
@pytest.mark.parametrize("seed", [30, 31, 32])
def test_clean_federations_have_no_proposal(noise, seed):
    fed = feddbn.simulate(d=6, n_sites=6, n_samples=1200, noise=noise, random_state=seed)
    assert proposals(fed.sites) == []
