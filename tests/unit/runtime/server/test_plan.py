"""The plan of a study: what sites say before any sum, what sums of the dry round show, and what the lead knows by itself."""

import contextlib
import json

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("cryptography")
import feddbn
from feddbn.core.statistics.power import Rule, priced_rule
from feddbn.errors import FeddbnError
from feddbn.federation.protocol.study import study_from_json
from feddbn.findings import Finding
from feddbn.runtime.server.conduct import Progress, conduct
from feddbn.runtime.server.plan import dry_round, plan_rows, red_rows
from support.owned_sites import NAMES, OwnedSites, make_study

pytestmark = pytest.mark.usefixtures("light")

UNITS = {"u": "mmHg", "v": "1/min"}
SAID = '[units]\nu = "mmHg"\nv = "1/min"\n'
RULE = "approve_by_rule = true\n"


def says_units(sites, name, text=SAID):
    path = sites.place / name / "feddbn_site.toml"
    path.write_text(path.read_text() + text)


def asked(sites, study, run="plan-1"):
    """Conduct the dry round of a study; return its plan as (topic, code) -> row, and where its files are."""
    dry, place = dry_round(study), sites.place / run
    place.mkdir(exist_ok=True)
    progress = Progress(run, dry.sites)
    with contextlib.suppress(FeddbnError):
        conduct(sites.exchange(), dry, run, sites.place / "runs", place, progress, lambda said: None)
    return {(row.about, row.code): row for row in plan_rows(study, place, {})}, place


@pytest.fixture
def sites(tmp_path):
    return OwnedSites(tmp_path, RULE)


def test_an_owner_who_has_not_said_a_unit_is_named_before_any_sum(sites):
    study = make_study(units=UNITS)
    for name in NAMES[:2]:
        says_units(sites, name)
    found, place = asked(sites, study)
    wrong = found["units", "plan-units-refused"]
    assert (wrong.colour, wrong.numbers["why"], wrong.numbers["about"]) == ("red", "units-unsaid", ["west"])
    assert ("rows", "plan-rows") not in found
    assert not any(
        event["what"] == "sum" for event in map(json.loads, (place / "events.jsonl").read_text().splitlines())
    )
    # The same round goes on when the owner has said it; what the site reads may have another unit.
    says_units(sites, "west", '[units]\nu = ["kPa", "mmHg"]\nv = "1/min"\n')
    found, _ = asked(sites, study)
    assert found["units", "plan-units-said"].colour == "green"
    assert found["sites", "plan-agreed"].numbers["n"] == 3
    assert red_rows(list(found.values())) == []


def test_a_unit_that_differs_is_red_and_one_that_nobody_says_is_yellow(sites):
    for name in NAMES:
        says_units(sites, name, SAID if name != "west" else SAID.replace("mmHg", "kPa"))
    found, _ = asked(sites, make_study(units=UNITS))
    assert found["units", "plan-units-refused"].numbers["why"] == "other-units"
    found, _ = asked(sites, make_study(), "plan-2")
    row = found["units", "plan-units-open"]
    assert (row.colour, row.numbers["about"]) == ("yellow", ["u", "v"])


def test_an_approval_that_is_missing_is_no_fault(tmp_path):
    sites = OwnedSites(tmp_path)
    study = make_study()
    found, _ = asked(sites, study)
    row = found["sites", "plan-waits"]
    assert (row.colour, row.numbers["why"], row.numbers["about"]) == ("yellow", "not-approved", list(NAMES))
    sites.approve(dry_round(study))
    found, _ = asked(sites, study)
    assert found["sites", "plan-agreed"].colour == "green"


def test_sums_tell_rows_cycles_gaps_and_kinds(sites):
    rng = np.random.default_rng(700)
    for name in NAMES:
        day = 3 * np.sin(2 * np.pi * np.arange(480) / 24)
        frame = pd.DataFrame({"u": day + rng.normal(size=480), "v": rng.integers(0, 2, 480)}, dtype=float)
        frame.loc[rng.random(480) < 0.1, "u"] = np.nan
        frame.to_csv(sites.place / name / "data" / "one.csv", index=False)
    usual = make_study(parameters={"n_lags": 1})
    found, place = asked(sites, usual)
    rows = found["rows", "plan-rows"]
    assert rows.numbers.items() >= {"rows": 1440, "recordings": 3, "sites": 3, "columns": 4}.items()
    share = found["gaps", "empty-share"].numbers["share"]
    n = feddbn.power(1440, sites=3, variables=2, missing=share).n_effective
    assert rows.numbers["n_effective"] == round(n)
    assert rows.numbers["effect"] == pytest.approx(priced_rule("bic", 2, 1).smallest(n))
    assert rows.numbers["power"]["0.2"] == pytest.approx(priced_rule("bic", 2, 1).power(0.2, n))
    assert found["cycles", "cycles"].numbers["periods"][0] == pytest.approx(24)
    assert found["cycles", "cycles"].colour == "green"
    assert (found["kinds", "kinds-somewhere"].colour, found["kinds", "kinds-somewhere"].numbers["about"]) == (
        "yellow",
        ["v"],
    )
    # What was found is read anew for a study of another method, or one that leaves the cycle in.
    other = make_study(method="fdbnl", parameters={"n_lags": 1, "prepare": {"period": [], "missing": "drop"}})
    told = {(row.about, row.code): row for row in plan_rows(other, place, {})}
    assert (told["cycles", "cycles"].colour, told["gaps", "empty-share"].colour) == ("yellow", "yellow")
    n = (1440 - 3 - 3) * (1 - share) ** 4
    assert told["rows", "plan-rows"].numbers["effect"] == pytest.approx(Rule(threshold=0.2).smallest(n))


@pytest.mark.parametrize(("usable", "colour"), [(20, "red"), (60, "yellow"), (4000, "green")])
def test_few_rows_are_red(tmp_path, usable, colour):
    counts = {"rows": usable + 30, "recordings": 3, "sites": 3, "usable": usable, "n_lags": 10, "columns": 22}
    told = [Finding("all-rows", "note", counts).to_dict()]
    outcome = {"state": "finished", "summary": {"findings": told}}
    (tmp_path / "outcome.json").write_text(json.dumps(outcome))
    found = {row.code: row for row in plan_rows(make_study(parameters={"n_lags": 10}), tmp_path)}
    assert found["plan-rows"].colour == colour
    assert (found["plan-rows"].numbers["effect"] is None) == (colour == "red")


def test_scales_that_differ_as_units_do_are_red_until_units_are_said(tmp_path):
    def scales_of(about, units):
        told = [Finding("scales", "warning", {"sites": 4}, about, {"prepare.gains": "auto"}).to_dict()]
        outcome = {"state": "finished", "summary": {"findings": told}}
        (tmp_path / "outcome.json").write_text(json.dumps(outcome))
        found = {row.code: row for row in plan_rows(make_study(units=units), tmp_path)}
        return found["scales"].colour

    assert [scales_of(("u",), {}), scales_of(("u",), {"u": "mmHg"}), scales_of((), {})] == [
        "red",
        "yellow",
        "yellow",
    ]


def colour_of(study, earlier, finished=()):
    found = [
        row for row in plan_rows(study, earlier=earlier, finished=finished) if row.about == "earlier runs"
    ]
    return found[0].colour if found else None


def test_a_lead_knows_which_of_its_own_runs_lock_a_set_of_sites():
    four = make_study(sites=(*NAMES, "east"))
    pilot, noisy = make_study(), make_study(privacy={"epsilon": 1.0}, parameters={"n_lags": 1})
    assert colour_of(four, {"pilot": pilot}, ["pilot"]) == "red"
    assert colour_of(four, {"pilot": pilot}) == "yellow"
    assert colour_of(pilot, {"pilot": pilot}, ["pilot"]) == "green"
    assert colour_of(four, {"noisy": noisy}, ["noisy"]) == "green"
    assert colour_of(noisy, {"pilot": pilot}, ["pilot"]) is None
    six = make_study(sites=(*NAMES, "a", "b", "c"))
    assert colour_of(six, {"pilot": pilot}, ["pilot"]) == "green"
    # Each of two runs leaves three sites or more, and both together one.
    seven, rest = make_study(sites=(*six.sites, "d")), make_study(sites=("a", "b", "c"))
    assert colour_of(seven, {"one": pilot, "two": rest}, ["one", "two"]) == "red"
    assert [colour_of(seven, {"one": one}, ["one"]) for one in (pilot, rest)] == ["green"] * 2


def test_a_dry_round_is_the_same_whatever_does_not_change_what_it_asks():
    study = make_study(method="fdbnl", parameters={"n_lags": 1, "lambda_w": 0.1}, goal="select")
    other = make_study(method="fdbnl", parameters={"n_lags": 1, "prepare": {"period": 24}})
    dry = dry_round(study)
    assert dry.digest == dry_round(other).digest
    assert (dry.goal, dry.sites, dry.privacy, dry.about) == ("check", study.sites, study.privacy, study.about)
    assert study_from_json(dry.to_json()) == dry
    assert dry_round(make_study(parameters={"n_lags": 2})).digest != dry.digest
    assert dry_round(make_study(privacy={"epsilon": 1.0})) is None
    mixed = make_study(method="mixed", parameters={"kinds": {"u": "binary"}})
    assert dry_round(mixed).method == "oneshot"
    named = make_study(method="mixed", parameters={"kinds": {"u": ["low", "high"]}})
    assert dry_round(named) is dry_round(make_study(method="continuous", parameters={})) is None


def test_what_cannot_be_asked_beforehand_is_said_with_its_cost():
    noisy = make_study(privacy={"secure_aggregation": True, "epsilon": 2.0}, parameters={"n_lags": 1})
    found = {row.code: row for row in plan_rows(noisy)}
    assert found["plan-not-asked"].colour == "yellow"
    assert found["plan-costs"].numbers["epsilon"] == 2.0
    assert found["plan-leaves"].numbers["most"] >= found["plan-leaves"].numbers["usual"] > 0


def test_why_a_study_is_sent_despite_red_is_in_the_owners_log_and_no_part_of_the_approval(tmp_path):
    sites, study = OwnedSites(tmp_path), make_study()
    sent = study.model_copy(update={"despite": "one site has kPa, and we know it"})
    assert (sent.digest, sent.to_json() != study.to_json()) == (study.digest, True)
    assert study_from_json(sent.to_json()).despite == sent.despite
    sites.approve(study)
    sites.run(sent)
    agreed = [entry for entry in sites.owner().audit.entries() if entry.event == "agreed"]
    assert sent.despite in agreed[-1].note
