"""tools/recorder.py: what is the same, what differs, and what may differ."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TOOL = Path(__file__).parents[2] / "tools" / "recorder.py"


@pytest.fixture(scope="module")
def recorder() -> Any:
    spec = importlib.util.spec_from_file_location("recorder", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["recorder"] = module
    spec.loader.exec_module(module)
    return module


def test_there_are_100_data_sets_and_each_is_the_same_whenever_it_is_drawn(recorder: Any) -> None:
    assert len(set(recorder.DATA_SETS)) == 100
    for case in recorder.DATA_SETS:
        first, again = recorder.drawn(*case), recorder.drawn(*case)
        assert all(a.equals(b) for name in first for a, b in zip(first[name], again[name], strict=True))
        numbers = [r.select_dtypes("number").to_numpy() for rs in first.values() for r in rs]
        assert all(len(x) >= 15 and not np.isinf(x).any() for x in numbers)


def test_a_fit_is_recorded_with_its_edges_numbers_and_findings(recorder: Any) -> None:
    entries = recorder.fit(("no-lags", 1))["no-lags-1/FDBNL"]
    assert entries == recorder.fit(("no-lags", 1))["no-lags-1/FDBNL"]
    assert any(key.startswith("edge ") for key in entries)
    assert {"intercept 0", "noise_variances 3", "status_", "findings"} <= entries.keys()


def test_differences_beyond_the_tolerance_are_told_unless_they_are_allowed(
    recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    then = {
        "a-0/FDBNL": {
            "edge x->y@0": 0.5,
            "scale": 1e6,
            "findings": "warning:x",
            "gone": 1.0,
            "far": float("inf"),
        }
    }
    now = {"a-0/FDBNL": {"edge x->y@0": 0.5 + 1e-8, "scale": 1e6 + 2, "findings": "", "far": float("inf")}}
    told = recorder.differences(then, now, 1e-6)
    assert [one[1] for one in told] == ["findings", "gone", "scale"]

    (tmp_path / "then.json").write_text(json.dumps(then))
    (tmp_path / "allowed.toml").write_text(
        '[[allowed]]\nfit = "a-*/FDBNL"\nwhat = "[gs]*"\nwhy = "meant"\n', encoding="utf-8"
    )
    monkeypatch.setattr(recorder, "record", lambda: now)
    monkeypatch.setattr(recorder, "ALLOWED", tmp_path / "allowed.toml")
    command = ["recorder.py", str(tmp_path / "now.json"), "--against", str(tmp_path / "then.json")]
    monkeypatch.setattr(sys, "argv", command)
    assert recorder.main() == 1
    assert "3 differences, 2 of them allowed" in capsys.readouterr().out
    now["a-0/FDBNL"]["findings"] = "warning:x"
    assert recorder.main() == 0
