import contextlib
import json
import multiprocessing
import os
import resource
import signal
import threading
import time

import numpy as np
import pytest

from feddbn.errors import FileError, ParameterError, ProtocolError, StateError
from feddbn.federation.protocol.encoding import decode
from feddbn.federation.protocol.messages import SiteRecord, Snapshot
from feddbn.federation.protocol.study import StudyResult
from feddbn.model.dbn import DBN
from feddbn.privacy.gaussian import gaussian_epsilon, noise_multiplier
from feddbn.runtime.server.results import export_result, read_outcome
from feddbn.runtime.settings import load_programs, read_site_settings
from feddbn.runtime.store import (
    STORE,
    EventLog,
    FileStore,
    SealedLog,
    Slot,
    Store,
    prune_runs,
    run_directory,
)
from support.crash import crash_points, killed_at
from support.faults import looked_before
from support.mixed_networks import mixed_network
from support.report_results import curved_dbn
from support.saying import refused
from support.states import changed
from support.together import add_ones

pytestmark = pytest.mark.promise


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "s")


def test_values_are_replaced_and_logs_grow(store):
    assert (store.get("run", "a"), store.records("run", "log"), store.names("run")) == (None, [], [])
    assert not store.exists
    first = store.put("run", "a", b"1")
    assert store.put("run", "a", b"2") > first
    store.append("run", "log", b"x", b"y")
    store.append("run", "log", b"z")
    store.append("_site", "log", b"w")
    again = Store(store.folder)
    assert again.get("run", "a") == b"2"
    assert (again.records("run", "log"), again.records("run", "log", 2)) == ([b"x", b"y", b"z"], [b"z"])
    assert set(again.changed()) == {"run", "_site"}
    again.forget("run")
    assert (store.get("run", "a"), store.records("run", "log"), store.names("run")) == (None, [], [])
    assert store.records("_site", "log") == [b"w"]
    for path in (store.folder, *store.folder.iterdir()):
        assert path.stat().st_mode & 0o077 == 0


def test_what_is_held_together_is_one_change(store):
    done = []

    def failing():
        with store.hold():
            store.put("run", "a", b"1")
            with Store(store.folder).hold():
                store.append("run", "log", b"x")
                store.after(lambda: done.append(store.get("run", "a")))
            assert store.records("run", "log") == [b"x"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert (store.get("run", "a"), store.records("run", "log"), done) == (None, [], [])
    with store.hold():
        store.put("run", "a", b"1")
        store.after(lambda: done.append(store.get("run", "a")))
    assert done == [b"1"]


# More than SQLite keeps in memory: a change that is cut off has pages on the disk that must be taken back.
END = b"and its end" * 300_000


def write_on(say, folder, attempt):
    store = Store(folder)
    for number in range(3):
        with store.hold():
            store.append("run", "log", b"%d-%d" % (attempt, number), END)
            store.put("run", "last", b"%d-%d" % (attempt, number))
        say(f"{attempt}-{number}")


def test_what_was_written_survives_a_kill_before_and_after_each_commit(store):
    points = crash_points(write_on, store.folder, 0)
    assert len(points) == 6
    expected = [f"0-{number}" for number in range(3)]
    for point in points:
        said = killed_at(point, write_on, store.folder, point + 1)
        # What was said is there; what was committed and not yet said is there, too.
        written = [f"{point + 1}-{number}" for number in range((point + 1) // 2)]
        assert list(said) == written[: point // 2]
        expected += written
        kept = store.records("run", "log")
        # All or nothing.
        assert [record.decode() for record in kept[::2]] == expected
        assert set(kept[1::2]) == {END}
        assert store.get("run", "last").decode() == expected[-1]


def test_processes_and_threads_wait_for_each_other(tmp_path):
    """Also while the file is made: to close it anywhere in a process ends the process's locks on it."""
    spawn, folders = multiprocessing.get_context("spawn"), [tmp_path / str(number) for number in range(10)]
    given = (folders, 8, spawn.Barrier(4))
    workers = [spawn.Process(target=add_ones, args=given)]
    workers += [threading.Thread(target=add_ones, args=given) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert {Store(folder).get("run", "sum") for folder in folders} == {b"32"}


def test_a_full_disk_is_one_sentence_and_changes_nothing(store):
    store.put("run", "a", b"1")
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    no_limit = resource.RLIM_INFINITY
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, no_limit))
        with refused(StateError, code="not-stored"):
            store.put("run", "a", b"2" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (no_limit, no_limit))
        signal.signal(signal.SIGXFSZ, old)
    assert store.get("run", "a") == b"1"
    store.put("run", "a", b"3")


def test_a_file_that_is_no_store_or_a_later_one_is_refused(store):
    store.put("run", "a", b"1")
    changed(store.folder, "PRAGMA user_version = 9")
    with refused(FileError, code="later-store"):
        store.get("run", "a")
    (store.folder / STORE).write_bytes(b"something else" * 100)
    with refused(FileError, code="damaged-store"):
        store.get("run", "a")


@pytest.mark.parametrize("size", [50, 50_000])
def test_what_is_erased_is_gone_from_the_disk(store, size):
    slot = Slot(store.folder, "run", "masks", erase=True)
    secrets = [bytes(f"secret {k} ", "ascii") * (size // 9) for k in range(3)]
    for secret in secrets:
        slot.load()
        slot.save(secret)
        store.append("run", "log", b"something else")

    def on_disk(secret):
        return any(secret[:20] in path.read_bytes() for path in store.folder.iterdir())

    assert [on_disk(secret) for secret in secrets] == [False, False, True]
    store.forget("run")
    assert not on_disk(secrets[2])


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
    content = Store(tmp_path).get("run-1", "record")
    Store(tmp_path).put("run-1", "record", content[:-3])
    with refused(StateError, code="damaged-state"):
        store.load("run-1")


def test_a_run_cannot_leave_its_directory(tmp_path):
    with refused(ProtocolError, code="bad-run-id"):
        run_directory(tmp_path, "../elsewhere")
    with refused(ProtocolError, code="bad-run-id"):
        Slot(tmp_path, STORE, "record")
    (tmp_path / "file").write_text("")
    with refused(FileError, "directory"):
        run_directory(tmp_path / "file", "run-1")


# Sealed logs


def sealed(folder, secret=b"secret"):
    return SealedLog(folder, "log", lambda: FileError("damaged.", code="damaged"), secret)


@pytest.fixture
def written(tmp_path):
    log = sealed(tmp_path)
    log.append("a", "one", "two")
    log.append("b", "three")
    log.append("a", "four")
    return tmp_path


def test_a_sealed_log_is_read_by_tag_and_in_order(written):
    log = sealed(written)
    assert (log.lines("a"), log.lines("b"), log.lines()) == (
        ["one", "two", "four"],
        ["three"],
        ["one", "two", "three", "four"],
    )
    other = sealed(written)
    other.append("b", "five")
    assert log.lines("b") == ["three", "five"]
    assert log.key == other.key != sealed(written / "other").key


@pytest.mark.parametrize(
    "tamper",
    [
        lambda place: changed(place, "DELETE FROM lines WHERE number = 3"),
        lambda place: changed(place, "DELETE FROM lines WHERE number = 1"),
        lambda place: changed(place, "DELETE FROM lines"),
        lambda place: changed(place, "UPDATE lines SET number = 9 - number"),
        lambda place: changed(place, "UPDATE lines SET content = replace(content, 'two', 'six')"),
        lambda place: changed(place, "UPDATE lines SET content = replace(content, ' b ', ' a ')"),
        lambda place: (place / STORE).unlink(),
        lambda place: (place / "_log.head").unlink(),
        lambda place: (place / "_log.head").write_bytes(b""),
        lambda place: sealed(place, b"guess").seal_anew([("a", "one")]),
    ],
)
def test_what_was_done_to_a_sealed_log_is_noticed_and_it_is_not_gone_on_with(written, tamper):
    known = sealed(written)
    lines = known.lines()
    tamper(written)
    for use in ("lines", "append", "key"):
        log = sealed(written)
        with refused(FileError, code="damaged"):
            log.append("a", "more") if use == "append" else getattr(log, use)
            log.lines()
    # Who has read them before knows what they were.
    with contextlib.suppress(FileError):
        assert known.lines() == lines
    log.seal_anew([("a", "anew")])
    assert sealed(written).lines() == ["anew"]


def test_an_older_store_or_an_older_head_is_told_apart(written):
    store, head = (written / name for name in (STORE, "_log.head"))
    before = store.read_bytes(), head.read_bytes()
    sealed(written).append("a", "five")
    # A crash between the line and its head: the line is whole, and it counts.
    head.write_bytes(before[1])
    assert sealed(written).lines()[-1] == "five"
    sealed(written).append("a", "six")
    store.write_bytes(before[0])
    with refused(FileError, code="damaged"):
        sealed(written).lines()


def test_a_change_that_failed_leaves_a_sealed_log_as_it_was(written):
    log = sealed(written)

    def failing():
        with log.hold():
            log.append("a", "five")
            assert log.lines()[-1] == "five"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert log.lines()[-1] == "four"
    log.append("a", "six")
    assert sealed(written).lines()[-1] == "six"


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


def test_old_runs_are_pruned_and_new_ones_are_kept(tmp_path):
    for name in ("old", "new"):
        FileStore(tmp_path, "a").save(SiteRecord(name, "a", "{}", "1"))
        FileStore(tmp_path, "a").keep(name, StudyResult({}, {}), {})
        os.utime(tmp_path / name / "result.feddbn", (0, 0))
    Store(tmp_path).put("_approvals", "x", b"x")
    changed(tmp_path, "UPDATE kept SET time = 0 WHERE place != 'new'")
    looked_before(tmp_path, time.time())
    assert prune_runs(tmp_path, 30) == ["old"]
    assert sorted(Store(tmp_path).changed()) == ["_approvals", "new"]
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
        read_site_settings(tmp_path / "nothing.toml")
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
