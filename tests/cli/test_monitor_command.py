"""`feddbn monitor` looks at new rows, keeps what it saw, and ends with another exit code when something has changed."""

import json

import numpy as np
import pandas as pd
import pytest

PARAMS = ("-p", "use_nongaussian=false", "-p", "check_residuals=false", "-p", "features=linear")


def rows(rng, n, weight):
    """Rows of two variables; u acts on v one step later."""
    x = rng.normal(size=(n, 2))
    for t in range(1, n):
        x[t, 1] += weight * x[t - 1, 0]
    return pd.DataFrame(x, columns=["u", "v"])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a month that is fitted, two months like it, and two in which the edge is gone."""
    folder, rng = tmp_path_factory.mktemp("months"), np.random.default_rng(901)
    for k, weight in enumerate((0.5, 0.5, 0.5, 0.0, 0.0)):
        rows(rng, 500, weight).to_csv(folder / f"month-{k}.csv", index=False)
    return folder


@pytest.fixture
def months(run, place, tmp_path):
    """The months, and a result of the first in a folder of its own."""
    done = run("fit", place / "month-0.csv", "--keep-sums", "-o", tmp_path / "r.json", *PARAMS)
    assert done.exit_code == 0, done.output
    return [place / f"month-{k}.csv" for k in range(5)]


def looked(done):
    """The looks that a line of JSON tells, as numbers and codes."""
    said = json.loads(done.stdout)
    return [(look["number"], [one["code"] for one in look["alarms"]]) for look in said["looks"]]


def test_an_edge_that_goes_is_said_once_it_is_gone(run, months, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "79")
    result = tmp_path / "r.json"
    quiet = run("monitor", result, *months[1:3])
    assert quiet.exit_code == 0, quiet.output
    picture = tmp_path / "evidence.png"
    loud = run("monitor", result, *months[3:], "--plot", picture)
    assert loud.exit_code == 1
    assert "u -> v, lag 1" in loud.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    again = run("monitor", result, "--json")
    assert again.exit_code == 1
    said = json.loads(again.stdout)
    assert set(said) == {"result", "state", "n_new", "alpha", "bar", "looks", "evidence"}
    assert [look["n_rows"] for look in said["looks"]] == [499] * 4
    (alarm,) = (one for look in said["looks"] for one in look["alarms"])
    assert alarm["code"] in ("edge-gone", "edge-changed")
    assert [alarm["values"][key] for key in ("source", "target", "lag", "since")] == ["u", "v", 1, 3]
    assert {"look", "rows", "what", "source", "target", "lag", "e_value"} <= set(said["evidence"][0])


def test_rows_are_counted_once(run, months, tmp_path):
    result = tmp_path / "r.json"
    run("monitor", result, months[1])
    again = run("monitor", result, months[1], months[2], "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["n_new"] == 1
    assert "month-1.csv" in again.stderr
    assert len(looked(again)) == 2
    nothing = run("monitor", result, months[1])
    assert (nothing.exit_code, "month-1.csv" in nothing.stderr) == (0, True)
    # An update that holds the same rows says nothing new either.
    run("update", result, months[1], "-o", tmp_path / "new.json")
    assert json.loads(run("monitor", result, tmp_path / "new.json", "--json").stdout)["n_new"] == 0


def test_a_result_may_be_updated_between_looks(run, refuses, months, tmp_path):
    result = tmp_path / "r.json"
    run("monitor", result, months[1])
    for month in months[1:3]:
        assert run("update", result, month).exit_code == 0
    assert "r.monitor.json" in refuses("monitor", result)
    assert "r.monitor.json" in refuses("monitor", result, months[3])
    assert run("monitor", result, months[2]).exit_code == 0
    assert run("monitor", result, months[3]).exit_code == 1


def test_updates_of_a_study_are_looks_that_the_lead_reads_everywhere(run, tmp_path):
    pytest.importorskip("cryptography")
    from support.consortium import NAMES, make_study
    from support.file_kits import FileKits

    kits, rng = FileKits(tmp_path), np.random.default_rng(902)
    for name, weight, update_of in (("fit", 0.6, ""), ("gone", 0.0, "fit")):
        for site in NAMES:
            rows(rng, 200, weight).to_csv(kits.kits[site] / "data" / "r000.csv", index=False)
        assert kits.run(make_study(update_of=update_of), name).state == "finished"
        done = run("study", "step", tmp_path / name, "--kit", kits.lead, "-o", tmp_path / f"of-{name}")
        assert done.exit_code == 0, done.output
        assert ("u -> v" in done.stdout) == bool(update_of)
    picture = tmp_path / "evidence.svg"
    found = run("monitor", tmp_path / "of-gone", "--plot", picture, "--json")
    assert found.exit_code == 1
    ((_, (code,)),) = looked(found)
    assert code in ("edge-gone", "edge-changed")
    assert "<svg" in picture.read_text()
    # The status says it, too; nobody but the server has the sums.
    (alarm,) = json.loads(run("study", "status", "--kit", kits.lead, "--json").stdout)["alarms"]
    assert [alarm["values"][key] for key in ("source", "target", "lag", "since")] == ["u", "v", 1, 1]
    assert "u -> v" in run("study", "status", "--kit", kits.lead).stdout
    # A site looks at rows of its own by the network that it has received.
    rows(rng, 600, 0.6).to_csv(tmp_path / "own.csv", index=False)
    assert run("monitor", tmp_path / "of-gone", tmp_path / "own.csv").exit_code == 1
