"""How many examples Hypothesis draws, and how workers share the tests (`pytest -n 2`)."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

# The same examples everywhere: what passes here passes in continuous integration. `make test-all` takes "thorough".
settings.register_profile("quick", settings.get_profile("ci"), max_examples=20)
settings.register_profile("thorough", settings.get_profile("ci"), max_examples=200)
settings.load_profile("quick")

# What one worker takes, whatever the file: one starts the browser.
TOGETHER = {"browser": ("tests/report/",)}


def group_of(nodeid: str) -> str:
    """The tests that one worker takes together, otherwise those of a file, which share fixtures and caches."""
    alone = nodeid.partition("::")[0]
    return next((name for name, paths in TOGETHER.items() if nodeid.startswith(paths)), alone)


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> None:
    """Keep what stands when a file begins out of the garbage collector's way; all of it takes a tenth of a second."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Give it back, or DuckDB prints that it leaks at the end."""
    gc.unfreeze()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in one line what was skipped and why."""
    found = Counter(
        one.longrepr[2].removeprefix("Skipped: ") for one in terminalreporter.getreports("skipped")
    )
    if found:
        told = "; ".join(f"{n} x {why}" for why, n in found.most_common())
        terminalreporter.write_line(f"skipped: {told}")


@pytest.fixture
def registries() -> Iterator[None]:
    """What a test registers is forgotten after it."""
    from support.registries import restored

    with restored():
        yield


@pytest.fixture
def umask() -> Iterator[None]:
    """The process's own mask for new files, which tests and `feddbn start` change, is as before after the test."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups of tests by their names; the marks of pytest-xdist 3.8 are not read with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Groups(config, log)
