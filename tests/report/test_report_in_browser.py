from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feddbn.model.dbn import DBN
from feddbn.model.export import guarded, unguarded
from feddbn.report import write_report
from support.colours import contrast, luminance
from support.report_results import curved_dbn, example_result, random_dbn

pytestmark = [pytest.mark.promise, pytest.mark.slow]

# Names that a spreadsheet would run, and some that it would not.
FORMULAS = ["=1+1", "+2", "-3", "@SUM(A1)", "''-4", "'=5", "plain'-6", "7"]


@dataclass
class Opened:
    """A page with everything it complained about or asked the outside for."""

    page: Any
    seconds: float
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def shown(self) -> int:
        """How many edges the graph says it shows."""
        return int(self.page.inner_text("#shown").split()[1])

    def arrows(self) -> int:
        return self.page.locator("#picture .arrow").count()

    def column(self, k: int) -> list[str]:
        return self.page.locator(f"#table tbody tr td:nth-child({k})").all_inner_texts()


def open_result() -> dict[str, Any]:
    """Four variables: a — b with a huge weight and no direction, b -> c with a tiny one, d alone."""
    W = np.zeros((4, 4))
    W[0, 1], W[1, 2] = 2000.0, 0.0004
    variances = np.array([1.0, 1e6, 1.0, 1.0])
    dbn = DBN(W, np.zeros((1, 4, 4)), list("abcd"), noise_variances=variances, open_edges=[("a", "b")])
    certain = {("a", "b"): (0.15, 1.0, 0.15), ("b", "c"): (0.7, 0.7, 1.0)}
    edges = [
        {**edge, **dict(zip(("probability", "presence", "direction"), numbers, strict=True))}
        for edge in dbn.edges().to_dict("records")
        for numbers in [certain[edge["source"], edge["target"]]]
    ]
    return {"dbn": dbn.to_dict(), "edges": edges}


class Reports(dict[str, Path]):
    """The pages by name, each written when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __missing__(self, name: str) -> Path:
        self[name] = write_report(RESULTS[name](), self._folder / f"{name}.html")
        return self[name]


RESULTS: dict[str, Callable[[], Any]] = {
    "plain": lambda: example_result(d=10),
    "personal": lambda: example_result(d=8, personal=True),
    "large": lambda: example_result(d=100),
    "empty": lambda: {"dbn": {"W": [[0.0, 0.0], [0.0, 0.0]], "A": [[[0.0, 0.0], [0.0, 0.0]]]}},
    "named": lambda: random_dbn(8, names=[f"arterial_pressure_{k}" for k in range(8)]),
    "open": open_result,
    "formulas": lambda: random_dbn(8, names=FORMULAS),
    "curved": curved_dbn,
}


@pytest.fixture(scope="session")
def reports(tmp_path_factory) -> Reports:
    return Reports(tmp_path_factory.mktemp("reports"))


@pytest.fixture
def open_report(browser, reports) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def opened(name: str, width: int = 1280, scheme: str = "light") -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        contexts.append(context)
        page = context.new_page()
        report = Opened(page, 0.0)
        page.on("console", lambda message: report.complaints.append(message.text))
        page.on("pageerror", lambda error: report.complaints.append(str(error)))
        page.on("request", lambda request: report.requests.append(request.url))
        address = reports[name].as_uri()
        start = time.monotonic()
        page.goto(address)
        page.wait_for_selector("#shown:not(:empty)", state="attached")
        report.seconds = time.monotonic() - start
        return report

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize(
    "name", [pytest.param("plain", marks=pytest.mark.smoke), "personal", "large", "empty", "open"]
)
def test_a_report_opens_without_complaints_or_requests(open_report, reports, name):
    report = open_report(name)
    assert report.complaints == []
    assert [url for url in report.requests if not url.startswith("data:")] == [reports[name].as_uri()]


@pytest.mark.smoke
def test_the_page_itself_forbids_requests(open_report):
    report = open_report("plain")
    refused = report.page.evaluate("fetch('https://example.org/').then(() => false, () => true)")
    assert refused
    assert any("Content Security Policy" in text for text in report.complaints)


def test_a_hundred_variables_cost_the_browser_less_than_two_seconds_of_its_own_time(browser, reports):
    page = browser.new_page()
    session = page.context.new_cdp_session(page)
    # Time on the processor instead of time on the clock: other programs do not count.
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(reports["large"].as_uri())
    page.wait_for_selector("#shown:not(:empty)", state="attached")
    metrics = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
    page.close()
    assert 0 < metrics["TaskDuration"] < 2.0


def test_filters_change_the_picture(open_report):
    report = open_report("plain")
    page, everything = report.page, report.shown()
    n_arrows = report.arrows()
    page.uncheck("#lags input[value='0']")
    assert report.shown() < everything
    assert page.locator("#picture .arrow[data-lag='0']").count() == 0
    page.check("#lags input[value='0']")
    assert (report.shown(), report.arrows()) == (everything, n_arrows)
    largest = float(page.get_attribute("#min-weight", "max"))
    page.evaluate(
        "v => { const s = document.getElementById('min-weight'); s.value = v;"
        " s.dispatchEvent(new Event('input')); }",
        0.6 * largest,
    )
    by_weight = report.shown()
    assert 0 < by_weight < everything
    page.click("#reset")
    page.evaluate(
        "() => { const s = document.getElementById('min-probability'); s.value = .9;"
        " s.dispatchEvent(new Event('input')); }"
    )
    sure = sum(e["probability"] >= 0.9 for e in example_result(d=10)["edges"])
    assert report.shown() == sure
    page.click("#reset")
    assert report.shown() == everything


def test_each_site_has_its_own_network(open_report):
    report = open_report("personal")
    shared = report.shown()
    result = example_result(d=8, personal=True)
    report.page.select_option("#network", label="hospital-2")
    own = result["personal"]["hospital-2"]
    assert report.shown() == np.count_nonzero(own["W"]) + np.count_nonzero(own["A"])
    # What is less likely than not is not drawn at first.
    assert shared == sum(edge["probability"] >= 0.5 for edge in result["edges"]) < len(result["edges"])


def test_the_table_sorts_both_ways_and_says_so(open_report):
    report = open_report("plain")
    head = report.page.locator("#table th").nth(0)
    head.locator("button").click()
    names = report.column(1)
    assert names == sorted(names, key=lambda n: int(n[1:]))
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").click()
    assert report.column(1) == names[::-1] or report.column(1) == sorted(names, key=lambda n: -int(n[1:]))
    assert head.get_attribute("aria-sort") == "descending"
    report.page.locator("#table th").nth(3).locator("button").click()
    sizes = [abs(float(v.replace("−", "-"))) for v in report.column(4)]
    assert sizes == sorted(sizes, reverse=True)


def test_the_table_can_be_searched(open_report):
    report = open_report("plain")
    report.page.fill("#search", "x3 lag0")
    expected = [
        e for e in example_result(d=10)["edges"] if "x3" in (e["source"], e["target"]) and e["lag"] == 0
    ]
    assert len(report.column(1)) == len(expected) > 0
    report.page.fill("#search", "no such variable")
    assert report.column(1) == []
    assert report.page.inner_text("#found") == "0 edges."


def test_the_csv_holds_the_rows_of_the_table(open_report, tmp_path):
    report = open_report("plain")
    with report.page.expect_download() as download:
        report.page.click("#csv")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    edges = example_result(d=10)["edges"]
    assert len(rows) == len(edges)
    weights = {(e["source"], e["target"], e["lag"]): e["weight"] for e in edges}
    for row in rows:
        key = (row["source"], row["target"], int(row["lag"]))
        assert float(row["weight"]) == pytest.approx(weights[key], rel=1e-3)


def test_no_cell_of_the_csv_is_a_formula_and_every_name_can_be_read_back(open_report, tmp_path):
    report = open_report("formulas")
    with report.page.expect_download() as download:
        report.page.click("#csv")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    cells = {row[end] for row in rows for end in ("source", "target")}
    assert cells <= {guarded(name) for name in FORMULAS}
    assert {unguarded(cell) for cell in cells} == set(FORMULAS)
    assert not [cell for cell in cells if cell[0] in "=+-@"]


def test_the_keyboard_reaches_a_variable_and_selects_it(open_report):
    page = open_report("plain").page
    page.focus("#reset")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('class')").startswith("node")
    first = page.evaluate("document.activeElement.dataset.i")
    page.keyboard.press("ArrowRight")
    second = page.evaluate("document.activeElement.dataset.i")
    assert second != first
    page.keyboard.press("Enter")
    assert page.inner_text("#panel h3") == f"x{second}"
    assert page.locator("#picture .node.chosen").count() == 1
    page.keyboard.press("Escape")
    assert page.inner_text("#panel h3") == "No variable selected"
    # One stop for the whole graph: the next Tab leaves it.
    page.keyboard.press("Tab")
    assert not (page.evaluate("document.activeElement.getAttribute('class')") or "").startswith("node")


def test_every_control_has_a_name(open_report):
    page = open_report("personal").page
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('input, select, button, [role=button], [role=img]')]
            .filter(e => !(e.labels && e.labels.length))
            .filter(e => !e.getAttribute('aria-label') && !e.textContent.trim())
            .map(e => e.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []


def test_a_click_shows_causes_effects_and_responses(open_report):
    page = open_report("plain").page
    edges = example_result(d=10)["edges"]
    source = next(e["source"] for e in edges if e["lag"] == 0)
    page.locator(f"#picture .node[data-i='{source[1:]}'] .base").click()
    panel = page.inner_text("#panel")
    n_children = sum(e["source"] == source and e["target"] != source for e in edges)
    assert f"Direct effects ({n_children})" in panel
    assert page.locator("#panel .spark").count() > 0


def test_a_variable_can_be_dragged(open_report):
    page = open_report("plain").page
    node = page.locator("#picture .node[data-i='4']")
    node.scroll_into_view_if_needed()
    before = node.locator(".base").bounding_box()
    x, y = before["x"] + before["width"] / 2, before["y"] + before["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 30, y + 20, steps=4)
    page.mouse.up()
    after = node.locator(".base").bounding_box()
    assert after["x"] - before["x"] == pytest.approx(30, abs=2)
    assert after["y"] - before["y"] == pytest.approx(20, abs=2)
    assert page.inner_text("#panel h3") == "No variable selected"


@pytest.mark.parametrize(("width", "scheme", "name"), [(1280, "light", "large"), (400, "dark", "personal")])
def test_nothing_is_wider_than_the_page_and_text_contrasts(open_report, width, scheme, name):
    page = open_report(name, width, scheme).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ink, paper = page.evaluate(
        "() => { const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]; }"
    )
    ratio = contrast(ink, paper)
    assert ratio > 7
    assert (luminance(paper) < 0.2) == (scheme == "dark")


@pytest.mark.parametrize("width", [1280, 400])
def test_no_name_is_cut_off_at_the_edge_of_the_graph(open_report, width):
    page = open_report("named", width).page
    outside = page.evaluate(
        """() => {
            const page = document.getElementById('picture').getBoundingClientRect();
            const names = [...document.querySelectorAll('#picture .node text')];
            return names.filter(t => t.style.display !== 'none')
              .map(t => [t.textContent, t.getBoundingClientRect()])
              .filter(([name, b]) => b.left < page.left || b.right > page.right).map(([name]) => name);
        }"""
    )
    assert outside == []


def test_a_link_without_a_direction_has_no_head_and_is_named_so(open_report):
    page = open_report("open").page
    heads = page.evaluate(
        "() => [...document.querySelectorAll('#picture .arrow .edge')].map(e => e.getAttribute('marker-end'))"
    )
    assert sorted(head is None for head in heads) == [False, True]
    assert page.is_visible("#open-legend")
    page.locator("#picture .arrow.open .hit").dispatch_event("pointerenter")
    tip = page.inner_text("#tip")
    assert "a — b" in tip
    assert "direction" in tip
    assert "link 1.00, direction 0.15" in tip
    page.select_option("#variable", label="b")
    panel = page.inner_text("#panel")
    assert "Causes (0)" in panel
    assert "Direct effects (1)" in panel
    assert "(1)" in panel
    assert "1 of 2" in page.inner_text("#verdict-order")
    titles = page.locator("#table th").all_inner_texts()
    assert titles[3:] == ["Weight", "In sd", "Link", "Direction", "Direction known"]
    assert not open_report("plain").page.is_visible("#open-legend")


def test_arrows_are_compared_in_standard_deviations_or_in_units(open_report):
    page = open_report("open").page

    def widths() -> list[float]:
        found = page.locator("#picture .edge").evaluate_all(
            "es => es.map(e => e.getAttribute('stroke-width'))"
        )
        return sorted(float(width) for width in found)

    thin, thick = widths()
    assert thin > 0.5 * thick
    page.uncheck("#standardised")
    thin, thick = widths()
    assert thin < 0.3 * thick
    assert float(page.get_attribute("#min-weight", "max")) == 2000.0
    page.click("#reset")
    assert page.is_checked("#standardised")
    assert widths()[0] > 0.5 * widths()[1]


def test_printing_shows_every_row_on_white(open_report):
    page = open_report("large", scheme="dark").page
    assert len(page.locator("#table tbody tr").all()) == 200
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("#table tbody tr").count() == len(example_result(d=100)["edges"])
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.is_visible("#csv")
    assert page.is_visible("#run details dl")


def test_curves_are_named_in_the_table_and_have_no_sign_where_they_go_both_ways(open_report):
    opened = open_report("curved")
    heads = opened.page.locator("#table thead th").all_inner_texts()
    shapes = opened.column(1 + [head.strip() for head in heads].index("Shape"))
    assert sorted(shapes) == ["curved", "curved", "linear", "product", "product"]
    assert opened.page.locator("#picture .edge.both").count() == 2
    assert opened.page.locator("#both-legend").is_visible()
    assert opened.page.locator("#curves svg").count() == 1
    assert not opened.complaints
    assert len(opened.requests) == 1  # the page itself
    plain = open_report("plain")
    assert not plain.page.locator("#both-legend").is_visible()
    assert "Shape" not in " ".join(plain.page.locator("#table thead th").all_inner_texts())
