import pytest

pytest.importorskip("cryptography")
from feddbn.errors import FileError, NotEnoughSites
from feddbn.privacy.audit import AuditChain, AuditEntry, parse_entries, verify_chain
from feddbn.privacy.keys import Identity
from feddbn.runtime.site.audit import MOST_REFUSED, SITE_LOG, RunLog, SiteAudit
from support.consortium import Consortium, make_study
from support.crash import crash_points, killed_at
from support.saying import refused
from support.states import log_lines, rewrite_log

SITE = Identity.from_seed(bytes([1]) * 32)


def write_notes(say, place, attempt):
    audit = SiteAudit(place, "north", SITE)
    for number in range(4):
        audit.note("warning", note=f"{attempt}-{number}")
        say(f"{attempt}-{number}")


def test_entries_that_were_written_survive_a_kill_at_each_commit(tmp_path):
    points = crash_points(write_notes, tmp_path, "calm")
    assert len(points) >= 8
    for attempt, point in enumerate(points):
        said = killed_at(point, write_notes, tmp_path, attempt)
        SiteAudit(tmp_path, "north", SITE).note("warning", note=f"{attempt}-end")
        lines = log_lines(tmp_path, SITE_LOG)
        assert verify_chain(lines, key=SITE.public).seal == "signed"
        assert {*said, f"{attempt}-end"} <= {entry.note for entry in parse_entries(lines)}


def test_a_log_that_is_not_this_sites_is_not_continued(tmp_path):
    """Sealed by its owner as complete, and yet not signed."""
    SiteAudit(tmp_path, "north", None).note("warning", note="one")
    audit = SiteAudit(tmp_path, "north", SITE)
    audit.adopt()
    with refused(FileError, code="unsigned"):
        audit.note("warning", note="three")


class Clock:
    def __init__(self):
        self.now = 1e9

    def __call__(self):
        return self.now


def test_what_is_said_again_is_written_once_a_day_and_after_each_decision_of_the_owner(tmp_path):
    clock = Clock()
    audit = SiteAudit(tmp_path, "north", SITE, clock)
    for word in ("one", "one", "two", "one"):
        audit.note("refused", note=word)
    assert [entry.note for entry in audit.entries()] == ["one", "two"]
    for _ in range(2):
        audit.note("approved", note="three")
    # A run that is greeted again counts for the approval that was given since.
    audit.note("refused", note="one")
    clock.now += 86400
    for _ in range(2):
        SiteAudit(tmp_path, "north", SITE, clock).note("refused", note="one")
    assert [entry.note for entry in audit.entries()] == ["one", "two", "three", "three", "one", "one"]


def test_many_refused_greetings_do_not_fill_the_log(tmp_path):
    clock = Clock()
    audit = SiteAudit(tmp_path, "north", SITE, clock)
    for number in range(3 * MOST_REFUSED):
        audit.note("refused", note=f"made up {number}", run=f"run-{number}", study=f"study {number}")
    assert len(audit.entries()) == MOST_REFUSED + 1
    assert str(MOST_REFUSED) in audit.entries()[-1].note
    # Nothing else is kept out, a restart changes nothing, and tomorrow is another day.
    audit = SiteAudit(tmp_path, "north", SITE, clock)
    audit.note("refused", note="one more")
    audit.note("agreed", note="yes")
    clock.now += 86400
    audit.note("refused", note="next day")
    assert [entry.note for entry in audit.entries()[MOST_REFUSED + 1 :]] == ["yes", "next day"]
    assert verify_chain(audit.lines(SITE_LOG), key=SITE.public).seal == "signed"


def test_a_log_is_checked_again_only_where_another_process_has_written(tmp_path, monkeypatch):
    audit, other = (SiteAudit(tmp_path, "north", SITE) for _ in range(2))
    audit.note("warning", note="one")
    resumed, resume = [], AuditChain.resume
    monkeypatch.setattr(AuditChain, "resume", lambda *some: (resumed.append(some), resume(*some))[1])
    audit.note("warning", note="two")
    assert resumed == []
    other.note("warning", note="three")
    audit.note("warning", note="four")
    assert len(resumed) == 2
    assert [entry.note for entry in audit.entries()] == ["one", "two", "three", "four"]
    assert verify_chain(audit.lines(SITE_LOG), key=SITE.public).seal == "signed"


def test_a_site_without_a_key_writes_a_log_and_gives_no_hash(tmp_path):
    audit = SiteAudit(tmp_path, "north", None)
    audit.note("warning", note="one")
    assert verify_chain(audit.lines(SITE_LOG)).seal == "unkeyed"
    assert audit.last_hash() == ""


def test_greetings_refusals_and_ends_are_in_the_sites_own_log(tmp_path):
    sites, study = Consortium(tmp_path), make_study()
    with pytest.raises(NotEnoughSites):
        sites.run(study, "run-0")
    sites.approve(study)
    sites.run(study, "run-1")
    entries = sites.owner("north").audit.entries()
    assert [(entry.event, entry.run) for entry in entries] == [
        ("refused", "run-0"),
        ("approved", ""),
        ("agreed", "run-1"),
        ("finished", "run-1"),
    ]
    assert {entry.study_digest for entry in entries} == {study.digest}
    assert "`feddbn site approve" in entries[0].note
    assert entries[2].asked_by.startswith("lead@example.org ")
    assert entries[2].asked.startswith("oneshot of u, v; ")
    assert "n_lags=1" in entries[2].asked
    lines = sites.owner().audit.lines("run-1")
    log = parse_entries(lines)
    assert entries[3].chain == f"{len(log)} {log[-1].hash}"
    assert verify_chain(lines, key=sites.owner().audit.key).seal == "signed"
    assert (log[0].task, log[0].study, log[0].run) == ("counts.variables", "s", "run-1")
    assert len(log[0].task_digest) == 64
    assert "n_lags=1" in log[0].asked
    assert "variables" not in log[0].asked


def test_a_site_that_cannot_write_its_log_does_not_agree(tmp_path):
    sites, study = Consortium(tmp_path), make_study()
    sites.approve(study)
    rewrite_log(
        sites.state(),
        SITE_LOG,
        [line.replace("approved", "approving") for line in log_lines(sites.state(), SITE_LOG)],
    )
    with pytest.raises(NotEnoughSites) as error:
        sites.run(study)
    assert set(error.value.values["reasons"]) == {"north"}


def test_people_read_each_reason_of_a_refusal_and_the_epsilon_of_an_answer():
    of = {"index": 0, "site": "north", "asked_by": "lead"}
    waits = [AuditEntry(time=f"{k}", event="refused", task="hello", note="not yet", **of) for k in (1, 2)]
    said = AuditEntry(time="3", event="refused", task="hello", note="never", **of)
    sent = [
        AuditEntry(
            time="4",
            event="sent",
            task="gram.rows",
            length=5,
            protection=kind,
            epsilon=epsilon,
            unit="row",
            **of,
        )
        for kind, epsilon in (("masked and weighted", None), ("masked and noise", 9.0))
    ]
    lines = list(RunLog("run-1", (*waits, said, *sent)).lines())
    assert [(line.time, line.times) for line in lines] == [("1", 2), ("3", 1), ("4", 1), ("4", 1)]
    assert [line.epsilon for line in lines[2:]] == ["-", "9 per row"]
