"""What a store leaves alone when it cleans up, and who may read it."""

import os
import stat
import time

import pytest

pytest.importorskip("cryptography")
from feddbn.errors import FederationError
from feddbn.federation.protocol.messages import SiteRecord
from feddbn.runtime.store import DAYS, STORE, FileStore, Store, prune_runs
from support.consortium import NAMES, Consortium, make_study
from support.faults import looked_before

LATER = 4e9
RULE = "approve_by_rule = true\n"


def test_a_site_whose_state_is_its_folder_keeps_its_data_and_gives_up_only_runs_that_have_ended(tmp_path):
    sites, study = Consortium(tmp_path, policy=RULE), make_study()
    for name in NAMES:
        path = tmp_path / name / "feddbn_site.toml"
        path.write_text(path.read_text().replace('state = "state"', 'state = "."'))
    assert sites.settings().state == tmp_path / "north"
    sites.run(study, "ended")
    exchange = sites.restart()

    asked = []

    def only_greetings(messages):
        asked.append(len(messages))
        if len(asked) > 1:
            raise FederationError("the server's machine has lost its power.")
        return exchange(messages)

    with pytest.raises(FederationError):
        sites.run(study, "waits", exchange=only_greetings)
    north = tmp_path / "north"
    result = north / "ended" / "result.feddbn"
    kept = result.read_bytes()
    for place in (north / "data", north / "ended", north / "waits"):
        os.utime(place, (0, 0))
    looked_before(north, LATER)
    assert prune_runs(north, 30, now=LATER) == ["ended"]
    assert (north / "data" / "r000.csv").exists()
    assert result.read_bytes() == kept
    assert sorted(path.name for path in (north / "ended").iterdir()) == ["result.feddbn"]
    assert FileStore(north, "north").load("ended") is None
    assert FileStore(north, "north").load("waits") is not None
    assert sites.run(study, "waits")[1] == NAMES


def test_a_store_is_for_its_owner_only_also_where_files_cannot_be_linked(tmp_path, monkeypatch, umask):
    def refuse(*of, **how):
        raise PermissionError(1, "Operation not permitted")

    for name in ("link", "mknod"):
        monkeypatch.setattr(os, name, refuse)
    os.umask(0o022)
    FileStore(tmp_path, "a").save(SiteRecord("run-1", "a", "{}", "1"))
    made = [path for path in tmp_path.iterdir() if path.name.startswith(STORE)]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o600}
    assert Store(tmp_path).names("run-1") == ["record"]


def test_a_folder_without_a_run_is_nobodys_to_delete(tmp_path):
    for name in ("data", "not-a-run"):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, 0))
    looked_before(tmp_path, time.time())
    assert prune_runs(tmp_path, 0.1) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [DAYS, "data", "not-a-run"]
