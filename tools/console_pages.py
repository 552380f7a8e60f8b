"""Pictures of every page of the consoles: python tools/console_pages.py OUT

Starts a federation of three sites on this machine with the consoles of its lead and of one owner, and one by files. A lead
writes, checks and sends studies in the console; one finishes, one runs, one is stopped, one is refused. Every page is taken
at 1300 pixels in the light and at 390 pixels in the dark, which needs chromium and playwright. Takes some minutes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from feddbn.cli.data import simulate_demo
from feddbn.cli.site import facts_of
from feddbn.federation.protocol.study import Study, parse_study
from feddbn.runtime.engines.interface import FederationPlan, Process, engine
from feddbn.runtime.engines.local import LocalFederation
from feddbn.runtime.server.plan import dry_round

SITES = ("north", "south", "west")
SIZES = {"wide": (1300, "light"), "phone": (390, "dark")}
PATIENCE_S = 90.0


class Console:
    """One console in a browser, at both sizes."""

    def __init__(self, name: str, address: str, browser: Browser, out: Path) -> None:
        self._name, self._out = name, out
        self._pages: dict[str, Page] = {}
        for size, (width, scheme) in SIZES.items():
            context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
            self._pages[size] = context.new_page()
            self._pages[size].goto(address)
        self.root = self.page.url.rstrip("/")

    @property
    def page(self) -> Page:
        """The wide one, in which buttons are pressed."""
        return self._pages["wide"]

    def take(self, path: str, name: str, wait_for: str = "main") -> None:
        """Take a page at both sizes when something stands on it."""
        for page in self._pages.values():
            page.goto(self.root + path)
            page.wait_for_selector(wait_for, timeout=1000 * PATIENCE_S)
        for size, page in self._pages.items():
            self._shoot(page, name, size)

    def _shoot(self, page: Page, name: str, size: str) -> None:
        page.wait_for_timeout(700)
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > SIZES[size][0]:
            print(f"{self._name}-{name}-{size}: {wide} pixels wide")
        page.screenshot(path=str(self._out / f"{self._name}-{name}-{size}.png"), full_page=True)

    def write(self, label: str = "", **fields: str) -> str:
        """Fill in the form of a study and have it checked; return its text. Both pages are taken under a label."""
        for size, page in self._pages.items():
            page.goto(self.root + "/write")
            for name, value in fields.items():
                field = page.locator(f"form.form [name={name}]")
                tag = field.first.evaluate("e => e.tagName")
                if tag == "SELECT":
                    field.select_option(value)
                else:
                    if name == "more":
                        page.evaluate("document.querySelector('form.form details').open = true")
                    field.fill(value)
            if label:
                self._shoot(page, f"write{label}", size)
            page.click("form.form button")
            page.wait_for_selector("[data-code]", timeout=1000 * PATIENCE_S)
            if label:
                self._shoot(page, f"check{label}", size)
        return self.page.input_value("#text")

    def send(self, run: str) -> None:
        """Send what was checked."""
        if self.page.locator("[name=despite]").count():
            self.page.fill("[name=despite]", "a first try, which the owners know of.")
        self.page.fill("[name=run]", run)
        self.press("form[action$='/send'] button")

    def press(self, button: str) -> None:
        """Press a button."""
        with self.page.expect_navigation(timeout=1000 * PATIENCE_S):
            self.page.click(button)


@contextlib.contextmanager
def opened(
    federation: LocalFederation, name: str, kit: Path, browser: Browser, out: Path
) -> Iterator[Console]:
    """Run `feddbn console` and open what it prints."""
    command = [sys.executable, "-m", "feddbn", "console", "--kit", str(kit), "--port", "0"]
    federation.run(f"{name}-console", Process(command, os.environ))
    end, address = time.monotonic() + PATIENCE_S, ""
    while not address and time.monotonic() < end:
        time.sleep(0.2)
        lines = federation.log(f"{name}-console").read_text().splitlines()
        address = next((line.removeprefix("Open ") for line in lines if line.startswith("Open ")), "")
    yield Console(name, address, browser, out)


def approve(kits: Any, study: Study) -> None:
    """Approve a study at every site."""
    for site in SITES:
        facts_of(kits[site]).owner.approve(study, days=30.0, runs=5, epsilon=None)


ABOUT = {
    "purpose": "Which of these variables acts on which within an hour?",
    "contact": "Ada Byron, ada@example.org, +44 20 7946 0000",
    "retention": "ten years, then deleted",
    "ethics": "EK 2026/117",
}


def data_of(kits: Any) -> str:
    """Give every site its rows; return the names of the variables as the form takes them."""
    drawn = simulate_demo(n_sites=len(SITES), seed=0)
    for site, recordings in zip(SITES, drawn.sites.values(), strict=True):
        place = kits[site] / "data"
        place.mkdir(mode=0o700, exist_ok=True)
        recordings[0].to_csv(place / "recording.csv", index=False)
    return "\n".join(drawn.truth.variables)


def with_server(browser: Browser, root: Path, out: Path) -> None:
    """The consoles of a federation with a server."""
    with LocalFederation(engine(), SITES, root) as federation, contextlib.ExitStack() as stack:
        asked = {**ABOUT, "variables": data_of(federation.kits)}
        federation.start()
        federation.wait_until_up()
        lead = stack.enter_context(opened(federation, "lead", federation.lead_kit, browser, out))
        site = stack.enter_context(opened(federation, "site", federation.kits["north"], browser, out))
        lead.take("/", "empty", "[data-code=site-here]")
        site.take("/", "empty")

        study = parse_study(lead.write("-new", name="blood-pressure", when_missing="abort", **asked))
        lead.press("form[action$='/plan'] button")
        site.take("/", "asked", ".card")
        dry = dry_round(study)
        assert dry is not None
        approve(federation.kits, dry)
        lead.page.wait_for_selector(
            "form[action$='/plan'] button:has-text('again')", timeout=1000 * PATIENCE_S
        )
        lead.press("form[action$='/plan'] button")
        lead.page.wait_for_selector("[data-code=plan-rows]", timeout=1000 * PATIENCE_S)
        lead.take(lead.page.url.removeprefix(lead.root), "planned")
        lead.send("first-look")
        lead.take("/runs/first-look", "not-approved", "form[action$='/resume']")
        site.take("/", "waiting", ".card")
        site.take(f"/studies/{study.digest}", "study")
        approve(federation.kits, study)
        lead.page.goto(lead.root + "/runs/first-look")
        lead.press("form[action$='/resume'] button")
        lead.take("/runs/first-look", "finished", "a[href$='/report']")
        site.take(f"/studies/{study.digest}", "approved")

        rounds = '[parameters]\nschedule = "rounds"\n"rounds.max_rounds" = 4000\n"rounds.tol" = 1e-15\n"rounds.h_tol" = 1e-15'
        slow = parse_study(lead.write(name="by-rounds", method="fdbnl", more=rounds, **asked))
        approve(federation.kits, slow)
        lead.send("slow-one")
        lead.take("/runs/slow-one", "running", ".curve")
        site.take("/", "running", "[data-run]")
        lead.press("form[action$='/stop'] button")
        lead.take("/runs/slow-one", "stopped", "form[action$='/resume']")

        other = parse_study(lead.write(name="other-lags", n_lags="2", when_missing="abort", **asked))
        for one in SITES[1:]:
            facts_of(federation.kits[one]).owner.approve(other, days=30.0, runs=5, epsilon=None)
        facts_of(federation.kits["north"]).owner.offered.keep(other, "lead@example.org")
        site.take(f"/studies/{other.digest}", "changed")
        reason = site.page.locator("form[action$='/refuse'] [name=reason]")
        if reason.count():
            reason.fill("two lags were not part of what our ethics board has seen.")
        site.press("form[action$='/refuse'] button")
        lead.write(name="other-lags", n_lags="2", when_missing="abort", **asked)
        lead.send("refused-one")
        lead.take("/runs/refused-one", "refused", "form[action$='/resume']")

        approve(federation.kits, other)
        lead.press("form[action$='/resume'] button")
        lead.take("/runs/refused-one", "resumed", "a[href$='/report']")
        lead.take("/compare?first=first-look&second=refused-one", "compare", "[data-where]")
        lead.take("/", "federation")
        lead.take("/runs/none", "missing")
        lead.write("-wrong", **{**asked, "name": "wrong", "more": "[parameters]\nn_lag = 1"})
        for path in ("studies", "log", "data", "results"):
            site.take(f"/{path}", path)
        site.take("/results/first-look", "result")
        site.press("form[action$='/learn'] button")
        site.take("/results/first-look", "own-network", "[data-where]")
        site.take("/", "overview")
        federation.stop()
        lead = stack.enter_context(opened(federation, "lead-alone", federation.lead_kit, browser, out))
        lead.take("/", "no-server", ".said.error")


def by_files(browser: Browser, root: Path, out: Path) -> None:
    """The consoles of a federation without a server."""
    files = engine("files")
    plan = FederationPlan("files", "none", SITES)
    kits = files.make_kits(plan, root / "files")
    settings, shared = kits[plan.admin] / "files.toml", root / "shared"
    shared.mkdir()
    settings.write_text(f'folder = "{shared}"\n{settings.read_text()}')
    # Only its processes are used.
    with LocalFederation(engine(), SITES, root / "local") as processes, contextlib.ExitStack() as stack:
        asked = {**ABOUT, "variables": data_of(kits)}
        lead = stack.enter_context(opened(processes, "files-lead", kits[plan.admin], browser, out))
        site = stack.enter_context(opened(processes, "files-site", kits["north"], browser, out))
        lead.take("/", "empty")
        study = parse_study(lead.write("-files", name="by-files", **asked))
        approve(kits, study)
        lead.send("by-files")
        lead.take("/runs/by-files", "asked")
        lead.take("/", "federation")
        site.take("/", "overview")
        site.take("/data", "data")


def main(out: Path) -> None:
    """Take all of them."""
    out.mkdir(parents=True, exist_ok=True)
    chromium = os.environ.get("FEDDBN_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver, tempfile.TemporaryDirectory(prefix="feddbn-pages-") as place:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with_server(browser, Path(place) / "server", out)
        by_files(browser, Path(place) / "by-files", out)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
