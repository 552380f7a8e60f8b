"""What notebooks show: every card is well-formed, escaped, small, without scripts or requests, and says the numbers."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn import DBN
from feddbn.findings import Finding, Findings
from feddbn.report.graph_plots import BOTH, NEGATIVE, POSITIVE, graph_svg
from feddbn.report.record import read_record
from feddbn.report.verdicts import verdicts
from feddbn.results.result import Result
from feddbn.words import card as words_of
from support.files import doubts_of
from support.mixed_networks import mixed_network
from support.networks import curved, make_curve
from support.report_results import curved_dbn

HOSTILE = ["<script>alert(1)</script>", 'a"b', "x&y' onload=alert(1)"]
VOID = {"br", "hr", "img", "input", "meta", "link"}

pytestmark = [
    pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning"),
]


class Tags(HTMLParser):
    """Every tag with its attributes, and the text outside of styles; refuses tags that are not closed in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def card(value):
    """The parsed card of a value, as a notebook gets it, after the checks that hold for all."""
    bundle = getattr(value, "_repr_mimebundle_", None)
    page = bundle()["text/html"] if bundle else value._repr_html_()
    found = Tags(page)
    assert found.tags[0] == ("div", {"class": "feddbn-card", "style": "max-width:60em;line-height:1.4"})
    kinds = {tag for tag, _ in found.tags}
    assert not kinds & {"script", "iframe", "object", "embed", "link", "img", "form", "a", "foreignobject"}
    assert not any(name.startswith("on") for _, given in found.tags for name in given)
    assert not re.search(r"https?://(?!www\.w3\.org)|@import|url\((?!#)|javascript:", page)
    assert "prefers-color-scheme" not in page
    assert len(page) < 120_000
    return found


@pytest.fixture(scope="module")
def data():
    return feddbn.simulate(d=3, n_sites=4, n_samples=240, random_state=0)


@pytest.fixture(scope="module")
def fitted(data):
    return feddbn.OneShotDBN().fit(data.sites)


def hostile_network():
    return DBN(
        [[0, 0.5, 0], [0, 0, -0.4], [0, 0, 0]],
        [np.diag([0.3, -0.5, 0])],
        HOSTILE,
        open_edges=[(HOSTILE[0], HOSTILE[1])],
    )


def test_names_are_text_whatever_they_contain():
    found = card(hostile_network())
    for name in HOSTILE:
        assert name in found.text
    assert any("3 variables and 4" in given.get("aria-label", "") for _, given in found.tags)


def test_a_network_shows_its_numbers_and_an_open_direction(fitted):
    found = card(hostile_network())
    assert "1 of 2" in found.text
    for weight in ("0.500", "-0.400", "0.300"):
        assert weight in found.text
    assert "✓" in card(fitted.dbn_).text


def test_an_empty_network_says_so_and_draws_nothing():
    found = card(DBN(np.zeros((3, 3)), np.zeros((1, 3, 3))))
    assert "empty" in found.text
    assert "svg" not in {tag for tag, _ in found.tags}
    assert "1 variable, 0 lags" in card(DBN(np.zeros((1, 1)), np.zeros((0, 1, 1)))).text


@pytest.mark.parametrize("network", [curved_dbn, mixed_network], ids=["curves", "kinds"])
def test_networks_of_every_form_are_shown(network):
    assert "source" in card(network()).text


def test_a_network_that_explodes_or_has_cycles_is_shown():
    assert "✗" in card(DBN(np.zeros((2, 2)), [[[1.5, 0], [0.2, 0.1]]])).text
    fully = DBN([[0, 0.4], [0.4, 0]], np.zeros((0, 2, 2)))
    assert words_of(Finding("verdict-acyclic", "error")).question in card(fully).text


def test_a_fitted_estimator_shows_its_result_and_an_unfitted_one_says_what_to_do(fitted):
    found = card(fitted)
    assert found.text.startswith("OneShotDBN learned")
    assert words_of(verdicts(read_record(fitted))[0]).question in found.text
    assert "estimator.dbn_.edges()" in found.text or len(fitted.dbn_.edges()) <= 10
    assert "call fit(data)" in card(feddbn.FDBNL(lambda_w=0.1)).text
    assert "FDBNL(lambda_w=0.1)" in card(feddbn.FDBNL(lambda_w=0.1)).text
    assert fitted._repr_mimebundle_()["text/plain"] == repr(fitted)


def test_a_result_shows_verdicts_warnings_and_the_truth(fitted, data):
    result = Result.from_estimator(fitted, truth=data.truth)
    assert "found" in card(result).text
    warned = Result(
        "OneShotDBN", fitted.dbn_, findings=Findings([Finding("text", "note", {"text": "<i>mind</i> it."})])
    )
    assert "1 finding" in card(warned).text
    assert "<i>mind</i> it." in card(warned).text


def test_findings_show_level_place_and_cure():
    rows = np.random.default_rng(0).normal(size=(200, 2))
    rows[5:8, 0] = -999.0
    found = doubts_of({"<a>": pd.DataFrame(rows, columns=["<b>x</b>", "y"])})
    shown = card(found)
    words = words_of(found[0])
    assert words.detail in shown.text
    assert words.advice in shown.text
    assert "site '<a>'" in shown.text
    assert "✗" not in shown.text
    assert "✗" not in card(type(found)()).text
    assert "✗" in card(type(found)(verdicts(read_record(DBN(np.zeros((3, 3)), np.zeros((1, 3, 3))))))).text


def test_residuals_forecasts_simulations_and_marks_are_shown(data, fitted):
    assert "volatility" in card(fitted.residuals_).text
    ahead = fitted.dbn_.forecast(data.sites["site-0"][0], 3, 0.9)
    assert all(part in card(ahead).text for part in ("3 steps", "90%"))
    assert all(part in card(data).text for part in ("4 sites", "3 variables"))
    graph = data.ancestral_truth()
    assert f"{len(graph.edges())} edges" in card(graph).text
    # Two of them in one page must not share identifiers, or the first lends its parts to the second.
    other = feddbn.AncestralGraph(np.full((2, 2, 2), "", dtype="<U3"), ("a", "b"))
    marks = np.array(other.marks)
    marks[0, 1, 1] = "-->"
    ids = [
        {g["id"] for _, g in card(one).tags if "id" in g}
        for one in (graph, feddbn.AncestralGraph(marks, ("a", "b")))
    ]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_the_picture_has_the_right_arrows_colours_and_heads():
    dbn = DBN(
        [[0, 0.5, 0], [0, 0, -0.4], [0, 0, 0]], np.zeros((1, 3, 3)), list("abc"), open_edges=[("a", "b")]
    )
    root = ElementTree.fromstring(str(graph_svg(dbn)))
    ns = "{http://www.w3.org/2000/svg}"
    arrows = {g.find(f"{ns}title").text: g for g in root.iter(f"{ns}g") if "lag" in g.find(f"{ns}title").text}
    assert len(arrows) == 2
    first, second = (
        next(g for t, g in arrows.items() if t.startswith(start)) for start in ("a — b", "b → c")
    )
    assert [p.get("stroke") or p.get("fill") for p in first] == [None, POSITIVE]
    assert [p.get("stroke") or p.get("fill") for p in second] == [None, NEGATIVE, NEGATIVE]
    # A square has no sign.
    square = make_curve(0, 1, 1, origin=0.0, scale=1.0, coefficients=(0.3,), basis="quadratic")
    bent = str(graph_svg(curved(np.zeros((2, 2)), np.zeros((1, 2, 2)), parts=[square])))
    assert BOTH in bent
    assert POSITIVE not in bent.split("<circle")[0]
