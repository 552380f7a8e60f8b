"""What is known of a study before it is sent: from its text, and from the outcome of a check."""

import pytest

import feddbn
from feddbn.analysis.plan import plan_findings
from feddbn.analysis.power import Rule
from feddbn.errors import StateError
from feddbn.findings import Finding
from support.consortium import NAMES, make_study
from support.saying import refused

ROWS = {"rows": 1440, "recordings": 3, "sites": 3, "usable": 1437, "n_lags": 1, "columns": 4}


def checked(*findings, rows=ROWS, **study):
    told = [Finding("all-rows", "note", rows), *findings]
    check = {"goal": "check", "variables": ["u", "v"], "sites": list(NAMES), **study}
    return {
        "run": "look",
        "state": "finished",
        "study": check,
        "summary": {"findings": [one.to_dict() for one in told]},
    }


def known(study, outcome=None):
    return {one.code: one for one in plan_findings(study, outcome)}


def test_the_text_tells_what_leaves_what_it_costs_and_what_owners_have_to_say():
    noisy = make_study(privacy={"secure_aggregation": True, "epsilon": 2.0}, parameters={"n_lags": 1})
    found = known(noisy)
    assert (found["plan-units-open"].level, found["plan-units-open"].about) == ("warning", ("u", "v"))
    assert found["plan-costs"].values["epsilon"] == 2.0
    assert found["plan-leaves"].values["most"] >= found["plan-leaves"].values["usual"] > 0
    quiet = known(make_study(units={"u": "mmHg", "v": "1/min"}))
    assert not {"plan-units-open", "plan-costs", "plan-rows"} & quiet.keys()


def test_a_check_tells_what_can_be_found_by_the_power_of_a_study():
    share = Finding("empty-share", "note", {"share": 0.1})
    cycles = Finding("cycles", "note", {"periods": [24.0]})
    kinds = Finding("kinds-somewhere", "note", {"kinds": {"v": "binary"}}, ("v",))
    usual = make_study(parameters={"n_lags": 1})
    found = known(usual, checked(share, cycles, kinds))
    wanted = feddbn.power(1440, sites=3, variables=2, missing=0.1)
    assert found["plan-rows"].values["n_effective"] == round(wanted.n_effective)
    assert found["plan-rows"].values["effect"] == pytest.approx(wanted.smallest_effect())
    assert found["plan-rows"].values["power"] == wanted.to_dict()["power"]
    assert (found["cycles"].level, found["kinds-somewhere"].level) == ("note", "warning")
    # What was found is read anew for a study of another method, or one that leaves the cycle in.
    left_in = {"n_lags": 1, "prepare": {"period": [], "missing": "drop", "center": "none"}}
    told = known(make_study(method="fdbnl", parameters=left_in), checked(share, cycles))
    assert (told["cycles"].level, told["empty-share"].level, told["plan-one-mean"].level) == (
        "warning",
        "warning",
        "warning",
    )
    n = round(1437 * 0.9**4) - 3
    assert told["plan-rows"].values["effect"] == pytest.approx(Rule(threshold=0.2).smallest(n))


@pytest.mark.parametrize(("usable", "level"), [(20, "error"), (60, "warning"), (4000, "note")])
def test_few_rows_cannot_tell(usable, level):
    rows = {"rows": usable + 30, "recordings": 3, "sites": 3, "usable": usable, "n_lags": 10, "columns": 22}
    found = known(make_study(parameters={"n_lags": 10}), checked(rows=rows))["plan-rows"]
    assert (found.level, found.values["effect"] is None) == (level, level == "error")


def test_scales_that_differ_as_units_do_are_wrong_until_units_are_said():
    def level_of(about, units):
        scales = Finding("scales", "warning", {"sites": 4}, about, {"prepare.gains": "auto"})
        return known(make_study(units=units), checked(scales))["scales"].level

    assert [level_of(("u",), {}), level_of(("u",), {"u": "mmHg"}), level_of((), {})] == [
        "error",
        "warning",
        "warning",
    ]


@pytest.mark.parametrize(
    "outcome",
    [
        {**checked(), "state": "stopped"},
        checked(goal="network"),
        checked(variables=["u", "w"]),
        checked(sites=[*NAMES, "east"]),
        {"run": "look"},
    ],
)
def test_another_outcome_is_refused(outcome):
    with refused(StateError, code="no-check"):
        plan_findings(make_study(), outcome)
