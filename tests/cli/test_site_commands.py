"""What the owner of a site's data types: approve, approvals, revoke, log, and what two owners hold against each other."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

pytest.importorskip("cryptography")
from feddbn.cli.main import app
from feddbn.errors import NotEnoughSites
from feddbn.federation.sums.private_moments import study_costs, study_noise_plan
from feddbn.runtime.site.audit import PEERS
from feddbn.runtime.site.owner import APPROVALS
from feddbn.runtime.store import Store
from support.owned_sites import NAMES, OwnedSites, as_kits, make_study
from support.study_files import as_toml


def run(*arguments, **options):
    return CliRunner().invoke(app, [str(a) for a in arguments], **options)


def words(done):
    return " ".join(done.output.split())


@pytest.fixture
def sites(tmp_path):
    made = OwnedSites(tmp_path)
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
    assert max(len(line) for line in done.output.splitlines() if "feddbn site verify" not in line) <= 80
    text = words(done)
    assert all(
        part in text for part in ("run-0", "study s (", "lead@example.org", "masked gram.rows", "n_lags=1")
    )
    only = words(run("site", "log", "--kit", kit, "--run", "run-1"))
    assert "run-0" not in only
    entries = json.loads(run("site", "log", "--kit", kit, "--run", "run-1", "--json").stdout)
    assert [entry["event"] for entry in entries] == ["agreed", *["sent"] * 3, "finished"]
    assert {entry["study_digest"] for entry in entries} == {make_study().digest}
    done = run("site", "log", "--kit", kit, "--run", "never")
    assert done.exit_code == 2
    assert "never" in done.output


def test_the_log_shows_what_remains_of_a_budget(tmp_path):
    pytest.importorskip("dp_accounting")
    sites = OwnedSites(tmp_path, "max_epsilon = 50.0\n")
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


def test_two_owners_compare_their_logs(sites, study, tmp_path):
    approve(sites, study)
    sites.run(make_study())
    north, south, handed = sites.place / "north", sites.place / "south", tmp_path / "south.json"
    shown = words(run("site", "verify", "--kit", north))
    assert "south 3 entries" in shown
    assert run("site", "verify", "--kit", south, "--out", handed).exit_code == 0
    compared = run("site", "verify", "--kit", north, "--heads", handed)
    assert compared.exit_code == 0
    assert "Consistent" in compared.output
    logs, peers = sites.state("north"), north / "peers.toml"
    verify = ("site", "verify", logs, "--peers", peers)
    done = run(*verify, "--heads", handed)
    assert done.exit_code == 0, done.output
    assert "_site.jsonl: Intact: 3 entries; signed by north" in words(done)
    assert run("site", "log", "--kit", north, "--out", tmp_path / "logs").exit_code == 0
    own = tmp_path / "logs" / "_site.jsonl"
    own.write_text("".join(own.read_text().splitlines(keepends=True)[:2]))
    sealed = sites.owner("north").audit._log
    sealed.seal_anew([one for one in sealed.tagged() if "finished" not in one[1]])
    # Receipts are in the same store: who forgets them is found without another person.
    assert run(*verify).exit_code == 1
    Store(logs).forget(PEERS)
    assert run(*verify).exit_code == 0
    done = run(*verify, "--heads", handed)
    assert done.exit_code == 1
    assert "_site.jsonl: NOT intact" in words(done)
    assert json.loads(run(*verify, "--heads", handed, "--json").stdout)[0]["is_intact"] is False
    done = run("site", "verify", own, "--peers", peers, "--heads", handed)
    assert done.exit_code == 1
    compared = run("site", "verify", "--kit", north, "--heads", handed)
    assert compared.exit_code == 1
    assert "NOT consistent: south" in compared.output


def test_logs_of_a_site_without_the_keys_of_others_are_verified_unsigned(sites, study):
    approve(sites, study)
    settings = sites.place / "north" / "feddbn_site.toml"
    settings.write_text("\n".join(line for line in settings.read_text().splitlines() if "peers" not in line))
    done = run("site", "verify", "--kit", sites.place / "north")
    assert done.exit_code == 0, done.output
    assert "not checked" in words(done)


def test_logs_that_were_all_taken_away_or_are_of_another_site_are_found(sites, study, tmp_path):
    approve(sites, study)
    sites.run(make_study())
    logs, handed = sites.state("north"), tmp_path / "south.json"
    run("site", "verify", "--kit", sites.place / "south", "--out", handed)
    about = ("--peers", sites.place / "north" / "peers.toml", "--heads", handed, "--site", "north")
    assert run("site", "verify", logs, *about).exit_code == 0
    assert run("site", "verify", sites.state("west"), *about).exit_code == 1
    done = run("site", "verify", tmp_path / "south" / "data", *about)
    assert done.exit_code == 1
    assert "_site.jsonl: NOT intact" in words(done)


@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
def test_curves_with_noise_are_priced_before_the_run_and_booked_by_it(tmp_path):
    """Through the guards of real sites: policy, scope, noise and audit."""
    pytest.importorskip("dp_accounting")
    sites = OwnedSites(
        tmp_path,
        'tasks = ["gram.rows", "counts.norms", "gram.functions"]\nfeatures = ["linear", "quadratic"]\nmax_epsilon = 30.0\n',
    )
    as_kits(tmp_path)
    rng = np.random.default_rng(1)
    for name in NAMES:
        for k in range(40):
            frame = pd.DataFrame(rng.normal(size=(10, 2)), columns=["u", "v"])
            frame.to_csv(tmp_path / name / "data" / f"more-{k}.csv", index=False)
    parameters = {"n_lags": 1, "features": "quadratic"}
    study = make_study(parameters=parameters, privacy={"secure_aggregation": True, "epsilon": 20.0})
    path = tmp_path / "curved.toml"
    path.write_text(as_toml(study))
    done, *_ = approve(sites, path)
    costs = study_costs(study)
    assert f"{costs['gram.functions']:.2g} for gram.functions; together 20" in words(done)
    assert "45 numbers" in words(done)
    sites.run(study)
    entries = json.loads(run("site", "log", "--kit", tmp_path / "north", "--json").stdout)
    sent = [entry for entry in entries if entry["event"] == "sent"]
    assert [entry["task"] for entry in sent] == [
        "counts.norms",
        "gram.rows",
        "counts.norms",
        "gram.functions",
    ]
    assert sent[-1]["epsilon"] == pytest.approx(20.0, rel=5e-3)
    mu = [entry["noise_multiplier"] ** -2 for entry in sent]
    plan = study_noise_plan(study)
    assert sum(mu) == pytest.approx(plan.multiplier**-2)
    assert mu[0] == mu[2]
