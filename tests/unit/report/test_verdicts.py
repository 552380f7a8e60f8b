from __future__ import annotations

import numpy as np
import pytest

from feddbn.report.record import read_record
from feddbn.report.verdicts import Verdict, verdicts
from support.report_results import example_result


def verdict(key: str, **changes: object) -> Verdict:
    return next(v for v in verdicts(read_record(example_result() | changes)) if v.key == key)


def zero(d: int = 10, n_lags: int = 2) -> dict[str, object]:
    return {"dbn": {"W": np.zeros((d, d)).tolist(), "A": np.zeros((n_lags, d, d)).tolist()}, "edges": []}


def test_convergence_is_said_with_the_rounds():
    yes = verdict("converged")
    assert (yes.level, yes.answer) == ("good", "Yes after 64 rounds.")
    assert "primal residual" in yes.detail
    no = verdict("converged", status={"name": "MAX_ROUNDS", "message": "stopped early", "converged": False})
    assert no.level == "bad"
    assert no.advice.startswith("Raise max_rounds")
    assert no.detail.startswith("Stopped early.")
    assert verdict("converged", status=None).level == "unknown"
    once = verdict("converged", status=None, history=None, n_rounds=1)
    assert (once.level, once.answer) == ("good", "There was nothing to iterate.")
    exact = {"name": "EXACT", "message": "needed no rounds", "converged": True}
    assert verdict("converged", status=exact, n_rounds=1).answer == "There was nothing to iterate."


def test_a_site_that_sends_its_network_reveals_its_network():
    found = verdict("revealed", privacy=None, method="Average")
    assert (found.level, found.answer) == ("caution", "Its second moments and its own network.")
    found = verdict("revealed", privacy=None, method="BestSite")
    assert (found.level, found.answer) == ("caution", "Its own network.")


@pytest.mark.parametrize(
    ("facts", "level", "answer"),
    [
        ({"varsortability": 0.95}, "caution", "Probably read off the scales."),
        ({"varsortability": 0.55}, "caution", "It depends on the units."),
        (
            {"varsortability": 0.95, "noise_variance": "free"},
            "unknown",
            "Not read off the scales; which directions are open is not known.",
        ),
        ({"scale": "federated"}, "caution", "Not read off the scales, but the noise may differ."),
        ({"scale_sensitive": True}, "caution", "Probably read off the scales."),
        ({"scale_sensitive": False, "varsortability": 0.6}, "good", "Not read off the scales."),
        ({}, "caution", "It depends on the units."),
    ],
)
def test_the_order_is_judged_by_scales_and_noise(facts, level, answer):
    found = verdict("order", diagnostics=facts)
    assert (found.level, found.answer) == (level, answer)


def test_without_contemporaneous_edges_there_is_no_order():
    assert verdict("order", **zero()).answer == "There is no order to identify."


def test_an_unknown_method_is_not_judged():
    assert verdict("order", method="mine", diagnostics={}).level == "unknown"


@pytest.mark.parametrize(
    ("settings", "facts", "reason"),
    [
        (
            {"w_threshold": 0.3},
            {"largest_raw_weight": 0.21},
            "The threshold 0.3 removed every weight; the largest was 0.21.",
        ),
        (
            {"lambda_w": 2.0},
            {"lambda_max": 1.5},
            "The penalty 2 is at least 1.5, above which every weight is zero.",
        ),
        ({"lambda_w": 2.0}, {}, "The penalty 2 may be stronger than every effect in the data."),
        ({}, {}, "The result holds no clue"),
    ],
)
def test_an_empty_graph_is_explained(settings, facts, reason):
    found = verdict("empty", **zero(), parameters=settings, diagnostics=facts)
    assert found.level == "bad"
    assert reason in found.detail


def test_an_empty_graph_from_too_few_rows_says_so():
    found = verdict("empty", **zero(), sites=[{"name": "a", "rows": 12}])
    assert "Only 12 rows support 30 coefficients per variable." in found.detail


def test_a_graph_with_edges_is_not_called_empty():
    assert verdict("empty").level == "good"


@pytest.mark.parametrize(("rows", "level"), [(1000, "good"), (60, "caution"), (20, "bad")])
def test_rows_are_compared_with_possible_causes(rows, level):
    assert verdict("rows", sites=[{"name": "a", "rows": rows}]).level == level


def test_edges_without_probabilities_are_of_unknown_certainty():
    assert verdict("certainty", edges=None).level == "unknown"
    assert verdict("certainty").level in {"good", "caution"}


def test_cycles_are_reported_and_absent_otherwise():
    assert not [v for v in verdicts(read_record(example_result())) if v.key == "acyclic"]
    W = np.zeros((3, 3))
    W[0, 1] = W[1, 2] = W[2, 0] = 0.4
    record = read_record({"dbn": {"W": W.tolist(), "A": np.zeros((1, 3, 3)).tolist()}})
    assert next(v for v in verdicts(record) if v.key == "acyclic").level == "bad"


@pytest.mark.parametrize(("weight", "level"), [(0.5, "good"), (0.99, "caution"), (1.2, "bad")])
def test_stability_follows_the_spectral_radius(weight, level):
    A = np.diag([weight, 0.1])[None]
    record = read_record({"dbn": {"W": np.zeros((2, 2)).tolist(), "A": A.tolist()}})
    assert next(v for v in verdicts(record) if v.key == "stable").level == level


def test_a_cycle_of_weight_one_has_no_stability_verdict():
    W = [[0.0, 1.0], [1.0, 0.0]]
    keys = [v.key for v in verdicts(read_record({"dbn": {"W": W, "A": [[[0.1, 0.0], [0.0, 0.1]]]}}))]
    assert "stable" not in keys
    assert "acyclic" in keys


@pytest.mark.parametrize(
    ("privacy", "level", "part"),
    [
        (None, "caution", "second moments"),
        ({"secure_aggregation": True}, "good", "sums over sites only"),
        ({"secure_aggregation": True, "epsilon": 2.0, "delta": 1e-5}, "good", "epsilon 2 at delta 1e-05"),
        ({"epsilon": 0.5}, "caution", "epsilon 0.5"),
    ],
)
def test_what_the_server_learned_follows_the_protection(privacy, level, part):
    found = verdict("revealed", privacy=privacy)
    assert found.level == level
    assert part in found.detail


def test_residuals_are_judged_by_what_they_contradict():
    assert not [v for v in verdicts(read_record(example_result())) if v.key == "residuals"]
    good = verdict("residuals", diagnostics={"residuals": {"violations": [], "noise_memory": None}})
    assert (good.level, good.answer) == ("good", "Yes.")
    cured = verdict("residuals", diagnostics={"residuals": {"violations": [], "noise_memory": 0.6}})
    assert (cured.level, cured.detail) == (
        "good",
        "The noise's memory of 0.60 was taken off before learning.",
    )
    facts = {"violations": ["memory", "tails"], "memory_p": 1e-9, "kurtosis": 12.3, "n_lags_added": 1}
    bad = verdict("residuals", diagnostics={"residuals": facts})
    assert (bad.level, bad.answer) == ("bad", "No.")
    assert bad.detail.startswith(
        "Residuals go along with earlier ones (p 1e-09); the noise has heavy tails (kurtosis up"
    )
    assert (
        verdict("certainty", diagnostics={"residuals": facts}).answer
        == "Less sure than the probabilities say."
    )
    some = verdict("residuals", diagnostics={"residuals": {"violations": ["thirds", "of another version"]}})
    assert (some.level, some.detail) == ("caution", "The noise's variance changes over the recordings.")


def with_open(n: int, method: str = "OneShotDBN") -> Verdict:
    """The verdict on the order where the first n edges within a moment are open."""
    result = example_result()
    W = np.array(result["dbn"]["W"])
    pairs = [[f"x{i}", f"x{j}"] for i, j in np.argwhere(W != 0)[:n]]
    dbn = {**result["dbn"], "open_edges": pairs}
    return verdict("order", dbn=dbn, method=method, diagnostics={"noise_variance": "free"})


def test_links_without_a_direction_are_counted_and_named():
    n_links = np.count_nonzero(example_result()["dbn"]["W"])
    one = with_open(1)
    assert (one.level, one.answer) == ("caution", f"1 of {n_links} links within a moment has no direction.")
    assert "forbidden_edges" in one.advice
    assert "noise_variance='equal'" in one.advice
    many = with_open(6)
    assert many.answer == f"6 of {n_links} links within a moment have no direction."
    assert many.detail.count(" — ") == 4
    assert "and 2 more" in many.detail
    assert "scale='none'" in with_open(2, "FDBNL").advice


def test_an_order_is_identified_where_the_result_says_that_nothing_is_open():
    edges = [{**edge, "oriented": True} for edge in example_result()["edges"]]
    found = verdict("order", edges=edges, diagnostics={"noise_variance": "free"})
    assert (found.level, found.answer) == ("good", "Identified.")


def test_a_link_is_sure_though_its_direction_is_open():
    edges = [
        {**edge, "probability": 0.15, "presence": 1.0, "direction": 0.15}
        for edge in example_result()["edges"]
    ]
    assert verdict("certainty", edges=edges).level == "good"
    without = [{**edge, "probability": 0.15} for edge in example_result()["edges"]]
    assert verdict("certainty", edges=without).level == "caution"
