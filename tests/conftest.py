"""How many examples Hypothesis draws, and how workers share the tests (`pytest -n 2`)."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

pytest_plugins = ["support.light"]

# The same examples everywhere: what passes here passes in continuous integration. `make test-all` takes "thorough".
settings.register_profile("quick", settings.get_profile("ci"), max_examples=20)
settings.register_profile("thorough", settings.get_profile("ci"), max_examples=200)
settings.load_profile("quick")

# What one worker takes, whatever the file: one starts the engines' federation, one the browser.
TOGETHER = {
    "engine": tuple(f"tests/integration/test_{name}" for name in ("nvflare_", "flower", "deployment_guide")),
    "browser": ("tests/report/",),
}


def group_of(nodeid: str) -> str:
    """The tests that one worker takes together, otherwise those of a file, which share fixtures and caches."""
    alone = nodeid.partition("::")[0]
    return next((name for name, paths in TOGETHER.items() if nodeid.startswith(paths)), alone)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the engines' tests; they wait much and take longest, so they come first."""
    for item in items:
        if group_of(item.nodeid) == "engine":
            item.add_marker(pytest.mark.engine)
    items.sort(key=lambda item: item.get_closest_marker("engine") is None)


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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups of tests by their names; the marks of pytest-xdist 3.8 are not read with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    # In the order of collection: the engines' tests are few in `make test`, and would come last.
    config.option.loadscopereorder = False
    return Groups(config, log)
