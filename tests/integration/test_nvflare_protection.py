"""A slow site, a drop-out under masks and a privacy budget, each between real processes."""

import json
import math

import numpy as np
import pytest

pytest.importorskip("nvflare")
pytest.importorskip("dp_accounting")
from feddbn.federation.protocol.messages import WITHHELD
from feddbn.federation.protocol.study import Study
from feddbn.privacy.audit import parse_entries, verify_chain
from support.nvflare_federation import POLICY
from support.states import log_lines
from support.study_files import ABOUT
from support.trials import (
    SITES,
    absences,
    assert_nothing_executed_twice,
    assert_result,
    in_process,
    journal_of,
    result_of,
    wait_for_sum,
)

pytestmark = pytest.mark.usefixtures("light")

TIMEOUT_S = 6.0
SLOW_ROUND = 3
VARIABLES = ("x0", "x1", "x2", "x3")
# Sites draw noise that no test can seed. The protected unit is a site's one recording; at this budget the noisy number
# of rows is 6 standard deviations above zero; with 60 one test run in 20 ended for want of rows.
BUDGET = 500.0


def slow_study(name, **changes):
    """Site-b needs longer than the timeout in one round, but not longer than two."""
    parameters = {"rounds": 20, "slow_site": "site-b", "slow_round": SLOW_ROUND, "slow_s": TIMEOUT_S + 2}
    attendance = {"timeout_s": TIMEOUT_S, "when_missing": "continue", "min_sites": 2}
    values = {"variables": VARIABLES, "sites": SITES, "parameters": parameters, "attendance": attendance}
    return Study(name=name, about=ABOUT, method="walk", **{**values, **changes})


def noisy_study(name, epsilon):
    return Study(
        name=name,
        about=ABOUT,
        method="total",
        variables=VARIABLES,
        sites=SITES,
        privacy={"epsilon": epsilon, "delta": 1e-5, "clip": 100.0},
        attendance={"timeout_s": 120.0, "when_missing": "continue", "min_sites": 2},
    )


STUDIES = {
    "slow": slow_study("slow"),
    "slow-masked": slow_study(
        "slow-masked",
        privacy={"secure_aggregation": True, "protection": "exact", "min_sites": 3},
    ),
    "too-much": noisy_study("too-much", 2 * BUDGET),
    "within": noisy_study("within", 0.8 * BUDGET),
    "used-up": noisy_study("used-up", 0.8 * BUDGET),
}


@pytest.fixture(scope="module")
def jobs(federation):
    """All studies; the sites get a privacy budget when the slow ones have begun and read their own rules.

    And a new state directory: what left without noise before has used up any budget.
    """
    before = {site: federation.kits[site] / "local" / "feddbn_site.toml" for site in SITES}
    before = {path: path.read_text() for path in before.values()}
    sent = {run: federation.console.submit(STUDIES[run], run) for run in ("slow", "slow-masked")}
    for run in sent:
        wait_for_sum(federation, run, 1)
    for path, text in before.items():
        budget = f"max_epsilon = {BUDGET}" if path.parts[-3] == "site-c" else ""
        (path.parent / "noisy.toml").write_text(POLICY.replace('"walk"', '"total"') + budget)
        path.write_text(text.replace('"../state"', '"../state-noisy"').replace("policy.toml", "noisy.toml"))
    try:
        sent |= {run: federation.console.submit(STUDIES[run], run) for run in ("too-much", "within")}
        ended = {run: federation.console.wait(job) for run, job in sent.items()}
        # One after the other: two runs at the same time cannot spend one budget.
        sent["used-up"] = federation.console.submit(STUDIES["used-up"], "used-up")
        ended["used-up"] = federation.console.wait(sent["used-up"])
    finally:
        for path, text in before.items():
            path.write_text(text)
    assert {run: status for run, status in ended.items() if not status.endswith("COMPLETED")} == {}
    return sent


def events_of(federation, run):
    lines = (federation.runs / run / "events.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def refusals(federation, run):
    return [e for e in events_of(federation, run) if e["what"] == "refused"]


def contributors(federation, run):
    return [entry.answer.contributors for entry in journal_of(federation, run).entries]


def audit(state, run):
    lines = log_lines(state, run)
    assert verify_chain(lines).is_intact
    return parse_entries(lines)


def test_a_straggler_delays_a_round_by_the_timeout_and_joins_the_next(jobs, federation):
    seconds = {e["seq"]: e["seconds"] for e in events_of(federation, "slow") if e["what"] == "sum"}
    # Waited for as long as the rule says; that it was no longer shows below: the answer, 2 s later, was not counted.
    assert seconds[SLOW_ROUND] >= TIMEOUT_S
    found = contributors(federation, "slow")
    assert "site-b" not in found[SLOW_ROUND]
    assert "site-b" in found[SLOW_ROUND + 1]
    assert_result(federation, STUDIES["slow"], "slow", jobs["slow"])
    assert_nothing_executed_twice(federation, "slow")
    events = (federation.state("site-b") / "slow" / "events.jsonl").read_text()
    assert "previous state" in events


def test_a_masked_sum_is_not_opened_without_a_site_that_is_in_earlier_ones(jobs, federation):
    found = contributors(federation, "slow-masked")
    assert len(found) == 20
    # The straggler is asked again: sums with and without it would show its numbers.
    assert set(found) == {STUDIES["slow-masked"].sites}
    expected = in_process(federation, STUDIES["slow-masked"], absences(federation, "slow-masked"))
    np.testing.assert_allclose(result_of(federation, jobs["slow-masked"], "slow-masked"), expected, atol=1e-8)
    assert_nothing_executed_twice(federation, "slow-masked")
    for site in STUDIES["slow-masked"].sites:
        entries = audit(federation.state(site), "slow-masked")
        assert {entry.protection for entry in entries} == {"masked"}


def test_a_study_with_too_little_noise_is_refused_by_the_site_with_a_budget(jobs, federation):
    assert "epsilon-not-allowed" in [e["code"] for e in refusals(federation, "too-much")]
    assert f"epsilon = {2 * BUDGET:g}" in federation.log("site-c")
    assert set(contributors(federation, "too-much")) == {("site-a", "site-b")}
    assert not (federation.kits["site-c"] / "state-noisy" / "too-much").exists()


def test_a_study_within_the_budget_is_answered_with_noise_that_is_booked(jobs, federation):
    assert set(contributors(federation, "within")) == {SITES}
    entries = audit(federation.kits["site-c"] / "state-noisy", "within")
    assert {entry.protection for entry in entries} == {"noise"}
    assert math.isclose(entries[-1].epsilon, 0.8 * BUDGET, rel_tol=0.05)


def test_a_budget_that_is_used_up_ends_the_sites_part_over_all_runs(jobs, federation):
    # Why is for the owner to read.
    assert any(WITHHELD in e["sentence"] for e in refusals(federation, "used-up"))
    assert f"budget is {BUDGET:g}" in federation.log("site-c")
    assert set(contributors(federation, "used-up")) == {("site-a", "site-b")}
    assert {entry.event for entry in audit(federation.kits["site-c"] / "state-noisy", "used-up")} == {
        "refused"
    }
