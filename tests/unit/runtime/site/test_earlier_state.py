"""A state of version 0.2 is refused with one sentence, and read once by its owner."""

import json
import shutil

import pytest

pytest.importorskip("cryptography")
from feddbn.errors import FileError
from feddbn.privacy.register import Entry
from feddbn.runtime.site.audit import PEERS, export_logs
from feddbn.runtime.site.earlier_state import refuse_earlier_state
from feddbn.runtime.site.owner import APPROVALS, STUDIES
from feddbn.runtime.site.registers import FileShelf, SiteLedger
from feddbn.runtime.store import Store
from support.owned_sites import OwnedSites, make_study
from support.saying import refused
from support.states import entries_of

pytestmark = pytest.mark.usefixtures("light")

SUM = Entry(frozenset({"0" * 16 + ":1", "1" * 16 + ":1"}), "0" * 16, "ab")


@pytest.fixture
def earlier(tmp_path):
    """A site after a run, its state as version 0.2 laid it out; what it says is what this version wrote."""
    sites, study = OwnedSites(tmp_path), make_study()
    sites.approve(study, runs=2)
    sites.run(study, "run-1")
    state, store = sites.state(), Store(sites.state())
    old = tmp_path / "old"
    export_logs(state, old / "_audit")
    for place, folder in ((APPROVALS, "_approvals"), (STUDIES, "_studies"), (PEERS, "_audit/peers")):
        (old / folder).mkdir()
        for name in store.names(place):
            (old / folder / f"{name}.json").write_bytes(store.get(place, name))
    # A process was killed while it wrote.
    with open(old / "_audit" / "run-1.jsonl", "a") as file:
        file.write('{"half')
    (old / "_register").mkdir()
    (old / "_register" / "sums.jsonl").write_text(json.dumps({"sum": SUM.listed(), "run": "old"}) + "\n")
    kept = {"data": "v", "kind": "k", "stop": 5, "run": "old"}
    (old / "_register" / "resamples.jsonl").write_text(json.dumps(kept) + "\n")
    before = {name: entries_of(state, name) for name in ("_site", "run-1")}
    shutil.rmtree(state)
    old.rename(state)
    return sites, before


def test_it_is_refused_until_its_owner_has_read_it_and_goes_on_then(earlier):
    sites, before = earlier
    study = make_study()
    for use in (sites.exchange, lambda: sites.owner().approvals, lambda: sites.owner().audit):
        with refused(FileError, "feddbn site verify --adopt", code="earlier-state"):
            use()
    assert not Store(sites.state()).exists
    assert sites.owner().adopt() == 1
    refuse_earlier_state(sites.state())
    assert {name: entries_of(sites.state(), name) for name in before} == before
    ((approval, state),) = sites.owner().approvals.all()
    assert (approval.used, state) == (("run-1",), "valid")
    assert {peer.site for peer in sites.owner().heads.all() if peer.held} == {"south", "west"}
    assert FileShelf(sites.state(), "run", "study").entries() == (SUM,)
    assert SiteLedger(sites.state()).all("resamples") == [{"data": "v", "of": "k", "stop": 5, "run": "old"}]
    assert [one.study for one in sites.owner().offered.all()] == [study]
    # What was read is out of the way, and is not read again.
    assert sites.owner().adopt() == 1
    sites.run(study, "run-2")


def test_what_cannot_be_read_is_said_and_nothing_is_taken_over(earlier):
    sites, _ = earlier
    (sites.state() / "_register" / "sums.jsonl").write_text("nothing\n")
    with refused(FileError, code="earlier-state"):
        sites.owner().adopt()
    assert Store(sites.state()).changed() == {}
