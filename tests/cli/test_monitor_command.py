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
    assert max(len(line) for line in loud.stdout.splitlines() if str(tmp_path) not in line) <= 79
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


def test_looks_one_by_one_at_once_and_as_a_chain_of_updates_are_the_same(run, months, tmp_path):
    result = tmp_path / "r.json"
    for month in months[1:]:
        last = run("monitor", result, month, "--state", tmp_path / "one.json", "--json")
    at_once = run("monitor", result, *months[1:], "--state", tmp_path / "all.json", "--json")
    chain, newest = [], result
    for k, month in enumerate(months[1:]):
        chain.append(tmp_path / f"r{k}.json")
        assert run("update", newest, month, "-o", chain[-1]).exit_code == 0
        newest = chain[-1]
    updated = run("monitor", result, *chain, "--state", tmp_path / "chain.json", "--json")
    found = [json.loads(done.stdout) for done in (last, at_once, updated)]
    assert found[0]["looks"] == found[1]["looks"]
    assert found[0]["evidence"] == found[1]["evidence"]
    assert looked(updated) == looked(at_once)
    for one, other in zip(found[1]["evidence"], found[2]["evidence"], strict=True):
        assert one["e_value"] == pytest.approx(other["e_value"], rel=1e-6)


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


def test_what_cannot_be_looked_at_is_refused_with_a_sentence(run, refuses, months, place, tmp_path):
    result, new = tmp_path / "r.json", months[1]
    assert "'no.csv'" in refuses("monitor", result, "no.csv")
    assert "no.json" in refuses("monitor", "no.json", new)
    assert "alpha" in refuses("monitor", result, new, "--alpha", "2")
    assert "--variables" in refuses("monitor", result, new, "--variables", "u")
    assert "--plot" in refuses("monitor", result, new, "--plot", tmp_path / "p.doc")
    assert not (tmp_path / "r.monitor.json").exists()
    bare = tmp_path / "bare.json"
    run("fit", new, "-o", bare, *PARAMS)
    bare.write_text(bare.read_text().replace('"gains": "none"', '"gains": "site"'))
    assert "--keep-sums" in refuses("monitor", bare, new)
    other = tmp_path / "other.csv"
    pd.read_csv(new).rename(columns={"u": "w"}).to_csv(other, index=False)
    assert "'u'" in refuses("monitor", result, other)
    assert run("monitor", result, new).exit_code == 0
    assert "--alpha" in refuses("monitor", result, "--alpha", "0.01")
    run("fit", months[2], "--keep-sums", "-o", tmp_path / "s.json", *PARAMS)
    state = tmp_path / "r.monitor.json"
    assert "r.monitor.json" in refuses("monitor", tmp_path / "s.json", months[3], "--state", state)
    assert "s.json" in refuses("monitor", result, tmp_path / "s.json")
    content = state.read_text()
    for damaged in (content[:-20], "[]", json.dumps({**json.loads(content), "version": 99}), "{}"):
        state.write_text(damaged)
        assert "r.monitor.json" in refuses("monitor", result, new)


@pytest.mark.engine
def test_updates_of_a_study_are_looks_that_the_lead_reads_everywhere(run, tmp_path):
    pytest.importorskip("cryptography")
    from feddbn.console.lead_facts import run_facts
    from feddbn.console.lead_watch import Sight
    from feddbn.runtime.engines.files.engine import FilesSession
    from support.file_kits import FileKits
    from support.owned_sites import NAMES, make_study

    kits, rng = FileKits(tmp_path), np.random.default_rng(902)
    for name, weight, update_of in (("fit", 0.6, ""), ("gone", 0.0, "fit")):
        for site in NAMES:
            rows(rng, 200, weight).to_csv(kits.kits[site] / "data" / "one.csv", index=False)
        assert kits.run(make_study(update_of=update_of), name).state == "finished"
        done = run("study", "results", name, "--kit", kits.lead, "-o", tmp_path / f"of-{name}")
        assert done.exit_code == 0, done.output
        assert ("u -> v" in done.stdout) == bool(update_of)
    picture = tmp_path / "evidence.svg"
    found = run("monitor", tmp_path / "of-gone", "--plot", picture, "--json")
    assert found.exit_code == 1
    ((_, (code,)),) = looked(found)
    assert code in ("edge-gone", "edge-changed")
    assert "<svg" in picture.read_text()
    # The status and the console say it, too; nobody but the server has the sums.
    (alarm,) = json.loads(run("study", "status", "--kit", kits.lead, "--json").stdout)["alarms"]
    assert [alarm["values"][key] for key in ("source", "target", "lag", "since")] == ["u", "v", 1, 1]
    assert "u -> v" in run("study", "status", "--kit", kits.lead).stdout
    session = FilesSession(kits.lead)
    job = session.job_of("gone")
    facts = run_facts(Sight(0.0), job, session.study_of("gone"), session.outcome(job.job), connects=False)
    assert code in [one.code for one in facts.warnings]
    # A site looks at rows of its own by the network that it has received.
    rows(rng, 600, 0.6).to_csv(tmp_path / "own.csv", index=False)
    assert run("monitor", tmp_path / "of-gone", tmp_path / "own.csv").exit_code == 1
