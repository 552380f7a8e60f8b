from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import feddbn
from feddbn.findings import Finding
from feddbn.report.record import read_record
from feddbn.report.verdicts import treatment, verdicts
from support.report_results import example_result


def among(result: object) -> dict[str, Finding]:
    return {one.code.removeprefix("verdict-"): one for one in verdicts(read_record(result))}


def verdict(key: str, **changes: object) -> Finding:
    return among(example_result() | changes)[key]


def judged(key: str, **changes: object) -> tuple[str, str]:
    """The level of a verdict and its answer."""
    found = verdict(key, **changes)
    return found.level, found.values["answer"]


def zero(d: int = 10, n_lags: int = 2) -> dict[str, object]:
    return {"dbn": {"W": np.zeros((d, d)).tolist(), "A": np.zeros((n_lags, d, d)).tolist()}, "edges": []}


def test_convergence_is_judged_by_the_status_and_the_rounds():
    yes = verdict("converged")
    assert (yes.level, yes.values["answer"], yes.values["rounds"]) == ("good", "yes", 64)
    assert set(yes.values["last"]) == {"h", "primal", "dual"}
    stopped = {"name": "MAX_ROUNDS", "message": "stopped early", "converged": False}
    assert judged("converged", status=stopped) == ("error", "no")
    assert judged("converged", status=None) == ("unknown", "unknown")
    assert judged("converged", status=None, history=None, n_rounds=1) == ("good", "exact")
    exact = {"name": "EXACT", "message": "needed no rounds", "converged": True}
    assert judged("converged", status=exact, n_rounds=1) == ("good", "exact")


@pytest.mark.parametrize(
    ("facts", "level", "answer"),
    [
        ({"varsortability": 0.95}, "warning", "scales"),
        ({"varsortability": 0.55}, "warning", "units"),
        ({"varsortability": 0.95, "noise_variance": "free"}, "good", "identified"),
        ({"scale": "federated"}, "warning", "alike"),
        ({"scale_sensitive": True}, "warning", "scales"),
        ({"scale_sensitive": False, "varsortability": 0.6}, "good", "not-scales"),
        ({}, "warning", "units"),
    ],
)
def test_the_order_is_judged_by_scales_and_noise(facts, level, answer):
    assert judged("order", diagnostics=facts) == (level, answer)


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({"parameters": {"w_threshold": 0.3}, "diagnostics": {"largest_raw_weight": 0.21}}, ["threshold"]),
        ({"parameters": {"lambda_w": 2.0}, "diagnostics": {"lambda_max": 1.5}}, ["penalty"]),
        ({"parameters": {"lambda_w": 2.0}, "diagnostics": {}}, ["perhaps-penalty"]),
        ({"parameters": {}, "sites": [{"name": "a", "rows": 12}]}, ["few-rows"]),
        ({"parameters": {}}, []),
    ],
)
def test_an_empty_graph_is_explained(changes, reasons):
    found = verdict("empty", **zero(), **changes)
    assert (found.level, found.values["reasons"]) == ("error", reasons)
    assert judged("empty") == ("good", "no")


@pytest.mark.parametrize(("rows", "level"), [(1000, "good"), (60, "warning"), (20, "error")])
def test_rows_are_compared_with_possible_causes(rows, level):
    assert verdict("rows", sites=[{"name": "a", "rows": rows}]).level == level


def test_certainty_is_that_of_links_whichever_way_they_point():
    assert judged("certainty", edges=None) == ("unknown", "unknown")
    edges = example_result()["edges"]
    open_ones = [{**edge, "probability": 0.15, "presence": 1.0, "direction": 0.15} for edge in edges]
    assert judged("certainty", edges=open_ones) == ("good", "sure")
    assert judged("certainty", edges=[{**edge, "probability": 0.15} for edge in edges]) == (
        "warning",
        "unsure",
    )


@pytest.mark.parametrize(
    ("privacy", "level", "answer"),
    [
        (None, "warning", "plain"),
        ({"secure_aggregation": True}, "good", "sums"),
        ({"secure_aggregation": True, "epsilon": 2.0, "delta": 1e-5}, "good", "sums"),
        ({"epsilon": 0.5}, "warning", "noise"),
    ],
)
def test_what_the_server_learned_follows_the_protection(privacy, level, answer):
    found = verdict("revealed", privacy=privacy)
    assert (found.level, found.values["answer"]) == (level, answer)
    assert found.values.get("epsilon") == (privacy or {}).get("epsilon")


def test_lost_rows_are_red_however_many_are_left():
    lost = {"site": "a", "usable": 300, "rows": 9000, "n_lags": 1, "whole_rows": True}
    for level, answer in (("error", ("error", "lost")), ("warning", ("good", "yes"))):
        assert judged("rows", findings=[Finding("usable-rows", level, lost).to_dict()]) == answer


def test_residuals_are_judged_by_what_they_contradict():
    assert judged("residuals") == ("unknown", "unknown")
    hidden = Finding("residuals", "warning", {"violations": ["hidden"], "hidden": {"causes": [["a", "b"]]}})
    assert judged("residuals", findings=[hidden.to_dict()]) == ("error", "no")

    def of(**facts: object) -> dict[str, object]:
        return {"diagnostics": {"residuals": facts}}

    assert judged("residuals", **of(violations=[], noise_memory=0.6)) == ("good", "yes")
    bad = of(violations=["memory", "tails"], memory_p=1e-9, kurtosis=12.3, n_lags_added=1)
    assert judged("residuals", **bad) == ("error", "no")
    assert judged("certainty", **bad) == ("warning", "contradicted")
    some = verdict("residuals", **of(violations=["thirds", "change", "of another version"]))
    assert (some.level, some.values["violations"]) == ("warning", ["thirds", "change"])


DONE = {
    "center": "recording",
    "degree": 1,
    "periods": [24.0],
    "evidence": 1234.5,
    "gains": "site",
    "gains_evidence": 88.0,
    "bounded": {"x1": 12},
    "missing": "fill",
    "n_empty_cells": 40,
    "n_rows": 1000,
    "n_effective": 950.0,
    "n_disagreeing": 1,
    "left_out": 1,
    "exogenous": ["x0"],
}


def treated(n_sites: int = 6, **changed):
    stored = {
        "dbn": feddbn.DBN(np.zeros((2, 2)), np.zeros((1, 2, 2)), ["x0", "x1"]).to_dict(),
        "sites": [{"name": f"s{k}", "rows": 100} for k in range(n_sites)],
        "diagnostics": {"treatment": {**DONE, **changed}},
    }
    return read_record(stored)


def test_all_that_was_done_is_told_with_its_evidence():
    unseen = [["x1", "x0", 0], ["x0", "x1", 1], ["x1", "x1", 1]]
    found = {one.code.removeprefix("treated-"): one for one in treatment(treated(unseen_pairs=unseen))}
    assert found["course"].values == {"is_own": True, "degree": 1, "periods": [24.0], "evidence": 1234.5}
    assert found["scales"].values == {"is_common": True, "evidence": 88.0}
    assert found["outliers"].values == {"bounded": ["x1"]}
    assert found["empty"].values == {"n": 40, "worth": 950.0, "is_filled": True}
    assert found["sites"].values == {"n_disagreeing": 1, "left_out": 1}
    assert found["unseen"].values == {"pairs": [["x0", "x1"], ["x1"]]}
    assert found["inputs"].about == ("x0",)
    assert {one.code for one in treatment(treated())}.isdisjoint({"treated-unseen"})


def agreement(record) -> tuple[str, str] | None:
    found = [one for one in verdicts(record) if one.code == "verdict-agreement"]
    return (found[0].level, found[0].values["answer"]) if found else None


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"n_disagreeing": 0, "left_out": 0}, ("good", "yes")),
        ({}, ("warning", "left-out")),
        ({"left_out": 0}, ("error", "some")),
        ({"n_disagreeing": 4, "left_out": 0}, ("error", "many")),
        ({"n_disagreeing": 0, "left_out": 0, "n_rows": None}, None),
    ],
)
def test_whether_sites_agree(changed, expected):
    assert agreement(treated(**changed)) == expected


def test_a_site_with_a_network_of_its_own_and_too_few_sites_to_compare():
    personal = ("warning", "personal")
    assert agreement(replace(treated(), parameters={"on_disagreement": "personal"})) == personal
    assert agreement(replace(treated(), parameters={"prepare": {"on_disagreement": "personal"}})) == personal
    assert agreement(treated(3, n_disagreeing=0, left_out=0)) is None
