"""The benchmark that measures the discounts of claims: its likelihood, and that it finds discounts it was given."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feddbn.results.calibration import FEATURES, OTHER, Discount, features, frozen

with pytest.MonkeyPatch.context() as patch:
    # A benchmark imports its neighbours, and asks for one thread.
    patch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    patch.setattr(os, "environ", os.environ.copy())
    claims = import_module("claims")
    breaches = import_module("breaches")

TRUE = Discount(
    {"memory": 2.0, "hidden": 3.5, OTHER: 2.75},
    dict(zip(FEATURES, (-0.5, -1.0, 0.0, 1.0, 0.0, 0.0), strict=True)),
)


def drawn(rng: np.random.Generator, n: int = 400) -> claims.Collected:
    """A fit whose edges are right as often as the true discount says."""
    lag, robust = rng.integers(0, 2, n), rng.uniform(0.05, 0.9, n)
    ends = rng.integers(0, 6, (2, n))
    ends[1] = np.where((lag == 0) & (ends[0] == ends[1]), (ends[1] + 1) % 6, ends[1])
    found = {"memory": 1.0} if rng.random() < 0.5 else {"hidden": 1.0, "memory": 0.3}
    table = pd.DataFrame({"source": ends[0], "target": ends[1], "lag": lag, "weight": 1e-3})
    table = table.assign(robustness=robust, could_be_hidden=False, direction=1.0, oriented=True)
    # As few edges as usual, so that none of the true discount is due to their number.
    table.loc[12:, "weight"] = 0.0
    p = rng.uniform(0.3, 1.0, n)
    is_right = rng.random(n) < p * TRUE.shares(features(table), found)
    table = table.assign(presence=p, probability=p, linked=is_right, right=is_right)
    return claims.Collected(f"family {rng.integers(9)}", found, table)


def test_discounts_that_made_the_fits_are_found_again(monkeypatch):
    monkeypatch.setattr(claims, "WRONG", 1.0)
    rng = np.random.default_rng(0)
    fits = [drawn(rng) for _ in range(60)]
    link = claims.fitted(fits).link
    x = np.concatenate([features(one.table) for one in fits[:5]])
    for found in ({"memory": 1.0}, {"hidden": 1.0}, {"hidden": 1.0, "memory": 0.5}):
        np.testing.assert_allclose(link.shares(x, found), TRUE.shares(x, found), atol=0.06)
    # What is claimed too readily costs more than what is not claimed.
    monkeypatch.setattr(claims, "WRONG", 1.5)
    careful = claims.fitted(fits).link.shares(x, {"memory": 1.0})
    assert (careful < link.shares(x, {"memory": 1.0})).mean() > 0.95


@pytest.mark.parametrize("strength", [0, 1])
def test_every_family_draws_the_same_rows_of_a_known_network(strength):
    for family in breaches.FAMILIES:
        sites, truth = breaches.draw(family, strength, 900)
        again, _ = breaches.draw(family, strength, 900)
        rows = np.vstack([frame.to_numpy() for (frame,) in sites.values()])
        np.testing.assert_array_equal(rows, np.vstack([frame.to_numpy() for (frame,) in again.values()]))
        assert np.isfinite(rows).mean() > 0.4
        assert np.nanmax(np.abs(rows)) < 1e4
        assert truth.is_edge.any()


def test_one_fit_is_stored_with_the_probabilities_of_the_model():
    stored = claims.one_fit(("measurement noise with memory", 1, 901))
    (fit,) = claims.prepared([stored])
    assert {"right", "linked", "robustness"} <= set(fit.table)
    told = claims.with_claims(fit, frozen())
    np.testing.assert_array_equal(told["raw"], fit.table["probability"])
    assert (told["probability"] < told["raw"])[told["raw"] > 0].all()
    assert fit.found["memory"] == 1.0
    assert 0 < fit.wrong < 1
