from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn import AS_THEY_ARE
from feddbn.data import read_sites
from feddbn.federation.protocol.site import Site
from feddbn.methods.baselines import Average, LocalOnly
from feddbn.runtime.simulated.private import private_federation
from support.saying import only

# Units and residuals are other tests' business.
pytestmark = [
    pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning"),
]
QUICK = {"n_lags": 1}
SEEN = {"visits": "count", "alarm": "binary"}


def sites(n_sites: int = 4, n: int = 150) -> dict[str, pd.DataFrame]:
    """Two numbers on a line, a count, yes/no, whole numbers far from 0, and a score."""
    found = {}
    for k in range(n_sites):
        rng = np.random.default_rng(k)
        frame = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
        frame["visits"] = rng.poisson(1.3, n)
        frame["alarm"] = rng.random(n) < 0.3
        frame["pressure"] = np.rint(rng.normal(120, 15, n))
        frame["score"] = rng.choice(5, n, p=[0.1, 0.2, 0.4, 0.2, 0.1]) + 1
        found[f"s{k}"] = frame
    return found


def seen(estimator: Any) -> dict[str, str]:
    """Variable -> kind that it looks like, of all that a fit says about it."""
    return {
        name: kind
        for one in estimator.findings_.of("kinds-as-lines")
        for name, kind in one.values["kinds"].items()
    }


@pytest.mark.parametrize(
    "estimator",
    [
        feddbn.OneShotDBN(check_residuals=False, **QUICK),
        feddbn.FDBNL(rounds=feddbn.Rounds(max_rounds=20), **QUICK),
        feddbn.PFDBNL(rounds=feddbn.PersonalRounds(max_rounds=3), **QUICK),
        feddbn.Dynotears(**QUICK),
        feddbn.ChangingDBN(**QUICK),
        Average(**QUICK),
    ],
    ids=lambda one: type(one).__name__,
)
def test_every_linear_method_says_what_it_treats_as_a_line(estimator):
    found = only(estimator.fit(sites()).findings_, "kinds-as-lines")
    assert found.values["kinds"] == SEEN
    assert found.values["means"]["visits"] == pytest.approx(1.3, abs=0.1)
    assert found.level == "warning"


def test_another_method_is_proposed_only_where_it_keeps_the_rows_and_has_no_levels_to_mistake():
    gaps, levels = sites(), sites()
    for k, frame in enumerate(gaps.values()):
        gaps[f"s{k}"] = frame.astype(float).mask(np.random.default_rng(k).random(frame.shape) < 0.1)
    for k, name in enumerate(levels):
        levels[name] = levels[name].assign(a=levels[name]["a"] + 10 * k, b=levels[name]["b"] - 10 * k)
    for data, but in ((sites(), []), (gaps, ["empty"]), (levels, ["courses"])):
        found = feddbn.check(data)
        told = only(found, "kinds-as-lines")
        assert (told.values["but"], told.level) == (but, "note" if but else "warning")


def test_a_method_that_loses_the_rows_says_so_first_and_counts_what_it_used():
    data = {}
    for name, frame in sites(n=400).items():
        data[name] = frame.astype(float).mask(np.random.default_rng(1).random(frame.shape) < 0.2)
    model = feddbn.MixedDBN(kinds=SEEN, n_lags=1).fit(data)
    complete = sum(
        int((whole & whole.shift(1, fill_value=False)).sum())
        for whole in (frame.notna().all(axis=1) for frame in data.values())
    )
    assert model.sites_["used_rows"].sum() == complete == model.n_samples_ < 200
    assert (model.findings_[0].code, model.findings_[0].level) == ("usable-rows", "error")


def test_cycles_that_a_method_leaves_in_are_warned_of():
    data, plain = sites(n=240), sites(n=240)
    wave = 1.5 * np.sin(2 * np.pi * np.arange(240) / 24)
    data = {name: frame.assign(a=frame["a"] + wave, b=frame["b"] + wave) for name, frame in data.items()}
    told = only(feddbn.MixedDBN(kinds=SEEN).fit(data).findings_, "cycles-left-in")
    assert (told.values["periods"], told.level) == ([24.0], "warning")
    assert "cycles-left-in" not in feddbn.MixedDBN(kinds=SEEN).fit(plain).findings_.codes


def test_sites_alone_say_it_of_themselves():
    told = [one.values for one in LocalOnly(**QUICK).fit(sites(2)).findings_.of("of-site")]
    kinds = {one["site"]: one["finding"] for one in told if one["finding"]["code"] == "kinds-as-lines"}
    assert {site: found["values"]["kinds"] for site, found in kinds.items()} == {"s0": SEEN, "s1": SEEN}


def test_one_site_with_other_cells_settles_it():
    data = sites()
    data["s2"] = data["s2"].astype(float)
    data["s2"].loc[70, "visits"] = 0.5
    assert seen(feddbn.OneShotDBN(check_residuals=False, **QUICK).fit(data)) == {"alarm": "binary"}


def test_inputs_may_be_anything():
    model = feddbn.OneShotDBN(
        check_residuals=False, prepare=feddbn.Prepare(exogenous=["visits", "alarm"]), **QUICK
    ).fit(sites())
    assert seen(model) == {}


def test_without_a_first_look_the_moments_show_yes_and_no():
    model = feddbn.OneShotDBN(check_residuals=False, prepare=AS_THEY_ARE, **QUICK).fit(sites())
    assert model.n_rounds_ == 1
    assert seen(model) == {"alarm": "binary"}


def test_under_noise_it_is_said_that_nobody_looked():
    few = {name: frame[["a", "b", "visits", "alarm"]] for name, frame in sites().items()}
    own = {name: Site(name, data) for name, data in read_sites(few).items()}
    federation = private_federation(own, 1000.0, clip=2000.0, rng=np.random.default_rng(0))
    model = feddbn.OneShotDBN(check_residuals=False, federation=federation, **QUICK).fit(None)
    assert seen(model) == {}
    assert "not-looked-at-under-noise" in model.findings_.codes
