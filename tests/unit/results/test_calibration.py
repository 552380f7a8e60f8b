"""Claims: probabilities that follow the findings, and when a fit says that the data do not tell."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from feddbn import OneShotDBN, simulate
from feddbn.cli.printed import print_result
from feddbn.errors import ResidualsWarning
from feddbn.findings import Finding
from feddbn.report import plot_process_graph, plot_time_series_graph, render_report
from feddbn.report.graph_plots import NEGATIVE, POSITIVE, graph_svg
from feddbn.report.page import page_data
from feddbn.report.record import read_record
from feddbn.report.verdicts import verdicts
from feddbn.results import calibration
from feddbn.results.calibration import (
    ABSTAINED,
    FEATURES,
    OTHER,
    SILENCE,
    WEAK,
    Calibration,
    Discount,
    abstention,
    claimed,
    contradictions,
    features,
    frozen,
    with_doubts,
)
from feddbn.results.edge_table import pair_ranking
from feddbn.results.result import Result
from support.saying import only

pytestmark = pytest.mark.promise

EDGES = [("a", "b", 0), ("b", "a", 0), ("a", "c", 0), ("c", "a", 0), ("a", "a", 1), ("b", "c", 1)]


def table(**columns):
    found = pd.DataFrame(EDGES, columns=["source", "target", "lag"])
    usual = {
        "weight": [0.5, 0.0, 0.2, 0.0, 0.3, 0.1],
        "probability": [0.9, 0.1, 0.4, 0.4, 1.0, 0.6],
        "strength": 0.1,
        "presence": [1.0, 1.0, 0.8, 0.8, 1.0, 0.6],
        "direction": [0.9, 0.1, 0.5, 0.5, 1.0, 1.0],
        "oriented": [True, True, False, False, True, True],
    }
    return found.assign(**{**usual, **columns})


HIDDEN = pd.DataFrame(
    [
        ("a", "b", 0, 0.5, False),
        ("a", "c", 0, 0.2, True),
        ("a", "a", 1, 0.4, False),
        ("b", "c", 1, 0.1, False),
    ],
    columns=["source", "target", "lag", "robustness", "could_be_hidden"],
)


def discounts(level=1.0, **slopes):
    named = {"own past": -1.0, "in doubt": -2.0, "robustness": 0.7, **slopes}
    return Discount({"memory": level, OTHER: 2.0}, {name: named.get(name, 0.0) for name in FEATURES})


def residuals(**p):
    """A finding about residuals with these p-values."""
    return Finding("residuals", "warning", {"violations": list(p), **{name: {"p": p[name]} for name in p}})


def test_without_a_contradiction_only_weak_edges_lose_a_little():
    found = claimed(table(), HIDDEN, {})
    np.testing.assert_array_equal(found["raw"], table()["probability"])
    np.testing.assert_array_equal(found["direction"], table()["direction"])
    lost = 1 - (found["probability"] / found["raw"]).to_numpy()
    expected = [SILENCE / (1 + (rob / WEAK) ** 12) for rob in (0.5, 0.5, 0.2, 0.2, 0.4, 0.1)]
    np.testing.assert_allclose(lost, expected)
    assert lost[0] < 1e-4 < lost[4] < 1e-3 < 0.06 < lost[2] < lost[5] < 0.07
    assert contradictions([Finding("rests-on-units", "warning"), Finding("own-courses", "note")]) == {}


def test_a_claim_is_the_probability_times_the_share_by_the_findings():
    measured = Calibration(discounts(), discounts(0.3))
    found = claimed(table(), HIDDEN, {"memory": 0.5}, measured).set_index(["source", "target", "lag"])
    r = 1 - 0.5 * (1 - 1 / (1 + np.exp(-(1.0 - 1.0 + 0.7 * np.log(0.4)))))
    assert found.loc[("a", "a", 1), "probability"] == pytest.approx(1.0 * r)
    assert found.loc[("a", "a", 1), "direction"] == 1.0
    # A link without delay has one robustness, whichever way it is read.
    r = 1 - 0.5 * (1 - 1 / (1 + np.exp(-(1.0 - 2.0 + 0.7 * np.log(0.2)))))
    assert (
        found.loc[("a", "c", 0), "presence"] == found.loc[("c", "a", 0), "presence"] == pytest.approx(0.8 * r)
    )
    r, s = (1 - 0.5 * (1 - 1 / (1 + np.exp(-(level + 0.7 * np.log(0.5))))) for level in (1.0, 0.3))
    assert found.loc[("a", "b", 0), "direction"] == pytest.approx(0.5 + 0.4 * s)
    assert found.loc[("a", "b", 0), "probability"] == pytest.approx(r * (0.5 + 0.4 * s))
    assert found.loc[("b", "a", 0), "probability"] == pytest.approx(0.1 * r)
    two = found.loc[("a", "b", 0), "direction"] + found.loc[("b", "a", 0), "direction"]
    assert two == pytest.approx(1.0)


def test_the_finding_that_lowers_most_counts_and_unknown_ones_are_others():
    x = features(with_doubts(table(), HIDDEN))
    measured = discounts()
    one, other = measured.shares(x, {"memory": 1.0}), measured.shares(x, {"something-new": 1.0})
    np.testing.assert_array_equal(
        measured.shares(x, {"memory": 1.0, "something-new": 1.0}), np.minimum(one, other)
    )
    assert (one < other).all()


def test_claims_of_this_version_only_fall_and_keep_the_order_of_probabilities():
    for found in ({"memory": 1.0}, {"hidden": 1.0}, {"curvature": 0.3}, {"memory": 1.0, "anything": 1.0}):
        told = claimed(table(), HIDDEN, found)
        assert (told["probability"] <= told["raw"]).all()
        assert (told["presence"] < table()["presence"]).all()
        less = claimed(table(probability=table()["probability"] / 2), HIDDEN, found)
        assert (less["probability"] <= told["probability"]).all()


def test_what_is_hardly_found_hardly_counts():
    assert contradictions([residuals(memory=0.02)]) == {}
    clear = contradictions([residuals(memory=1e-3, tails=0.0, curvature=1e-12)])
    assert clear == {"memory": pytest.approx(2 / 3), "curvature": 1.0}
    could = Finding("could-be-hidden", "warning")
    assert contradictions([could, Finding("sites-disagree", "warning")]) == {
        "hidden": 1.0,
        "sites-disagree": 1.0,
    }


def test_a_hidden_cause_of_two_lowers_what_is_in_doubt_and_nothing_else():
    of_two = {"causes": [["a", "c"]], "gain": 20.0}
    found = contradictions([Finding("could-be-hidden", "warning", of_two)])
    told, plain = claimed(table(), HIDDEN, found), claimed(table(), HIDDEN, {})
    of_many = claimed(table(), HIDDEN, {"hidden": 1.0})
    is_doubted = told["source"].isin(["a", "c"]) & told["target"].isin(["a", "c"]) & (told["lag"] == 0)
    pd.testing.assert_frame_equal(told[is_doubted], of_many[is_doubted])
    pd.testing.assert_frame_equal(told[~is_doubted], plain[~is_doubted])
    wider = {"causes": [["a", "c"], ["a", "b", "c"]], "gain": 20.0}
    violation = {"violations": ["hidden"], "hidden": wider}
    assert contradictions([Finding("residuals", "warning", violation)]) == {"hidden": 1.0}


def test_the_frozen_file_says_how_it_was_made():
    stored = json.loads(files("feddbn.results").joinpath("calibration-1.json").read_text())
    assert {"version", "command", "seeds", "fits", "families", "contradicted"} <= stored.keys()
    assert stored["version"] == 1
    for part in (frozen().link, frozen().direction):
        assert set(part.slopes) == set(FEATURES)
        assert OTHER in part.levels
        assert max(part.slopes[name] for name in ("own past", "in doubt", "crowded")) <= 0
    assert frozen().link.slopes["robustness"] > 0


def test_a_fit_abstains_where_most_edges_are_claimed_below_one_half():
    low = table(probability=[0.4, 0.1, 0.4, 0.4, 0.4, 0.6])
    # The link without a direction counts as a link: 2 of 4 are low.
    assert abstention(low, {"memory": 1.0}) is None
    told = abstention(low.assign(presence=0.45), {"memory": 1.0})
    assert told.values == {"n_edges": 4, "n_low": 3, "because": ["memory"]}
    assert abstention(table(weight=0.0), {}) is None


@pytest.fixture(scope="module")
def untold():
    """A fit of values measured with errors that remember themselves."""
    drawn = simulate(d=6, n_sites=4, n_samples=2000, mean_degree=2, random_state=3)
    rng, sites = np.random.default_rng(0), {}
    for name, (frame,) in drawn.sites.items():
        error = rng.standard_normal(frame.shape)
        for t in range(1, len(error)):
            error[t] += 0.8 * error[t - 1]
        sites[name] = [frame + 0.7 * error]
    harsh = Calibration(discounts(-2.0), discounts(-2.0))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(calibration, "frozen", lambda: harsh)
        with pytest.warns(ResidualsWarning) as seen:
            model = OneShotDBN(noise_variance="free").fit(sites)
    assert len(seen) >= 2
    return model


def test_what_the_data_do_not_tell_is_said_first_and_drawn_in_grey(untold, tmp_path):
    assert untold.findings_[0].code == ABSTAINED
    edges = untold.edge_probabilities_
    assert (edges["probability"] <= edges["raw"]).all()
    stored = Result.load(Result.from_estimator(untold).save(tmp_path / "result.json"))
    assert stored.findings[0].code == ABSTAINED
    assert {"raw", "probability"} <= stored.edges[0].keys()
    record = read_record(stored)
    assert only(verdicts(record), "verdict-certainty").values["answer"] == "not-told"
    data = page_data(record)
    assert data["is_grey"]
    assert data["has_raw"]
    assert 'class="abstained"' in render_report(stored)
    picture = str(graph_svg(stored.dbn, grey=True))
    assert POSITIVE not in picture
    assert NEGATIVE not in picture
    for draw in (plot_process_graph, plot_time_series_graph):
        coloured, grey = (len(draw(stored.dbn, grey=one).figure.axes) for one in (False, True))
        assert grey == 1 < coloured


def test_the_command_line_says_it_first_and_shows_no_edge_that_is_less_likely_than_not(untold, capsys):
    result = Result.from_estimator(untold)
    print_result(result)
    out, err = capsys.readouterr()
    assert "do not show which" in " ".join(out.splitlines()[:3])
    assert "do not show which" not in err
    n = sum(edge["probability"] < 0.5 for edge in result.edges)
    assert n == len(result.edges) > 0
    assert not [line for line in out.splitlines() if "from" in line and "lag" in line]
    assert f"{n} edges have" in out


def test_rankings_go_by_the_probability_of_the_model(untold):
    raw = untold.edge_probabilities_.assign(probability=untold.edge_probabilities_["raw"])
    names = list(untold.dbn_.variables)
    np.testing.assert_array_equal(
        pair_ranking(untold.edge_probabilities_, names), pair_ranking(raw.drop(columns="raw"), names)
    )


def test_a_clean_fit_claims_what_its_model_says():
    drawn = simulate(d=5, n_sites=4, n_samples=1000, mean_degree=2, random_state=1)
    model = OneShotDBN().fit(drawn.sites)
    edges = model.edge_probabilities_
    assert (edges["probability"] <= edges["raw"]).all()
    assert (edges["probability"] >= (1 - SILENCE) * edges["raw"]).all()
    sure = edges["raw"] > 0.97
    assert (edges.loc[sure, "probability"] > 0.9).all()
    assert ABSTAINED not in model.findings_.codes
