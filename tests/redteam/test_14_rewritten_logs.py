"""Somebody who can write a site's files, but lacks its key, wants an answer to be forgotten; the server helps."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("cryptography")
from feddbn.errors import NotEnoughSites
from feddbn.privacy.audit import GENESIS, AuditChain, AuditEntry, _digest, verify_chain
from feddbn.privacy.keys import Identity
from feddbn.runtime.site.audit import check_logs, logs_at
from feddbn.runtime.site.owner import APPROVALS
from feddbn.runtime.store import Store
from support.faults import MemoryJournal
from support.owned_sites import NAMES, OwnedSites, make_study
from support.saying import refused
from support.states import entries_of, log_lines, rewrite_log

pytestmark = pytest.mark.usefixtures("light")


def problems(sites):
    return {one.log: one.problem for one in check_logs(logs_at(sites.state()), sites.owner().audit.key)}


@pytest.fixture
def ran(tmp_path):
    sites = OwnedSites(tmp_path)
    sites.approve(make_study(), runs=3)
    sites.run(make_study(), "run-1")
    return sites


def rewritten(state, log, identity, **changes):
    """Write the log anew from its own entries with some values changed; every hash fits."""
    chain, lines = AuditChain(identity=identity), []
    for entry in entries_of(state, log):
        body = {**entry.fields(), **changes}
        for name in ("index", "n_bytes", "previous", "hash", "signature", "version"):
            del body[name]
        lines.append(chain.add(**body).to_line())
    rewrite_log(state, log, lines)


@pytest.mark.parametrize("identity", [None, Identity.from_seed(bytes([9]) * 32)])
def test_a_log_with_fitting_hashes_and_another_story_is_found(ran, identity):
    for name in ("run-1", "_site"):
        rewritten(ran.state(), name, identity, length=0, note="")
        assert verify_chain(log_lines(ran.state(), name)).problem is None
    reports = check_logs(logs_at(ran.state()), ran.owner().audit.key)
    assert len(reports) == 2
    assert all(report.problem for report in reports)
    with pytest.raises(NotEnoughSites):
        ran.run(make_study(), "run-2")


def in_the_first_version(state, log):
    """Write the log anew as the version that did not sign would have; every hash fits."""
    last, lines = GENESIS, []
    for number, entry in enumerate(entries_of(state, log)):
        fields = {**vars(entry), "index": number, "length": 0, "previous": last, "version": 1}
        plain = AuditEntry(**fields)
        last = _digest(plain.fields())
        lines.append(replace(plain, hash=last).to_line())
    rewrite_log(state, log, lines)


def test_a_log_that_pretends_to_be_of_an_earlier_version_is_found(ran):
    """The log of a run may be that old, if the site's own log does not say otherwise; the site's own log is never."""
    for name in ("run-1", "_site"):
        in_the_first_version(ran.state(), name)
        assert verify_chain(log_lines(ran.state(), name), key=ran.owner().audit.key).problem is None
    assert problems(ran)["_site.jsonl"] is not None
    with pytest.raises(NotEnoughSites):
        ran.run(make_study(), "run-2")


def test_the_log_of_a_run_that_pretends_to_be_of_an_earlier_version_is_found(ran):
    in_the_first_version(ran.state(), "run-1")
    assert problems(ran)["run-1.jsonl"] is not None


@pytest.mark.parametrize("is_adopted", [True, False])
def test_a_site_does_not_go_on_with_a_log_that_another_key_signed(ran, is_adopted):
    rewritten(ran.state(), "run-1", Identity.from_seed(bytes([9]) * 32), length=0)
    if is_adopted:
        # Even its owner can only take a log as complete, not as signed.
        ran.owner().adopt()
    with pytest.raises(NotEnoughSites, match="'north' refused"):
        ran.run(make_study(), "run-1", journal=MemoryJournal())


def test_approved_runs_cannot_be_won_back_by_editing_or_by_an_older_file_of_another_site(ran, tmp_path):
    sites, study = OwnedSites(tmp_path / "more"), make_study()
    sites.approve(study)
    store = Store(sites.state())
    fresh = Store(sites.state("south")).get(APPROVALS, study.digest).decode()
    sites.run(study, "run-1")
    body = json.loads(store.get(APPROVALS, study.digest))
    for forged in (json.dumps({**body, "used": []}), json.dumps({**body, "runs": 9}), fresh):
        store.put(APPROVALS, study.digest, forged.encode())
        with refused(NotEnoughSites, "north", "s"):
            sites.run(study, "run-2")


def test_an_older_file_of_the_same_site_does_not_win_runs_back(tmp_path):
    sites, study = OwnedSites(tmp_path), make_study()
    sites.approve(study)
    store = Store(sites.state())
    fresh = store.get(APPROVALS, study.digest)
    sites.run(study, "run-1")
    store.put(APPROVALS, study.digest, fresh)
    with refused(NotEnoughSites, "north", "s", 1):
        sites.run(study, "run-2")
    sites.approve(study)
    assert sites.run(study, "run-2")[1] == NAMES


def test_a_server_that_drops_all_heads_is_seen_by_their_age_and_a_file_handed_over_still_tells(ran):
    exchange = ran.exchange()

    def without_heads(messages):
        from feddbn.federation.protocol.messages import read_request

        kept = {name: text for name, text in messages.items() if read_request(text).kind != "heads"}
        return exchange(kept)

    ran.run(make_study(), "run-2", exchange=without_heads)
    for name in NAMES:
        assert {peer.held.n_entries for peer in ran.owner(name).heads.all()} == {3}
        assert ran.owner(name).audit.head().n_entries == 5
