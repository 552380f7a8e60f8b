"""A headless Chromium for the report's browser tests; they skip, with the reason, where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    """The path of a Chromium: FEDDBN_CHROMIUM, or the first one on PATH."""
    named = os.environ.get("FEDDBN_CHROMIUM")
    if named:
        return named
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for path in map(shutil.which, names) if path), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A running browser with a fresh profile (playwright makes and removes one per launch)."""
    executable = chromium()
    if executable is None:
        pytest.skip("no browser: install chromium or set FEDDBN_CHROMIUM to its path")
    api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with api.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=executable, args=FLAGS)
        yield running
        running.close()
