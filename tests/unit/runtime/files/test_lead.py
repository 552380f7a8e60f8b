"""Several modules: studies by files.

A masked study over files gives the bits of all sites together, whatever is repeated, lost, renamed or refused meanwhile.
"""

import json

import pytest

pytest.importorskip("cryptography")
import numpy as np

from feddbn.errors import FederationError, ParameterError, StateError
from feddbn.federation.protocol.study import StudyResult
from feddbn.privacy.policy import USUAL_TASKS
from feddbn.runtime.files.kit import check_site
from feddbn.runtime.files.lead import Lead
from feddbn.runtime.files.signed import read_plain, read_signed
from feddbn.runtime.files.site import FileSite, Watch
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.owner import Owner
from support.consortium import NAMES, Consortium, make_study
from support.file_kits import LEAD, FileKits
from support.saying import refused

PLAIN = "approve_by_rule = true\nrequire_masking = false\n"


def arrays_of(kits, run="run-1"):
    return StudyResult.from_bytes(kits.result(run)).arrays


def assert_same_bits(found, expected):
    assert set(found) == set(expected)
    assert any(np.any(array) for array in expected.values())
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The result of all sites together, without files."""
    return (
        Consortium(tmp_path_factory.mktemp("t"), policy="approve_by_rule = true\n")
        .run(make_study())[0]
        .arrays
    )


def test_a_masked_study_by_files_gives_the_bits_of_all_together(tmp_path, together):
    kits = FileKits(tmp_path)
    # Its attendance says "abort"; by files every question waits.
    stepped = kits.begin()
    assert (stepped.state, set(stepped.questions)) == ("collecting", set(NAMES))
    before = {site: read_plain(path) for site, path in stepped.questions.items()}
    assert {site: read_plain(path) for site, path in kits.step().questions.items()} == before
    first = kits.answer(stepped.questions["north"])
    assert not first.was_given
    assert kits.answer(stepped.questions["north"]).content == first.content
    assert set(kits.step().questions) == {"south", "west"}
    n_steps = 0
    while stepped.state == "collecting":
        for site, question in stepped.questions.items():
            kits.answer(question)
            answer = question.with_name(question.name.replace("question", "answer"))
            # By e-mail: under another name, in another place, and the question was lost.
            answer.rename(kits.place / "run-1" / f"{site}-{n_steps} (1).feddbn")
            question.unlink()
        stepped, n_steps = kits.step(), n_steps + 1
    assert stepped.state == "finished"
    assert n_steps >= 6
    assert not stepped.notes
    assert_same_bits(arrays_of(kits), together)
    assert set(stepped.questions) == set(NAMES)
    assert stepped.outcome["received"] == []
    kits.answer(stepped.questions["north"])
    assert kits.step().outcome["received"] == ["north"]
    assert (kits.kits["north"] / "state" / "run-1" / "result.feddbn").read_bytes() == kits.result()


def test_a_refusal_is_told_and_the_same_question_is_answered_after_approval(tmp_path):
    kits = FileKits(tmp_path, policy=None)
    stepped = kits.begin()
    said = kits.answer(stepped.questions["north"])
    assert said.refusal is not None
    assert said.refusal.code == "not-approved"
    after = kits.step()
    assert "north" in after.outcome["awaited"]
    assert "not approved" in after.outcome["sentence"]
    owner = Owner(read_site_settings(kits.kits["north"] / "feddbn_site.toml"))
    assert [one.study for one in owner.waiting()] == [make_study()]
    owner.approve(make_study(), 30.0, 1, None)
    assert kits.answer(stepped.questions["north"]).refusal is None
    assert kits.step().outcome["awaited"] == ["south", "west"]
    owner.revoke("s")
    with refused(FederationError, "revoked", code="approval-revoked"):
        FileSite(kits.kits["north"]).answer(
            read_signed(read_plain(stepped.questions["north"]), "q", "question")
        )


def test_folders_that_are_watched_on_both_sides_need_nobody(tmp_path, monkeypatch):
    kits = FileKits(tmp_path, PLAIN)
    study = make_study(privacy={"secure_aggregation": False})
    for name in (*NAMES, LEAD):
        with open(kits.kits[name] / "files.toml", "a") as file:
            file.write(f'folder = "{tmp_path / "shared"}"\n')
    (tmp_path / "shared").mkdir()
    monkeypatch.setattr("feddbn.runtime.files.lead.LOOK_S", 0.0)
    watches = [Watch(kits.kits[name]) for name in NAMES]
    lead = Lead(kits.lead)
    lead.check(study, "w")
    lead.remember(study, "w", lead.shared / "w")
    assert lead.step(study, "w", lambda values: [watch.look() for watch in watches]).state == "finished"
    assert list(lead.studies()) == ["w"]
    # The files that bring the result are answered, too; then there is nothing left to do.
    assert [watch.look() for watch in watches] == [1, 1, 1]
    assert [watch.look() for watch in watches] == [0] * 3
    assert lead.step(study, "w").outcome["received"] == sorted(NAMES)
    assert sorted(path.name for path in lead.fetch("w", tmp_path / "out").iterdir()) == [
        "events.jsonl",
        "outcome.json",
        "result.feddbn",
    ]
    progress = lead.progress("w")
    assert (progress["state"], progress["present"]) == ("finished", sorted(NAMES))
    assert progress["sums"] > 0
    with refused(StateError, "'none'", code="unknown-run"):
        lead.study_of("none")
    # What the owner of a folder adds: other files are left alone.
    (tmp_path / "shared" / "notes.feddbn").write_bytes(b"hello")
    assert watches[0].look() == 0
    assert not lead.step(study, "w").notes


def test_a_watched_question_that_waits_for_approval_is_tried_when_the_owner_has_decided(tmp_path):
    kits = FileKits(tmp_path, policy=None)
    with open(kits.kits["north"] / "files.toml", "a") as file:
        file.write(f'folder = "{tmp_path}/run-1"\n')
    kits.begin()
    now = [0.0]
    watch = Watch(kits.kits["north"], clock=lambda: now[0])
    assert watch.look() == 1
    assert watch.look() == 0
    owner = Owner(read_site_settings(kits.kits["north"] / "feddbn_site.toml"))
    owner.approve(make_study(), 30.0, 1, None)
    assert watch.look() == 1
    assert kits.step().outcome["awaited"] == ["south", "west"]


def test_a_kit_is_for_its_owner_only_and_is_known_by_its_file(tmp_path):
    kits = FileKits(tmp_path)
    for name, kit in kits.kits.items():
        assert (kit / "identity.key").stat().st_mode & 0o077 == 0
        assert (kit / "feddbn_site.toml").exists() == (name != LEAD)
    north = kits.kits["north"]
    found = {one.code: one.level for one in check_site(north, make_study())}
    assert found["files-kit"] == "good"
    assert found["keys-private"] == "good"
    assert found["folder-none"] == "note"
    (north / "identity.key").write_bytes((kits.kits["south"] / "identity.key").read_bytes())
    (north / "identity.key").chmod(0o644)
    wrong = {one.code for one in check_site(north) if one.level == "error"}
    assert {"files-kit-other", "keys-readable"} <= wrong
    # A platform's folder has no such file.
    (north / "files.toml").unlink()
    assert "files-kit-other" not in {one.code for one in check_site(north)}


def test_what_cannot_be_run_with_a_kit_is_refused_at_once(tmp_path):
    kits = FileKits(tmp_path)
    with refused(ParameterError, "'east'", code="unknown-site"):
        kits.begin(make_study(sites=(*NAMES, "east")))
    with refused(ParameterError, "'other@example.org'", code="other-lead"):
        kits.begin(make_study(lead="other@example.org"))
    kits.begin()
    with refused(StateError, "'run-1'", code="other-study"):
        kits.begin(make_study(name="t"))


def test_a_question_that_a_site_refuses_waits_unless_the_lead_accepts_it(tmp_path):
    kits = FileKits(tmp_path, PLAIN)
    listed = f"tasks = {json.dumps([task for task in USUAL_TASKS if task != 'loss.alone'])}\n"
    (kits.kits["north"] / "policy.toml").write_text(PLAIN + listed)
    study = make_study(parameters={"n_lags": 1})
    stepped, most = kits.begin(study), 16
    lead = Lead(kits.lead)
    while stepped.state == "collecting" and stepped.outcome["awaited"] != ["north"] and most:
        for question in stepped.questions.values():
            kits.answer(question)
        stepped, most = kits.step(), most - 1
    assert "north" in stepped.outcome["sentence"]
    assert kits.step().outcome["awaited"] == ["north"]
    assert lead.step(study, "run-1", accepts_refusals=True).state == "finished"
    assert kits.step().state == "finished"
    assert StudyResult.from_bytes(kits.result()).summary["result"]["edges"] is not None
