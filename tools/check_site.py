"""Whether a built documentation site is whole and asks nobody else: `python tools/check_site.py out/docs [--browser]`.

In the files: everything that a page loads (scripts, styles, images, fonts) is a file of the site, and every link within the
site leads to a page and to a place on it. In a real browser: pages are opened from the disk; no request but to files of the
site, no error on the console, and the search finds something.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["Page", "broken_links", "outside_requests", "pages_of"]

_IN_STYLES = re.compile(r"""(?:url\(\s*|@import\s+)["']?([^"')\s;]+)""")
_IN_SCRIPTS = re.compile(r"""(?:import|fetch|importScripts)\s*\(?\s*["'`]((?:https?:)?//[^"'`]+)""")
_LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
}
# What a browser does with these is up to a click, or nothing.
_UNLOADED_LINKS = {
    "canonical",
    "index",
    "search",
    "next",
    "prev",
    "genindex",
    "author",
    "license",
    "help",
    "alternate",
}


@dataclass
class Page(HTMLParser):
    """What a page loads, where its links lead, and which places it has."""

    loads: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Start reading."""
        super().__init__()
        self._in: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag loads, links or names."""
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag == "link" and not set(given.get("rel", "").split()) <= _UNLOADED_LINKS:
            self.loads.append(given.get("href", ""))
        if given.get(_LOADS.get(tag, "")):
            self.loads.append(given[_LOADS[tag]])
        self.loads += [part.split()[0] for part in given.get("srcset", "").split(",") if part.split()]
        self.loads += _IN_STYLES.findall(given.get("style", ""))
        self._in = tag if tag in ("style", "script") else None

    def handle_data(self, data: str) -> None:
        """Note what styles and scripts within the page load."""
        if self._in == "style":
            self.loads += _IN_STYLES.findall(data)
        if self._in == "script":
            self.loads += _IN_SCRIPTS.findall(data)

    def handle_endtag(self, tag: str) -> None:
        """Leave a style or a script."""
        self._in = None


def pages_of(site: Path) -> dict[Path, Page]:
    """Return every page of the site, read."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        found[path] = Page()
        found[path].feed(path.read_text(encoding="utf-8"))
    return found


def outside_requests(site: Path) -> list[str]:
    """Return ``file: address`` of everything that is loaded and not a file of the site."""
    loaded = [(path, address) for path, page in pages_of(site).items() for address in page.loads]
    for path in sorted([*site.rglob("*.css"), *site.rglob("*.js")]):
        pattern = _IN_STYLES if path.suffix == ".css" else _IN_SCRIPTS
        loaded += [(path, address) for address in pattern.findall(path.read_text(encoding="utf-8"))]
    return [
        f"{path.relative_to(site)}: {address}"
        for path, address in loaded
        if urlsplit(address).scheme not in ("", "data") or urlsplit(address).netloc
    ]


def broken_links(site: Path) -> list[str]:
    """Return ``file: address`` of links and loads within the site that lead nowhere."""
    pages = pages_of(site)
    broken = []
    for path, page in pages.items():
        for address in [*page.links, *page.loads]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            place = unquote(parts.fragment)
            has_place = not place or target not in pages or place in pages[target].places
            if not target.exists() or not has_place:
                broken.append(f"{path.relative_to(site)}: {address}")
    return broken


def browser_problems(site: Path, most_pages: int) -> Iterator[str]:
    """Yield what goes wrong when pages are opened: requests to elsewhere, errors, a search that finds nothing."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        yield "there is no chromium to open pages with; install it, or leave out --browser"
        return
    found: list[str] = []
    names = [path for path in pages_of(site) if "generated" not in path.parts]
    names += [path for path in pages_of(site) if "generated" in path.parts][:5]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.on(
            "request",
            lambda r: (
                None if r.url.startswith(("file:", "data:", "blob:")) else found.append(f"asks for {r.url}")
            ),
        )
        tab.on("requestfailed", lambda r: found.append(f"did not get {r.url}"))
        tab.on(
            "console",
            lambda m: found.append(f"console: {m.text}") if m.type in ("error", "warning") else None,
        )
        tab.on("pageerror", lambda error: found.append(f"error: {error}"))
        for path in names[:most_pages]:
            tab.goto(path.as_uri())
            yield from (f"{path.relative_to(site)}: {problem}" for problem in found)
            found.clear()
        tab.goto((site / "search.html").as_uri() + "?q=hospital")
        tab.wait_for_selector("ul.search li", timeout=20_000)
        if tab.locator("ul.search li").count() < 3:
            yield "search.html: 'hospital' is found on fewer than three pages"
        yield from (f"search.html: {problem}" for problem in found)
        browser.close()


def main() -> int:
    """Print what is wrong; the exit code says whether something is."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--browser", action="store_true", help="open pages in chromium, too")
    parser.add_argument("--most-pages", type=int, default=1000)
    asked = parser.parse_args()
    site = asked.site.resolve()
    if not (site / "index.html").is_file():
        print(f"{asked.site} has no index.html; build it with `make docs`.", file=sys.stderr)
        return 2
    problems = [f"asks somebody else: {line}" for line in outside_requests(site)]
    problems += [f"leads nowhere: {line}" for line in broken_links(site)]
    if asked.browser:
        problems += browser_problems(site, asked.most_pages)
    print("\n".join(problems) or f"{len(pages_of(site))} pages: whole, and they ask nobody else.")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
