from __future__ import annotations

from pathlib import Path

import pandas as pd

from feddbn.runtime.deployed.check import Finding, check_settings
from support.wards import stays, ward


def checked(tmp_path: Path, frame: pd.DataFrame, more: str = "") -> dict[str, Finding]:
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
    assert "series=patient time=hour" in findings["data: glued"].text
    assert findings["data"].ok


def test_declared_patients_are_not_told(tmp_path):
    findings = checked(tmp_path, stays(), 'series = "patient"\ntime = "hour"\n')
    assert "data: glued" not in findings


def test_data_that_are_refused_are_explained(tmp_path):
    findings = checked(tmp_path, ward(200).assign(nurse="ann"))
    assert findings["data"].ok is False
    assert "'nurse' holds text" in findings["data: text"].text


def test_data_that_are_not_there_have_one_line(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text('name = "north"\ndata = "data"\nstate = "state"\n', encoding="utf-8")
    assert [finding.what for finding in check_settings(path)] == ["settings", "data", "state"]
