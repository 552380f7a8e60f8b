"""Several modules: the whole pre-flight check on clean federations and on every kind of disorder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.data.preflight import Finding, preflight
from feddbn.errors import FileError, ParameterError
from support.wards import COLUMNS, UNITS, stays, ward, wards


def found(data: object, **options: object) -> dict[str, list[Finding]]:
    groups: dict[str, list[Finding]] = {}
    for finding in preflight(data, **options):
        groups.setdefault(finding.what, []).append(finding)
    return groups


def only(data: object, what: str, severity: str = "warning", **options: object) -> list[Finding]:
    groups = found(data, **options)
    assert set(groups) == {what}, groups
    assert {finding.severity for finding in groups[what]} == {severity}
    return groups[what]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("d", "n_sites", "n"), [(5, 6, 300), (8, 8, 200), (10, 10, 500), (10, 64, 8)])
def test_clean_federations_give_no_finding(seed, d, n_sites, n):
    fed = feddbn.simulate(d=d, n_sites=n_sites, n_samples=n * n_sites, random_state=seed)
    assert preflight(fed.sites) == []


@pytest.mark.parametrize("noise", ["laplace", "exponential"])
@pytest.mark.parametrize("seed", range(3))
def test_other_noise_and_different_networks_are_no_warning(noise, seed):
    fed = feddbn.simulate(
        d=6, n_sites=6, n_samples=1800, noise=noise, heterogeneity=0.5, n_recordings=2, random_state=seed
    )
    assert [finding for finding in preflight(fed.sites) if finding.severity != "note"] == []


@pytest.mark.parametrize("in_units", [True, False])
def test_clean_wards_give_no_finding(in_units):
    assert preflight(wards(in_units=in_units)) == []


def test_wards_of_different_lengths_give_no_finding():
    assert preflight({f"ward-{k}": ward(n, k) for k, n in enumerate([20, 60, 2000, 300, 10, 700])}) == []


def test_different_baselines_are_told_for_all_sites():
    data = {
        k: x + np.random.default_rng(i).normal(size=4) * UNITS for i, (k, x) in enumerate(wards().items())
    }
    (finding,) = only(data, "baselines", "note")
    assert finding.site is None
    assert "center=auto" in finding.cure


def test_one_site_at_another_level_is_named():
    data = wards()
    data["ward-2"] = data["ward-2"] + np.array([0, 150, 0, 0])
    (finding,) = only(data, "baseline")
    assert (finding.site, finding.columns) == ("ward-2", ("pressure",))


def test_one_column_in_other_units_is_named_with_its_site():
    data = wards()
    data["ward-4"] = data["ward-4"] * np.array([1, 0.133, 1, 1])
    (finding,) = only(data, "units")
    assert (finding.site, finding.columns) == ("ward-4", ("pressure",))


def test_a_whole_site_in_other_units_is_named():
    data = wards(in_units=False)
    data["ward-4"] = data["ward-4"] * 1000
    (finding,) = only(data, "units")
    assert (finding.site, finding.columns) == ("ward-4", tuple(COLUMNS))


@pytest.mark.parametrize("in_units", [True, False])
def test_exchanged_columns_are_named_with_their_site(in_units):
    data = wards(in_units=in_units)
    data["ward-1"] = data["ward-1"].rename(columns={"pulse": "breath", "breath": "pulse"})[COLUMNS]
    (finding,) = only(data, "swapped")
    assert (finding.site, finding.columns) == ("ward-1", ("pulse", "breath"))


def test_a_recording_that_is_given_twice_is_named():
    data = wards(3)
    data["ward-9"] = data["ward-0"].copy()
    (finding,) = only(data, "repeated")
    assert finding.site == "ward-9"
    assert "ward-0" in finding.sentence


def test_a_trend_is_named_and_its_column():
    data = wards()
    for frame in data.values():
        frame["oxygen"] += np.linspace(0, 12, len(frame))
    assert {finding.columns for finding in only(data, "trend")} == {("oxygen",)}


def test_a_cycle_is_found_with_its_period():
    data = wards(3, n=480)
    for frame in data.values():
        for column, unit in zip(COLUMNS, UNITS, strict=True):
            frame[column] += 2.5 * unit * np.sin(np.arange(480) * 2 * np.pi / 24)
    assert all("24 rows" in finding.sentence for finding in only(data, "cycle"))


def test_spikes_are_counted():
    data = wards()
    data["ward-0"].iloc[[20, 80], 1] = 2000.0
    (finding,) = only(data, "spikes")
    assert finding.columns == ("pressure",)
    assert "2 cells" in finding.sentence


def test_a_stuck_sensor_is_named():
    data = wards()
    data["ward-3"].iloc[100:130, 2] = data["ward-3"].iloc[100, 2]
    (finding,) = only(data, "stuck")
    assert (finding.site, finding.columns) == ("ward-3", ("breath",))


@pytest.mark.parametrize("code", [-999.0, 9999.0, 1e30])
def test_codes_for_missing_are_counted_and_spoil_no_other_check(code):
    data = {
        name: x.mask(np.random.default_rng(5).random(x.shape) < 0.03, code) for name, x in wards(3).items()
    }
    findings = only(data, "sentinel")
    assert {finding.site for finding in findings} == set(data)
    assert f"{code:g}" in findings[0].sentence


def test_gaps_are_shares_and_usable_rows_are_counted():
    data = {name: x.mask(np.random.default_rng(5).random(x.shape) < 0.3) for name, x in wards(3).items()}
    groups = found(data)
    assert set(groups) == {"missing", "usable-rows"}
    assert groups["missing"][0].severity == "note"
    assert groups["usable-rows"][0].severity == "warning"
    usable = int(feddbn.data.summary(feddbn.data.read_sites(data), 1).iloc[0]["usable_rows"])
    assert f"{usable} of 300 rows" in groups["usable-rows"][0].sentence


def test_a_site_without_usable_rows_is_an_error():
    data = wards(3)
    data["ward-1"] = data["ward-1"].iloc[:1]
    (finding,) = only(data, "refused", "error")
    assert finding.site == "ward-1"


def test_a_column_that_is_constant_everywhere_is_an_error_and_at_one_site_a_warning():
    data = wards(4)
    data["ward-1"]["oxygen"] = 97.0
    (finding,) = only(data, "constant")
    assert (finding.site, finding.columns) == ("ward-1", ("oxygen",))
    for frame in data.values():
        frame["oxygen"] = 97.0
    (finding,) = only(data, "constant", "error")
    assert finding.site is None


def test_a_copy_and_a_sum_are_errors_that_name_the_columns():
    data = wards(4)
    for frame in data.values():
        frame["copy"] = 2 * frame["pulse"] + 1
    (finding,) = only(data, "copy", "error")
    assert finding.columns == ("copy", "pulse")
    for frame in data.values():
        frame["copy"] = frame[COLUMNS].sum(axis=1).round(3)
    (finding,) = only(data, "dependent", "error")
    assert finding.columns == ("copy", *COLUMNS)


def test_yes_no_codes_and_counts_are_notes():
    rng = np.random.default_rng(0)
    data = wards(3)
    for frame in data.values():
        frame["alarm"] = frame["pulse"] > 80
        frame["calls"] = rng.poisson(1.5, len(frame))
        frame["room"] = rng.choice([1, 2, 7, 9], len(frame))
        frame["warmth"] = 36 + rng.integers(0, 4, len(frame))
    groups = found(data)
    assert {f.columns for f in groups.pop("kinds")} == {("alarm", "calls", "room")}
    assert {f.columns for f in groups.pop("few-values")} == {("warmth",)}
    assert not groups


def test_glued_patients_are_named_with_the_options_that_part_them():
    data = {"north": stays(), "south": stays(8)}
    findings = only(data, "glued")
    assert {finding.cure for finding in findings} == {"series=patient time=hour"}
    assert "glued" not in found(data, series="patient", time="hour")


def test_patients_that_are_numbered_anew_in_each_hospital_are_told_apart():
    table = pd.concat([stays(3).assign(hospital=0), stays(3).assign(hospital=1)])
    findings = [f for f in preflight({"all": table.reset_index(drop=True)}) if f.what == "glued"]
    assert [finding.cure for finding in findings] == ["site=hospital series=patient time=hour"]


def test_text_in_numbers_is_counted_and_replaces_the_refusal(tmp_path: Path):
    for k in range(3):
        frame = ward(100, k).astype(object)
        frame.iloc[7, 2] = "<LOD"
        frame.iloc[9, 2] = "-"
        frame.to_csv(tmp_path / f"ward-{k}.csv", index=False)
    findings = only(tmp_path, "text", "error")
    assert findings[0].columns == ("breath",)
    assert "2 of its cells are text" in findings[0].sentence
    assert "LOD" not in findings[0].sentence


def test_files_without_a_header_are_an_error_that_shows_no_value(tmp_path: Path):
    for k in range(3):
        ward(100, k).to_csv(tmp_path / f"ward-{k}.csv", index=False, header=False)
    findings = only(tmp_path, "header", "error")
    assert len(findings) == 3
    assert not any(character.isdigit() for finding in findings for character in finding.sentence)


def test_errors_come_first():
    data = wards(3)
    for frame in data.values():
        frame["copy"] = frame["pulse"]
        frame.iloc[3, 1] = np.nan
    severities = [finding.severity for finding in preflight(data)]
    assert severities == sorted(severities, key=("error", "warning", "note").index)
    assert len(set(severities)) > 1


def test_streamed_files_give_the_findings_of_files_in_memory(tmp_path: Path, monkeypatch):
    for k in range(3):
        frame = ward(400, k)
        frame["oxygen"] += np.linspace(0, 12, 400)
        frame.iloc[50:53, 1] = -999.0
        frame.to_csv(tmp_path / f"ward-{k}.csv", index=False)
    whole = preflight(tmp_path)
    assert {finding.what for finding in whole} == {"trend", "sentinel"}
    monkeypatch.setattr("feddbn.data.preflight.profile.STREAM_BYTES", 100)
    monkeypatch.setattr("feddbn.data.preflight.profile._BATCH_ROWS", 37)
    assert preflight(tmp_path) == whole


def test_a_trend_over_more_rows_than_are_kept_is_found(monkeypatch):
    monkeypatch.setattr("feddbn.data.preflight.profile.HEAD_ROWS", 200)
    data = {"a": ward(3000, 1)}
    assert preflight(data) == []
    data["a"]["pulse"] += np.linspace(0, 60, 3000)
    assert {finding.columns for finding in only(data, "trend")} == {("pulse",)}


def test_what_cannot_be_opened_is_refused(tmp_path: Path):
    with pytest.raises(FileError):
        preflight(tmp_path / "nowhere")
    with pytest.raises(ParameterError):
        preflight(wards(2), n_lags=-1)
