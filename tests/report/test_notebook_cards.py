"""Cards of a notebook in a real browser: readable on light, dark and narrow pages; nothing runs, nothing is asked for."""

from __future__ import annotations

import numpy as np
import pytest

import feddbn
from feddbn.analysis.confidence import ConfidenceTable

pytestmark = pytest.mark.slow

PAGES = {
    "light": ("rgb(255, 255, 255)", "rgb(17, 17, 17)"),
    "dark": ("rgb(17, 17, 17)", "rgb(224, 224, 224)"),
}
NAMES = ["<script>alert(1)</script>", 'a"b', "<img src=x onerror=alert(1)>"]
COLOURS = """() => [...document.querySelectorAll(".feddbn-card p, .feddbn-card td, .feddbn-card th, .feddbn-card b")]
    .map(e => getComputedStyle(e).color)"""
INK = """() => [...document.querySelectorAll(".feddbn-card text")].map(e => getComputedStyle(e).fill)"""


def cards():
    dbn = feddbn.DBN([[0, 0.5, 0], [0, 0, -0.4], [0, 0, 0]], [np.diag([0.3, -0.5, 0])], NAMES)
    table = ConfidenceTable(
        {"source": NAMES, "target": NAMES, "lag": 1, "weight": 0.5, "probability": [0.1, 0.5, 0.9]}
    )
    return dbn._repr_html_() + table._repr_html_()


@pytest.mark.parametrize("theme", list(PAGES))
@pytest.mark.parametrize("mode", ["<!doctype html>", ""], ids=["standards", "quirks"])
def test_a_card_takes_the_colours_of_its_page(browser, theme, mode):
    paper, ink = PAGES[theme]
    page = browser.new_page(viewport={"width": 900, "height": 700})
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("dialog", lambda dialog: said.append("dialog") or dialog.dismiss())
    page.set_content(f"{mode}<body><div style='background:{paper};color:{ink}'>{cards()}</div></body>")
    assert set(page.evaluate(COLOURS)) == {ink}
    assert set(page.evaluate(INK)) == {ink}
    assert [url for url in asked if not url.startswith("about:")] == []
    assert said == []
    assert page.locator("script, img").count() == 0
    shown = page.locator(".feddbn-card svg").first.bounding_box()
    assert shown["width"] > 200
    assert shown["height"] > 150
    page.set_viewport_size({"width": 380, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    page.close()
