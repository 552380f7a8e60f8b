import html
import re

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("starlette")
from feddbn.federation.protocol.endpoint import SiteEvent
from feddbn.runtime.deployed.store import iso_time
from support.console_kits import SiteKits, press
from support.owned_sites import ONE_SUM, make_study
from support.study_files import as_toml

NOISE = {"secure_aggregation": True, "epsilon": 1.0, "delta": 1e-5, "unit": "row", "clip": 3.0}


@pytest.fixture
def kits(tmp_path):
    return SiteKits(tmp_path)


def words(answer):
    assert answer.status_code == 200, answer.text
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


def test_a_study_waits_is_read_and_approved_by_one_button(kits):
    study = make_study(name="sepsis")
    kits.offer(study)
    client, keys = kits.client()
    assert "Waiting for you" in words(client.get("/"))
    assert f"/studies/{study.digest}" in client.get("/").text
    page = words(client.get(f"/studies/{study.digest}"))
    for said in (
        "lead@example.org asks for a network of 2 variables from the rows of 3 sites.",
        "Only sums of at least 3 sites can be opened.",
        "The sums are exact: no noise is added",
        "oneshot: one network from one exact sum",
        "asks for moments lagged means and cross-products",
        "59 of 60 rows",
        "3: north, south, west",
        study.digest,
    ):
        assert said in page
    answer = press(client, keys, f"/studies/{study.digest}/approve", runs="2", days="7.5")
    assert "You approved the study sepsis" in words(answer)
    ((given, state),) = kits.owner().approvals.all()
    assert (given.digest, given.runs, state) == (study.digest, 2, "valid")
    assert "No study waits" in words(answer)
    # The signed log has it, as after `feddbn site approve`.
    assert kits.owner().audit.entries()[-1].event == "approved"
    for name in ("south", "west"):
        kits.owner(name).approve(study, 30.0, 1, None)
    _, received = kits.run(study)
    assert set(received) == set(study.sites)


def test_refuse_and_revoke(kits):
    first, second = make_study(name="first"), make_study(name="second")
    for study in (first, second):
        kits.owner().offered.keep(study)
    client, keys = kits.client()
    assert "You refused the study first" in words(press(client, keys, f"/studies/{first.digest}/refuse"))
    assert [one.study.name for one in kits.owner().waiting()] == ["second"]
    press(client, keys, f"/studies/{second.digest}/approve", runs="1", days="1")
    answer = press(client, keys, f"/studies/{second.digest}/revoke")
    assert "You took the approval of second back" in words(answer)
    assert [state for _, state in kits.owner().approvals.all()] == ["revoked"]
    assert "You refused this study" in words(client.get(f"/studies/{first.digest}"))
    assert "is revoked" in words(client.get(f"/studies/{second.digest}"))
    # What was said once is not said again.
    assert "You took" not in words(client.get("/"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"runs": "x", "days": "1"}, "Runs: 'x' is not a number"),
        ({"runs": "1.5", "days": "1"}, "Runs: 1.5 is not a whole number"),
        ({"runs": "nan", "days": "1"}, "Runs: 'nan' is not a number"),
        ({"runs": "1", "days": ""}, "Days: '' is not a number"),
        ({"runs": "0", "days": "1"}, "Runs must be at least 1"),
        ({"runs": "1", "days": "-3"}, "Days must lie above 0"),
        ({"runs": "1", "days": "1", "epsilon": "3"}, "the study promises no noise"),
    ],
)
def test_what_cannot_be_approved_is_said_in_one_sentence(kits, fields, said):
    study = make_study()
    kits.owner().offered.keep(study)
    client, keys = kits.client()
    answer = press(client, keys, f"/studies/{study.digest}/approve", **fields)
    assert answer.status_code == 400
    assert said in html.unescape(answer.text)
    assert kits.owner().approvals.all() == []


def test_a_study_with_noise_says_what_it_costs_and_what_is_left(kits):
    for name in ("north", "south", "west"):
        path = kits.place / name / "policy.toml"
        path.write_text(path.read_text() + '\nmax_epsilon = 5.0\nunit = "row"\n')
    study = make_study(name="noisy", privacy=NOISE)
    kits.owner().offered.keep(study)
    client, keys = kits.client()
    page = words(client.get(f"/studies/{study.digest}"))
    assert "a run costs epsilon 1 for each row" in page
    assert "of 5 for each row spent" in page
    assert "noise costs" in page
    press(client, keys, f"/studies/{study.digest}/approve", runs="2", days="1", epsilon="")
    ((given, _),) = kits.owner().approvals.all()
    assert given.epsilon == 2.0
    assert "percent of the budget spent" in client.get("/").text


def test_what_is_new_is_told_against_the_last_approved_study(kits):
    before = make_study(name="sepsis")
    kits.approve(before)
    kits.owner().approve(make_study(name="other"), 30.0, 1, None)
    now = make_study(name="sepsis", parameters={**ONE_SUM, "n_lags": 2}, attendance={"when_missing": "wait"})
    kits.owner().offered.keep(now)
    client, _ = kits.client()
    text = client.get(f"/studies/{now.digest}").text
    page = words(client.get(f"/studies/{now.digest}"))
    assert f"Compared with sepsis ( {before.digest[:12]} )" in page
    assert "<mark>n_lags = 1,</mark>" in text
    assert "<mark>n_lags = 2,</mark>" in text
    assert "attendance.when_missing" in page
    # Where words say the same, the entries still differ.
    hidden = make_study(name="sepsis", privacy={"secure_aggregation": True, "max_norm": 9.0})
    kits.owner().offered.keep(hidden)
    page = words(client.get(f"/studies/{hidden.digest}"))
    assert "In words it says the same." in page
    assert "privacy.max_norm" in page


def test_a_pasted_file_is_read_and_a_bad_one_is_refused(kits):
    study = make_study(name="pasted")
    client, keys = kits.client()
    answer = press(client, keys, "/studies", text=as_toml(study))
    assert "Study pasted" in words(answer)
    assert kits.owner().offered.find(study.digest) is not None
    elsewhere = make_study(sites=("south", "west", "east"))
    for text, said in (
        ("not toml at all", "the study that was pasted is not valid TOML"),
        (as_toml(study).replace("pasted", "<script>"), "name: use 1 to 40 lower-case letters"),
        (as_toml(elsewhere), "does not name the site 'north'"),
        (as_toml(study).replace("oneshot", "nonsense"), "nonsense"),
    ):
        answer = press(client, keys, "/studies", text=text)
        assert answer.status_code == 400
        assert said in html.unescape(answer.text)
        assert "<script>" not in answer.text.replace("<script src=", "")
    assert len(kits.owner().offered.all()) == 1


def test_a_study_that_the_policy_refuses_says_why_before_it_is_approved(kits):
    study = make_study(privacy={"secure_aggregation": False})
    kits.owner().offered.keep(study)
    page = words(kits.client()[0].get(f"/studies/{study.digest}"))
    assert "The server sees this site's own sums" in page
    assert "As things are, this site would refuse it all the same" in page
    assert "only under secure aggregation" in page


def test_what_runs_is_said_in_words(kits):
    study = make_study(name="sepsis")
    kits.approve(study)
    owner = kits.owner()
    owner.take_down(SiteEvent("agreed", "run-9", kind="hello", study=study), "lead@example.org")
    client, _ = kits.client()
    page = words(client.get("/"))
    began = re.search(
        r"Study sepsis from lead lead@example.org began at (\d\d:\d\d) UTC; it asked last at \d\d:\d\d UTC",
        page,
    )
    assert began is not None
    assert abs(int(began[1][:2]) - int(iso_time()[11:13])) in (0, 1, 23)
    owner.take_down(SiteEvent("finished", "run-9", kind="finish", study=study), "lead@example.org")
    assert "No study uses this site's rows at the moment." in words(client.get("/"))


def test_what_left_the_data_check_and_the_results(kits):
    study = make_study(name="sepsis")
    kits.approve(study)
    kits.run(study, "run-1")
    client, keys = kits.client()
    page = words(client.get("/log"))
    assert "1 answer left this site (120 bytes of numbers); 0 refusals." in page
    assert "sent 15 numbers, masked moments: n_lags=1" in page
    assert "Run run-1, study sepsis" in page
    assert "approved" not in words(client.get("/log", params={"run": "run-1"}))
    check = words(client.get("/data"))
    assert "1 recordings, 60 rows, 2 variables: u, v" in check
    # No kit of an engine here: that is a finding, not a crash.
    assert "keep this site from taking part" in check
    assert "run-1" in words(client.get("/results"))
    assert "left no network of this site's own" in words(client.get("/results/run-1"))
    compared = press(client, keys, "/results/run-1/learn")
    assert "are in both" in words(compared) or "is in both" in words(compared)
    assert "u → v" in words(compared)
    report = client.get("/results/run-1/report")
    assert report.status_code == 200
    assert "only sums of at least 3 sites can be opened" in report.text
    assert client.get("/results/none").status_code == 400
    assert client.get("/nowhere").status_code == 404


def test_a_site_whose_policy_decides_has_nothing_waiting(kits):
    path = kits.place / "north" / "policy.toml"
    path.write_text(path.read_text() + "\napprove_by_rule = true\n")
    kits.owner().offered.keep(make_study())
    client, _ = kits.client()
    assert "approve_by_rule = true" in words(client.get("/"))
    assert "none waits" in words(client.get("/"))


def test_an_unexpected_error_is_a_sentence_and_no_traceback(kits, monkeypatch):
    from feddbn.console.site_facts import SiteFacts

    client, _ = kits.client(raise_server_exceptions=False)

    def broken(self):
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(SiteFacts, "waiting", broken)
    answer = client.get("/")
    assert answer.status_code == 500
    assert "Unexpected ZeroDivisionError" in answer.text
    assert "secret detail" not in answer.text
    assert "Traceback" not in answer.text
