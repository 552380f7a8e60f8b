"""A network that changes, from files to tables, a picture and a page."""

import json

import numpy as np
import pandas as pd
import pytest

ROWS = 364


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Days of a year at three sites that begin at different dates; an effect turns round on 1 July."""
    path, rng = tmp_path_factory.mktemp("days"), np.random.default_rng(0)
    days = pd.date_range("2023-12-31", periods=ROWS, freq="D")
    for k in range(3):
        x = rng.normal(size=(len(days), 2))
        sign = np.where(days >= "2024-07-01", 1.0, -1.0)
        x[:, 1] += 0.8 * sign * x[:, 0]
        frame = pd.DataFrame(
            {"day": days, "phase": (days >= "2024-04-01").astype(int), "a": x[:, 0], "b": x[:, 1]}
        )
        frame["phase"] += days >= "2024-07-01"
        frame.iloc[20 * k :].to_csv(path / f"s{k}.csv", index=False)
    return path


@pytest.fixture
def fitted(run, folder, tmp_path):
    def call(*params):
        options = [word for param in params for word in ("--param", param)]
        more = ["--variables", "a,b", "--time", "day", "-m", "changing"]
        out = tmp_path / "r.json"
        told = run("fit", folder, *more, *options, "-o", out)
        assert told.exit_code == 0, told.output
        return told.stdout, out

    return call


def test_a_fit_prints_segments_and_changes_and_what_forecasts_use(fitted, run, tmp_path):
    told, out = fitted("blocks=week")
    assert "2024-07-01" in told
    stored = json.loads(out.read_text())
    assert [row["start"] for row in stored["diagnostics"]["segments"]] == ["2023-12-25", "2024-07-01"]
    assert all(edge["probability"] > 0.9 for edge in stored["edges"])
    assert run("report", out, "-o", tmp_path / "r.html").exit_code == 0
    page = (tmp_path / "r.html").read_text()
    assert '<section id="changes">' in page
    assert "2024-07-01" in page
