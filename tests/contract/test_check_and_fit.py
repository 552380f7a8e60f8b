"""What `feddbn.check` says is done to the rows is what a fit does, and says, on every row of the arena."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import feddbn
from feddbn.analysis.data_check import Look
from feddbn.data import read_sites
from feddbn.findings import Finding

with pytest.MonkeyPatch.context() as patch:
    # A benchmark imports its neighbours, and asks for one thread.
    patch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    patch.setattr(os, "environ", os.environ.copy())
    arena = import_module("arena")

WORLD = arena.World(d=5, n_sites=5, rows=120)
# What tables show, and where things are; `sentinel` is told by fits, too, by then of all sites at once.
PLACES = {"missing", "outliers", "sentinel", "wandering", "dependent"}
# What is known once there is a network.
LEARNED = {
    "parts-not-known",
    "rests-on-units",
    "curves",
    "noise-memory-removed",
    "lag-added",
    "slow-levels",
    "residuals-not-looked-at",
    "alone",
    "could-be-hidden",
    "doubted-links",
    "knobs",
}
# Of the others `make test-all` asks.
SOON = ("none", "gains", "missing-10", "everything")
ROWS = [row if row in SOON else pytest.param(row, marks=pytest.mark.slow) for row in arena.SCENARIOS]
NOTHING = {"center": "none", "degree": 0, "periods": [], "gains": "none", "bounded": {}, "missing": "drop"}


def about_rows(found: list[Finding], others: set[str]) -> list[dict[str, Any]]:
    """All but those, in an order that does not matter."""
    kept = [one.to_dict() for one in found if one.code not in {*others, "residuals"}]
    return sorted(kept, key=repr)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
def test_a_check_promises_what_the_fit_does(row):
    sites = WORLD.draw(arena.SCENARIOS[row], 700).sites
    fitted, found = feddbn.OneShotDBN(n_lags=1).fit(sites), feddbn.check(sites, n_lags=1)
    looked = Look(n_lags=1).fit(read_sites(sites, missing="keep"))
    assert looked.treatment_ == fitted.treatment_
    assert about_rows(found, PLACES) == about_rows(fitted.findings_.single, LEARNED | {"sentinel"})
    assert ("sentinel" in found.codes) == ("sentinel" in fitted.findings_.codes)
    # Where the fit says that levels wander, so does the check.
    assert {one.about for one in found.of("wandering")} >= {
        one.about for one in fitted.findings_.of("slow-levels")
    }
    done = {name: fitted.treatment_[name] for name in NOTHING} != NOTHING or fitted.treatment_["left_out"]
    assert bool(done) == (bool(about_rows(found, PLACES)) and row not in ("sum-column", "duplicate", "stuck"))


@pytest.mark.slow
@pytest.mark.parametrize("corruptions", ["trend", {"missing": 0.2, "spikes": 0.02}])
@pytest.mark.parametrize("options", [{"n_sites": 1}, {"n_sites": 3, "n_recordings": 3}])
@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
def test_so_it_is_for_few_sites_and_other_lags(corruptions, options):
    sites = feddbn.simulate(
        d=4, n_lags=2, n_samples=900, corruptions=corruptions, random_state=1, **options
    ).sites
    for n_lags in (2, "auto"):
        found, fitted = feddbn.check(sites, n_lags), feddbn.OneShotDBN(n_lags=n_lags).fit(sites)
        assert about_rows(found, PLACES) == about_rows(fitted.findings_.single, LEARNED)
        assert about_rows(found, PLACES)
