import html
import re

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("starlette")
from feddbn.federation.protocol.endpoint import SiteEvent
from support.console_kits import SiteKits, codes, press
from support.consortium import ONE_SUM, make_study
from support.study_files import as_toml

NOISE = {"secure_aggregation": True, "epsilon": 1.0, "delta": 1e-5, "unit": "row", "clip": 3.0}


@pytest.fixture
def kits(tmp_path):
    return SiteKits(tmp_path)


@pytest.fixture
def opened(kits):
    return kits.client()


def offered(kits, **changes):
    study = make_study(**changes)
    kits.owner().offered.keep(study)
    return study


def test_a_study_waits_is_read_and_approved_by_one_button(kits):
    study = make_study(name="sepsis")
    kits.offer(study)
    client, keys = kits.client()
    assert f"/studies/{study.digest}" in client.get("/").text
    page = client.get(f"/studies/{study.digest}")
    told = codes(page)
    assert told[:2] == ["study-headline", "study-purpose"]
    assert {
        "study-goal",
        "study-asks",
        "study-rows",
        "study-exact",
        "study-privacy",
        "budget-unset",
    } <= set(told)
    for shown in (
        "lead@example.org",
        "oneshot",
        "gram.rows",
        "59 of 60",
        "north, south, west",
        study.digest,
    ):
        assert shown in page.text
    paper = client.get(f"/studies/{study.digest}/page").text
    (shown,) = re.findall(r'name="page" value="(\w+)"', page.text)
    answer = press(client, keys, f"/studies/{study.digest}/approve", runs="2", days="7.5", page=64 * "0")
    assert 'data-code="page-changed"' in answer.text
    answer = press(client, keys, f"/studies/{study.digest}/approve", runs="2", days="7.5", page=shown)
    assert codes(answer)[0] == "approval-given"
    ((given, state),) = kits.owner().approvals.all()
    assert (given.digest, given.runs, state) == (study.digest, 2, "valid")
    assert given.page in paper
    assert kits.owner().waiting() == []
    # The signed log has it, as after `feddbn site approve`.
    assert kits.owner().audit.entries()[-1].event == "approved"
    for name in ("south", "west"):
        kits.owner(name).approve(study, 30.0, 1, None)
    _, received = kits.run(study)
    assert set(received) == set(study.sites)


def test_refuse_and_revoke(kits, opened):
    client, keys = opened
    first, second = offered(kits, name="first"), offered(kits, name="second")
    assert (
        codes(press(client, keys, f"/studies/{first.digest}/refuse", reason="not ours"))[0]
        == "approval-refused"
    )
    assert kits.owner().offered.find(first.digest).reason == "not ours"
    assert [one.study.name for one in kits.owner().waiting()] == ["second"]
    press(client, keys, f"/studies/{second.digest}/approve", runs="1", days="1")
    assert (
        codes(press(client, keys, f"/studies/{second.digest}/revoke", reason="a doubt"))[0]
        == "approval-revoked"
    )
    assert kits.owner().offered.find(second.digest).reason == "a doubt"
    assert [state for _, state in kits.owner().approvals.all()] == ["revoked"]
    # What was said once is not said again.
    assert "approval-revoked" not in codes(client.get("/"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"runs": "x", "days": "1"}, "Runs: 'x'"),
        ({"runs": "1.5", "days": "1"}, "Runs: 1.5"),
        ({"runs": "nan", "days": "1"}, "Runs: 'nan'"),
        ({"runs": "1", "days": "-3"}, "Days"),
        ({"runs": "1", "days": "1", "epsilon": "3"}, "Epsilon"),
    ],
)
def test_what_cannot_be_approved_is_said_in_one_sentence(kits, opened, fields, said):
    client, keys = opened
    answer = press(client, keys, f"/studies/{offered(kits).digest}/approve", **fields)
    assert answer.status_code == 400
    assert said in html.unescape(answer.text)
    assert kits.owner().approvals.all() == []


def test_a_study_with_noise_says_what_it_costs_and_what_is_left(kits, opened):
    path = kits.place / "north" / "policy.toml"
    path.write_text(path.read_text() + '\nmax_epsilon = 5.0\nunit = "row"\n')
    client, keys = opened
    study = offered(kits, name="noisy", privacy=NOISE)
    assert {"study-noise", "budget"} <= set(codes(client.get(f"/studies/{study.digest}")))
    press(client, keys, f"/studies/{study.digest}/approve", runs="2", days="1", epsilon="")
    ((given, _),) = kits.owner().approvals.all()
    assert given.epsilon == 2.0
    assert 'class="meter"' in client.get("/").text


def test_what_is_new_is_told_against_the_last_approved_study(kits, opened):
    before = make_study(name="sepsis")
    kits.approve(before)
    kits.owner().approve(make_study(name="other"), 30.0, 1, None)
    client, _ = opened
    now = offered(
        kits, name="sepsis", parameters={**ONE_SUM, "n_lags": 2}, attendance={"when_missing": "wait"}
    )
    text = client.get(f"/studies/{now.digest}").text
    for shown in (
        before.digest[:12],
        "<mark>n_lags = 1,</mark>",
        "<mark>n_lags = 2,</mark>",
        "attendance.when_missing",
    ):
        assert shown in text
    # Where words say the same, the entries still differ, and stand open.
    hidden = offered(
        kits, name="sepsis", privacy={"secure_aggregation": True, "protection": "exact", "max_norm": 9.0}
    )
    text = client.get(f"/studies/{hidden.digest}").text
    assert re.search(r"<details open>.*privacy\.max_norm", text, re.S)


def test_a_pasted_file_is_read_and_a_bad_one_is_refused(kits, opened):
    study = make_study(name="pasted")
    client, keys = opened
    assert "study-headline" in codes(press(client, keys, "/studies", text=as_toml(study)))
    assert kits.owner().offered.find(study.digest) is not None
    elsewhere = make_study(sites=("south", "west", "east"))
    for text, said in (
        ("not toml at all", "TOML"),
        (as_toml(study).replace("pasted", "<script>"), "name"),
        (as_toml(elsewhere), "'north'"),
        (as_toml(study).replace("oneshot", "nonsense"), "nonsense"),
    ):
        answer = press(client, keys, "/studies", text=text)
        assert answer.status_code == 400
        assert said in html.unescape(answer.text)
        assert "<script>" not in answer.text.replace("<script src=", "")
    assert len(kits.owner().offered.all()) == 1


def test_a_study_that_the_policy_refuses_says_why_before_it_is_approved(kits, opened):
    study = offered(kits, privacy={"secure_aggregation": False})
    page = opened[0].get(f"/studies/{study.digest}")
    assert {"study-privacy", "study-refused"} <= set(codes(page))
    assert 'data-why="masking-required"' in page.text


def test_what_runs_is_said(kits, opened):
    study = make_study(name="sepsis")
    kits.approve(study)
    owner, (client, _) = kits.owner(), opened
    owner.take_down(SiteEvent("agreed", "run-9", kind="hello", study=study), "lead@example.org")
    assert 'data-run="run-9"' in client.get("/").text
    owner.take_down(SiteEvent("finished", "run-9", kind="finish", study=study), "lead@example.org")
    assert 'data-run="run-9"' not in client.get("/").text


def test_what_left_the_data_check_and_the_results(kits, opened):
    study = make_study(name="sepsis")
    kits.approve(study)
    kits.run(study, "run-1")
    client, _ = opened
    page = client.get("/log").text
    for shown in ("2 answers", "152 bytes", "0 refusals", "15 numbers", "n_lags=1", "run-1"):
        assert shown in page
    assert "approved" not in client.get("/log", params={"run": "run-1"}).text
    check = client.get("/data")
    assert {"settings-read", "data-read", "site-policy", "state-place"} <= set(codes(check))
    assert "60 rows" in check.text
    assert re.search(r'data-wrong="(\d+)"', check.text)[1] == "0"
    assert "/results/run-1/report" in client.get("/results").text
    report = client.get("/results/run-1/report")
    assert report.status_code == 200
    assert "3 sites" in report.text
    assert client.get("/results/none/report").status_code == 400
    assert client.get("/nowhere").status_code == 404


def test_a_site_whose_policy_decides_has_nothing_waiting(kits, opened):
    path = kits.place / "north" / "policy.toml"
    path.write_text(path.read_text() + "\napprove_by_rule = true\n")
    study = offered(kits)
    page = opened[0].get("/").text
    assert "approve_by_rule = true" in page
    assert study.digest not in page


def test_an_unexpected_error_is_a_sentence_and_no_traceback(kits, monkeypatch):
    from feddbn.console.site_facts import SiteFacts

    client, _ = kits.client(raise_server_exceptions=False)

    def broken(self):
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(SiteFacts, "waiting", broken)
    answer = client.get("/")
    assert codes(answer, 500) == ["unexpected"]
    assert "ZeroDivisionError" in answer.text
    assert "secret detail" not in answer.text
    assert "Traceback" not in answer.text
