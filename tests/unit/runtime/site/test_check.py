"""What `feddbn site check` finds in a site's settings and data, and of a study before it is joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feddbn import AS_THEY_ARE
from feddbn.console.site_facts import own_findings
from feddbn.federation.guards.study_plan import tasks_of
from feddbn.federation.protocol.study import Study
from feddbn.findings import Finding
from feddbn.privacy.policy import USUAL_TASKS
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.check import check_settings
from feddbn.runtime.site.open_site import read_data
from feddbn.words import card
from support.consortium import Consortium, make_study
from support.saying import codes, only
from support.study_files import ABOUT
from support.wards import stays, ward

CLEAN = ["settings-read", "data-read", "site-policy", "state-place"]
PARAMETERS = {"n_lags": 1}


def checked(place: Path, frame: pd.DataFrame, more: str = "", study: Study | None = None) -> list[Finding]:
    (place / "data").mkdir()
    frame.to_csv(place / "data" / "r000.csv", index=False)
    path = place / "site.toml"
    path.write_text(f'name = "north"\ndata = "data"\nstate = "state"\n{more}', encoding="utf-8")
    return [*check_settings(path, study), *own_findings(path)]


def own(findings: list[Finding], what: str) -> Finding:
    (found,) = [one for one in findings if one.code == "own-data" and one.values["finding"]["code"] == what]
    return found


def joined(
    place: Path, more: str = "", frame: pd.DataFrame | None = None, policy: str = "", **study: Any
) -> list[Finding]:
    """What is found of a study of the ward's own columns."""
    frame = ward(200) if frame is None else frame
    (place / "policy.toml").write_text(
        f"require_masking = false\nmin_sites = 2\napprove_by_rule = true\n{policy}", encoding="utf-8"
    )
    values = {"name": "s", "method": "fdbnl", "variables": list(frame.columns), "sites": ["north", "south"]}
    plan = Study(**{**values, "about": ABOUT, "parameters": PARAMETERS, **study})
    found = checked(place, frame, f'policy = "policy.toml"\n{more}', plan)
    return [one for one in found if one.code not in CLEAN and one.code != "own-data"]


def refusals(findings: list[Finding]) -> dict[str, str]:
    """The codes of refusals and their sentences; everything else fails."""
    assert {one.code for one in findings} == {"study-refused"}
    return {str(one.values["why"]): str(one.values["sentence"]) for one in findings}


def test_clean_data_add_no_line(tmp_path):
    found = checked(tmp_path, ward(200))
    assert codes(found) == CLEAN
    assert {one.level for one in found} == {"good", "note"}


def test_what_the_rows_show_by_themselves_is_told_with_lines_of_the_settings_and_keeps_nobody_out(tmp_path):
    found = checked(tmp_path, stays())
    assert own(found, "glued").level == "note"
    assert 'series = "patient", time = "hour"' in card(own(found, "glued"), "owner").detail
    assert only(found, "data-read").level == "good"
    declared = tmp_path / "declared"
    declared.mkdir()
    found = checked(declared, stays(), 'series = "patient"\ntime = "hour"\n')
    assert "glued" not in [one.values["finding"]["code"] for one in found if one.code == "own-data"]


MAPPED = """
series = "stay"
time = "at"
names = "what"
values = "value"
freq = "1h"
[variables]
pulse = {name = [1, 2], unit = "1/min", limits = [10, 300]}
temp = {name = 3, unit = "F", to = "C"}
"""


def readings() -> pd.DataFrame:
    """Two readings of a pulse each hour, every tenth pair with an impossible one, and a temperature every second hour."""
    hours = pd.date_range("2024-01-01", periods=80, freq="h")
    first = pd.DataFrame({"at": hours, "what": 1, "value": [70.0 + k % 5 for k in range(80)]})
    second = first.assign(at=hours + pd.Timedelta("20min"), what=2)
    second.loc[::10, "value"] = 801.0
    warm = pd.DataFrame({"at": hours[::2], "what": 3, "value": [98.0 + k % 3 for k in range(40)]})
    return pd.concat([first, second, warm]).assign(stay="a")


def test_of_every_mapped_variable_it_is_told_where_it_is_from_what_is_done_and_how_much_there_is(tmp_path):
    found = [one for one in checked(tmp_path, readings(), MAPPED) if one.code == "variable-read"]
    pulse, temp = (dict(one.values) for one in found)
    assert [one.about for one in found] == [("pulse",), ("temp",)]
    assert [one["name"] for one in pulse["sources"]] == ["1", "2"]
    assert pulse["limits"] == (10, 300)
    assert (pulse["readings"], pulse["beyond"], pulse["filled"], pulse["rows"]) == (152, 8, 80, 80)
    assert (temp["readings"], temp["beyond"], temp["filled"], temp["rows"]) == (40, 0, 40, 80)
    (source,) = temp["sources"]
    assert (source["unit"], source["to"]) == ("F", "C")
    for word in ("F to C", "0.555556 x -17.7778", "40 of 80"):
        assert word in card(found[1], "owner").detail


@pytest.mark.parametrize(
    ("before", "after", "code", "word"),
    [
        ('"F"', '"Fahrenheit"', "settings-wrong", "Fahrenheit"),
        ("name = 3", "name = 33", "data-wrong", "'3'"),
        ("name = 3", "name = 2", "settings-wrong", "'2'"),
        ('"what"', '"which"', "data-wrong", "which"),
        ('"1h"', '"auto"', "settings-wrong", "freq"),
        ('unit = "1/min"', "units = 3", "settings-wrong", "unit"),
    ],
)
def test_a_bad_mapping_is_an_error_of_one_sentence(tmp_path, before, after, code, word):
    found = checked(tmp_path, readings(), MAPPED.replace(before, after))
    (wrong,) = [one for one in found if one.level == "error"]
    assert wrong.code == code
    assert word in wrong.values["sentence"]


def test_a_study_that_means_the_unit_before_the_change_is_refused(tmp_path):
    found = joined(tmp_path, MAPPED, readings(), variables=["pulse", "temp"], units={"temp": "F"})
    assert "other-units" in refusals([one for one in found if one.code != "variable-read"])


def test_a_study_reads_some_of_the_mapped_variables(tmp_path):
    checked(tmp_path, readings(), MAPPED)
    settings = read_site_settings(tmp_path / "site.toml")
    every, one = read_data(settings), read_data(settings, ("temp",))
    assert tuple(one.variables) == ("temp",)
    assert settings.units == {"pulse": "1/min", "temp": "C"}
    whole, part = (next(next(site.recordings()).blocks()).values for site in (every, one))
    assert part[:, 0][~np.isnan(part[:, 0])].tolist() == whole[:, 1][~np.isnan(whole[:, 1])].tolist()


def test_a_mapping_may_be_in_a_file_of_its_own(tmp_path):
    readings().to_parquet(tmp_path / "vitals.parquet")
    (tmp_path / "table.toml").write_text(f'data = "vitals.parquet"\n{MAPPED}', encoding="utf-8")
    path = tmp_path / "site.toml"
    path.write_text('name = "north"\ndata = "table.toml"\nstate = "state"\n', encoding="utf-8")
    found = check_settings(path)
    assert codes(found) == [
        "settings-read",
        "data-read",
        "variable-read",
        "variable-read",
        "site-policy",
        "state-place",
    ]
    (tmp_path / "table.toml").write_text(
        f'data = "vitals.parquet"\nsite = "stay"\n{MAPPED}', encoding="utf-8"
    )
    assert codes(check_settings(path)) == ["settings-wrong"]


def test_what_a_fit_of_these_rows_alone_would_do_is_a_note(tmp_path):
    frame = ward(200)
    frame["oxygen"] += [0.1 * row for row in range(200)]
    found = checked(tmp_path, frame)
    assert own(found, "own-courses").level == "note"
    assert own(found, "own-courses").values["finding"]["values"]["degree"] == 1


def test_data_that_are_refused_are_explained(tmp_path):
    found = checked(tmp_path, ward(200).assign(nurse="ann"))
    assert only(found, "data-wrong").level == "error"
    assert "'nurse'" in only(found, "data-wrong").values["sentence"]


def test_data_that_are_not_there_have_one_line(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text('name = "north"\ndata = "data"\nstate = "state"\n', encoding="utf-8")
    assert codes(check_settings(path)) == ["settings-read", "data-wrong", "state-place"]
    path.write_text("", encoding="utf-8")
    assert codes(check_settings(path)) == ["settings-wrong"]


def test_whether_a_study_is_approved_is_told(tmp_path):
    pytest.importorskip("cryptography")
    sites, study = Consortium(tmp_path), make_study()
    path = tmp_path / "north" / "feddbn_site.toml"
    assert only(check_settings(path, study), "approval-missing").values == {"state": "none yet"}
    sites.approve(study, runs=2)
    sites.run(study)
    found = only(check_settings(path, study), "approval-valid")
    assert (found.values["left"], found.values["runs"]) == (1, 2)
    sites.owner().revoke("s")
    assert only(check_settings(path, study), "approval-missing").values == {"state": "revoked"}
    path.write_text(path.read_text().replace('identity = "identity.key"\n', ""))
    assert only(check_settings(path, study), "study-refused").values["why"] == "no-masks-here"


def test_a_study_that_fits_is_joined_and_its_rows_are_counted(tmp_path):
    frame = ward(200)
    frame.iloc[50, 0] = None
    can, rows, few = joined(tmp_path, frame=frame)
    assert (can.code, can.level) == ("study-joinable", "good")
    assert (few.code, few.values) == ("rows-not-filled", {"rows": 2})
    counts = {"usable": 199, "rows": 200, "n_lags": 1, "complete": 197, "recordings": 1}
    assert rows.values == {**counts, "missing_percent": pytest.approx(0.125)}


def test_everything_that_a_site_would_refuse_is_said_at_once(tmp_path):
    found = refusals(
        joined(
            tmp_path,
            more="max_lags = 2",
            policy='tasks = ["gram.rows"]\nmethods = ["OneShotDBN"]',
            variables=["pulse", "lactate", "potassium"],
            parameters={"n_lags": 3, "lambda_w": "auto", "schedule": "paper"},
            privacy={"secure_aggregation": True},
        )
    )
    assert {"lacks-variables", "too-many-lags", "tasks-not-allowed", "no-masks-here"} <= set(found)
    assert "lactate, potassium" in found["lacks-variables"]
    asked = found["tasks-not-allowed"]
    assert all(task in asked for task in ("step.fdbnl", "loss.rows", "loss.sums"))
    assert any("'FDBNL'" in sentence for sentence in found.values())


def test_units_are_compared_by_name(tmp_path):
    units = '[units]\npulse = "1/min"\npressure = "mmHg"\n'
    found = refusals(joined(tmp_path, more=units, units={"pulse": "1/s", "pressure": "mmHg"}))
    assert list(found) == ["other-units"]
    assert "1/s" in found["other-units"]
    assert "pressure" not in found["other-units"]


def test_an_owner_must_say_the_units_that_a_study_gives(tmp_path):
    units = '[units]\npulse = "1/min"\n'
    found = refusals(joined(tmp_path, more=units, units={"pulse": "1/min", "pressure": "mmHg"}))
    assert list(found) == ["units-unsaid"]
    assert 'units = {pressure = "mmHg"}' in found["units-unsaid"]
    (tmp_path / "both").mkdir()
    told = joined(tmp_path / "both", more=units + 'pressure = "mmHg"\n', units={"pressure": "mmHg"})
    assert only(told, "study-joinable")
    assert only(told, "units-unsaid-there").about == ("pulse",)


def test_too_few_rows_are_a_refusal(tmp_path):
    (sentence,) = refusals(joined(tmp_path, frame=ward(3), parameters={"n_lags": 5})).values()
    assert "n_lags=5" in sentence


@pytest.mark.parametrize(
    ("policy", "study", "lacking"),
    [
        # A policy of before the first look is told what to add.
        (["gram.rows", "residuals.shapes"], {}, ["survey.first", "residuals.checks"]),
        # Without a look its tasks are not needed.
        (
            ["gram.rows", "residuals.shapes"],
            {"parameters": {"prepare": dict(AS_THEY_ARE), "check_residuals": False}},
            [],
        ),
        (["gram.rows", "counts.norms"], {"privacy": {"epsilon": 4.0}}, []),
    ],
)
def test_tasks_that_the_policy_does_not_list_are_refused_by_name(tmp_path, policy, study, lacking):
    found = joined(tmp_path, method="oneshot", policy=f"tasks = {json.dumps(policy)}", **study)
    if not lacking:
        assert found[0].code == "study-joinable"
        return
    assert ", ".join(lacking) in refusals(found)["tasks-not-allowed"]


def test_a_task_that_may_be_asked_for_is_told(tmp_path):
    tasks, given = USUAL_TASKS, {**PARAMETERS, "use_nongaussian": "auto"}
    found = joined(tmp_path, method="oneshot", policy=f"tasks = {json.dumps(tasks)}", parameters=given)
    assert only(found, "tasks-not-listed").about == ("residuals.shapes",)
    assert only(found, "study-joinable")


@pytest.mark.parametrize(
    ("method", "parameters", "asks"),
    [
        ("fdbnl", {}, True),
        ("pfdbnl", {}, True),
        ("fdbnl", {"schedule": "paper"}, False),
        ("fdbnl", {"schedule": "paper", "check_residuals": True}, True),
        ("fdbnl", {"check_residuals": False}, False),
        ("fdbnl", {"prepare": dict(AS_THEY_ARE)}, False),
        ("fdbnl", {"prepare": {**AS_THEY_ARE, "period": [12.0]}}, True),
        ("oneshot", {"prepare": dict(AS_THEY_ARE)}, True),
    ],
)
def test_residuals_are_asked_for_where_a_fit_does(method, parameters, asks):
    for goal in ("network", "confidence") if method == "oneshot" else ("network",):
        given = {"name": "s", "variables": ("x", "y"), "sites": ("a", "b"), "goal": goal}
        study = Study(method=method, parameters=parameters, **given)
        assert ("residuals.checks" in tasks_of(study)) == asks


def test_a_study_may_ask_for_some_columns_in_any_order(tmp_path):
    names = list(ward(200).columns)
    found = joined(tmp_path, variables=[names[2], names[0]])
    assert only(found, "study-joinable")
    assert only(found, "columns-unused").about == (names[1], names[3])


def test_times_are_read_as_the_settings_say(tmp_path):
    times = pd.date_range("2024-01-20", periods=200, freq="h").strftime("%d.%m.%Y %H:%M")
    frame = ward(200).assign(when=times)
    said = 'time = "when"\nsort = true\nday_first = true\nfreq = "1h"\njitter = 0.1\n'
    found = checked(tmp_path, frame.sample(frac=1, random_state=0), said)
    assert codes(found) == CLEAN
    read = only(found, "data-read")
    assert (read.values["rows"], read.about) == (200, ("pulse", "pressure", "breath", "oxygen"))
    unsaid = tmp_path / "unsaid"
    unsaid.mkdir()
    wrong = only(checked(unsaid, frame, 'time = "when"\n'), "data-wrong")
    assert "day_first" in wrong.values["sentence"]


@pytest.mark.parametrize(
    ("more", "step", "cure"),
    [
        ("", "1h", "time"),
        ('time = "when"\n', "1h", "freq = '1h'"),
        ('time = "when"\n', "0.5", "freq = '0.5'"),
        ('time = "when"\n', "2h", ""),
        ('time = "when"\n', "120min", ""),
        ('time = "when"\nfreq = "1h"\nirregular = "average"\n', "1h", ""),
        ('time = "when"\n', "", ""),
    ],
)
def test_a_study_that_says_its_step_has_sites_with_that_step_only(tmp_path, more, step, cure):
    frame = ward(200)
    names = list(frame.columns)
    if more:
        frame["when"] = pd.date_range("2024-01-20", periods=200, freq="2h")
    found = joined(tmp_path, more, frame, variables=names, step=step)
    if cure:
        assert cure in refusals(found)["other-step"]
    else:
        assert only(found, "study-joinable")


def test_a_step_of_a_study_is_one_and_a_study_without_any_has_the_text_it_had(tmp_path):
    values = {"name": "s", "method": "fdbnl", "variables": ["x"], "sites": ["a", "b"]}
    assert "step" not in json.loads(Study(**values).to_json())
    assert json.loads(Study(**values, step="1h").to_json())["step"] == "1h"
    for wrong in ("soon", "-1h", "0"):
        with pytest.raises(ValueError, match="step"):
            Study(**values, step=wrong)


def test_noise_needs_a_step_that_no_row_can_change(tmp_path):
    frame = ward(200)
    frame.insert(0, "when", range(200))
    names = list(frame.columns[1:])
    study = {"method": "oneshot", "privacy": {"epsilon": 4.0}, "variables": names}
    tasks = f"tasks = {json.dumps(['moments', 'counts.norms'])}\n"
    for k, (given, is_refused) in enumerate((("", True), ("freq = 1\n", False))):
        place = tmp_path / str(k)
        place.mkdir()
        found = joined(place, f'time = "when"\n{given}', frame, tasks, **study)
        assert ("step-from-rows" in [one.values.get("why") for one in found]) == is_refused
