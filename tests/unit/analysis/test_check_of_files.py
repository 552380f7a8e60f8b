"""`feddbn.check` and the part of it that every fit runs, on clean and on disordered federations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn import OneShotDBN, Prepare
from feddbn.analysis.data_check import check
from feddbn.findings import Finding
from support.files import in_files
from support.wards import COLUMNS, UNITS, stays, ward, wards

pytestmark = pytest.mark.promise


def only(data: object, code: str, level: str = "warning", **options: object) -> list[Finding]:
    """The findings, which all are of this kind."""
    found = check(data, **options)
    assert {(one.code, one.level) for one in found} == {(code, level)}, found
    return found


@pytest.mark.parametrize(("d", "n_sites", "n"), [(5, 6, 300), (8, 8, 200), (10, 10, 500), (10, 64, 8)])
def test_clean_federations_give_no_finding(d, n_sites, n):
    fed = feddbn.simulate(d=d, n_sites=n_sites, n_samples=n * n_sites, random_state=d + n)
    assert check(fed.sites) == []


@pytest.mark.parametrize("noise", ["laplace", "exponential"])
def test_other_noise_and_different_networks_are_no_warning(noise):
    fed = feddbn.simulate(
        d=6, n_sites=6, n_samples=1800, noise=noise, heterogeneity=0.5, n_recordings=2, random_state=1
    )
    assert {finding.level for finding in check(fed.sites)} <= {"note"}


def test_clean_wards_of_any_length_and_unit_give_no_finding():
    assert check(wards()) == []
    assert check(wards(in_units=False)) == []
    assert check({f"ward-{k}": ward(n, k) for k, n in enumerate([20, 60, 2000, 300, 10, 700])}) == []


def one_level(data):
    data["ward-2"] += np.array([0, 150, 0, 0])


def one_unit(data):
    data["ward-2"] *= np.array([1, 0.133, 1, 1])


def exchanged(data):
    data["ward-2"] = data["ward-2"].rename(columns={"pulse": "breath", "breath": "pulse"})[COLUMNS]


def outliers(data):
    data["ward-2"].iloc[[20, 80], 1] = 2000.0


def stuck(data):
    data["ward-2"].iloc[100:130, 2] = data["ward-2"].iloc[100, 2]


def constant(data):
    data["ward-2"]["oxygen"] = 97.0


def trend(data):
    data["ward-2"]["oxygen"] += np.linspace(0, 12, len(data["ward-2"]))


OUT = {"n": 1, "n_sites": 6, "left_out": True}


@pytest.mark.parametrize(
    ("mess", "expected"),
    [
        (one_level, {"own-courses": {}}),
        (one_unit, {"sites-disagree": OUT, "site-note": {"site": "ward-2"}}),
        (exchanged, {"sites-disagree": OUT, "site-note": {"site": "ward-2"}}),
        (outliers, {"cells-bounded": {"n": 2}, "outliers": {"cells": {"ward-2": 2}}}),
        (stuck, {"made-up-values": {"kinds": {"breath": "repeats"}}}),
        (constant, {"constant": {"site": "ward-2"}, "sites-disagree": OUT, "site-note": {"site": "ward-2"}}),
        (trend, {"own-courses": {"degree": 1, "periods": []}}),
    ],
)
def test_disorder_at_one_site_is_told_as_a_fit_sees_it_and_where_it_is(mess, expected):
    data = wards()
    mess(data)
    found = check(data)
    assert set(found.codes) == set(expected)
    for code, values in expected.items():
        assert all(one.values.items() >= values.items() for one in found.of(code))


def test_columns_are_named_where_tables_or_limits_show_them():
    for mess, code, columns in (
        (outliers, "outliers", ("pressure",)),
        (stuck, "made-up-values", ("breath",)),
    ):
        data = wards()
        mess(data)
        assert [one.about for one in check(data).of(code)] == [columns]


def with_own(change) -> dict[str, pd.DataFrame]:
    return {name: x.assign(**change(x)) for name, x in wards(4).items()}


@pytest.mark.parametrize(
    ("change", "code", "level", "columns"),
    [
        (lambda x: {"own": 2 * x["pulse"] + 1}, "dependent-column", "warning", ("own",)),
        (lambda x: {"own": x[COLUMNS].sum(axis=1)}, "dependent-column", "warning", ("own",)),
        (lambda x: {"own": x["pulse"].round(0)}, "near-identity", "warning", ("own", "pulse")),
        (
            lambda x: {"own": (2 * x["pulse"] + x["breath"]).round(0)},
            "dependent",
            "note",
            ("own", "pulse", "breath"),
        ),
    ],
)
def test_a_column_that_follows_from_others_is_one_finding_about_no_site(change, code, level, columns):
    (finding,) = only(with_own(change), code, level)
    assert (finding.about, "site" in finding.values) == (columns, False)


@pytest.mark.parametrize("value", [97.0, [97.0, 98.0, 96.0, 99.0]])
def test_a_column_that_never_changes_is_an_error_where_a_fit_refuses_it(value):
    levels = iter(np.broadcast_to(value, 4))
    data = with_own(lambda x: {"oxygen": next(levels)})
    found = only(data, "constant", "error")
    assert [one.values["site"] for one in found] == list(data)
    with pytest.raises(feddbn.errors.DataError):
        OneShotDBN().fit(data)


def test_different_baselines_are_told_for_all_sites():
    data = {
        k: x + np.random.default_rng(i).normal(size=4) * UNITS for i, (k, x) in enumerate(wards().items())
    }
    (finding,) = only(data, "own-courses", "note")
    assert finding.cure == {"prepare.center": "none"}


def test_a_cycle_is_found_with_its_period():
    data = wards(3, n=480)
    for frame in data.values():
        frame[COLUMNS] += np.outer(np.sin(np.arange(480) * 2 * np.pi / 24), 2.5 * np.asarray(UNITS))
    (finding,) = only(data, "own-courses", "note")
    assert finding.values["periods"] == [pytest.approx(24, abs=0.1)]


@pytest.mark.parametrize("code", [-999.0, 1e30])
def test_codes_for_missing_are_counted_and_spoil_no_other_check(code):
    data = {
        name: x.mask(np.random.default_rng(5).random(x.shape) < 0.03, code) for name, x in wards(3).items()
    }
    found = check(data)
    assert set(found.codes) == {"sentinel", "cells-bounded", "outliers"}
    assert {finding.values["site"] for finding in found.of("sentinel")} == set(data)
    assert {finding.values["value"] for finding in found.of("sentinel")} == {code}
    cells = found.of("outliers")[0].values["cells"]
    for name, x in data.items():
        assert cells[name] == int((x == code).to_numpy().sum())


def test_gaps_are_shares_of_sites_and_worth_what_the_fit_says():
    data = {name: x.mask(np.random.default_rng(5).random(x.shape) < 0.3) for name, x in wards(3).items()}
    found = check(data)
    assert set(found.codes) == {"missing", "empty-cells"}
    for one in found.of("missing"):
        assert one.values["shares"] == pytest.approx(data[one.values["site"]].isna().mean().to_dict())
    share = np.mean([x.isna().to_numpy().mean() for x in data.values()])
    assert found.of("empty-cells")[0].values["share"] == pytest.approx(share)


def test_sites_that_are_refused_are_errors_and_the_others_are_looked_at():
    data = wards(6)
    data["ward-1"] = data["ward-1"].iloc[:1]
    data["ward-3"]["breath"] = data["ward-3"]["breath"].astype(object)
    data["ward-3"].iloc[3, 2] = "high"
    data["ward-2"]["pressure"] *= 0.133
    found = check(data)
    told = [(one.values["site"], one.about, one.level) for one in found.of("refused")]
    assert told == [("ward-1", (), "error"), ("ward-3", ("breath",), "error")]
    assert found.of("others-looked-at")[0].values["kept"] == ["ward-0", "ward-2", "ward-4", "ward-5"]
    assert [one.values["site"] for one in found.of("site-note")] == ["ward-2"]
    only({"ward-1": data["ward-1"]}, "refused", "error")
    only({}, "refused", "error")


def test_yes_no_codes_and_counts_are_told():
    rng = np.random.default_rng(0)
    data = wards(3)
    for frame in data.values():
        frame["alarm"] = frame["pulse"] > 80
        frame["calls"] = rng.poisson(1.5, len(frame))
        frame["room"] = rng.choice([1, 2, 7, 9], len(frame))
        frame["warmth"] = 36 + rng.integers(0, 4, len(frame))
    found = {(one.code, one.level, one.about) for one in check(data)}
    assert found == {
        ("kinds-as-lines", "warning", ("alarm", "calls", "room")),
    }


def test_glued_patients_are_named_with_the_options_that_part_them():
    data = {"north": stays(), "south": stays(8)}
    assert all(one.cure == {"series": "patient", "time": "hour"} for one in check(data).of("glued"))
    assert not check(data, series="patient", time="hour").of("glued")
    table = pd.concat([stays(3).assign(hospital=0), stays(3).assign(hospital=1)])
    (finding,) = check({"all": table.reset_index(drop=True)}).of("glued")
    assert finding.cure == {"site": "hospital", "series": "patient", "time": "hour"}


def test_text_in_numbers_is_told_with_its_row(tmp_path: Path):
    for k in range(3):
        frame = ward(100, k).astype(object)
        frame.iloc[7, 2] = "<LOD"
        frame.iloc[9, 2] = "-"
        frame.to_csv(tmp_path / f"ward-{k}.csv", index=False)
    (finding, *_) = only(tmp_path, "refused", "error")
    assert finding.about == ("breath",)
    assert "row 7 (counted from 0) has '<LOD'" in finding.values["text"]


def test_files_without_a_header_are_refused_and_no_value_is_shown(tmp_path: Path):
    for k in range(3):
        ward(100, k).to_csv(tmp_path / f"ward-{k}.csv", index=False, header=False)
    findings = only(tmp_path, "refused", "error")
    assert [one.values["why"] for one in findings] == ["header"] * 3
    assert f"{ward(100).iloc[0, 0]:.4}" not in str(findings)


def test_streamed_files_give_the_findings_of_files_in_memory(tmp_path: Path):
    for k in range(3):
        frame = ward(400, k)
        frame["oxygen"] += np.linspace(0, 12, 400)
        frame.iloc[50:53, 1] = -999.0
        frame.to_csv(tmp_path / f"ward-{k}.csv", index=False)
    whole = check(tmp_path)
    assert set(whole.codes) == {"own-courses", "sentinel", "cells-bounded", "outliers"}
    with in_files(500):
        assert check(tmp_path) == whole


QUICK = {"sentinel", "glued", "undeclared-time", "shuffled-time", "usable-rows"}


def warned(data: object, missing: str = "fill", **options: object) -> list[Finding]:
    """What the part that every fit runs has found."""
    model = OneShotDBN(n_lags=1, noise_variance="free", prepare=Prepare(missing=missing)).fit(data, **options)
    return [one for one in model.findings_ if one.code in QUICK]


def test_a_fit_of_clean_data_or_of_counts_and_switches_says_nothing():
    assert warned(feddbn.simulate(d=6, n_sites=4, n_samples=800, random_state=0).sites) == []
    rng = np.random.default_rng(0)
    data = {name: x.assign(calls=rng.poisson(2, len(x)), on=x["pulse"] > 80) for name, x in wards(3).items()}
    assert warned(data) == []


@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
def test_a_fit_warns_of_glued_patients_once_and_not_when_they_are_declared():
    data = {"north": stays(), "south": stays(8)}
    (finding,) = warned(data)
    assert finding.values.items() >= {"site": "north", "n_sites": 2}.items()
    assert warned(data, series="patient", time="hour") == []


def test_a_fit_warns_of_codes_for_missing():
    data = wards(3)
    data["ward-1"].iloc[[5, 60], 2] = -999.0
    (finding,) = warned(data)
    assert finding.values["value"] == -999


@pytest.mark.filterwarnings("ignore:these data do not show")
def test_a_fit_warns_when_almost_no_row_can_be_used():
    data = {name: x.mask(np.random.default_rng(5).random(x.shape) < 0.3) for name, x in wards(4).items()}
    assert "usable-rows" in [one.code for one in warned(data, missing="drop")]
    assert warned(data) == []
