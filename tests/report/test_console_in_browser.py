"""The console in a real browser: clicks, keyboard, phones, dark pages, hostile names and pages."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from feddbn.federation.protocol.study import About
from support.colours import contrast, luminance
from support.console_kits import SCRIPT, SiteKits, served
from support.consortium import ONE_SUM, make_study
from support.study_files import as_toml

pytestmark = pytest.mark.slow

HOSTILE = make_study(name="hostile", lead=SCRIPT, units={"u": f"<img src=x onerror=alert(1)>{SCRIPT}"})
WIDE = tuple(f"variable_{k:02d}" for k in range(12))
LONG = make_study(
    name="long",
    variables=WIDE,
    units=dict.fromkeys(WIDE, "ml/kg/min"),
    about={name: f"The {name}, in some thirty words: " + 9 * "and so on " for name in About.model_fields},
    parameters={"n_lags": 1},
    privacy={"secure_aggregation": True},
)


@dataclass
class Opened:
    """A console in a browser, with everything it complained about, asked for, or popped up."""

    page: Any
    root: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def go(self, path: str) -> Any:
        self.page.goto(self.root + path)
        return self.page

    def is_clean(self) -> bool:
        outside = [url for url in self.requests if not url.startswith(self.root.rsplit("/", 1)[0])]
        assert (self.complaints, outside, self.dialogs) == ([], [], [])
        return True


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """Pages look for news more often than people need."""
    monkeypatch.setattr(import_module("feddbn.console.web"), "EVERY_MS", 300)


@pytest.fixture
def open_console(browser) -> Iterator[Any]:
    contexts = []

    def opened(address: str, width: int = 1280, scheme: str = "light") -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        console = Opened(page, "")
        page.on("console", lambda message: console.complaints.append(message.text))
        page.on("pageerror", lambda error: console.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (console.dialogs.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: console.requests.append(request.url))
        page.goto(address)
        console.root = page.url.rstrip("/")
        return console

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    """A site with a result, a study that waits, one that means harm, and one approved."""
    made = SiteKits(tmp_path_factory.mktemp("kits"))
    approved = make_study(name="earlier")
    made.approve(approved, runs=5)
    made.run(approved, "run-1")
    made.owner().offered.keep(
        make_study(name="again", parameters={**ONE_SUM, "n_lags": 2}), "lead@example.org"
    )
    made.owner().offered.keep(HOSTILE, SCRIPT)
    return made


@pytest.fixture(scope="module")
def address(kits):
    with served(kits.app) as (address, _):
        yield address


def pages(kits):
    studies = [f"/studies/{one.study.digest}" for one in kits.owner().offered.all()]
    return ["/", "/studies", *studies, "/log", "/data", "/results"]


def fits(page, width, scheme):
    """Whether nothing is cut off, ink contrasts with paper, and everything to press or fill in has a name."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width, page.url
    ink, paper = page.evaluate(
        "() => { const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]; }"
    )
    assert contrast(ink, paper) > 7
    assert (luminance(paper) < 0.2) == (scheme == "dark")
    assert page.locator("h1").count() == 1
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('input, textarea, select, button, a, [role=region], [role=img]')]
            .filter(e => e.type !== 'hidden')
            .filter(e => !(e.labels && e.labels.length))
            .filter(e => !e.getAttribute('aria-label') && !e.getAttribute('aria-labelledby') && !e.textContent.trim())
            .map(e => e.outerHTML.slice(0, 90))"""
    )
    assert unnamed == [], page.url


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "dark")])
def test_every_page_fits_contrasts_and_asks_nobody_else(open_console, kits, address, width, scheme):
    console = open_console(address, width, scheme)
    for path in pages(kits):
        page = console.go(path)
        fits(page, width, scheme)
    assert console.is_clean()


def test_the_page_to_be_signed_prints_on_one_sheet(open_console, address, kits):
    """Of a study with twelve variables in units, whose lead has filled in everything."""
    kits.owner().offered.keep(LONG)
    console = open_console(address)
    page = console.go(f"/studies/{LONG.digest}/page")
    printed = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page[^s]", printed)) == 1
    assert LONG.about.purpose in page.inner_text("body")
    assert console.is_clean()


@pytest.mark.smoke
def test_hostile_names_are_text(open_console, address):
    console = open_console(address)
    page = console.go(f"/studies/{HOSTILE.digest}")
    assert SCRIPT in page.inner_text("[data-code=study-headline]")
    assert page.locator("main script, main img").count() == 0
    console.go("/").wait_for_timeout(100)
    assert SCRIPT in page.inner_text("main")
    assert console.is_clean()


@pytest.mark.smoke
def test_a_click_approves_and_another_revokes(open_console, kits, address):
    study = make_study(name="clicked")
    kits.owner().offered.keep(study)
    console = open_console(address)
    page = console.page
    page.reload()
    page.click("text=clicked")
    page.fill("input[name=runs]", "2")
    page.click("button:has-text('Approve')")
    page.wait_for_selector("[data-code=approval-given]")
    (given,) = [
        one for one, state in kits.owner().approvals.all() if one.study == "clicked" and state == "valid"
    ]
    assert (given.runs, given.digest) == (2, study.digest)
    page.click("nav >> text=Studies")
    page.click("[aria-label='Revoke the approval of clicked']")
    page.wait_for_selector("[data-code=approval-revoked]")
    assert "revoked" in {state for one, state in kits.owner().approvals.all() if one.study == "clicked"}
    assert console.is_clean()


def test_the_keyboard_alone_is_enough_to_approve_and_to_refuse(open_console, kits, address):
    for name in ("typed", "declined"):
        kits.owner().offered.keep(make_study(name=name))
    console = open_console(address)
    page = console.page

    def tab_to(words: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            found = page.evaluate("document.activeElement.textContent.trim()")
            if found.startswith(words):
                outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert outline != "none"
                return
        raise AssertionError(f"no way to {words!r} by Tab")

    for name, button, code in (
        ("typed", "Approve", "approval-given"),
        ("declined", "Refuse", "approval-refused"),
    ):
        page.goto(console.root + "/")
        tab_to("Skip to the page")
        page.keyboard.press("Enter")
        tab_to(name)
        page.keyboard.press("Enter")
        page.wait_for_selector(f"h1:has-text('Study {name}')")
        tab_to(button)
        page.keyboard.press("Enter")
        page.wait_for_selector(f"[data-code={code}]")
    assert [state for one, state in kits.owner().approvals.all() if one.study == "typed"] == ["valid"]
    assert console.is_clean()


def test_a_file_is_read_into_the_form(open_console, kits, address, tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(as_toml(make_study(name="from-a-file")))
    console = open_console(address)
    page = console.go("/studies")
    page.set_input_files("input[type=file]", path)
    page.wait_for_function("document.getElementById('text').value.includes('from-a-file')")
    page.click("#add ~ form button, form.stack button")
    page.wait_for_selector("h1:has-text('Study from-a-file')")
    assert console.is_clean()


def test_a_study_that_comes_while_the_page_is_open_appears_by_itself(open_console, kits, address):
    console = open_console(address)
    kits.owner().offered.keep(make_study(name="just-now"))
    console.page.wait_for_selector("text=just-now", timeout=300_000)
    assert console.is_clean()


def test_a_report_opens_without_an_origin_of_its_own(open_console, address):
    console = open_console(address)
    page = console.go("/results/run-1/report")
    page.wait_for_selector("#shown:not(:empty)", state="attached")
    assert console.is_clean()
    assert page.evaluate("window.origin") == "null"
    assert page.evaluate("(() => { try { return document.cookie } catch { return 'none' } })()") == "none"
    console.complaints.clear()
    assert page.evaluate("u => fetch(u).then(() => false, () => true)", console.root + "/")


class Evil(BaseHTTPRequestHandler):
    """A page of another program on this machine, which knows even the path of the console."""

    action = ""
    heard: list[str] = []  # noqa: RUF012

    def do_GET(self):
        self.heard.append(self.headers.get("cookie", ""))
        fields = "<input name=runs value=1><input name=days value=30>"
        body = f"<form method=post action='{self.action}'>{fields}<button>win</button></form>".encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        """Be quiet."""


@pytest.mark.smoke
def test_a_hostile_page_in_the_same_browser_presses_no_button_and_gets_no_cookie(open_console, kits, address):
    study = make_study(name="wanted")
    kits.owner().offered.keep(study)
    console = open_console(address)
    Evil.action, Evil.heard = f"{console.root}/studies/{study.digest}/approve", []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page = console.page
        # The same host with another port: browsers call that the same site.
        there = f"http://127.0.0.1:{server.server_address[1]}"
        page.goto(f"{there}/elsewhere")
        page.click("button")
        page.wait_for_load_state()
        assert page.locator("main").count() == 0
        page.goto(f"{there}/elsewhere")
        assert page.evaluate(
            "u => fetch(u, {credentials: 'include'}).then(() => false, () => true)", console.root + "/"
        )
        frame = """u => new Promise(done => {
            const f = document.createElement('iframe');
            f.src = u;
            f.onload = () => done(f.contentDocument === null);
            document.body.append(f);
        })"""
        assert page.evaluate(frame, console.root + "/")
    finally:
        server.shutdown()
        server.server_close()
    assert set(Evil.heard) == {""}
    assert "wanted" not in {one.study for one, _ in kits.owner().approvals.all()}
