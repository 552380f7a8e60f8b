"""What a report says about the rows, and whether the sites agree."""

from dataclasses import replace

import numpy as np
import pytest

import feddbn
from feddbn.report.page import render_report
from feddbn.report.record import read_record
from feddbn.report.verdicts import agreement_verdict, treatment_rows

DONE = {
    "center": "recording",
    "degree": 1,
    "periods": [24.0],
    "evidence": 1234.5,
    "gains": "site",
    "gains_evidence": 88.0,
    "spikes": ["x1"],
    "missing": "fill",
    "n_empty_cells": 40,
    "n_rows": 1000,
    "n_effective": 950.0,
    "n_disagreeing": 1,
    "left_out": 1,
    "exogenous": ["x0"],
}


def record(n_sites: int = 6, **changed):
    stored = {
        "dbn": feddbn.DBN(np.zeros((2, 2)), np.zeros((1, 2, 2)), ["x0", "x1"]).to_dict(),
        "sites": [{"name": f"s{k}", "rows": 100} for k in range(n_sites)],
        "diagnostics": {"treatment": {**DONE, **changed}},
    }
    return read_record(stored)


def test_all_that_was_done_is_listed_with_its_evidence():
    rows = {what: (done, why) for what, done, why in treatment_rows(record())}
    assert rows["Means, trends, cycles"] == (
        "every recording lost its own mean, line, cycles of 24 rows",
        "BIC 1,234 better with each its own",
    )
    assert rows["Scales of sites"][0] == "every site was brought to the mean scale"
    assert rows["Far cells"][0] == "left out as errors: x1"
    assert rows["Empty cells"] == ("rows count for what they hold, 950 complete ones", "40 cells are empty")
    assert rows["Sites that do not fit"][0] == "1 stayed out of the sums"
    assert rows["Known inputs"][0] == "x0: no edge leads into them"


def test_pairs_that_no_row_holds_are_listed_once():
    unseen = [["x1", "x0", 0], ["x0", "x1", 1], ["x1", "x1", 1]]
    rows = {what: done for what, done, _ in treatment_rows(record(unseen_pairs=unseen))}
    assert rows["Hardly ever in one row"] == "x0 and x1, x1"
    assert "Hardly ever in one row" not in {what for what, *_ in treatment_rows(record())}


def test_a_site_with_a_network_of_its_own_is_not_sent_to_another_method():
    asked = replace(record(), parameters={"on_disagreement": "personal"})
    assert "learned from the rows there alone" in agreement_verdict(asked).advice
    assert "PFDBNL" in agreement_verdict(record()).advice


def test_a_result_that_does_not_say_has_no_section():
    plain = feddbn.DBN(np.zeros((2, 2)), np.zeros((1, 2, 2)))
    assert treatment_rows(read_record(plain)) == []
    assert agreement_verdict(read_record(plain)) is None
    assert 'id="treatment"' not in render_report(plain)


@pytest.mark.parametrize(
    ("changed", "level", "word"),
    [
        ({"n_disagreeing": 0, "left_out": 0}, "good", "Yes"),
        ({}, "caution", "stayed out"),
        ({"left_out": 0}, "bad", "in the sums"),
        ({"n_disagreeing": 4, "left_out": 0}, "bad", "several kinds"),
    ],
)
def test_whether_sites_agree(changed, level, word):
    found = agreement_verdict(record(**changed))
    assert found.level == level
    assert word in f"{found.answer} {found.detail}"


def test_where_nobody_compared_there_is_no_verdict():
    assert agreement_verdict(record(3, n_disagreeing=0, left_out=0)) is None
    assert agreement_verdict(record(n_disagreeing=0, left_out=0, n_rows=None)) is None


def test_a_page_of_a_fit_has_the_section_and_the_verdict():
    fed = feddbn.simulate(d=3, n_sites=5, n_samples=1500, random_state=0)
    page = render_report(feddbn.FDBNL().fit(fed.sites))
    assert "What was done to the rows" in page
    assert "Do the sites agree?" in page
