"""Somebody who can write a site's files wants an answer to be forgotten: without its key, or with it."""

import json

import pytest
from typer.testing import CliRunner

pytest.importorskip("cryptography")
from feddbn.cli.main import app
from feddbn.errors import NotEnoughSites
from feddbn.privacy.audit import AuditChain, verify_chain
from feddbn.privacy.keys import Identity
from feddbn.runtime.server.conduct import Progress, conduct
from feddbn.runtime.server.results import read_outcome
from feddbn.runtime.site.audit import check_logs, logs_at
from feddbn.runtime.site.owner import APPROVALS
from feddbn.runtime.store import Store
from support.consortium import NAMES, Consortium, make_study
from support.faults import MemoryJournal
from support.saying import refused
from support.states import copied, entries_of, log_lines, put_back, rewrite_log

pytestmark = pytest.mark.promise


@pytest.fixture
def ran(tmp_path):
    sites = Consortium(tmp_path)
    sites.approve(make_study(), runs=3)
    sites.run(make_study(), "run-1")
    return sites


def rewritten(state, log, identity, **changes):
    """Write the log anew from its own entries with some values changed; every hash fits."""
    chain, lines = AuditChain(identity=identity), []
    for entry in entries_of(state, log):
        body = {**entry.fields(), **changes}
        for name in ("index", "n_bytes", "previous", "hash", "signature"):
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


@pytest.mark.parametrize("is_adopted", [True, False])
def test_a_site_does_not_go_on_with_a_log_that_another_key_signed(ran, is_adopted):
    rewritten(ran.state(), "run-1", Identity.from_seed(bytes([9]) * 32), length=0)
    if is_adopted:
        # Even its owner can only take a log as complete, not as signed.
        ran.owner().audit.adopt()
    with pytest.raises(NotEnoughSites, match="'north' refused"):
        ran.run(make_study(), "run-1", journal=MemoryJournal())


def test_approved_runs_cannot_be_won_back_by_editing_or_by_an_older_file_of_another_site(ran, tmp_path):
    sites, study = Consortium(tmp_path / "more"), make_study()
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
    sites, study = Consortium(tmp_path), make_study()
    sites.approve(study)
    store = Store(sites.state())
    fresh = store.get(APPROVALS, study.digest)
    sites.run(study, "run-1")
    store.put(APPROVALS, study.digest, fresh)
    with refused(NotEnoughSites, "north", "s", 1):
        sites.run(study, "run-2")
    sites.approve(study)
    assert sites.run(study, "run-2")[1] == NAMES


@pytest.mark.parametrize("how", ["shortened", "rewritten", "put back"])
def test_a_log_that_was_shortened_or_rewritten_by_the_sites_own_key_is_found_by_the_hash_that_the_lead_has(
    ran, tmp_path, how
):
    """Whoever has the key and the store can make every hash, signature and seal fit."""
    backup = copied(ran.state(), tmp_path / "backup")
    exchange, out = ran.restart(), tmp_path / "out"
    out.mkdir()
    conduct(
        exchange,
        make_study(),
        "run-2",
        tmp_path / "runs",
        out,
        Progress("run-2", NAMES),
        lambda sentence: None,
    )
    (held,) = read_outcome(out)["logs"]["north"]
    audit = ran.owner().audit
    assert {one.problem for one in check_logs(logs_at(ran.state()), audit.key, [held])} == {None}
    if how == "put back":
        put_back(backup, ran.state())
    elif how == "shortened":
        audit._log.seal_anew([one for one in audit._log.tagged() if "run-2" not in one[1]])
    else:
        lines = [(tag, line) for tag, line in audit._log.tagged() if tag != "_site"]
        chain = AuditChain(identity=audit.identity)
        for entry in entries_of(ran.state(), "_site"):
            body = {**entry.fields(), "note": ""}
            for name in ("index", "n_bytes", "previous", "hash", "signature"):
                del body[name]
            lines.append(("_site", chain.add(**body).to_line()))
        audit._log.seal_anew(lines)
    assert {one.problem for one in check_logs(logs_at(ran.state()), audit.key)} == {None}
    found = [one.log for one in check_logs(logs_at(ran.state()), audit.key, [held]) if one.problem]
    assert found == [f"hash {held[:12]}"]
    done = CliRunner().invoke(app, ["site", "verify", "--kit", str(ran.place / "north"), "--last", held])
    assert done.exit_code == 1
