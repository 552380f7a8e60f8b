"""`feddbn.check` names the column and the site that make a network wrong, and its fit says the same."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

import feddbn
from feddbn.analysis.data_check import Look
from feddbn.core.statistics.survey import cycles_in, periodogram, without_slow_part
from feddbn.errors import DataError
from feddbn.federation.programs.alone import Alone
from feddbn.report.record import read_record
from feddbn.results.remarks import alone_finding
from feddbn.results.result import Result
from support.saying import only, refused
from support.wards import wards

pytestmark = [pytest.mark.promise, pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")]


# Empty columns.


@pytest.mark.parametrize("method", ["OneShotDBN", "PFDBNL", "Dynotears"])
def test_a_column_that_is_empty_everywhere_is_refused_by_its_name(method):
    data = {name: x.assign(lab=np.nan) for name, x in wards(2).items()}
    for given in (data["ward-0"], data):
        with refused(DataError, "lab", "variables", code="empty-column"):
            getattr(feddbn, method)().fit(given)
        found = feddbn.check(given)
        assert {(one.code, one.level, one.about) for one in found} == {("empty-column", "error", ("lab",))}


def test_a_column_that_is_empty_at_one_site_is_a_warning_with_its_name_in_check_and_fit():
    data = wards(3)
    data["ward-1"]["breath"] = np.nan
    data["ward-2"].iloc[:30, 2] = np.nan
    found = feddbn.check(data)
    for told in (found, feddbn.OneShotDBN().fit(data).findings_):
        one = only(told, "empty-column")
        assert (one.level, one.about, one.values["site"]) == ("warning", ("breath",), "ward-1")
    # Its share is not told a second time, and no other site's number stands for it.
    assert [one.values["site"] for one in found.of("missing")] == ["ward-2"]


# Text.


def test_a_site_with_text_in_every_column_is_told_by_check_as_by_a_fit():
    data = wards(3)
    data["ward-1"] = data["ward-1"].astype(object)
    data["ward-1"].iloc[5] = "k.A."
    found = feddbn.check(data)
    (refused,) = found.of("refused")
    assert (refused.values["site"], refused.about) == ("ward-1", tuple(data["ward-1"]))
    assert found.of("others-looked-at")[0].values["kept"] == ["ward-0", "ward-2"]


# Rows.


@pytest.mark.parametrize(("n", "level"), [(3, "error"), (5, "warning"), (20, "warning"), (200, None)])
def test_few_rows_are_told_with_how_many_there_are_and_how_many_are_needed(n, level):
    rng = np.random.default_rng(n)
    data = {s: pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd")) for s in "xyz"}
    told = feddbn.check(data).of("all-rows")
    assert [one.level for one in told] == ([] if level is None else [level])
    for one in told:
        usable = 3 * (n - 1)
        assert one.values.items() >= {"rows": 3 * n, "usable": usable, "columns": 8, "fewest": 10.0}.items()


# Formulas.


def test_a_difference_is_found_also_where_sites_are_brought_to_one_scale():
    rng, data = np.random.default_rng(3), {}
    for name, x in wards(4, n=400).items():
        y = (x - x.mean()) * np.exp(0.8 * rng.normal(size=4)) + x.mean()
        data[name] = y.assign(left=y["pulse"] - y["pressure"] + 2 * rng.normal(size=len(x)))
    found, fitted = feddbn.check(data), feddbn.OneShotDBN().fit(data).findings_
    assert found.of("own-scales")
    for told in (found, fitted):
        one = only(told, "near-identity")
        assert set(one.about) == {"left", "pulse", "pressure"}
        # The formula is that of the data, not of scales that nobody has.
        assert np.abs(one.values["weights"]) == pytest.approx([1, 1], abs=0.05)


# Cycles.


def memory(rng: np.random.Generator, n: int, d: int = 4) -> np.ndarray:
    return lfilter([1], [1, -0.9], rng.normal(size=(n + 200, d)), axis=0)[200:]


@pytest.mark.parametrize("amplitude", [0.0, 1.0])
def test_noise_that_three_sites_share_has_no_cycle_and_a_day_is_found(amplitude):
    for seed in range(4):
        common = memory(np.random.default_rng([seed, 99]), 1752)
        common += amplitude * np.sin(2 * np.pi * np.arange(1752) / 24)[:, None]
        sites = {f"s{k}": common + 0.3 * memory(np.random.default_rng([seed, k]), 1752) for k in range(3)}
        periods = Look(n_lags=1).fit(sites).treatment_["periods"]
        assert periods == ([pytest.approx(24, abs=0.3)] if amplitude else [])


def test_a_hump_of_the_slow_part_of_a_spectrum_is_no_cycle():
    # 15 days in a record of 73: seen five times, in noise whose spectrum falls off.
    rng, hump = np.random.default_rng(0), np.sin(2 * np.pi * np.arange(1752) / 368)[:, None]
    parts = [periodogram(without_slow_part(memory(rng, 1752) + 1.2 * hump)) for _ in range(3)]
    n = sum(number for _, number in parts)
    assert cycles_in(sum(power for power, _ in parts) / n, n, 1752, clear=True) == ()


# How many rows.


def test_rows_of_sites_that_are_known_by_name_only_are_those_that_were_used():
    rng = np.random.default_rng(1)
    data = {name: x.mask(rng.random(x.shape) < 0.3) for name, x in wards(4).items()}
    here = Result.from_estimator(feddbn.OneShotDBN().fit(data))
    away = feddbn.OneShotDBN(federation=feddbn.simulated(data, missing="keep")).fit(None)
    apart = Result.from_estimator(away)
    used = here.rows_used[0]
    assert apart.rows_used == (used, None)
    assert read_record(apart.to_dict()).n_rows == read_record(here.to_dict()).n_rows == used
    assert apart.n_rows < 0.9 * used
    told = apart.to_dict()
    del told["diagnostics"]["treatment"]["n_used"]
    assert Result.from_dict(told).rows_used == (None, None)


def test_rows_and_what_they_are_worth_are_one_count_in_findings_and_diagnostics():
    rng = np.random.default_rng(2)
    data = {}
    for name, x in wards(3, n=500).items():
        calm = np.exp(np.cumsum(0.3 * rng.normal(size=len(x))) * 0.5)[:, None]
        data[name] = (x - x.mean()) * calm + x.mean()
        data[name] = data[name].mask(rng.random(x.shape) < 0.06)
    model = feddbn.OneShotDBN().fit(data)
    assert model.residuals_ is not None
    assert model.residuals_.n_effective <= model.residuals_.n_rows


@pytest.mark.parametrize(("is_refused", "why"), [(False, "rows"), (True, "tasks")])
def test_why_no_site_was_compared_is_said(is_refused, why):
    one = alone_finding(Alone(0, 0, 0, is_refused=is_refused), n_sites=3)
    assert (one.level, one.values["why"]) == ("unknown", why)
