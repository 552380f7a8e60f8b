from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from feddbn import AS_THEY_ARE
from feddbn.federation.guards.study_scope import tasks_of
from feddbn.federation.protocol.study import Study
from feddbn.method_table import METHODS
from feddbn.runtime.deployed.check import CheckLine, check_settings
from support.owned_sites import OwnedSites, make_study
from support.wards import stays, ward


def checked(tmp_path: Path, frame: pd.DataFrame, more: str = "") -> dict[str, CheckLine]:
    (tmp_path / "data").mkdir()
    frame.to_csv(tmp_path / "data" / "one.csv", index=False)
    path = tmp_path / "site.toml"
    path.write_text(f'name = "north"\ndata = "data"\nstate = "state"\n{more}', encoding="utf-8")
    return {finding.what: finding for finding in check_settings(path)}


def test_clean_data_add_no_line(tmp_path):
    findings = checked(tmp_path, ward(200))
    assert set(findings) == {"settings", "data", "policy", "state"}
    assert findings["data"].ok


def test_glued_patients_are_told_and_do_not_keep_the_site_out(tmp_path):
    findings = checked(tmp_path, stays())
    assert findings["data: glued"].ok is None
    assert 'series = "patient", time = "hour"' in findings["data: glued"].text
    assert findings["data"].ok


def test_declared_patients_are_not_told(tmp_path):
    findings = checked(tmp_path, stays(), 'series = "patient"\ntime = "hour"\n')
    assert "data: glued" not in findings


def test_data_that_are_refused_are_explained(tmp_path):
    findings = checked(tmp_path, ward(200).assign(nurse="ann"))
    assert findings["data"].ok is False
    assert "'nurse'" in findings["data: text-cells"].text


def test_data_that_are_not_there_have_one_line(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text('name = "north"\ndata = "data"\nstate = "state"\n', encoding="utf-8")
    assert [finding.what for finding in check_settings(path)] == ["settings", "data", "state"]


PARAMETERS = {"n_lags": 1}


def joined(
    tmp_path: Path, more: str = "", frame: pd.DataFrame | None = None, policy: str = "", **study: Any
) -> list[CheckLine]:
    """What `site check --study` says about a study of the ward's own columns."""
    frame = ward(200) if frame is None else frame
    (tmp_path / "data").mkdir()
    frame.to_csv(tmp_path / "data" / "one.csv", index=False)
    (tmp_path / "policy.toml").write_text(
        f"require_masking = false\nmin_sites = 2\napprove_by_rule = true\n{policy}", encoding="utf-8"
    )
    path = tmp_path / "site.toml"
    lines = ['name = "north"', 'data = "data"', 'state = "state"', 'policy = "policy.toml"', more]
    path.write_text("\n".join(lines), encoding="utf-8")
    values = {"name": "s", "method": "fdbnl", "variables": list(frame.columns), "sites": ["north", "south"]}
    plan = Study(**{**values, "parameters": PARAMETERS, **study})
    return [finding for finding in check_settings(path, plan) if finding.what.startswith("study")]


def test_whether_a_study_is_approved_is_told(tmp_path):
    pytest.importorskip("cryptography")
    sites, study = OwnedSites(tmp_path), make_study()

    def finding() -> CheckLine:
        path = tmp_path / "north" / "feddbn_site.toml"
        (found,) = [one for one in check_settings(path, study) if one.what == "study: approval"]
        return found

    assert finding().ok is None
    assert finding().text.startswith("none yet; `feddbn site approve` approves it")
    sites.approve(study, runs=2)
    sites.run(study)
    assert finding().ok
    assert finding().text.endswith("1 of 2 runs left")
    sites.owner().revoke("s")
    assert finding().text.startswith("revoked; ")
    settings = tmp_path / "north" / "feddbn_site.toml"
    settings.write_text(settings.read_text().replace('identity = "identity.key"\n', ""))
    assert [one.text for one in check_settings(settings, study) if one.ok is False and one.what == "study"]


def refusals(findings: list[CheckLine]) -> str:
    assert all(finding.ok is False for finding in findings)
    return " ".join(finding.text for finding in findings)


def test_a_study_that_fits_is_joined_and_its_rows_are_counted(tmp_path):
    frame = ward(200)
    frame.iloc[50, 0] = None
    can, rows, few = joined(tmp_path, frame=frame)
    assert can.ok
    assert few.text.startswith("the 2 rows with an empty cell are too few to be filled in")
    assert rows.text.startswith(
        "199 of 200 rows can be used with n_lags = 1, 197 of them without an empty cell; 0.1 %"
    )


def test_everything_that_a_site_would_refuse_is_said_at_once(tmp_path):
    text = refusals(
        joined(
            tmp_path,
            more="max_lags = 2",
            policy='tasks = ["moments"]\nmethods = ["OneShotDBN"]',
            variables=["pulse", "lactate", "potassium"],
            parameters={"n_lags": 3, "lambda_w": "auto", "schedule": "rounds"},
            privacy={"secure_aggregation": True},
        )
    )
    assert "asks for variables that this site does not offer: lactate, potassium" in text
    assert "this site allows at most 2" in text
    assert "does not allow the method 'FDBNL'" in text
    asked = text.partition("will ask for the tasks ")[2].partition(
        ", which this site's policy does not list"
    )[0]
    assert {"fdbnl-step", "held-out-loss", "held-out-sums"} <= set(asked.split(", "))
    assert "moments" not in asked.split(", ")
    assert "secure aggregation, which is not set up at this site" in text


def test_units_are_compared_by_name(tmp_path):
    units = '[units]\npulse = "1/min"\npressure = "mmHg"\n'
    text = refusals(joined(tmp_path, more=units, units={"pulse": "1/s", "pressure": "mmHg"}))
    assert "(pulse in 1/s instead of 1/min); convert the data" in text


def test_units_that_one_side_leaves_out_are_told(tmp_path):
    can, *remarks = joined(tmp_path, more='[units]\npulse = "1/min"\n', units={"pressure": "mmHg"})
    assert can.ok
    text = " ".join(remark.text for remark in remarks)
    assert "the study means pressure in mmHg; say it in `units`" in text
    assert "does not say the units of pulse" in text


def test_too_few_rows_and_a_spent_budget_are_refusals(tmp_path):
    text = refusals(joined(tmp_path, frame=ward(3), parameters={"n_lags": 5}))
    assert "n_lags=5 needs at least 6" in text


def test_a_task_that_may_be_asked_for_is_told(tmp_path):
    tasks, given = METHODS["oneshot"].tasks, {**PARAMETERS, "use_nongaussian": "auto"}
    can, remark, _ = joined(
        tmp_path, method="oneshot", policy=f"tasks = {json.dumps(tasks)}", parameters=given
    )
    assert can.ok
    assert "it may ask for residual-features" in remark.text


def test_a_policy_of_before_the_first_look_is_told_what_to_add(tmp_path):
    policy = 'tasks = ["moments", "residual-features"]'
    text = refusals(joined(tmp_path, method="oneshot", policy=policy))
    assert "will ask for the tasks survey, residual-checks, which this site's policy does not list" in text


def test_a_study_without_a_look_does_not_need_its_tasks(tmp_path):
    parameters = {
        "n_lags": 1,
        "prepare": {**AS_THEY_ARE, "center": "auto", "detrend": "auto"},
        "check_residuals": False,
    }
    policy = 'tasks = ["moments", "residual-features"]'
    can, _ = joined(tmp_path, method="oneshot", policy=policy, parameters=parameters)
    assert can.ok


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
        ("pfdbnl", {"different_variables": True}, False),
        ("oneshot", {"prepare": dict(AS_THEY_ARE)}, True),
    ],
)
def test_residuals_are_asked_for_where_a_fit_does(method, parameters, asks):
    for goal in ("network", "confidence") if method == "oneshot" else ("network",):
        given = {"name": "s", "variables": ("x", "y"), "sites": ("a", "b"), "goal": goal}
        study = Study(method=method, parameters=parameters, **given)
        assert ("residual-checks" in tasks_of(study)) == asks


def test_a_study_with_noise_asks_for_moments_and_norms_alone(tmp_path):
    tasks = 'tasks = ["moments", "unit-norms"]'
    can, _ = joined(tmp_path, method="oneshot", policy=tasks, privacy={"epsilon": 4.0})
    assert can.ok


def test_a_study_with_noise_that_leaves_out_far_cells_has_to_be_allowed_to(tmp_path):
    asked = {
        "method": "oneshot",
        "parameters": {"n_lags": 1, "prepare.spikes": "remove"},
        "privacy": {"epsilon": 4.0},
    }
    can, *_ = joined(tmp_path, policy='tasks = ["moments", "unit-norms"]', **asked)
    assert not can.ok
    assert "will ask for the task deviation-shares, which this site's policy does not list" in can.text


def test_a_study_may_ask_for_some_columns_in_any_order(tmp_path):
    names = list(ward(200).columns)
    can, unused, _ = joined(tmp_path, variables=[names[2], names[0]])
    assert can.ok
    assert unused.text.startswith(f"not asked for: {names[1]}")


def test_times_are_read_as_the_settings_say(tmp_path):
    times = pd.date_range("2024-01-20", periods=200, freq="h").strftime("%d.%m.%Y %H:%M")
    frame = ward(200).assign(when=times).sample(frac=1, random_state=0)
    findings = checked(
        tmp_path, frame, 'time = "when"\nsort = true\nday_first = true\nfreq = "1h"\njitter = 0.1\n'
    )
    assert set(findings) == {"settings", "data", "policy", "state"}
    assert findings["data"].text == "1 recordings, 200 rows, 4 variables: pulse, pressure, breath, oxygen"


def test_times_that_the_settings_do_not_explain_are_refused(tmp_path):
    times = pd.date_range("2024-01-20", periods=200, freq="h").strftime("%d.%m.%Y %H:%M")
    findings = checked(tmp_path, ward(200).assign(when=times), 'time = "when"\n')
    assert findings["data"].ok is False
    assert "in which the day stands first; give day_first=True" in findings["data"].text


def test_noise_needs_a_step_that_no_row_can_change(tmp_path):
    frame = ward(200)
    frame.insert(0, "when", range(200))
    names = list(frame.columns[1:])
    study = {"method": "oneshot", "privacy": {"epsilon": 4.0}, "variables": names}
    tasks = f"tasks = {json.dumps(['moments', 'unit-norms'])}\n"
    for given, is_refused in (("", True), ("freq = 1\n", False)):
        place = tmp_path / f"with-{is_refused}"
        place.mkdir()
        found = joined(place, f'time = "when"\n{given}', frame, tasks, **study)
        assert (
            any("reads the step between rows off all of them" in finding.text for finding in found)
            == is_refused
        )
