"""Tests."""

from __future__ import annotations

import json
import re
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from feddbn import DBN
from feddbn.findings import Finding
from feddbn.privacy.audit import AuditChain
from feddbn.report import render_report, time_series_edges, write_report
from feddbn.report.page import page_data
from feddbn.report.record import read_record
from feddbn.results.result import Result
from feddbn.words.tables import held_out_tables
from support.report_results import curved_dbn, example_result, random_dbn, stored

pytestmark = pytest.mark.promise


def embedded(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(found.group(1))


@pytest.fixture
def undrawn(monkeypatch):
    """No figures, which take most of the time: for what a page says in words."""
    monkeypatch.setattr("feddbn.report.page.inline_svg", lambda *_: "")


def test_a_report_holds_every_section_and_refers_to_nothing_outside(tmp_path):
    path = write_report(example_result(personal=True), tmp_path / "deep" / "report.html")
    page = path.read_text(encoding="utf-8")
    for section in ("graph", "edges", "diagnostics", "sites", "run", "audit", "cite"):
        assert f'<section id="{section}"' in page
    references = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(r.startswith(("#", "data:")) for r in references)
    assert not re.search(r"url\((?!#)", page)
    assert not re.search(r"@import|fetch\(|XMLHttpRequest", page)


def test_the_same_result_gives_the_same_page():
    assert render_report(example_result(d=4)) == render_report(example_result(d=4))


@pytest.mark.usefixtures("undrawn")
def test_only_the_network_is_required():
    page = render_report({"dbn": stored(random_dbn(4))})
    assert 'id="verdict-converged" class="verdict unknown"' in page
    assert '<section id="sites"' not in page
    assert '<section id="audit"' not in page


@pytest.mark.parametrize(("d", "n_lags"), [(1, 0), (3, 1)])
def test_an_empty_network_and_one_variable_are_reported(d, n_lags):
    page = render_report({"dbn": {"W": np.zeros((d, d)).tolist(), "A": np.zeros((n_lags, d, d)).tolist()}})
    assert 'id="verdict-empty" class="verdict error"' in page


@pytest.mark.usefixtures("undrawn")
def test_names_cannot_inject_markup():
    evil = '</script><img src=x onerror="alert(1)">'
    result = example_result(d=3) | {
        "edges": None,
        "title": evil,
        "method": evil,
        "findings": [_as_text(evil)],
    }
    result["variables"] = [evil, "b", "c"]
    page = render_report(result, title=evil)
    assert "<img" not in page
    assert embedded(page)["variables"][0] == evil


@pytest.mark.usefixtures("undrawn")
def test_what_stands_between_backticks_is_code_and_nothing_in_it_is_markup():
    notes = ["use `feddbn forecast` here", "`<img src=x>` and ` alone"]
    found = Finding("own-courses", "note", {"evidence": 9.0, "degree": 1, "periods": []})
    result = example_result(d=3) | {"edges": None}
    page = render_report(result | {"findings": [found.to_dict(), *map(_as_text, notes)]})
    shown = re.sub(r"<(script|style|pre).*?</\1>", "", page, flags=re.DOTALL)
    assert shown.count("<code>feddbn forecast</code>") == 2
    assert "<code>&lt;img src=x&gt;</code> and ` alone" in shown
    assert shown.count("`") == 1
    assert "<img src=x" not in page


def _as_text(text: str) -> dict:
    return Finding("text", "note", {"text": text}).to_dict()


def test_edges_of_the_page_carry_probability_interval_and_truth():
    result = example_result(d=6)
    data = page_data(read_record(result))
    assert data["has_probability"]
    assert data["has_interval"]
    assert data["has_truth"]
    assert len(data["networks"][0]["edges"]) == len(result["edges"])
    strongest = data["networks"][0]["edges"][0]
    assert abs(strongest[3]) == pytest.approx(max(abs(e["weight"]) for e in result["edges"]), rel=1e-3)
    assert strongest[7] == "found"


def test_reversed_and_extra_edges_are_told_apart():
    truth, estimate = np.zeros((3, 3)), np.zeros((3, 3))
    truth[0, 1] = estimate[1, 0] = estimate[0, 2] = 0.5
    lag = np.zeros((1, 3, 3)).tolist()
    record = read_record(
        {"dbn": {"W": estimate.tolist(), "A": lag}, "truth": {"W": truth.tolist(), "A": lag}}
    )
    marks = {(r["source"], r["target"]): r["truth"] for r in record.edges.to_dict("records")}
    assert marks == {("x1", "x0"): "reversed", ("x0", "x2"): "extra"}


@pytest.mark.usefixtures("undrawn")
def test_a_cycle_of_weight_one_is_reported_without_responses():
    page = render_report({"dbn": {"W": [[0.0, 1.0], [1.0, 0.0]], "A": [[[0.1, 0.0], [0.0, 0.1]]]}})
    assert embedded(page)["networks"][0]["effects"] == {}


@pytest.mark.slow
def test_a_report_of_a_hundred_variables_and_sixty_four_sites_is_under_three_megabytes(tmp_path):
    path = write_report(example_result(d=100, n_sites=64, personal=True), tmp_path / "report.html")
    assert path.stat().st_size < 3_000_000


@pytest.mark.usefixtures("undrawn")
def test_a_real_audit_log_is_summed_by_task():
    chain = AuditChain()
    who = {"time": "2026-01-01T00:00:00Z", "site": "north", "asked_by": "server"}
    privacy = {"unit": "recording", "epsilon": 0.25, "delta": 1e-6, "noise_multiplier": 4.0}
    entries = [
        chain.add(event="sent", task="moments", length=10, protection="masked", **who),
        chain.add(event="sent", task="moments", length=32, protection="masked and noise", **privacy, **who),
        chain.add(event="refused", task="moments", note="too many rounds", **who),
    ]
    page = render_report(example_result(), audit=[asdict(entry) for entry in entries])
    row = re.search(r'<th scope="row">moments</th>(.*?)</tr>', page).group(1)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row)
    assert cells == ["2", "1", "336", "10, 32", "masked; masked and noise"]
    assert "epsilon 0.25, delta 1e-06 per recording" in page


class Fitted:
    """What every method offers after ``fit``."""

    def __init__(self) -> None:
        self.dbn_ = random_dbn(4)
        self.dbns_ = {"a": self.dbn_, "b": random_dbn(4, seed=1)}
        self.n_rounds_ = 7
        self.sites_ = pd.DataFrame(
            {"rows": [52, 42], "usable_rows": [50, 40]}, index=pd.Index(["a", "b"], name="site")
        )
        self.findings_ = [Finding("text", "note", {"text": "look here"})]
        self.W_raw_, self.A_raw_ = self.dbn_.W, self.dbn_.A
        self.history_ = pd.DataFrame({"round": [1, 2], "h": [0.5, 0.0], "primal": [1.0, 0.1]})
        edges = time_series_edges(self.dbn_)
        self.edge_probabilities_ = edges.assign(probability=0.75).iloc[1:]

    def get_params(self) -> dict[str, object]:
        return {"n_lags": 2, "federation": object()}


@pytest.mark.usefixtures("undrawn")
def test_a_fitted_method_and_a_bare_network_can_be_reported():
    model = Fitted()
    record = read_record(model)
    assert (record.method, record.n_rounds, record.parameters) == ("Fitted", 7, {"n_lags": 2})
    assert list(record.history["round"]) == [1, 2]
    assert (record.n_rows, record.findings[0].values["text"]) == (90, "look here")
    assert record.diagnostics["largest_raw_weight"] == np.abs(model.dbn_.adjacency_matrices).max()
    assert set(record.personal) == {"a", "b"}
    assert record.edges["probability"].isna().sum() == 1
    assert (record.edges["probability"].dropna() == 0.75).all()
    assert "Fitted learned" in render_report(model)
    assert "4 variables" in render_report(model.dbn_)


@pytest.mark.usefixtures("undrawn")
def test_a_confidence_table_never_changes_the_network_and_says_when_it_is_of_another():
    dbn = random_dbn(4)
    table = time_series_edges(dbn).assign(probability=0.9, ci_low=0.1, ci_high=0.5)
    absent = pd.DataFrame([{"source": "x0", "target": "x0", "lag": 2, "weight": 0.0, "probability": 0.1}])
    data = embedded(render_report(dbn, edges=pd.concat([table, absent])))
    assert len(data["networks"][0]["edges"]) == len(table)
    assert data["has_interval"]
    assert {row[4] for row in data["networks"][0]["edges"]} == {0.9}
    assert read_record(dbn, {"edges": table}).findings == []
    # One edge of the network is not in the table, two of the table are not in the network.
    lacking = table.iloc[1:]
    others = table.iloc[:2].assign(lag=0, source="x0", target=["x0", "x1"], weight=7.0)
    record = read_record(dbn, {"edges": pd.concat([lacking, others[~dbn.W[0, :2].astype(bool)]])})
    (found,) = record.findings
    n_other = int((dbn.W[0, :2] == 0).sum())
    assert (found.code, found.level, found.values["both"]) == ("edges-differ", "warning", len(table) - 1)
    assert (len(found.values["only_network"]), len(found.values["only_table"])) == (1, n_other)
    assert len(record.edges) == len(table)
    assert 7.0 not in set(record.edges["weight"])
    assert sorted(record.edges["probability"])[:2] == [0.0, 0.9]
    turned = table.rename(columns={"source": "target", "target": "source"})
    (found,) = read_record(dbn, {"edges": turned[turned["source"] != turned["target"]]}).findings
    assert found.level == "error"


@pytest.mark.usefixtures("undrawn")
def test_a_truth_in_another_order_is_matched_by_name_and_one_of_other_variables_left_out():
    dbn = random_dbn(4, names=list("abcd"))
    order = [2, 0, 3, 1]
    turned = DBN(dbn.W[np.ix_(order, order)], dbn.A[:, order][:, :, order], [dbn.variables[i] for i in order])
    n_edges = np.count_nonzero(dbn.adjacency_matrices)
    assert f"{n_edges} of {n_edges} true" in render_report(dbn, truth=turned)
    other = read_record(dbn, {"truth": random_dbn(4).to_dict()})
    assert (other.truth, other.findings.codes) == (None, ("truth-left-out",))


@pytest.mark.usefixtures("undrawn")
def test_edges_carry_standardised_weights_and_open_directions():
    W = np.zeros((2, 2))
    W[0, 1] = 3.0
    dbn = DBN(
        W, np.zeros((1, 2, 2)), ["a", "b"], noise_variances=np.array([4.0, 28.0]), open_edges=[("a", "b")]
    )
    data = embedded(render_report(dbn))
    assert data["has_open"]
    assert not data["has_presence"]
    # sd of a is 2, of b sqrt(9 * 4 + 28) = 8.
    assert data["networks"][0]["edges"] == [[0, 1, 0, 3.0, None, None, None, None, 0.75, 0, *[None] * 5]]
    assert data["networks"][0]["effects"]["0"][0][:3] == [1, 0.75, 0]
    edge = {"source": "a", "target": "b", "lag": 0, "weight": 3.0, "presence": 1.0, "direction": 0.25}
    edge["q_value"] = 0.02
    # Those of the rows would be another standardised weight than that of the network's own table.
    facts = {"standard_deviations": [2.0, 12.0], "n_samples": 400}
    data = embedded(render_report({"dbn": dbn.to_dict(), "edges": [edge], "diagnostics": facts}))
    assert data["has_presence"]
    assert data["has_q"]
    assert data["networks"][0]["edges"] == [
        [0, 1, 0, 3.0, None, None, None, None, 0.75, 0, 1.0, 0.25, None, None, 0.02]
    ]
    values, low, high = data["networks"][0]["effects"]["0"][0][3:]
    assert low[0] < values[0] < high[0]


def test_a_network_with_curves_has_a_section_of_them(tmp_path):
    page = write_report(curved_dbn(), tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<section id="curves">' in page
    assert "a × b</th><td>c</td>" in page
    assert 'id="verdict-stable" class="verdict good"' in page
    data = embedded(page)
    assert not data["is_linear"]
    shapes = {(*row[:3],): (row[15], row[16]) for row in data["networks"][0]["edges"]}
    assert shapes == {
        (0, 1, 0): ("curved", 1),
        (2, 0, 1): ("curved", 1),
        (0, 0, 1): ("linear", 1),
        (1, 2, 1): ("product", 0),
        (0, 2, 1): ("product", 0),
    }
    # What a step of a from its origin does to b within the time step: the curve itself.
    by_hand = curved_dbn().effect("a", "b", 0).at(60.0)[0, 0] / np.sqrt(
        curved_dbn().stationary_covariance()[1, 1]
    )
    responses = {row[0]: row[3] for row in data["networks"][0]["effects"]["0"]}
    assert responses[1][0] == pytest.approx(float(by_hand), rel=1e-3)
    linear = render_report({"dbn": stored(random_dbn(4))})
    assert '<section id="curves"' not in linear
    assert all(len(row) == 15 for row in embedded(linear)["networks"][0]["edges"])


@pytest.mark.usefixtures("undrawn")
def test_the_report_keeps_curves_of_stored_results_and_of_a_truth_in_another_order():
    dbn = curved_dbn()
    order = [2, 0, 1]
    turned = {
        **dbn.to_dict(),
        "variables": [dbn.variables[k] for k in order],
        "W": dbn.W[np.ix_(order, order)].tolist(),
        "A": dbn.A[:, order][:, :, order].tolist(),
        "intercept": dbn.intercept[order].tolist(),
        "noise_variances": dbn.noise_variances[order].tolist(),
    }
    record = read_record({"dbn": dbn.to_dict(), "truth": turned})
    assert record.dbn.equals(dbn)
    assert record.truth is not None
    assert record.truth.equals(dbn)
    assert record.edges["truth"].tolist().count("extra") == 0


COLUMNS = ("label", "held_out_log_likelihood", "edges_w", "edges_a", "rounds", "converged")
COMPARED = {
    "held_out_share": 0.2,
    "methods": [
        dict(zip(COLUMNS, row, strict=True))
        for row in (("<b>", -3.5, 2, 1.5, 4, False), ("MixedDBN", None, 2, 1, 1, True))
    ],
}


def a_result(**diagnostics):
    dbn = DBN(np.array([[0.0, 0.5], [0.0, 0.0]]), np.zeros((1, 2, 2)), ("u", "v"))
    return Result("OneShotDBN", dbn, diagnostics=diagnostics).to_dict()


def test_a_comparison_is_on_the_page_and_names_what_did_not_finish():
    page = render_report(a_result(comparison=COMPARED))
    assert '<section id="held-out">' in page
    assert "&lt;b&gt; stopped" in page
    (table,) = held_out_tables({"comparison": COMPARED})
    assert table.rows[1] == ("MixedDBN", "–", "2", "1", "1")


@pytest.mark.parametrize("odd", [{}, {"selection": None}, {"comparison": [1]}, {"selection": {"chosen": 3}}])
def test_a_result_without_held_out_rows_has_no_such_section(odd):
    assert list(held_out_tables(odd)) == []
