"""What the owner of a site's data types: approve, approvals, revoke, log, and what two owners hold against each other."""

import json

import pytest
from typer.testing import CliRunner

pytest.importorskip("cryptography")
from feddbn.cli.main import app
from feddbn.errors import NotEnoughSites
from feddbn.runtime.site.owner import APPROVALS
from feddbn.runtime.store import Store
from support.consortium import NAMES, Consortium, as_kits, make_study
from support.study_files import as_toml


def run(*arguments, **options):
    return CliRunner().invoke(app, [str(a) for a in arguments], **options)


def words(done):
    return " ".join(done.output.split())


@pytest.fixture
def sites(tmp_path):
    made = Consortium(tmp_path)
    as_kits(tmp_path)
    return made


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(as_toml(make_study()))
    return path


def approve(sites, study, *more, names=NAMES):
    return [run("site", "approve", study, "--kit", sites.place / name, "--yes", *more) for name in names]


def test_a_study_is_shown_in_plain_words_and_approved(sites, study):
    done, *_ = approve(sites, study, "--days", "7")
    assert done.exit_code == 0, done.output
    text = words(done)
    for said in (
        "lead@example.org",
        "oneshot",
        "to try this program",
        "n_lags = 1",
        "2: u, v",
        "29 of 30",
        "gram.rows",
        "3 sites",
        "north, south, west",
        "`feddbn site refuse s`",
    ):
        assert said in text, said
    assert sites.run(make_study())[1] == NAMES


def test_the_owner_is_asked_first(sites, study):
    kit = sites.place / "north"
    done = run("site", "approve", study, "--kit", kit, input="n\n")
    assert done.exit_code != 0
    assert "1 run within 30 days?" in done.output
    assert json.loads(run("site", "studies", "--only", "approved", "--kit", kit, "--json").stdout) == []
    assert run("site", "approve", study, "--kit", kit, input="y\n").exit_code == 0
    assert "valid" in run("site", "studies", "--kit", kit).output


def test_what_the_site_would_refuse_anyway_is_said(sites, tmp_path):
    path = tmp_path / "other.toml"
    path.write_text(as_toml(make_study(privacy={}, variables=("u", "v"))))
    (done,) = approve(sites, path, names=("north",))
    assert "require_masking" in done.output
    assert "NO secure aggregation" in words(done)
    (sites.place / "north" / "policy.toml").write_text("approve_by_rule = true\n")
    (done,) = approve(sites, path, names=("north",))
    assert "approve_by_rule = true" in words(done)


@pytest.mark.parametrize(
    ("change", "more", "name"),
    [
        ({}, ("--runs", "0"), "--runs"),
        ({}, ("--days", "-1"), "--days"),
        ({}, ("--epsilon", "1"), "epsilon"),
        ({"sites": ("south", "west", "east")}, (), "'north'"),
    ],
)
def test_bad_approvals_are_one_sentence(sites, tmp_path, change, more, name):
    path = tmp_path / "other.toml"
    path.write_text(as_toml(make_study(**change)))
    (done,) = approve(sites, path, *more, names=("north",))
    assert done.exit_code == 2
    assert name in words(done)


def test_a_name_cannot_steer_the_terminal(sites, tmp_path):
    path = tmp_path / "other.toml"
    path.write_text(as_toml(make_study(variables=("u", "\x1b[2Jv"))))
    (done,) = approve(sites, path, names=("north",))
    assert done.exit_code == 2
    assert "\x1b" not in done.output


def test_approvals_are_listed_and_revoked(sites, study):
    kit = sites.place / "north"
    approve(sites, study)
    sites.run(make_study(), "run-1")
    (listed,) = json.loads(run("site", "studies", "--only", "approved", "--kit", kit, "--json").stdout)
    assert (listed["state"], listed["used"], listed["study"]) == ("used up", ["run-1"], "s")
    assert "1 of 1" in run("site", "studies", "--kit", kit).output
    done = run("site", "refuse", "s", "--kit", kit)
    assert done.exit_code == 0
    assert run("site", "refuse", "s", "--kit", kit).exit_code == 2
    store, digest = Store(kit / "state"), make_study().digest
    store.put(APPROVALS, digest, store.get(APPROVALS, digest).replace(b"lead@", b"feed@"))
    done = run("site", "studies", "--kit", kit)
    assert digest[:12] in done.output.replace("\n", "")
    assert json.loads(run("site", "studies", "--only", "approved", "--kit", kit, "--json").stdout) == []


def test_the_log_says_who_asked_what_and_what_left(sites, study):
    kit = sites.place / "north"
    with pytest.raises(NotEnoughSites):
        sites.run(make_study(), "run-0")
    approve(sites, study)
    sites.run(make_study(), "run-1")
    done = run("site", "log", "--kit", kit)
    assert done.exit_code == 0
    text = words(done)
    assert all(
        part in text for part in ("run-0", "study s (", "lead@example.org", "masked gram.rows", "n_lags=1")
    )
    only = words(run("site", "log", "--kit", kit, "--run", "run-1"))
    assert "run-0" not in only
    entries = json.loads(run("site", "log", "--kit", kit, "--run", "run-1", "--json").stdout)
    assert [entry["event"] for entry in entries] == ["agreed", *["sent"] * 2, "finished"]
    assert {entry["study_digest"] for entry in entries} == {make_study().digest}
    done = run("site", "log", "--kit", kit, "--run", "never")
    assert done.exit_code == 2
    assert "never" in done.output


def test_the_log_shows_what_remains_of_a_budget(tmp_path):
    pytest.importorskip("dp_accounting")
    sites = Consortium(tmp_path, policy="max_epsilon = 50.0\n")
    as_kits(tmp_path)
    study = make_study(privacy={"secure_aggregation": True, "epsilon": 40.0, "clip": 30.0})
    sites.approve(study)
    sites.run(study)
    text = words(run("site", "log", "--kit", tmp_path / "north", env={"COLUMNS": "160"}))
    assert "masked and noise" in text
    (entry,) = [
        entry
        for entry in json.loads(run("site", "log", "--kit", tmp_path / "north", "--json").stdout)
        if entry["event"] == "sent"
    ]
    assert entry["budget"] == 50.0
    assert f"{entry['epsilon']:.3g} per recording" in text
    assert f"{50 - entry['epsilon']:.3g} of 50" in text


def test_logs_of_a_site_without_the_keys_of_others_are_verified_unsigned(sites, study):
    approve(sites, study)
    settings = sites.place / "north" / "feddbn_site.toml"
    settings.write_text("\n".join(line for line in settings.read_text().splitlines() if "peers" not in line))
    done = run("site", "verify", "--kit", sites.place / "north")
    assert done.exit_code == 0, done.output
    assert "not checked" in words(done)
