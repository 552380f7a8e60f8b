import json
import os
import time

import numpy as np
import pytest

from feddbn.core.encoding import decode
from feddbn.errors import FileError, ParameterError, ProtocolError, StateError
from feddbn.federation.protocol.messages import Header, Journal, SiteRecord, Snapshot
from feddbn.federation.protocol.study_methods import StudyResult
from feddbn.federation.protocol.task import Sum
from feddbn.model.dbn import DBN
from feddbn.privacy.gaussian import gaussian_epsilon, noise_multiplier
from feddbn.runtime.deployed.results import export_result, read_outcome
from feddbn.runtime.deployed.settings import load_programs, read_server_settings, read_site_settings
from feddbn.runtime.deployed.store import (
    EventLog,
    FileStore,
    JournalFile,
    prune_runs,
    run_directory,
    write_atomically,
)
from support.faults import looked_before
from support.mixed_networks import mixed_network
from support.report_results import curved_dbn
from support.saying import refused


def test_a_record_is_replaced_all_or_nothing(tmp_path, monkeypatch):
    store = FileStore(tmp_path, "a")
    assert store.load("run-1") is None
    first = SiteRecord("run-1", "a", "{}", "1", current=Snapshot(0, {"x": np.ones(3)}))
    store.save(first)

    def die(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", die)
    with refused(StateError, "'run-1'", "No space left", code="not-stored"):
        store.save(SiteRecord("run-1", "a", "{}", "1", current=Snapshot(1, {"x": np.zeros(3)})))
    monkeypatch.undo()
    again = FileStore(tmp_path, "a").load("run-1")
    assert again.current.seq == 0
    np.testing.assert_array_equal(again.current.state["x"], np.ones(3))
    assert (tmp_path / "run-1").stat().st_mode & 0o077 == 0


def test_only_one_of_two_processes_goes_on_with_a_run(tmp_path):
    given_up, resumed = FileStore(tmp_path, "a"), FileStore(tmp_path, "a")
    given_up.save(SiteRecord("run-1", "a", "{}", "1"))
    now = resumed.load("run-1")
    resumed.save(SiteRecord("run-1", "a", "{}", "1", current=Snapshot(0)))
    with refused(StateError, "'run-1'", code="gone-on"):
        given_up.save(SiteRecord("run-1", "a", "{}", "1", current=Snapshot(0)))
    assert now.current.seq == -1
    resumed.save(SiteRecord("run-1", "a", "{}", "1", current=Snapshot(1)))
    assert FileStore(tmp_path, "a").load("run-1").current.seq == 1


def test_a_damaged_record_is_an_error_not_a_fresh_start(tmp_path):
    store = FileStore(tmp_path, "a")
    store.save(SiteRecord("run-1", "a", "{}", "1"))
    path = tmp_path / "run-1" / "record.feddbn"
    path.write_bytes(path.read_bytes()[:-3])
    with refused(StateError):
        store.load("run-1")


def test_a_run_cannot_leave_its_directory(tmp_path):
    with refused(ProtocolError, code="bad-run-id"):
        run_directory(tmp_path, "../elsewhere")
    (tmp_path / "file").write_text("")
    with refused(FileError, "directory"):
        run_directory(tmp_path / "file", "run-1")


def test_a_journal_file_cuts_a_torn_end_and_goes_on(tmp_path):
    path = tmp_path / "journal"
    log = JournalFile(path)
    journal = Journal(Header("r", "{}", "d", "1", ("a",)))
    log.write(journal.header_bytes())
    log.write(journal.add("d0", Sum(np.ones(2), ("a",))))
    whole = path.stat().st_size
    log.write(journal.add("d1", Sum(np.ones(2), ("a",)))[:30])
    log.close()
    log = JournalFile(path)
    again = log.read()
    assert len(again.entries) == 1
    assert path.stat().st_size == whole
    log.write(again.add("d1", Sum(np.zeros(2), ("a",))))
    assert len(log.read().entries) == 2
    log.close()


def test_personal_results_are_written_at_the_site_only(tmp_path):
    store = FileStore(tmp_path, "a")
    store.keep("run-1", StudyResult({"W": np.eye(2)}, {"k": 1}), {"W": np.zeros((2, 2))})
    meta, arrays = decode((tmp_path / "run-1" / "personal.feddbn").read_bytes())
    assert meta["site"] == "a"
    np.testing.assert_array_equal(arrays["W"], np.zeros((2, 2)))


def test_an_event_log_stays_small(tmp_path):
    log = EventLog(tmp_path / "events.jsonl", max_bytes=2000)
    assert log.read() == []
    for k in range(200):
        log.write({"what": "sum", "seq": k, "note": None})
    assert log.path.stat().st_size <= 2100
    events = log.read()
    assert events[-1]["seq"] == 199
    assert "note" not in events[-1]


def test_old_runs_are_pruned_and_the_current_one_is_kept(tmp_path):
    for name in ("old", "current", "new"):
        (tmp_path / name).mkdir()
        write_atomically(tmp_path / name / "record.feddbn", b"x")
    for name in ("old", "current"):
        os.utime(tmp_path / name / "record.feddbn", (0, 0))
        os.utime(tmp_path / name, (0, 0))
    looked_before(tmp_path, time.time())
    assert prune_runs(tmp_path, 30, keep=("current",)) == ["old"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [".days", "current", "new"]
    assert prune_runs(tmp_path / "nowhere", 30) == []


def test_settings_are_read_relative_to_their_file_and_unknown_keys_are_errors(tmp_path):
    path = tmp_path / "feddbn_site.toml"
    path.write_text('name = "a"\ndata = "d.csv"\nstate = "s"\n')
    settings = read_site_settings(path)
    assert settings.data == tmp_path / "d.csv"
    assert settings.programs == ("feddbn.federation.programs",)
    path.write_text('name = "a"\ndata = "d.csv"\nstate = "s"\nmax_lag = 3\n')
    with refused(FileError, "max_lag"):
        read_site_settings(path)
    path.write_text('name = "a"\ndata = "d.csv"\n')
    with refused(FileError, "state"):
        read_site_settings(path)
    path.write_text("name = ")
    with refused(FileError, "TOML"):
        read_site_settings(path)
    with refused(FileError, "nothing.toml"):
        read_server_settings(tmp_path / "nothing.toml")
    with refused(ParameterError, "'no_such_module'", code="no-program"):
        load_programs(("no_such_module",))


def test_an_exported_result_says_what_protected_its_sums(tmp_path):
    stored = {"format": "feddbn-result", "method": "FDBNL", "privacy": None}
    (tmp_path / "result.feddbn").write_bytes(StudyResult({}, {"result": stored}).to_bytes())
    privacy = {"secure_aggregation": True, "min_sites": 3, "epsilon": None}
    (tmp_path / "outcome.json").write_text(json.dumps({"state": "finished", "study": {"privacy": privacy}}))
    export_result(tmp_path)
    assert json.loads((tmp_path / "result.json").read_text()) == {**stored, "privacy": privacy}


@pytest.mark.parametrize("make", [curved_dbn, mixed_network])
def test_an_exported_network_keeps_its_curves_and_distributions(tmp_path, make):
    dbn = make()
    arrays = {name: getattr(dbn, name) for name in ("W", "A", "intercept", "noise_variances")}
    summary = {"variables": list(dbn.variables), "result": {"dbn": dbn.to_dict()}}
    (tmp_path / "result.feddbn").write_bytes(StudyResult(arrays, summary).to_bytes())
    export_result(tmp_path)
    assert DBN.from_json(tmp_path / "dbn.json").equals(dbn)


def test_an_exported_result_says_what_each_answer_cost(tmp_path):
    stored = {"format": "feddbn-result", "method": "OneShotDBN", "privacy": None}
    (tmp_path / "result.feddbn").write_bytes(StudyResult({}, {"result": stored}).to_bytes())
    privacy = {"secure_aggregation": True, "min_sites": 3, "epsilon": 2.0, "delta": 1e-5, "unit": "recording"}
    study = {"name": "s", "method": "oneshot", "variables": ["u"], "sites": ["a"], "privacy": privacy}
    (tmp_path / "outcome.json").write_text(json.dumps({"study": study}))
    export_result(tmp_path)
    costs = json.loads((tmp_path / "result.json").read_text())["privacy"]["costs"]
    assert set(costs) == {"counts.norms", "gram.rows"}
    assert costs["counts.norms"] < costs["gram.rows"] < 2.0
    # A tenth of the budget in 1 / multiplier^2.
    assert costs["counts.norms"] == pytest.approx(
        gaussian_epsilon(1e-5, noise_multiplier(2.0, 1e-5) / 0.1**0.5), 1e-5
    )


def test_half_an_event_is_skipped_and_the_next_begins_a_line(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    log.write({"what": "executed"})
    with open(log.path, "a", encoding="utf-8") as file:
        file.write('{"what": "exe')
    assert [event["what"] for event in log.read()] == ["executed"]
    log.write({"what": "finished"})
    assert [event["what"] for event in log.read()][-1] == "finished"


def test_a_result_is_exported_for_other_programs(tmp_path):
    assert export_result(tmp_path) is None
    (tmp_path / "result.feddbn").write_bytes(StudyResult({"W": np.eye(2)}, {"rounds": 2}).to_bytes())
    export_result(tmp_path)
    with np.load(tmp_path / "result.npz") as stored:
        np.testing.assert_array_equal(stored["W"], np.eye(2))
    assert json.loads((tmp_path / "result.json").read_text())["summary"] == {"rounds": 2}
    (tmp_path / "result.feddbn").write_bytes(b"x")
    with refused(FileError):
        export_result(tmp_path)
    with refused(FileError, "outcome.json"):
        read_outcome(tmp_path)
