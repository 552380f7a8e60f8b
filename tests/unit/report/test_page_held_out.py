import numpy as np
import pytest

from feddbn import DBN
from feddbn.methods.result import Result
from feddbn.report import render_report
from feddbn.report.page import held_out_tables
from feddbn.report.record import read_record

CHOSEN = {
    "chosen": {"n_lags": 1},
    "candidates": [
        {"n_lags": 1, "loss": 2.25, "standard_error": 0.5, "chosen": True},
        {"n_lags": 2, "loss": 2.0, "standard_error": 0.0, "chosen": False},
    ],
    "remarks": [],
    "share": 0.3,
    "rule": "one-standard-error",
}
COMPARED = {
    "held_out_share": 0.2,
    "methods": [
        {
            "label": "<b>",
            "held_out_log_likelihood": -3.5,
            "edges_w": 2,
            "edges_a": 1.5,
            "rounds": 4,
            "converged": False,
        },
        {
            "label": "Vote",
            "held_out_log_likelihood": None,
            "edges_w": 2,
            "edges_a": 1,
            "rounds": 1,
            "converged": True,
        },
    ],
}


def a_result(**diagnostics):
    dbn = DBN(np.array([[0.0, 0.5], [0.0, 0.0]]), np.zeros((1, 2, 2)), ("u", "v"))
    return Result("OneShotDBN", dbn, diagnostics=diagnostics).to_dict()


def test_a_choice_is_shown_with_its_rule():
    (table,) = held_out_tables(read_record(a_result(selection=CHOSEN), {}))
    assert table.rows == (("1", "2.25", "0.5", "chosen"), ("2", "2", "0", ""))
    assert "30%" in table.note
    few = {**CHOSEN, "remarks": ["fewer sites"]}
    few["candidates"] = [{**row, "standard_error": None} for row in CHOSEN["candidates"]]
    (table,) = held_out_tables(read_record(a_result(selection=few), {}))
    assert table.remarks == ("Fewer sites.",)
    assert table.rows[0][2] == "–"


def test_a_comparison_is_on_the_page_and_names_what_did_not_finish():
    page = render_report(a_result(comparison=COMPARED))
    assert '<section id="held-out">' in page
    assert "&lt;b&gt; stopped" in page
    (table,) = held_out_tables(read_record(a_result(comparison=COMPARED), {}))
    assert table.rows[1] == ("Vote", "–", "2", "1", "1")


@pytest.mark.parametrize("odd", [{}, {"selection": None}, {"comparison": [1]}, {"selection": {"chosen": 3}}])
def test_a_result_without_held_out_rows_has_no_such_section(odd):
    assert held_out_tables(read_record(a_result(**odd), {})) == []
    assert 'id="held-out"' not in render_report(a_result(**odd))
