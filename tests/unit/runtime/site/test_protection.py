"""A deployed site's own process enforces its policy, adds the noise and writes the audit log."""

import gc
import json
import logging
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from feddbn.analysis import studies  # noqa: F401
from feddbn.errors import FileError, NotEnoughSites, SiteRefused
from feddbn.federation.guards.noise import DpGuard
from feddbn.federation.protocol.messages import WITHHELD, read_reply
from feddbn.federation.protocol.site import Channel
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.privacy.audit import parse_entries, verify_chain
from feddbn.privacy.ledger import Ledger
from feddbn.privacy.policy import USUAL_TASKS, SitePolicy
from feddbn.runtime.server.conduct import run_study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.settings import about_policy, read_policy, read_site_settings
from feddbn.runtime.site import protection
from feddbn.runtime.site.kit_files import default_policy_text, write_site_files
from feddbn.runtime.site.open_site import open_site, read_data
from feddbn.runtime.site.owner import Owner
from feddbn.runtime.site.protection import Protection
from support.entropy import Entropy, seeded
from support.faults import LocalExchange, MemoryJournal
from support.saying import kept_out, refused
from support.sites import memory_site
from support.states import log_lines
from support.study_files import ABOUT

pytest.importorskip("dp_accounting")
NAMES = ("a", "b", "c")
RULE = "approve_by_rule = true\n"
OPEN = f"require_masking = false\nmin_sites = 2\n{RULE}"
STRICT = default_policy_text() + RULE
PAPER = f"{OPEN}tasks = {json.dumps([*USUAL_TASKS, 'step.fdbnl'])}\n"


def make_sites(place, policy=OPEN):
    rng = np.random.default_rng(0)
    for name in NAMES:
        (place / name / "data").mkdir(parents=True)
        for recording in range(4):
            frame = pd.DataFrame(rng.normal(size=(30, 2)), columns=["u", "v"])
            frame.to_csv(place / name / "data" / f"{recording}.csv", index=False)
    write_site_files({name: place / name for name in NAMES}, entropy=seeded())
    for name in NAMES:
        (place / name / "policy.toml").write_text(policy)
    return place


def exchange_of(place, seed=0):
    entropy = Entropy(seed)

    def make(name):
        settings = read_site_settings(place / name / "feddbn_site.toml")
        return open_site(settings, name, logging.getLogger("test"), entropy=entropy(name))

    return LocalExchange(NAMES, make)


def make_study(method="oneshot", parameters=None, **changes):
    values = {
        "name": "s",
        "about": ABOUT,
        "method": method,
        "variables": ("u", "v"),
        "sites": NAMES,
        "parameters": {"n_lags": 1, "use_nongaussian": False, "noise_variance": "free"}
        if parameters is None
        else parameters,
        "attendance": {"when_missing": "abort"},
    }
    return Study(**{**values, **changes})


def run(exchange, study, run_id="run-1"):
    return run_study(Coordinator(exchange, study, run_id, MemoryJournal(), pause_s=0.0), study)[0]


def audit(place, name="a", run_id="run-1"):
    return log_lines(place / name / "state", run_id)


def test_everything_that_left_is_in_a_chain_that_survives_a_restart(tmp_path):
    place = make_sites(tmp_path, PAPER)
    exchange = exchange_of(place)
    study = make_study("fdbnl", {"n_lags": 1, "schedule": "paper", "rounds.max_rounds": 5})

    def restart(event):
        if event.what == "sum" and event.seq == 2:
            exchange.restart("a")

    coordinator = Coordinator(exchange, study, "run-1", MemoryJournal(), restart, pause_s=0.0)
    run_study(coordinator, study)
    lines = audit(place)
    assert verify_chain(lines).problem is None
    tasks = [entry.task for entry in parse_entries(lines)]
    assert [*dict.fromkeys(tasks)] == [
        "counts.variables",
        "survey.first",
        "gram.rows",
        "step.fdbnl",
    ]
    assert len(tasks) >= 5
    assert {entry.protection for entry in parse_entries(lines)} == {"none"}


def test_under_masks_the_log_says_so(tmp_path):
    place = make_sites(tmp_path, STRICT.replace('"step.personal"', '"step.personal", "residuals.shapes"'))
    run(exchange_of(place), make_study(privacy={"secure_aggregation": True}))
    entries = parse_entries(audit(place))
    assert {entry.protection for entry in entries} == {"masked and weighted"}
    # For a budget weights are as good as nothing.
    assert {entry.epsilon for entry in entries} == {None}
    assert Ledger.replay(entries).epsilon(1e-6) == math.inf
    exact = make_study(privacy={"secure_aggregation": True, "protection": "exact"})
    run(exchange_of(place), exact, "run-2")
    assert {entry.protection for entry in parse_entries(audit(place, run_id="run-2"))} == {"masked"}


@pytest.mark.parametrize(
    ("policy", "study", "code"),
    [
        (STRICT, {}, "masking-required"),
        (OPEN + 'methods = ["FDBNL"]\n', {}, "methods-not-allowed"),
        (OPEN + 'tasks = ["summary"]\n', {}, "tasks-not-allowed"),
        (OPEN + 'variables = ["u"]\n', {}, "variables-not-allowed"),
        (OPEN + 'transformations = ["means"]\n', {}, "transformations-not-allowed"),
        (OPEN + "max_epsilon = 1.0\n", {}, "epsilon-not-allowed"),
        (OPEN + "max_epsilon = 1.0\n", {"privacy": {"epsilon": 1.0, "unit": "row"}}, "other-unit"),
        (OPEN, {"parameters": {"n_lags": 11}}, "too-many-lags"),
    ],
)
def test_a_study_that_breaks_the_policy_is_refused_in_the_sites_own_process(tmp_path, policy, study, code):
    with kept_out(code, *NAMES):
        run(exchange_of(make_sites(tmp_path, policy)), make_study(**study))


@pytest.mark.parametrize(
    ("policy", "changes", "code", "numbers"),
    [
        ("max_rounds = 3\n", {}, "too-many-rounds", ("step.fdbnl", "3")),
        ("min_rows = 121\n", {}, "few-rows", ("120", "121", "min_rows")),
        ("min_rows_per_parameter = 30.0\n", {}, "few-rows-per-parameter", ("116", "4", "30")),
        ("max_share = 0.5\n", {"rows": 200}, "large-share", ("120 of 200", "0.5")),
        ("max_share = 0.3\n", {}, "large-share", ("116 of 348", "0.3")),
    ],
)
def test_what_depends_on_data_or_rounds_is_told_to_the_owner_alone(
    tmp_path, caplog, policy, changes, code, numbers
):
    place = make_sites(tmp_path, PAPER + policy)
    study = make_study("fdbnl", {"n_lags": 1, "schedule": "paper", "rounds.max_rounds": 9}, **changes)
    with pytest.raises(NotEnoughSites) as caught:
        run(exchange_of(place), study)
    assert str(caught.value).count(WITHHELD) == len(NAMES)
    assert "policy" not in str(caught.value)
    assert set(caught.value.values["reasons"].values()) == {"withheld"}
    entry = parse_entries(audit(place))[-1]
    assert (entry.event, entry.code) == ("refused", code)
    assert all(number in entry.note and number in caplog.text for number in numbers)


def test_noise_is_added_and_booked_and_the_budget_ends_over_all_runs(tmp_path):
    place = make_sites(tmp_path, OPEN + "max_epsilon = 60.0\ndelta = 1e-5\n")
    privacy = {"epsilon": 50.0, "delta": 1e-5, "clip": 100.0, "unit": "recording"}
    study = make_study(privacy=privacy)
    exchange = exchange_of(place)
    noisy = run(exchange, study)
    plain = run(exchange_of(make_sites(tmp_path / "plain")), make_study())
    assert noisy.summary["status"] == plain.summary["status"]
    assert not np.allclose(noisy.arrays["noise_variances"], plain.arrays["noise_variances"])
    entries = parse_entries(audit(place))
    assert [entry.protection for entry in entries] == ["noise"]
    assert entries[0].epsilon == pytest.approx(50.0, rel=0.02)
    exchange.endpoints.clear()
    gc.collect()
    with pytest.raises(NotEnoughSites, match=WITHHELD):
        run(exchange_of(place), study, "run-2")
    entry = parse_entries(audit(place, run_id="run-2"))[-1]
    assert entry.event == "refused"
    assert "60" in entry.note


def test_a_study_without_a_bound_chooses_it_from_noisy_sums_and_both_releases_are_booked(tmp_path):
    place = make_sites(tmp_path, RULE + "max_epsilon = 50.0\n")
    study = make_study(privacy={"epsilon": 50.0, "secure_aggregation": True})
    run(exchange_of(place), study)
    entries = parse_entries(audit(place))
    assert [entry.task for entry in entries] == ["counts.norms", "gram.rows"]
    assert {entry.protection for entry in entries} == {"masked" + " and noise"}
    assert entries[-1].epsilon == pytest.approx(50.0, rel=0.02)


def test_a_restarted_site_remembers_what_the_run_has_cost(tmp_path):
    place = make_sites(tmp_path)
    study = make_study(privacy={"epsilon": 50.0, "clip": 100.0})
    run(exchange_of(place), study)
    settings = read_site_settings(place / "a" / "feddbn_site.toml")
    policy, data = read_policy(settings.policy), read_data(settings)
    protection = Protection(settings.state, "a", policy, data, audit=Owner(settings).audit)
    for run_id, n_here in (("run-1", 1), ("run-2", 0)):
        (noise,) = (guard for guard in protection.guards(run_id, study) if isinstance(guard, DpGuard))
        assert len(noise.promise.spent.releases) == n_here
        assert len(noise.ledger.releases) == 1


def test_processes_of_a_site_that_live_at_the_same_time_spend_one_budget_and_no_more(tmp_path, caplog):
    place = make_sites(tmp_path, OPEN + "max_epsilon = 110.0\n")
    study = make_study(privacy={"epsilon": 50.0, "clip": 100.0})
    # Neither knows of the other but by what is on disk.
    one, other = exchange_of(place), exchange_of(place)
    for run_id, exchange in (("run-1", one), ("run-2", other)):
        run(exchange, study, run_id)
    for run_id, exchange in (("run-3", one), ("run-4", other)):
        with kept_out("withheld", *NAMES):
            run(exchange, study, run_id)
    assert "budget is 110" in caplog.text
    account = Owner(read_site_settings(place / "a" / "feddbn_site.toml")).audit.account()
    assert 50.0 < account.spent("recording", read_policy(place / "a" / "policy.toml").delta) <= 110.0


def test_while_one_answer_spends_the_budget_no_other_does(tmp_path, monkeypatch):
    monkeypatch.setattr(protection, "ATTEMPTS", 2)
    monkeypatch.setattr(protection, "PAUSE_S", 0.0)
    noise, account = SimpleNamespace(), SimpleNamespace(ledger="what was spent", doubt=False)
    first, second = (protection._Spending(tmp_path / "lock", noise, lambda: account) for _ in range(2))
    task = Task(GramQuestion(n_lags=1, variables=("u", "v")))
    first.before(task, {}, Channel(masked=False))
    assert noise.ledger == account.ledger
    with refused(SiteRefused, code="budget-in-use"):
        second.before(task, {}, Channel(masked=False))
    first.ended(task, leaves=True)
    second.before(task, {}, Channel(masked=False))
    second.ended(task, leaves=False)


def test_policies_are_read_shown_and_refused_with_a_sentence(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(default_policy_text())
    assert read_policy(path) == read_policy(None)
    told = about_policy(read_policy(path)).values
    assert (told["masks"], told["min_sites"], told["max_epsilon"]) == (True, 3, None)
    path.write_text("require_mask = false\n")
    with pytest.raises(FileError, match="require_mask"):
        read_policy(path)
    with refused(FileError):
        read_policy(tmp_path / "nothing.toml")


def test_settings_of_another_site_are_refused(tmp_path):
    place = make_sites(tmp_path)
    settings = read_site_settings(place / "a" / "feddbn_site.toml")
    with refused(FileError, "'a'", "'b'", code="other-site"):
        open_site(settings, "b", logging.getLogger("test"))


def test_a_site_without_a_key_takes_no_part_in_a_study_with_masks_and_noise(tmp_path):
    protection = Protection(tmp_path, "a", SitePolicy(), memory_site(np.ones((50, 2))))
    study = make_study(privacy={"secure_aggregation": True})
    with refused(SiteRefused, code="no-masks-here"):
        protection.guards("run-1", study)


def test_keys_masks_and_noise_are_made_of_the_bytes_that_a_site_is_given(tmp_path):
    study, found = make_study(privacy={"epsilon": 50.0, "secure_aggregation": True}), []
    for number, seed in enumerate((0, 0, 1)):
        exchange = exchange_of(make_sites(tmp_path / str(number), RULE), seed)
        sent = []

        def carried(messages, exchange=exchange, sent=sent):
            replies = exchange(messages)
            # Greetings, ends and the hash beside each message have times of the audit log.
            read = [read_reply(reply) for _, reply in sorted(replies.items())]
            sent.extend(one.arrays["message"].tobytes() for one in read if one.kind == "secagg")
            return replies

        result = run(carried, study)
        found.append((b"".join(result.arrays[name].tobytes() for name in sorted(result.arrays)), sent))
    (one, sent), (same, sent_again), (other, sent_otherwise) = found
    assert one == same != other
    assert sent == sent_again
    # One message of each site says nothing but yes.
    assert len({*sent, *sent_otherwise}) == 2 * len(sent) - len(NAMES) > 30
