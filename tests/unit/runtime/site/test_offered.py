import json

import pytest

pytest.importorskip("cryptography")
from feddbn.errors import FederationError, NotEnoughSites, ParameterError
from feddbn.federation.protocol.messages import raise_refusal
from feddbn.runtime.server.conduct import Progress, conduct
from feddbn.runtime.server.results import sites_that_refuse
from feddbn.runtime.site.owner import STUDIES, OfferedStudies
from feddbn.runtime.store import Store
from feddbn.words import STEERS
from support.consortium import Consortium, make_study
from support.saying import kept_out, refused


@pytest.fixture
def sites(tmp_path):
    return Consortium(tmp_path)


def test_a_study_that_nobody_approved_waits_with_who_sent_it(sites):
    study = make_study()
    exchange = sites.restart(submitter="lead@example.org")
    with pytest.raises(NotEnoughSites):
        sites.run(study, exchange=exchange)
    (one,) = sites.owner().waiting()
    assert one.study == study
    assert one.sender == "lead@example.org"
    assert Store(sites.state()).names(STUDIES) == [study.digest]


def test_what_waits_does_not_run(sites):
    study = make_study()
    sites.owner().offered.keep(study)
    with kept_out("not-approved"):
        sites.run(study)


def test_an_approved_study_does_not_wait_and_its_text_is_kept(sites):
    study = make_study()
    sites.owner().offered.keep(study, "lead@example.org")
    sites.approve(study)
    owner = sites.owner()
    assert owner.waiting() == []
    assert owner.offered.find(study.digest).approved
    owner.revoke("s")
    # Taken back is decided, too.
    assert owner.waiting() == []


def test_a_refused_study_stops_waiting_for_good_and_can_still_be_approved(sites):
    study = make_study()
    owner = sites.owner()
    owner.offered.keep(study)
    owner.refuse(study)
    owner.offered.keep(study)
    assert owner.waiting() == []
    assert [entry.event for entry in owner.audit.entries()] == ["declined"]
    assert owner.audit.entries()[0].study_digest == study.digest
    sites.approve(study)
    assert sites.owner().offered.find(study.digest).refused == ""
    with refused(ParameterError, code="is-approved"):
        sites.owner().refuse(study)


HOSTILE = "not this year:\n\t ask\x1b[2J again\u202e \ud800" + 400 * "x"


def conducted(sites, study, run_id="run-1"):
    """How a run stands that was stopped: its outcome, and its progress."""
    progress = Progress(run_id, study.sites)
    (sites.place / "o").mkdir()
    with pytest.raises(NotEnoughSites):
        conduct(
            sites.restart(), study, run_id, sites.place / "r", sites.place / "o", progress, lambda said: None
        )
    return json.loads((sites.place / "o" / "outcome.json").read_text()), progress.read()


@pytest.mark.parametrize("was_approved", [False, True])
def test_the_lead_reads_why_an_owner_refused_and_who_has_not_decided(sites, was_approved):
    study = make_study()
    sites.approve(study, ("south", *(("north",) if was_approved else ())))
    if was_approved:
        sites.owner("north").revoke("s", HOSTILE)
    else:
        sites.owner("north").refuse(study, HOSTILE)
    kept = sites.owner("north").offered.find(study.digest)
    assert kept.reason.startswith("not this year: ask [2J again")
    assert len(kept.reason) == 300
    outcome, progress = conducted(sites, study)
    # Runs insist on all sites, so both say no.
    code = "approval-revoked" if was_approved else "owner-refused"
    assert outcome["reasons"] == {"north": code, "west": "not-approved"}
    assert progress["said"] == outcome["said"]
    for text in (outcome["sentence"], outcome["said"]["north"]["sentence"]):
        assert kept.reason in text
        assert not STEERS.search(text)
    assert [one.values["code"] for one in sites_that_refuse(outcome)] == [code, "not-approved"]
    sites.approve(study)
    assert sites.owner("north").offered.find(study.digest).reason == ""
    sites.run(study)


def test_what_a_hostile_site_says_steers_no_screen_of_the_lead():
    with pytest.raises(FederationError) as caught:
        raise_refusal("north", {"error": "SiteRefused", "sentence": HOSTILE, "code": "\x1b[2J"})
    assert not STEERS.search(str(caught.value) + caught.value.code)
    assert len(str(caught.value)) < 600
    str(caught.value).encode()


def test_the_newest_comes_first_and_stays_as_it_came(tmp_path):
    now = [1_700_000_000.0]
    offered = OfferedStudies(tmp_path, clock=lambda: now[0])
    for name in ("first", "second"):
        offered.keep(make_study(name=name), f"{name}@example.org")
        now[0] += 3600
    offered.keep(make_study(name="first"), "other@example.org")
    assert [(one.study.name, one.sender) for one in offered.all()] == [
        ("second", "second@example.org"),
        ("first", "first@example.org"),
    ]


def test_a_text_that_is_not_the_study_of_its_name_is_none(tmp_path):
    offered = OfferedStudies(tmp_path)
    study = make_study()
    offered.keep(study)
    text = Store(tmp_path).get(STUDIES, study.digest).decode()
    for odd in (text.replace("lead@", "head@"), "{}", "[1]", "null", '{"study": 1}', "\x00", text[:40]):
        Store(tmp_path).put(STUDIES, study.digest, odd.encode())
        assert offered.find(study.digest) is None
        assert offered.all() == []
    assert offered.find("../../etc/passwd") is None


def test_a_study_is_named_by_name_or_the_beginning_of_its_digest(tmp_path):
    offered = OfferedStudies(tmp_path)
    studies = [make_study(), make_study(lead="other@example.org"), make_study(name="t")]
    for study in studies:
        offered.keep(study)
    assert offered.named("t").study == studies[2]
    assert offered.named(studies[1].digest[:12]).study == studies[1]
    for which in ("s", "x", ""):
        with refused(ParameterError, repr(which), code="which-study"):
            offered.named(which)


def test_a_study_that_comes_again_after_its_approval_has_ended_waits_again(sites, monkeypatch):
    study = make_study()
    sites.approve(study)
    sites.run(study, "first")
    # Used up; nobody has asked again.
    assert sites.owner().waiting() == []
    monkeypatch.setattr(OfferedStudies, "_now", lambda self: "2999-01-01T00:00:00Z")
    with kept_out("approval-used-up"):
        sites.run(study, "second")
    (one,) = sites.owner().waiting()
    assert one.study == study
    sites.approve(study)
    assert sites.owner().waiting() == []
    sites.owner().revoke("s")
    assert sites.owner().waiting() == []
